//! Writes one tag for the engine.

use fulmar_core::{Error, ErrorKind, Result};

use super::node::{Argument, Node, Parser};
use super::token::{Kind, Tag};
use super::write::Writer;
use super::{ASSIGN, BLOCK_VALUE, ITERATE, NO_LOADER};

/// A namespace with the attribute that a block's `endset` sets.
#[derive(Debug)]
pub struct Target {
    /// The name of the namespace.
    pub namespace: String,
    /// The name of the attribute.
    pub attribute: String,
}

/// The kind of a written tag.
#[derive(Debug, Default)]
pub struct Written {
    /// `true` if it is a `set` that ends with an `endset`.
    pub is_block_set: bool,
    /// The target of that assignment, if it is an attribute.
    pub target: Option<Target>,
}

/// Writes the words between the delimiters of `tag`; `keyword` is the first word of a block tag.
///
/// # Errors
/// `Malformed` for text that violates Jinja's grammar; `LimitExceeded` past the limits of nesting and chains;
/// `Incompatible` for `autoescape` that is not false.
pub fn write(source: &str, tag: &Tag, keyword: Option<&str>, out: &mut String) -> Result<Written> {
    let start = tag.tokens.first().map_or(tag.closer, |token| token.start);
    let mut statement = Statement {
        source,
        tag,
        parser: Parser::new(source, &tag.tokens, usize::from(keyword.is_some())),
        writer: Writer::new(source, out, start),
    };
    let mut written = Written::default();
    match keyword {
        None => statement.value(true)?,
        Some("if" | "elif") => {
            statement.copy(0, 1);
            statement.value(false)?;
        }
        Some("for") => statement.loop_head()?,
        Some("set") => written = statement.set()?,
        Some("macro") => statement.macro_head()?,
        Some("call") => statement.call_head()?,
        Some("with") => statement.with()?,
        Some("filter") => {
            statement.writer.push("filter ");
            statement.filters()?;
        }
        Some("autoescape") => statement.autoescape()?,
        Some("endautoescape") => statement.writer.push("endif"),
        Some("include" | "import" | "from" | "extends") => {
            // transformers gives jinja2 no loader, so these fail once they are reached.
            statement.writer.push(&format!("if {NO_LOADER}() %}}{{% endif"));
            statement.parser = Parser::new(source, &tag.tokens, tag.tokens.len());
        }
        // The engine has no expression after these tags.
        Some(_) => {
            statement.copy(0, tag.tokens.len());
            statement.parser = Parser::new(source, &tag.tokens, tag.tokens.len());
        }
    }
    if !statement.parser.is_done() {
        return Err(statement.parser.unexpected());
    }
    statement.writer.catch_up(tag.closer);
    if tag.tokens.last().is_some_and(|last| last.end < tag.closer) {
        statement.writer.push(" ");
    }
    Ok(written)
}

struct Statement<'a, 'o> {
    source: &'a str,
    tag: &'a Tag,
    parser: Parser<'a>,
    writer: Writer<'a, 'o>,
}

impl<'a> Statement<'a, '_> {
    /// Copies the words `from..to`.
    fn copy(&mut self, from: usize, to: usize) {
        for token in &self.tag.tokens[from..to] {
            self.writer.catch_up(token.start);
            self.writer.push(token.text(self.source));
            self.writer.push(" ");
        }
    }

    fn value(&mut self, has_condition: bool) -> Result<()> {
        let value = self.parser.tuple(has_condition)?;
        self.writer.expression(&value)
    }

    /// Returns the first of `words` from index `from` on that is outside of brackets.
    fn find_outside(&self, from: usize, wanted: &str) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, token) in self.tag.tokens.iter().enumerate().skip(from) {
            match (token.kind, token.text(self.source)) {
                (Kind::Operator, "(" | "[" | "{") => depth += 1,
                (Kind::Operator, ")" | "]" | "}") => depth = depth.saturating_sub(1),
                (Kind::Operator | Kind::Name, word) if depth == 0 && word == wanted => return Some(at),
                _ => {}
            }
        }
        None
    }

    /// Copies the assignment targets in the words `from..to`: names with commas and brackets.
    fn targets(&mut self, from: usize, to: usize) -> Result<()> {
        for (at, token) in self.tag.tokens.iter().enumerate().take(to).skip(from) {
            let is_allowed = token.kind == Kind::Name || matches!(token.text(self.source), "," | "(" | ")");
            if !is_allowed {
                return Err(Parser::new(self.source, &self.tag.tokens, at).unexpected());
            }
        }
        self.copy(from, to);
        Ok(())
    }

    fn loop_head(&mut self) -> Result<()> {
        let Some(start) = self.find_outside(1, "in") else { return Err(self.parser.unexpected()) };
        self.copy(0, 1);
        self.targets(1, start)?;
        self.writer.push(&format!("in {ITERATE}("));
        self.parser = Parser::new(self.source, &self.tag.tokens, start + 1);
        self.value(false)?;
        self.writer.push(")");
        if self.parser.skip("if") {
            self.writer.push(" if ");
            let condition = self.parser.expression()?;
            self.writer.expression(&condition)?;
        }
        if self.parser.skip("recursive") {
            self.writer.push(" recursive");
        }
        Ok(())
    }

    fn set(&mut self) -> Result<Written> {
        let assignment = self.find_outside(1, "=");
        let end = assignment.unwrap_or(self.tag.tokens.len());
        if let Some(target) = self.attribute_target(end) {
            self.writer.push(&format!("set {BLOCK_VALUE}"));
            self.parser = Parser::new(self.source, &self.tag.tokens, 4);
            if assignment.is_none() {
                self.block_filters()?;
                return Ok(Written { is_block_set: true, target: Some(target) });
            }
            self.parser.skip("=");
            self.writer.push(&format!(" = {ASSIGN}({}, \"{}\", ", target.namespace, target.attribute));
            let value = self.parser.tuple(true)?;
            self.writer.expression(&value)?;
            self.writer.push(")");
            return Ok(Written::default());
        }
        self.copy(0, 1);
        let Some(at) = assignment else {
            let name = self.parser.name()?;
            self.writer.push(name);
            self.block_filters()?;
            return Ok(Written { is_block_set: true, target: None });
        };
        self.targets(1, at)?;
        self.writer.push("= ");
        self.parser = Parser::new(self.source, &self.tag.tokens, at + 1);
        self.value(true)?;
        Ok(Written::default())
    }

    /// Returns the `namespace.attribute` before word `end`, if there is one.
    fn attribute_target(&self, end: usize) -> Option<Target> {
        let words: Vec<&str> =
            self.tag.tokens.iter().take(end.max(4)).map(|token| token.text(self.source)).collect();
        match words.as_slice() {
            [_, namespace, ".", attribute] => {
                Some(Target { namespace: (*namespace).to_owned(), attribute: (*attribute).to_owned() })
            }
            _ => None,
        }
    }

    /// Writes the filters of a `set` with a body.
    fn block_filters(&mut self) -> Result<()> {
        if self.parser.skip("|") {
            self.writer.push(" | ");
            self.filters()?;
        }
        Ok(())
    }

    fn filters(&mut self) -> Result<()> {
        for (at, (name, arguments)) in self.parser.filters()?.iter().enumerate() {
            if at > 0 {
                self.writer.push(" | ");
            }
            self.writer.push(name);
            if !arguments.is_empty() {
                self.writer.arguments(arguments)?;
            }
        }
        Ok(())
    }

    fn macro_head(&mut self) -> Result<()> {
        let name = self.parser.name()?;
        self.writer.push(&format!("macro {name}"));
        self.signature()
    }

    fn call_head(&mut self) -> Result<()> {
        self.writer.push("call");
        if self.parser.peek() == "(" {
            self.signature()?;
        }
        self.writer.push(" ");
        let call = self.parser.expression()?;
        self.writer.expression(&call)
    }

    /// Writes parameters with their brackets and defaults.
    fn signature(&mut self) -> Result<()> {
        let parameters = self.parser.signature()?;
        self.writer.push("(");
        for (at, (name, default)) in parameters.iter().enumerate() {
            if at > 0 {
                self.writer.push(", ");
            }
            self.writer.push(name);
            if let Some(default) = default {
                self.writer.push("=");
                self.writer.expression(default)?;
            }
        }
        self.writer.push(")");
        Ok(())
    }

    fn with(&mut self) -> Result<()> {
        self.writer.push("with ");
        let mut is_first = true;
        while !self.parser.is_done() {
            if !is_first {
                if !self.parser.skip(",") {
                    return Err(self.parser.unexpected());
                }
                self.writer.push(", ");
            }
            is_first = false;
            let name = self.parser.name()?;
            if !self.parser.skip("=") {
                return Err(self.parser.unexpected());
            }
            self.writer.push(&format!("{name} = "));
            let value = self.parser.expression()?;
            self.writer.expression(&value)?;
        }
        Ok(())
    }

    fn autoescape(&mut self) -> Result<()> {
        let shown = self.parser.peek();
        if !(self.parser.skip("false") || self.parser.skip("False")) {
            let detail =
                format!("autoescape must be false, as a chat template prints text as it is: got {shown:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        self.writer.push("if true");
        Ok(())
    }
}

/// The filters after a name, with their arguments.
pub type Filters<'a> = Vec<(String, Vec<Argument<'a>>)>;

/// The parameters of a macro, with their defaults.
pub type Signature<'a> = Vec<(&'a str, Option<Node<'a>>)>;
