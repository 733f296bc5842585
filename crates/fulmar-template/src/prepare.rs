//! Converts a source that jinja2 accepts to one with the same meaning for the engine.
//!
//! The engine has no `generation` tag, its operators are laxer than Python's and unmetered, and its parser
//! recurses. One pass over the source handles that before the engine sees it, and keeps whitespace control
//! and line numbers:
//!
//! - expressions are parsed, and written again with filters in place of operators (see `write`), which
//!   compare, add and print as Python does, and are metered;
//! - `{% generation %}` becomes a `with` block around two marks (see `span`): a separate scope, nothing
//!   captured;
//! - the iterated value of a `for` loop is checked, because the engine iterates none as if it were empty;
//! - lists, tuples, dictionaries and namespaces become ours;
//! - text between tags is charged if a loop or a macro may repeat it;
//! - escapes in strings are those of Python;
//! - `autoescape` must be false, and tags that need a loader fail, as in transformers;
//! - expressions and blocks that are nested deeper, or chained longer, than the limits are refused.

use fulmar_core::limits::{TEMPLATE_CHAIN_MAX, TEMPLATE_NESTING_MAX, TEMPLATE_SOURCE_BYTES_MAX};
use fulmar_core::{Error, ErrorKind, Result};

use self::statement::Target;

mod escape;
mod node;
mod statement;
mod token;
mod write;

/// The function around the iterated value of a loop.
pub const ITERATE: &str = "__iterate__";
/// The function around a list literal.
pub const MAKE_LIST: &str = "__list__";
/// The function around a tuple literal.
pub const MAKE_TUPLE: &str = "__tuple__";
/// The function around the keys and values of a dictionary literal.
pub const MAKE_DICT: &str = "__dict__";
/// The function around the digits of an integer that the engine cannot parse.
pub const MAKE_INTEGER: &str = "__integer__";
/// The filter around arguments after `*` and `**`.
pub const SPLAT: &str = "__splat__";
/// The function that sets an attribute of a namespace.
pub const ASSIGN: &str = "__assign__";
/// The function that charges for text between tags, and returns false.
pub const PAY: &str = "__pay__";
/// The function that fails as jinja2 does without a loader.
pub const NO_LOADER: &str = "__no_loader__";
/// The variable with the value that a `set` block assigns to an attribute.
pub const BLOCK_VALUE: &str = "__value__";
/// The variable that prints the mark of a span's start.
pub const SPAN_OPEN: &str = "__span_open__";
/// The variable that prints the mark of a span's end.
pub const SPAN_CLOSE: &str = "__span_close__";

/// Least bytes of text in one branch of a block that are charged; shorter text is covered by the engine's
/// steps.
const PAID_TEXT_BYTES_MIN: usize = 64;

/// A source that is ready for the engine.
#[derive(Debug)]
pub struct Prepared {
    /// The source.
    pub source: String,
    /// `true` if it has a `generation` tag.
    pub has_generation: bool,
}

/// Prepares `source`.
///
/// # Errors
/// `LimitExceeded` past a limit of templates; `Malformed` for an expression that violates Jinja's grammar or
/// an escape that Python refuses; `Incompatible` for `autoescape` that is not false.
pub fn prepare(source: &str) -> Result<Prepared> {
    if source.len() > TEMPLATE_SOURCE_BYTES_MAX {
        let detail =
            format!("source must have at most {TEMPLATE_SOURCE_BYTES_MAX} bytes: got {}", source.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    // jinja2 first normalises all line ends.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut pass = Pass {
        source: &source,
        out: String::with_capacity(source.len() + 64),
        at: 0,
        blocks: Vec::new(),
        has_generation: false,
        payments: Vec::new(),
    };
    pass.run()?;
    Ok(Prepared { has_generation: pass.has_generation, source: pass.finish() })
}

/// An open block.
struct Block<'a> {
    keyword: &'a str,
    /// Number of its `elif` branches.
    num_branches: usize,
    /// `true` if it may run more than once.
    is_repeated: bool,
    /// The target of its assignment.
    target: Option<Target>,
    /// The start of the current branch in the output, and the closing of the tag before it.
    branch_at: usize,
    branch_closing: &'a str,
    /// Bytes of text directly in the branch.
    branch_bytes: usize,
}

struct Pass<'a> {
    source: &'a str,
    out: String,
    at: usize,
    blocks: Vec<Block<'a>>,
    has_generation: bool,
    /// Insertions into the output, by position.
    payments: Vec<(usize, String)>,
}

impl<'a> Pass<'a> {
    fn run(&mut self) -> Result<()> {
        while let Some(start) = self.next_tag() {
            self.copy_text(start);
            let end = match self.source.as_bytes()[start + 1] {
                b'#' => self.source[start + 2..].find("#}").map(|length| start + 2 + length + 2),
                b'%' if token::is_tag(&self.source[start..], "raw") => self.open_raw(start),
                _ => self.rewrite_tag(start)?,
            };
            match end {
                Some(end) => self.copy_to(end),
                None => break,
            }
        }
        self.copy_to(self.source.len());
        Ok(())
    }

    /// Returns the output with its charges inserted.
    fn finish(mut self) -> String {
        self.payments.sort_by_key(|(at, _)| *at);
        let mut out = String::with_capacity(self.out.len() + 48 * self.payments.len());
        let mut copied = 0;
        for (at, payment) in &self.payments {
            out.push_str(&self.out[copied..*at]);
            out.push_str(payment);
            copied = *at;
        }
        out.push_str(&self.out[copied..]);
        out
    }

    /// Returns the position of the next `{{`, `{%` or `{#`.
    fn next_tag(&self) -> Option<usize> {
        let rest = &self.source.as_bytes()[self.at..];
        let is_tag = |pair: &[u8]| pair[0] == b'{' && matches!(pair[1], b'{' | b'%' | b'#');
        rest.windows(2).position(is_tag).map(|offset| self.at + offset)
    }

    fn copy_to(&mut self, end: usize) {
        if self.at < end {
            self.out.push_str(&self.source[self.at..end]);
            self.at = end;
        }
    }

    /// Copies text between tags.
    fn copy_text(&mut self, end: usize) {
        if let Some(block) = self.blocks.last_mut() {
            block.branch_bytes += end.saturating_sub(self.at);
        }
        self.copy_to(end);
    }

    /// Copies a `raw` tag so that the line end after it stays, as in jinja2; returns the end of its `endraw`.
    fn open_raw(&mut self, start: usize) -> Option<usize> {
        let end = token::end_of_raw(self.source, start)?;
        let closer = start + self.source[start..].find("%}")?;
        self.copy_to(closer);
        if !self.out.ends_with(['-', '+']) {
            self.out.push('+');
        }
        self.copy_text(end);
        Some(end)
    }

    /// Rewrites the tag at `start`; returns `None` if it never ends or its brackets do not match.
    fn rewrite_tag(&mut self, start: usize) -> Result<Option<usize>> {
        let Some(tag) = token::read_tag(self.source, start) else { return Ok(None) };
        let is_block = self.source.as_bytes()[start + 1] == b'%';
        let first = tag.tokens.first().map_or("", |token| token.text(self.source));
        let keyword = if is_block { first } else { "" };
        let opening = &self.source[start..tag.tokens.first().map_or(tag.closer, |token| token.start)];
        let closing = &self.source[tag.closer..tag.end];
        let ended = self.end_branch(keyword);
        let marker = opening.trim_end();
        let mut written = statement::Written::default();
        match keyword {
            "generation" if tag.tokens.len() == 1 => {
                self.has_generation = true;
                self.out.push_str(&format!("{marker} with %}}{{{{ {SPAN_OPEN} }}}}{{% if true {closing}"));
            }
            "endgeneration" if tag.tokens.len() == 1 => {
                self.out.push_str(&format!("{marker} endif %}}{{{{ {SPAN_CLOSE} }}}}{{% endwith {closing}"));
            }
            _ => {
                self.out.push_str(opening);
                written = statement::write(self.source, &tag, is_block.then_some(first), &mut self.out)
                    .map_err(|error| error.at(self.place(start)))?;
                if let Some(Target { namespace, attribute }) = ended.and_then(|block| block.target) {
                    let assign = format!("{ASSIGN}({namespace}, \"{attribute}\", {BLOCK_VALUE})");
                    self.out.push_str(&format!("%}}{{% set {BLOCK_VALUE} = {assign} "));
                }
                self.out.push_str(closing);
            }
        }
        if is_block {
            self.start_branch(keyword, closing, written);
            self.check_blocks(keyword).map_err(|error| error.at(self.place(start)))?;
        }
        self.at = tag.end;
        Ok(Some(tag.end))
    }

    /// Ends the branch before a tag with this keyword, and the block if the tag ends it.
    fn end_branch(&mut self, keyword: &str) -> Option<Block<'a>> {
        let block = self.blocks.last_mut()?;
        let is_end = keyword.strip_prefix("end") == Some(block.keyword);
        if !is_end && !matches!(keyword, "elif" | "else") {
            return None;
        }
        if block.is_repeated && block.branch_bytes >= PAID_TEXT_BYTES_MIN {
            let (bytes, closing) = (block.branch_bytes, block.branch_closing);
            self.payments.push((block.branch_at, format!("{{% if {PAY}({bytes}) %}}{{% endif {closing}")));
        }
        if is_end { self.blocks.pop() } else { None }
    }

    /// Starts a branch after the tag just written.
    fn start_branch(&mut self, keyword: &'a str, closing: &'a str, written: statement::Written) {
        let has_body = keyword != "set" || written.is_block_set;
        match keyword {
            "if" | "for" | "macro" | "call" | "filter" | "with" | "block" | "generation" | "autoescape"
            | "set"
                if has_body =>
            {
                let is_repeated = matches!(keyword, "for" | "macro" | "call" | "block")
                    || self.blocks.last().is_some_and(|block| block.is_repeated);
                self.blocks.push(Block {
                    keyword,
                    num_branches: 0,
                    is_repeated,
                    target: written.target,
                    branch_at: self.out.len(),
                    branch_closing: closing,
                    branch_bytes: 0,
                });
            }
            "elif" | "else" => {
                if let Some(block) = self.blocks.last_mut() {
                    block.num_branches += usize::from(keyword == "elif");
                    block.branch_at = self.out.len();
                    block.branch_closing = closing;
                    block.branch_bytes = 0;
                }
            }
            _ => {}
        }
    }

    /// Checks the nesting of blocks and the number of their branches.
    fn check_blocks(&self, keyword: &str) -> Result<()> {
        if keyword == "do" {
            // The engine has this tag; jinja2 has it only as an option that transformers does not set.
            return Err(Error::new(ErrorKind::Malformed, "tags must be known: got do"));
        }
        check_limit("blocks", "nest at most", self.blocks.len(), TEMPLATE_NESTING_MAX)?;
        let num_branches = self.blocks.last().map_or(0, |block| block.num_branches);
        check_limit("elif", "follow an if at most", num_branches, TEMPLATE_CHAIN_MAX)
    }

    fn place(&self, at: usize) -> String {
        format!("template line {}", 1 + self.source[..at].matches('\n').count())
    }
}

fn check_limit(what: &str, rule: &str, got: usize, most: usize) -> Result<()> {
    if got <= most {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LimitExceeded, format!("{what} must {rule} {most} times: got {got}")))
}
