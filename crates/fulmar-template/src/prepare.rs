//! From a source that jinja2 accepts to one that the engine reads the same way.
//!
//! The engine has no `generation` tag, is laxer than Python here and there, and its parser recurses. One pass over the
//! source settles that before the engine sees it, with whitespace control and line numbers untouched:
//!
//! - `{% generation %}` becomes a `with` block around two marks (see `span`): a scope of its own, nothing captured;
//! - what a `for` loop goes over is checked, because the engine iterates none as if it were empty;
//! - operands of `~` are printed as Python prints them; lists and dictionaries become ours;
//! - what `+` made is bounded before a `set` tag keeps it;
//! - slices and the subscripts that a method name could answer become method calls, see `method`;
//! - escapes in strings are those of Python;
//! - expressions and blocks that nest deeper, or chain longer, than the limits are refused.

use fulmar_core::limits::{TEMPLATE_CHAIN_MAX, TEMPLATE_NESTING_MAX, TEMPLATE_SOURCE_BYTES_MAX};
use fulmar_core::{Error, ErrorKind, Result};

use self::expression::Expression;

mod escape;
mod expression;
mod token;

/// What a loop goes over passes through this function.
pub const ITERATE: &str = "__iterate__";
/// Operands of `~` pass through this function.
pub const TO_TEXT: &str = "__text__";
/// Values that a `set` tag keeps pass through this function where a `+` made them.
pub const KEEP: &str = "__keep__";
/// Lists that are written in a template pass through this function.
pub const MAKE_LIST: &str = "__list__";
/// Dictionaries that are written in a template pass through this function.
pub const MAKE_DICT: &str = "__dict__";
/// The variable that prints the mark of a span's start.
pub const SPAN_OPEN: &str = "__span_open__";
/// The variable that prints the mark of a span's end.
pub const SPAN_CLOSE: &str = "__span_close__";

/// A source that is ready for the engine.
#[derive(Debug)]
pub struct Prepared {
    /// The source.
    pub source: String,
    /// Whether it has a `generation` tag.
    pub has_generation: bool,
}

/// Prepares `source`. A source that breaks Jinja's grammar stays broken: the engine says how.
///
/// # Errors
/// `LimitExceeded` past a limit of templates; `Malformed` for an escape that Python refuses.
pub fn prepare(source: &str) -> Result<Prepared> {
    if source.len() > TEMPLATE_SOURCE_BYTES_MAX {
        let detail =
            format!("source must have at most {TEMPLATE_SOURCE_BYTES_MAX} bytes: got {}", source.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    // jinja2 turns every kind of line end into one before it looks at anything else.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut pass = Pass {
        source: &source,
        out: String::with_capacity(source.len() + 64),
        at: 0,
        blocks: Vec::new(),
        has_generation: false,
    };
    pass.run()?;
    Ok(Prepared { source: pass.out, has_generation: pass.has_generation })
}

/// How many `elif` an open block has had; other tags do not count.
type NumBranches = usize;

struct Pass<'a> {
    source: &'a str,
    out: String,
    at: usize,
    blocks: Vec<NumBranches>,
    has_generation: bool,
}

impl Pass<'_> {
    fn run(&mut self) -> Result<()> {
        while let Some(start) = self.next_tag() {
            self.copy_to(start);
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

    /// Where the next `{{`, `{%` or `{#` stands.
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

    /// Copies a `raw` tag so that the line end behind it stays, as in jinja2; where its `endraw` ends.
    fn open_raw(&mut self, start: usize) -> Option<usize> {
        let end = token::end_of_raw(self.source, start)?;
        let closer = start + self.source[start..].find("%}")?;
        self.copy_to(closer);
        if !self.out.ends_with(['-', '+']) {
            self.out.push('+');
        }
        Some(end)
    }

    /// Rewrites the tag at `start`; none if it never ends or its brackets do not match.
    fn rewrite_tag(&mut self, start: usize) -> Result<Option<usize>> {
        let Some(tag) = token::read_tag(self.source, start) else { return Ok(None) };
        let is_block = self.source.as_bytes()[start + 1] == b'%';
        let first = tag.tokens.first().map_or("", |token| token.text(self.source));
        if is_block {
            self.count_block(first, start)?;
        }
        let opening = &self.source[start..tag.tokens.first().map_or(tag.closer, |token| token.start)];
        let closing = &self.source[tag.closer..tag.end];
        let marker = opening.trim_end();
        match first {
            "generation" if is_block && tag.tokens.len() == 1 => {
                self.has_generation = true;
                self.out.push_str(&format!("{marker} with %}}{{{{ {SPAN_OPEN} }}}}{{% if true {closing}"));
            }
            "endgeneration" if is_block && tag.tokens.len() == 1 => {
                self.out.push_str(&format!("{marker} endif %}}{{{{ {SPAN_CLOSE} }}}}{{% endwith {closing}"));
            }
            _ => {
                let expression = Expression::new(self.source, &tag, is_block.then_some(first));
                self.out.push_str(opening);
                expression.write(&mut self.out).map_err(|error| error.at(self.place(start)))?;
                self.out.push_str(closing);
            }
        }
        self.at = tag.end;
        Ok(Some(tag.end))
    }

    /// Counts how deep blocks nest and how many branches they have.
    fn count_block(&mut self, keyword: &str, start: usize) -> Result<()> {
        match keyword {
            // The engine has this tag; jinja2 has it only where asked, and transformers does not ask.
            "do" => {
                return Err(
                    Error::new(ErrorKind::Malformed, "tags must be known: got do").at(self.place(start))
                );
            }
            "if" | "for" | "macro" | "call" | "filter" | "with" | "block" | "generation" | "autoescape" => {
                self.blocks.push(0);
            }
            "elif" => {
                if let Some(branches) = self.blocks.last_mut() {
                    *branches += 1;
                }
            }
            _ if keyword.starts_with("end") => {
                self.blocks.pop();
            }
            _ => {}
        }
        // A `set` with a body nests too, but its end would be taken for another's: the engine's own limit holds it.
        check_limit("blocks", "nest at most", self.blocks.len(), TEMPLATE_NESTING_MAX)
            .map_err(|error| error.at(self.place(start)))?;
        let branches = self.blocks.last().copied().unwrap_or(0);
        check_limit("elif", "follow an if at most", branches, TEMPLATE_CHAIN_MAX)
            .map_err(|error| error.at(self.place(start)))
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
