//! Expressions in jinja2's grammar: a tree with limited depth.

use fulmar_core::limits::{TEMPLATE_CHAIN_MAX, TEMPLATE_NESTING_MAX};
use fulmar_core::{Error, ErrorKind, Result};

use super::check_limit;
use super::statement::{Filters, Signature};
use super::token::{Kind, Token};

/// Words with which no expression starts.
const RESERVED: [&str; 6] = ["and", "or", "if", "else", "in", "is"];

/// An expression. Texts and names are slices of the source.
#[derive(Debug)]
pub struct Node<'a> {
    /// The form of the expression.
    pub form: Form<'a>,
    /// The byte of the source at which its first own word starts.
    pub start: usize,
    /// Number of operators on the longest path down, itself included.
    depth: usize,
}

/// The form of an expression.
#[derive(Debug)]
pub enum Form<'a> {
    /// A name, or a constant such as `true`.
    Name(&'a str),
    Number(&'a str),
    /// Adjacent string literals.
    Text(Vec<&'a str>),
    Tuple(Vec<Node<'a>>),
    List(Vec<Node<'a>>),
    /// Alternating keys and values.
    Dict(Vec<Node<'a>>),
    Attribute(Box<Node<'a>>, &'a str),
    Item(Box<Node<'a>>, Box<Node<'a>>),
    Slice(Box<Node<'a>>, [Option<Box<Node<'a>>>; 3]),
    Call(Box<Node<'a>>, Vec<Argument<'a>>),
    Filter(Box<Node<'a>>, String, Vec<Argument<'a>>),
    /// The last field is `true` if the test must fail.
    Test(Box<Node<'a>>, String, Vec<Argument<'a>>, bool),
    Negative(Box<Node<'a>>),
    Positive(Box<Node<'a>>),
    Not(Box<Node<'a>>),
    And(Vec<Node<'a>>),
    Or(Vec<Node<'a>>),
    /// `+`, `-`, `*`, `/`, `//`, `%` or `**`.
    Binary(&'a str, Box<Node<'a>>, Box<Node<'a>>),
    /// Operands of `~`.
    Concat(Vec<Node<'a>>),
    Compare(Box<Node<'a>>, Vec<(&'static str, Node<'a>)>),
    /// `then if condition else otherwise`.
    Condition(Box<[Node<'a>; 2]>, Option<Box<Node<'a>>>),
}

/// An argument of a call.
#[derive(Debug)]
pub struct Argument<'a> {
    /// Empty, `*`, `**`, or a name with its `=`.
    pub prefix: String,
    /// Its value.
    pub value: Node<'a>,
}

/// Reads expressions from the words of one tag.
pub struct Parser<'a> {
    source: &'a str,
    tokens: &'a [Token],
    at: usize,
    num_open: usize,
}

impl<'a> Parser<'a> {
    /// Returns a parser of `tokens` from index `at` on.
    pub fn new(source: &'a str, tokens: &'a [Token], at: usize) -> Self {
        Self { source, tokens, at, num_open: 0 }
    }

    /// Returns whether all words were read.
    pub fn is_done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Returns the next word; empty at the end of the tag and for a string literal.
    pub fn peek(&self) -> &'a str {
        self.word(self.at)
    }

    /// Reads the next word if it is `word`.
    pub fn skip(&mut self, word: &str) -> bool {
        let is_next = self.peek() == word;
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads a name.
    ///
    /// # Errors
    /// `Malformed` for anything else.
    pub fn name(&mut self) -> Result<&'a str> {
        match self.tokens.get(self.at) {
            Some(token) if token.kind == Kind::Name => {
                self.at += 1;
                Ok(token.text(self.source))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Returns the error for an unexpected next word.
    pub fn unexpected(&self) -> Error {
        let detail = match self.tokens.get(self.at) {
            Some(token) => format!("unexpected {}", token.text(self.source)),
            None => "unexpected end of the tag".to_owned(),
        };
        Error::new(ErrorKind::Malformed, detail)
    }

    /// Reads one expression, or several with commas between them, which form a tuple.
    ///
    /// # Errors
    /// `Malformed` for text that is not an expression; `LimitExceeded` past the limits of nesting and chains.
    pub fn tuple(&mut self, has_condition: bool) -> Result<Node<'a>> {
        let start = self.start();
        let first = self.element(has_condition)?;
        if self.peek() != "," {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip(",") {
            if self.is_done() || matches!(self.peek(), ")" | "=" | "if" | "recursive" | "in") {
                break;
            }
            items.push(self.element(has_condition)?);
        }
        node(Form::Tuple(items), start)
    }

    fn element(&mut self, has_condition: bool) -> Result<Node<'a>> {
        if has_condition { self.expression() } else { self.or() }
    }

    /// Reads an expression.
    ///
    /// # Errors
    /// The errors of [`Parser::tuple`].
    pub fn expression(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut conditions = Vec::new();
        let mut last = self.or()?;
        let mut has_else = true;
        while has_else && self.skip("if") {
            let condition = self.or()?;
            has_else = self.skip("else");
            let then = std::mem::replace(&mut last, condition);
            if has_else {
                let condition = std::mem::replace(&mut last, self.or()?);
                conditions.push([then, condition]);
                check_chain(2 * conditions.len())?;
            } else {
                let condition = last;
                last = node(Form::Condition(Box::new([then, condition]), None), start)?;
                break;
            }
        }
        for pair in conditions.into_iter().rev() {
            last = node(Form::Condition(Box::new(pair), Some(Box::new(last))), start)?;
        }
        Ok(last)
    }

    fn or(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut operands = vec![self.and()?];
        while self.skip("or") {
            operands.push(self.and()?);
        }
        several(operands, Form::Or, start)
    }

    fn and(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut operands = vec![self.not()?];
        while self.skip("and") {
            operands.push(self.not()?);
        }
        several(operands, Form::And, start)
    }

    fn not(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut num_nots = 0;
        while self.skip("not") {
            num_nots += 1;
        }
        let mut operand = self.compare()?;
        for _ in 0..num_nots {
            operand = node(Form::Not(Box::new(operand)), start)?;
        }
        Ok(operand)
    }

    fn compare(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let first = self.sum()?;
        let mut others = Vec::new();
        loop {
            let operator = match self.peek() {
                "==" => "==",
                "!=" => "!=",
                "<" => "<",
                "<=" => "<=",
                ">" => ">",
                ">=" => ">=",
                "in" => "in",
                "not" if self.word(self.at + 1) == "in" => "not in",
                _ => break,
            };
            self.at += if operator == "not in" { 2 } else { 1 };
            others.push((operator, self.sum()?));
        }
        if others.is_empty() { Ok(first) } else { node(Form::Compare(Box::new(first), others), start) }
    }

    fn sum(&mut self) -> Result<Node<'a>> {
        self.binary(&["+", "-"], Self::concat)
    }

    fn concat(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut operands = vec![self.product()?];
        while self.skip("~") {
            operands.push(self.product()?);
        }
        several(operands, Form::Concat, start)
    }

    fn product(&mut self) -> Result<Node<'a>> {
        self.binary(&["*", "/", "//", "%"], Self::power)
    }

    fn power(&mut self) -> Result<Node<'a>> {
        self.binary(&["**"], Self::filtered)
    }

    fn binary(&mut self, operators: &[&str], operand: fn(&mut Self) -> Result<Node<'a>>) -> Result<Node<'a>> {
        let start = self.start();
        let mut left = operand(self)?;
        while operators.contains(&self.peek()) {
            let operator = self.peek();
            self.at += 1;
            left = node(Form::Binary(operator, Box::new(left), Box::new(operand(self)?)), start)?;
        }
        Ok(left)
    }

    /// Reads an operand with its signs, followed by its filters, tests and calls.
    fn filtered(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut operand = self.signed()?;
        loop {
            operand = match self.peek() {
                "|" => {
                    self.at += 1;
                    let name = self.dotted_name()?;
                    let arguments = if self.peek() == "(" { self.arguments()? } else { Vec::new() };
                    node(Form::Filter(Box::new(operand), name, arguments), start)?
                }
                "is" => self.test(operand, start)?,
                "(" => self.call(operand, start)?,
                _ => return Ok(operand),
            };
        }
    }

    fn test(&mut self, operand: Node<'a>, start: usize) -> Result<Node<'a>> {
        self.at += 1;
        let is_negated = self.skip("not");
        let name = self.dotted_name()?;
        let mut arguments = Vec::new();
        let is_operand = self.tokens.get(self.at).is_some_and(|token| match token.kind {
            Kind::Operator => matches!(token.text(self.source), "[" | "{"),
            Kind::Name => !matches!(token.text(self.source), "else" | "or" | "and"),
            Kind::Number | Kind::Text => true,
        });
        if self.peek() == "(" {
            arguments = self.arguments()?;
        } else if is_operand {
            let value = self.primary()?;
            arguments.push(Argument { prefix: String::new(), value: self.postfix(value)? });
        }
        node(Form::Test(Box::new(operand), name, arguments, is_negated), start)
    }

    fn signed(&mut self) -> Result<Node<'a>> {
        let start = self.start();
        let mut signs = Vec::new();
        while matches!(self.peek(), "-" | "+") {
            signs.push(self.peek());
            self.at += 1;
        }
        let mut operand = self.primary()?;
        operand = self.postfix(operand)?;
        for sign in signs.into_iter().rev() {
            let form = if sign == "-" { Form::Negative } else { Form::Positive };
            operand = node(form(Box::new(operand)), start)?;
        }
        Ok(operand)
    }

    fn postfix(&mut self, mut operand: Node<'a>) -> Result<Node<'a>> {
        let start = operand.start;
        loop {
            operand = match self.peek() {
                "." => {
                    self.at += 1;
                    self.attribute(operand, start)?
                }
                "[" => self.subscript(operand, start)?,
                "(" => self.call(operand, start)?,
                _ => return Ok(operand),
            };
        }
    }

    fn attribute(&mut self, operand: Node<'a>, start: usize) -> Result<Node<'a>> {
        let Some(token) = self.tokens.get(self.at) else { return Err(self.unexpected()) };
        let text = token.text(self.source);
        self.at += 1;
        match token.kind {
            Kind::Name => node(Form::Attribute(Box::new(operand), text), start),
            Kind::Number => {
                let index = node(Form::Number(text), token.start)?;
                node(Form::Item(Box::new(operand), Box::new(index)), start)
            }
            Kind::Text | Kind::Operator => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    fn subscript(&mut self, operand: Node<'a>, start: usize) -> Result<Node<'a>> {
        self.open()?;
        let mut bounds: [Option<Box<Node<'a>>>; 3] = [None, None, None];
        let mut num_colons = 0;
        loop {
            if !matches!(self.peek(), ":" | "]") {
                bounds[num_colons] = Some(Box::new(self.expression()?));
            }
            if num_colons == 2 || !self.skip(":") {
                break;
            }
            num_colons += 1;
        }
        self.close("]")?;
        match bounds {
            [Some(index), None, None] if num_colons == 0 => node(Form::Item(Box::new(operand), index), start),
            [None, ..] if num_colons == 0 => {
                Err(Error::new(ErrorKind::Malformed, "a subscript must not be empty"))
            }
            bounds => node(Form::Slice(Box::new(operand), bounds), start),
        }
    }

    fn call(&mut self, operand: Node<'a>, start: usize) -> Result<Node<'a>> {
        let arguments = self.arguments()?;
        node(Form::Call(Box::new(operand), arguments), start)
    }

    /// Reads arguments with their brackets.
    fn arguments(&mut self) -> Result<Vec<Argument<'a>>> {
        self.open()?;
        let mut arguments = Vec::new();
        while self.peek() != ")" {
            if !arguments.is_empty() {
                self.expect(",")?;
                if self.peek() == ")" {
                    break;
                }
            }
            let mut prefix = String::new();
            if matches!(self.peek(), "*" | "**") {
                prefix.push_str(self.peek());
                self.at += 1;
            } else if self.word(self.at + 1) == "=" {
                prefix = format!("{}=", self.name()?);
                self.at += 1;
            }
            arguments.push(Argument { prefix, value: self.expression()? });
        }
        self.close(")")?;
        Ok(arguments)
    }

    /// Reads filters from the name of the first on.
    ///
    /// # Errors
    /// The errors of [`Parser::tuple`].
    pub fn filters(&mut self) -> Result<Filters<'a>> {
        let mut filters = Vec::new();
        loop {
            let name = self.dotted_name()?;
            let arguments = if self.peek() == "(" { self.arguments()? } else { Vec::new() };
            filters.push((name, arguments));
            check_chain(filters.len())?;
            if !self.skip("|") {
                return Ok(filters);
            }
        }
    }

    /// Reads parameters with their brackets.
    ///
    /// # Errors
    /// The errors of [`Parser::tuple`].
    pub fn signature(&mut self) -> Result<Signature<'a>> {
        if self.peek() != "(" {
            return Err(self.unexpected());
        }
        self.open()?;
        let mut parameters = Vec::new();
        while self.peek() != ")" {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?;
            let default = if self.skip("=") { Some(self.expression()?) } else { None };
            parameters.push((name, default));
        }
        self.close(")")?;
        Ok(parameters)
    }

    fn primary(&mut self) -> Result<Node<'a>> {
        let Some(token) = self.tokens.get(self.at) else { return Err(self.unexpected()) };
        let (text, start) = (token.text(self.source), token.start);
        match token.kind {
            Kind::Name if RESERVED.contains(&text) || text == "not" => Err(self.unexpected()),
            Kind::Name => {
                self.at += 1;
                node(Form::Name(text), start)
            }
            Kind::Number => {
                self.at += 1;
                node(Form::Number(text), start)
            }
            Kind::Text => {
                let mut texts = Vec::new();
                while let Some(token) = self.tokens.get(self.at).filter(|token| token.kind == Kind::Text) {
                    texts.push(token.text(self.source));
                    self.at += 1;
                }
                node(Form::Text(texts), start)
            }
            Kind::Operator => match text {
                "(" => self.group(start),
                "[" => {
                    let items = self.items("]", false)?;
                    node(Form::List(items), start)
                }
                "{" => {
                    let items = self.items("}", true)?;
                    node(Form::Dict(items), start)
                }
                _ => Err(self.unexpected()),
            },
        }
    }

    /// Reads an expression or a tuple in round brackets.
    fn group(&mut self, start: usize) -> Result<Node<'a>> {
        self.open()?;
        if self.peek() == ")" {
            self.close(")")?;
            return node(Form::Tuple(Vec::new()), start);
        }
        let inside = self.tuple(true)?;
        self.close(")")?;
        Ok(inside)
    }

    fn items(&mut self, closing: &str, has_keys: bool) -> Result<Vec<Node<'a>>> {
        self.open()?;
        let mut items = Vec::new();
        while self.peek() != closing {
            if !items.is_empty() {
                self.expect(",")?;
                if self.peek() == closing {
                    break;
                }
            }
            items.push(self.expression()?);
            if has_keys {
                self.expect(":")?;
                items.push(self.expression()?);
            }
        }
        self.close(closing)?;
        Ok(items)
    }

    fn dotted_name(&mut self) -> Result<String> {
        let mut name = self.name()?.to_owned();
        while self.skip(".") {
            name.push('.');
            name.push_str(self.name()?);
        }
        Ok(name)
    }

    fn open(&mut self) -> Result<()> {
        self.at += 1;
        self.num_open += 1;
        check_limit("brackets", "nest at most", self.num_open, TEMPLATE_NESTING_MAX)
    }

    fn close(&mut self, bracket: &str) -> Result<()> {
        self.num_open -= 1;
        self.expect(bracket)
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        if self.skip(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn start(&self) -> usize {
        self.tokens.get(self.at).map_or(self.source.len(), |token| token.start)
    }

    fn word(&self, at: usize) -> &'a str {
        match self.tokens.get(at) {
            Some(token) if token.kind != Kind::Text => token.text(self.source),
            _ => "",
        }
    }
}

fn several<'a>(
    mut operands: Vec<Node<'a>>,
    form: fn(Vec<Node<'a>>) -> Form<'a>,
    start: usize,
) -> Result<Node<'a>> {
    match operands.pop() {
        Some(only) if operands.is_empty() => Ok(only),
        last => {
            operands.extend(last);
            check_chain(operands.len())?;
            node(form(operands), start)
        }
    }
}

fn node(form: Form<'_>, start: usize) -> Result<Node<'_>> {
    let deepest = |nodes: &[Node]| nodes.iter().map(|node| node.depth).max().unwrap_or(0);
    let given =
        |arguments: &[Argument]| arguments.iter().map(|argument| argument.value.depth).max().unwrap_or(0);
    let below = match &form {
        Form::Name(_) | Form::Number(_) | Form::Text(_) => 0,
        Form::Tuple(items) | Form::List(items) | Form::Dict(items) => deepest(items),
        Form::And(items) | Form::Or(items) | Form::Concat(items) => deepest(items).max(items.len() - 1),
        Form::Attribute(base, _) | Form::Negative(base) | Form::Positive(base) | Form::Not(base) => {
            base.depth
        }
        Form::Item(base, key) | Form::Binary(_, base, key) => base.depth.max(key.depth),
        Form::Slice(base, bounds) => {
            bounds.iter().flatten().map(|bound| bound.depth).max().unwrap_or(0).max(base.depth)
        }
        Form::Call(base, arguments)
        | Form::Filter(base, _, arguments)
        | Form::Test(base, _, arguments, _) => base.depth.max(given(arguments)),
        Form::Compare(first, others) => {
            let others_depth = others.iter().map(|(_, node)| node.depth).max().unwrap_or(0);
            first.depth.max(others_depth).max(others.len())
        }
        Form::Condition(pair, otherwise) => {
            1 + deepest(&pair[..]).max(otherwise.as_ref().map_or(0, |node| node.depth))
        }
    };
    check_chain(below + 1)?;
    Ok(Node { form, start, depth: below + 1 })
}

fn check_chain(length: usize) -> Result<()> {
    check_limit("operators of one expression", "follow each other at most", length, TEMPLATE_CHAIN_MAX)
}
