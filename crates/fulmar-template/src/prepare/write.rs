//! Writes expressions for the engine: each operator that may read more than a word becomes a filter of this
//! crate.

use fulmar_core::Result;

use super::escape;
use super::node::{Argument, Form, Node};
use super::{ITERATE, MAKE_DICT, MAKE_INTEGER, MAKE_LIST, MAKE_TUPLE, SPLAT};
use crate::method::{DICT_METHODS, ITEM, PRIVATE, SLICE};
use crate::operator;

/// Maximum number of words in a list or a dictionary of constants that the engine makes once for all
/// renderings.
const CONSTANT_WORDS_MAX: usize = 64;
/// Maximum number of digits of an integer that the engine parses.
const ENGINE_DIGITS_MAX: usize = 38;

/// The engine's binding strength of the written text, loosest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Condition,
    Or,
    And,
    Not,
    Compare,
    Filter,
    Postfix,
}

/// Writes the expressions of one tag, with line ends at the positions of the source.
pub struct Writer<'a, 'o> {
    source: &'a str,
    out: &'o mut String,
    /// The position up to which the source's line ends are written.
    at: usize,
}

impl<'a, 'o> Writer<'a, 'o> {
    /// Returns a writer that starts at byte `at` of `source`.
    pub fn new(source: &'a str, out: &'o mut String, at: usize) -> Self {
        Self { source, out, at }
    }

    /// Writes text that is not in the source.
    pub fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes the line ends of the source up to byte `to`.
    pub fn catch_up(&mut self, to: usize) {
        if self.at < to {
            let lines = self.source[self.at..to].bytes().filter(|byte| *byte == b'\n').count();
            self.out.extend(std::iter::repeat_n('\n', lines));
            self.at = to;
        }
    }

    /// Writes an expression.
    ///
    /// # Errors
    /// `Malformed` for an escape that Python refuses.
    pub fn expression(&mut self, node: &Node) -> Result<()> {
        self.at_least(node, Level::Condition)
    }

    /// Writes a node, in brackets if the engine binds it more loosely than `level`.
    fn at_least(&mut self, node: &Node, level: Level) -> Result<()> {
        let is_bracketed = level_of(node) < level;
        if is_bracketed {
            self.push("(");
        }
        self.node(node)?;
        if is_bracketed {
            self.push(")");
        }
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        match &node.form {
            Form::Name(name) => self.word(node, name),
            Form::Number(number) => self.number(node, number),
            Form::Text(texts) => return self.texts(node, texts),
            Form::Tuple(items) => return self.made(MAKE_TUPLE, node, "(", items, ")"),
            Form::List(items) => return self.made(MAKE_LIST, node, "[", items, "]"),
            Form::Dict(items) => return self.dict(node, items),
            Form::Attribute(base, name) => {
                self.base(base)?;
                self.push(".");
                self.push(name);
            }
            Form::Item(base, key) => return self.item(base, key),
            Form::Slice(base, bounds) => return self.slice(base, bounds),
            Form::Call(base, arguments) => return self.call(base, arguments),
            Form::Filter(base, name, arguments) => {
                self.at_least(base, Level::Filter)?;
                self.push("|");
                self.push(name);
                if !arguments.is_empty() {
                    self.arguments(arguments)?;
                }
            }
            Form::Test(base, name, arguments, is_negated) => {
                self.at_least(base, Level::Filter)?;
                self.push(if *is_negated { " is not " } else { " is " });
                self.push(name);
                self.arguments(arguments)?;
            }
            Form::Negative(base) => return self.negative(base),
            Form::Positive(base) => return self.filter(base, operator::POSITIVE, &[]),
            Form::Not(base) => {
                self.push("not ");
                self.at_least(base, Level::Not)?;
            }
            Form::And(items) => return self.joined(items, " and ", Level::Not),
            Form::Or(items) => return self.joined(items, " or ", Level::And),
            Form::Concat(items) => {
                let (first, rest) = (&items[0], items[1..].iter().collect::<Vec<_>>());
                return self.filter(first, operator::CONCAT, &rest);
            }
            Form::Binary(name, left, right) => return self.filter(left, operator::filter_of(name), &[right]),
            Form::Compare(first, others) => return self.compare(first, others),
            Form::Condition(pair, otherwise) => {
                self.at_least(&pair[0], Level::Or)?;
                self.push(" if ");
                self.at_least(&pair[1], Level::Or)?;
                if let Some(otherwise) = otherwise {
                    self.push(" else ");
                    self.expression(otherwise)?;
                }
            }
        }
        Ok(())
    }

    fn word(&mut self, node: &Node, word: &str) {
        self.catch_up(node.start);
        self.push(word);
    }

    fn number(&mut self, node: &Node, number: &str) {
        let digits = number.replace('_', "");
        let is_large = digits.len() > ENGINE_DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_large {
            self.word(node, &format!("{MAKE_INTEGER}(\"{digits}\")"));
        } else {
            self.word(node, number);
        }
    }

    fn texts(&mut self, node: &Node, texts: &[&str]) -> Result<()> {
        self.catch_up(node.start);
        for (at, text) in texts.iter().enumerate() {
            if at > 0 {
                self.push(" ");
            }
            let written = self.out.len();
            escape::write_text(self.out, text)?;
            // A copied text contains its own line ends.
            let lines = self.out[written..].matches('\n').count();
            debug_assert!(lines == 0 || lines == text.matches('\n').count());
            if lines > 0 {
                self.at = self.at.max(text.as_ptr() as usize - self.source.as_ptr() as usize + text.len());
            }
        }
        Ok(())
    }

    /// Writes items in brackets, inside a function of this crate unless they are a few constants.
    fn made(&mut self, function: &str, node: &Node, open: &str, items: &[Node], close: &str) -> Result<()> {
        self.catch_up(node.start);
        let is_made = !is_constant(node);
        if is_made {
            self.push(function);
            self.push("(");
        }
        self.push(open);
        self.list(items)?;
        if items.len() == 1 && open == "(" {
            self.push(",");
        }
        self.push(close);
        if is_made {
            self.push(")");
        }
        Ok(())
    }

    /// Writes a dictionary as a list of alternating keys and values, as the engine would hash the keys.
    fn dict(&mut self, node: &Node, items: &[Node]) -> Result<()> {
        self.word(node, MAKE_DICT);
        self.push("([");
        self.list(items)?;
        self.push("])");
        Ok(())
    }

    fn list(&mut self, items: &[Node]) -> Result<()> {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.push(", ");
            }
            self.expression(item)?;
        }
        Ok(())
    }

    fn joined(&mut self, items: &[Node], between: &str, level: Level) -> Result<()> {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.push(between);
            }
            self.at_least(item, level)?;
        }
        Ok(())
    }

    /// Writes the receiver of an attribute or an item: a private attribute is undefined, and forbidden once
    /// it is used.
    fn base(&mut self, base: &Node) -> Result<()> {
        match &base.form {
            Form::Attribute(owner, name) if is_private(name) => {
                self.base(owner)?;
                self.push(&format!(".{PRIVATE}()"));
                Ok(())
            }
            _ => self.at_least(base, Level::Postfix),
        }
    }

    fn item(&mut self, base: &Node, key: &Node) -> Result<()> {
        self.base(base)?;
        if is_plain_key(key) {
            self.push("[");
            self.expression(key)?;
            self.push("]");
        } else {
            self.push(&format!(".{ITEM}("));
            self.expression(key)?;
            self.push(")");
        }
        Ok(())
    }

    fn slice(&mut self, base: &Node, bounds: &[Option<Box<Node>>; 3]) -> Result<()> {
        self.base(base)?;
        self.push(&format!(".{SLICE}("));
        for (at, bound) in bounds.iter().enumerate() {
            if at > 0 {
                self.push(", ");
            }
            match bound {
                Some(bound) => self.expression(bound)?,
                None => self.push("none"),
            }
        }
        self.push(")");
        Ok(())
    }

    fn call(&mut self, base: &Node, arguments: &[Argument]) -> Result<()> {
        self.at_least(base, Level::Postfix)?;
        match (&base.form, arguments) {
            // The next round of a recursive loop, without a `for` tag.
            (Form::Name("loop"), [argument]) if argument.prefix.is_empty() => {
                self.push(&format!("({ITERATE}("));
                self.expression(&argument.value)?;
                self.push("))");
                Ok(())
            }
            _ => self.arguments(arguments),
        }
    }

    /// Writes arguments with their brackets.
    ///
    /// # Errors
    /// The errors of [`Writer::expression`].
    pub fn arguments(&mut self, arguments: &[Argument]) -> Result<()> {
        self.push("(");
        for (at, argument) in arguments.iter().enumerate() {
            if at > 0 {
                self.push(", ");
            }
            self.push(&argument.prefix);
            let is_splat = argument.prefix.starts_with('*');
            if is_splat {
                self.at_least(&argument.value, Level::Filter)?;
                self.push("|");
                self.push(SPLAT);
            } else {
                self.expression(&argument.value)?;
            }
        }
        self.push(")");
        Ok(())
    }

    fn negative(&mut self, base: &Node) -> Result<()> {
        if let Form::Number(number) = base.form
            && number.len() < ENGINE_DIGITS_MAX
        {
            self.catch_up(base.start);
            self.push("-");
            self.push(number);
            return Ok(());
        }
        self.filter(base, operator::NEGATIVE, &[])
    }

    fn filter(&mut self, base: &Node, name: &str, arguments: &[&Node]) -> Result<()> {
        self.at_least(base, Level::Filter)?;
        self.push("|");
        self.push(name);
        for (at, argument) in arguments.iter().enumerate() {
            self.push(if at > 0 { ", " } else { "(" });
            self.expression(argument)?;
        }
        if !arguments.is_empty() {
            self.push(")");
        }
        Ok(())
    }

    fn compare(&mut self, first: &Node, others: &[(&str, Node)]) -> Result<()> {
        if is_engine_comparison(first, others) {
            self.at_least(first, Level::Filter)?;
            for (name, other) in others {
                self.push(&format!(" {name} "));
                self.at_least(other, Level::Filter)?;
            }
            return Ok(());
        }
        if let [(name, other)] = others {
            return self.filter(first, operator::filter_of(name), &[other]);
        }
        if has_simple_middles(others) {
            let mut left = first;
            for (at, (name, other)) in others.iter().enumerate() {
                self.push(if at > 0 { " and " } else { "" });
                self.filter(left, operator::filter_of(name), &[other])?;
                left = other;
            }
            return Ok(());
        }
        self.at_least(first, Level::Filter)?;
        self.push("|");
        self.push(operator::CHAIN);
        for (at, (name, other)) in others.iter().enumerate() {
            self.push(if at > 0 { ", " } else { "(" });
            self.push(&format!("\"{name}\", "));
            self.expression(other)?;
        }
        self.push(")");
        Ok(())
    }
}

fn level_of(node: &Node) -> Level {
    match &node.form {
        Form::Condition(..) => Level::Condition,
        Form::Or(_) => Level::Or,
        Form::And(_) => Level::And,
        Form::Not(_) => Level::Not,
        Form::Compare(first, others) if is_engine_comparison(first, others) => Level::Compare,
        Form::Compare(_, others) if others.len() > 1 && has_simple_middles(others) => Level::And,
        Form::Compare(..)
        | Form::Filter(..)
        | Form::Test(..)
        | Form::Negative(_)
        | Form::Positive(_)
        | Form::Concat(_)
        | Form::Binary(..) => Level::Filter,
        _ => Level::Postfix,
    }
}

/// Returns whether the engine may compare by itself: with a constant, which takes time only in the length of
/// the constant.
fn is_engine_comparison(first: &Node, others: &[(&str, Node)]) -> bool {
    match others {
        [("==" | "!=", other)] => is_scalar(first) || is_scalar(other),
        [("in" | "not in", other)] => {
            matches!(other.form, Form::List(_) | Form::Tuple(_)) && is_constant(other)
        }
        _ => false,
    }
}

/// Returns whether the middle operands of a chain may be written twice: names, their attributes, or scalars.
fn has_simple_middles(others: &[(&str, Node)]) -> bool {
    fn is_simple(node: &Node) -> bool {
        match &node.form {
            Form::Name(_) => true,
            Form::Attribute(base, _) => matches!(base.form, Form::Name(_)),
            _ => is_scalar(node),
        }
    }
    others[..others.len() - 1].iter().all(|(_, middle)| is_simple(middle))
}

fn is_scalar(node: &Node) -> bool {
    match &node.form {
        Form::Text(_) => true,
        Form::Number(number) => number.len() <= ENGINE_DIGITS_MAX,
        Form::Name(name) => matches!(*name, "true" | "True" | "false" | "False" | "none" | "None"),
        Form::Negative(base) => matches!(base.form, Form::Number(number) if number.len() < ENGINE_DIGITS_MAX),
        _ => false,
    }
}

/// Returns whether a list or a tuple holds only a few scalars.
fn is_constant(node: &Node) -> bool {
    match &node.form {
        Form::List(items) | Form::Tuple(items) => {
            items.len() <= CONSTANT_WORDS_MAX && items.iter().all(is_scalar)
        }
        _ => false,
    }
}

/// Returns whether a subscript is a text that names no method of dictionaries.
fn is_plain_key(key: &Node) -> bool {
    let Form::Text(texts) = &key.form else { return false };
    let [text] = texts.as_slice() else { return false };
    !text.contains('\\') && !DICT_METHODS.contains(&&text[1..text.len() - 1])
}

/// Returns whether an attribute is one like `__class__`.
fn is_private(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}
