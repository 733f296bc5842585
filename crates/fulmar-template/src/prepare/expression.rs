//! Rewrites the words of one tag, bracket by bracket.

use fulmar_core::Result;
use fulmar_core::limits::{TEMPLATE_CHAIN_MAX, TEMPLATE_NESTING_MAX};

use super::token::{Kind, Tag, Token};
use super::{ITERATE, KEEP, MAKE_DICT, MAKE_LIST, TO_TEXT, check_limit, escape};
use crate::method::{DICT_METHODS, ITEM, PRIVATE, SLICE};

/// Words that end an operand of `~`, besides operators.
const LOOSE_WORDS: [&str; 6] = ["and", "or", "not", "if", "else", "in"];
/// Operators that bind looser than `~`.
const LOOSE_OPERATORS: [&str; 12] = ["+", "-", "==", "!=", "<", ">", "<=", ">=", ",", ":", "=", "~"];

/// The words of one tag.
pub struct Expression<'a> {
    source: &'a str,
    tokens: &'a [Token],
    closer: usize,
    /// The first word of a block tag.
    keyword: Option<&'a str>,
}

/// An open bracket, or the tag itself.
struct Level {
    bracket: Bracket,
    /// Where in the output the operand of `~` that is being written starts.
    operand: usize,
    /// Whether that operand stands next to a `~`.
    is_operand: bool,
    /// How many operators, attributes and filters the current item has.
    chain: usize,
    /// Most in any item, with what its brackets hold.
    longest: usize,
    /// Most in any bracket of the current item.
    inner: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Tag,
    /// A call, a tuple, a list subscript: nothing to close but the bracket.
    Plain,
    /// A list or a dictionary that passes through a function.
    Made,
    /// A slice; how many of its colons were written.
    Slice(usize),
    /// A subscript that became a method call.
    Item,
}

impl<'a> Expression<'a> {
    /// The words of `tag`; `keyword` is the first of a block tag.
    pub fn new(source: &'a str, tag: &'a Tag, keyword: Option<&'a str>) -> Self {
        Self { source, tokens: &tag.tokens, closer: tag.closer, keyword }
    }

    /// Writes them to `out`, up to the closing delimiter.
    ///
    /// # Errors
    /// `LimitExceeded` past the limits of nesting and chains; `Malformed` for an escape that Python refuses.
    pub fn write(&self, out: &mut String) -> Result<()> {
        let wrapped = self.iterated().or_else(|| self.kept());
        let mut levels = vec![Level::new(Bracket::Tag, out.len())];
        for (at, token) in self.tokens.iter().enumerate() {
            if let Some((name, start, _)) = wrapped
                && start == at
            {
                out.push_str(name);
                out.push('(');
                levels.push(Level::new(Bracket::Plain, out.len()));
            }
            self.write_token(out, &mut levels, at)?;
            if wrapped.is_some_and(|(_, _, end)| end == at + 1) {
                close(out, &mut levels);
                out.push(')');
            }
            let next = self.tokens.get(at + 1).map_or(self.closer, |next| next.start);
            out.push_str(&self.source[token.end..next]);
        }
        while !levels.is_empty() {
            let total = close(out, &mut levels);
            check_limit(
                "operators of one expression",
                "follow each other at most",
                total,
                TEMPLATE_CHAIN_MAX,
            )?;
        }
        Ok(())
    }

    fn write_token(&self, out: &mut String, levels: &mut Vec<Level>, at: usize) -> Result<()> {
        let text = self.text(at);
        match (self.tokens[at].kind, text) {
            (Kind::Operator, "(" | "[" | "{") => return self.open(out, levels, at),
            (Kind::Operator, ")" | "]" | "}") => {
                self.close_bracket(out, levels, text);
                return Ok(());
            }
            (Kind::Text, _) => return escape::write_text(out, text),
            _ => {}
        }
        let is_loose = self.is_loose(at);
        let Some(level) = levels.last_mut() else { return Ok(()) };
        if text == "+" && !is_loose && self.tokens[at].kind == Kind::Operator {
            // A sign that changes nothing, which the engine does not know.
            return Ok(());
        }
        if self.is_used_private(at) {
            out.push_str(&format!("{PRIVATE}()"));
            return Ok(());
        }
        if text == "~" {
            level.is_operand = true;
        }
        if is_loose {
            finish_operand(out, level);
            level.is_operand = text == "~";
        }
        match (self.tokens[at].kind, text) {
            (Kind::Operator, ",") => level.end_item(),
            (Kind::Operator, ":") if matches!(level.bracket, Bracket::Slice(_)) => {
                self.write_bound(out, level, at);
                level.operand = out.len();
                return Ok(());
            }
            (Kind::Operator, _) => level.chain += 1,
            (Kind::Name, "and" | "or" | "not" | "if" | "else" | "is" | "in") => level.chain += 1,
            _ => {}
        }
        out.push_str(text);
        if is_loose {
            level.operand = out.len();
        }
        Ok(())
    }

    fn open(&self, out: &mut String, levels: &mut Vec<Level>, at: usize) -> Result<()> {
        let is_postfix = at > 0 && self.ends_operand(at - 1);
        let text = self.text(at);
        let inside = &self.tokens[at + 1..self.matching(at)];
        let bracket = match text {
            "[" if is_postfix && self.has_colon(at) => {
                out.push_str(&format!(".{SLICE}("));
                Bracket::Slice(0)
            }
            "[" if is_postfix && self.is_method_name(inside) => {
                out.push_str(&format!(".{ITEM}("));
                Bracket::Item
            }
            "[" | "{" if !is_postfix && !self.is_constant(inside) => {
                let make = if text == "[" { MAKE_LIST } else { MAKE_DICT };
                out.push_str(&format!("{make}({text}"));
                Bracket::Made
            }
            _ => {
                out.push_str(text);
                Bracket::Plain
            }
        };
        if let Some(level) = levels.last_mut() {
            level.chain += usize::from(is_postfix);
        }
        levels.push(Level::new(bracket, out.len()));
        if bracket == Bracket::Slice(0) && self.is_text(at + 1, ":") {
            out.push_str("none");
        }
        check_limit("brackets", "nest at most", levels.len() - 1, TEMPLATE_NESTING_MAX)
    }

    fn close_bracket(&self, out: &mut String, levels: &mut Vec<Level>, text: &str) {
        let bracket = levels.last().map_or(Bracket::Plain, |level| level.bracket);
        close(out, levels);
        match bracket {
            Bracket::Made => {
                out.push_str(text);
                out.push(')');
            }
            Bracket::Slice(1) => out.push_str(", none)"),
            Bracket::Slice(_) | Bracket::Item => out.push(')'),
            Bracket::Tag | Bracket::Plain => out.push_str(text),
        }
    }

    /// Writes a colon of a slice as the comma between two arguments; what is left out is none.
    fn write_bound(&self, out: &mut String, level: &mut Level, at: usize) {
        let Bracket::Slice(colons) = level.bracket else { return };
        level.bracket = Bracket::Slice(colons + 1);
        level.end_item();
        out.push_str(", ");
        if self.is_text(at + 1, ":") || self.is_text(at + 1, "]") {
            out.push_str("none");
        }
    }

    /// Where what a `for` tag goes over starts and ends, and the function for it.
    fn iterated(&self) -> Option<(&'static str, usize, usize)> {
        if self.keyword != Some("for") {
            return None;
        }
        let start = self.find_outside(1, &["in"])? + 1;
        let end = self.find_outside(start, &["if", "recursive"]).unwrap_or(self.tokens.len());
        (start < end).then_some((ITERATE, start, end))
    }

    /// Where what a `set` tag keeps starts and ends, and the function for it, if it is one value in which a `+` stands.
    fn kept(&self) -> Option<(&'static str, usize, usize)> {
        if self.keyword != Some("set") {
            return None;
        }
        let is_operator =
            |at: usize, text: &str| self.tokens[at].kind == Kind::Operator && self.is_text(at, text);
        let start = (0..self.tokens.len()).find(|&at| is_operator(at, "="))? + 1;
        let mut rest = start..self.tokens.len();
        let has_sum = rest.any(|at| is_operator(at, "+"));
        (has_sum && self.find_outside(start, &[","]).is_none()).then_some((KEEP, start, self.tokens.len()))
    }

    /// The first of `words` at or behind `from` that stands in no bracket.
    fn find_outside(&self, from: usize, words: &[&str]) -> Option<usize> {
        let mut depth = 0_usize;
        for at in from..self.tokens.len() {
            match self.text(at) {
                "(" | "[" | "{" if self.tokens[at].kind == Kind::Operator => depth += 1,
                ")" | "]" | "}" if self.tokens[at].kind == Kind::Operator => depth = depth.saturating_sub(1),
                word if depth == 0 && self.stands_alone(at) && words.contains(&word) => return Some(at),
                _ => {}
            }
        }
        None
    }

    /// Whether the word is a keyword or a comma, and not text that spells one.
    fn stands_alone(&self, at: usize) -> bool {
        self.is_keyword(at) || self.tokens[at].kind == Kind::Operator
    }

    /// The bracket that closes the one at `open`.
    fn matching(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for at in open..self.tokens.len() {
            match self.text(at) {
                "(" | "[" | "{" if self.tokens[at].kind == Kind::Operator => depth += 1,
                ")" | "]" | "}" if self.tokens[at].kind == Kind::Operator => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at;
            }
        }
        self.tokens.len()
    }

    /// Whether the subscript at `open` is a slice.
    fn has_colon(&self, open: usize) -> bool {
        let mut depth = 0_usize;
        for at in open..self.tokens.len() {
            match self.text(at) {
                "(" | "[" | "{" if self.tokens[at].kind == Kind::Operator => depth += 1,
                ")" | "]" | "}" if self.tokens[at].kind == Kind::Operator => depth -= 1,
                ":" if depth == 1 && self.tokens[at].kind == Kind::Operator => return true,
                _ => {}
            }
            if depth == 0 {
                return false;
            }
        }
        false
    }

    /// Whether the only word of a subscript is the name of a dictionary's method.
    fn is_method_name(&self, inside: &[Token]) -> bool {
        let [token] = inside else { return false };
        let text = token.text(self.source);
        token.kind == Kind::Text && DICT_METHODS.contains(&text.get(1..text.len() - 1).unwrap_or_default())
    }

    /// Whether these words hold no name but those of constants, so that the engine makes one value for all renderings.
    fn is_constant(&self, inside: &[Token]) -> bool {
        let is_constant = |token: &Token| {
            let text = token.text(self.source);
            match token.kind {
                Kind::Name => matches!(text, "true" | "True" | "false" | "False" | "none" | "None"),
                Kind::Operator => matches!(text, "," | ":" | "-"),
                Kind::Number | Kind::Text => true,
            }
        };
        inside.iter().all(is_constant)
    }

    /// Whether the word is an attribute such as `__class__` of which more is asked: in jinja2 a private attribute is
    /// undefined, and forbidden only once it is used.
    fn is_used_private(&self, at: usize) -> bool {
        let text = self.text(at);
        let is_private = text.len() > 4 && text.starts_with("__") && text.ends_with("__");
        is_private
            && at > 0
            && self.is_text(at - 1, ".")
            && (self.is_text(at + 1, ".") || self.is_text(at + 1, "["))
    }

    /// Whether an operator behind this word has an operand before it.
    fn ends_operand(&self, at: usize) -> bool {
        match self.tokens[at].kind {
            Kind::Number | Kind::Text => true,
            Kind::Name => {
                !self.is_keyword(at) || !LOOSE_WORDS.contains(&self.text(at)) && self.text(at) != "is"
            }
            Kind::Operator => matches!(self.text(at), ")" | "]" | "}"),
        }
    }

    /// Whether the word is a name that stands where a keyword may: behind no dot, bar or test.
    fn is_keyword(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map_or("", |before| self.text(before));
        self.tokens[at].kind == Kind::Name && !matches!(before, "." | "|")
    }

    /// Whether the word ends an operand of `~`.
    fn is_loose(&self, at: usize) -> bool {
        let text = self.text(at);
        match self.tokens[at].kind {
            Kind::Name => {
                let follows_is = at > 0 && self.text(at - 1) == "is";
                let starts_tag = at == 0 && self.keyword.is_some();
                starts_tag || (self.is_keyword(at) && !follows_is && LOOSE_WORDS.contains(&text))
            }
            Kind::Operator if matches!(text, "+" | "-") => at > 0 && self.ends_operand(at - 1),
            Kind::Operator => LOOSE_OPERATORS.contains(&text),
            Kind::Number | Kind::Text => false,
        }
    }

    fn is_text(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.text(self.source) == text)
    }

    fn text(&self, at: usize) -> &'a str {
        self.tokens[at].text(self.source)
    }
}

impl Level {
    fn new(bracket: Bracket, operand: usize) -> Self {
        Self { bracket, operand, is_operand: false, chain: 0, longest: 0, inner: 0 }
    }

    fn end_item(&mut self) {
        self.longest = self.longest.max(self.chain + self.inner);
        self.chain = 0;
        self.inner = 0;
    }
}

/// Puts the operand that was just written through the function that prints it, if it stands next to a `~`.
fn finish_operand(out: &mut String, level: &mut Level) {
    if !level.is_operand {
        return;
    }
    let operand = &out[level.operand..];
    let start = level.operand + operand.len() - operand.trim_start().len();
    let end = level.operand + operand.trim_end().len();
    if start < end {
        out.insert(end, ')');
        out.insert_str(start, &format!("{TO_TEXT}("));
    }
}

/// Ends the innermost bracket; the length of its longest chain.
fn close(out: &mut String, levels: &mut Vec<Level>) -> usize {
    let Some(mut level) = levels.pop() else { return 0 };
    finish_operand(out, &mut level);
    level.end_item();
    let total = level.longest + 1;
    if let Some(outer) = levels.last_mut() {
        outer.inner = outer.inner.max(total);
    }
    total
}
