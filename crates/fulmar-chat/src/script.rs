//! The output of a family: one text, whose pieces have an owner and may be special tokens.
//!
//! The text alone equals the template's output. A tokenizer converts it to ids: markers by their id, and the
//! text between two markers in one pass, so that scaffold and body merge as in a template. A token across a
//! border belongs to the piece of its first character.

use std::ops::Range;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::{AddedTokens, Encoding, Tokenizer};

use crate::{Origin, Rendered, Result};

/// A fixed text of a family's frame with resolved special tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scaffold {
    text: String,
    /// End of each piece in `text`, with the id if it is a special token.
    pieces: Vec<(usize, Option<u32>)>,
}

/// The special tokens of a family in a tokenizer.
pub(crate) struct Lexicon {
    ids: Vec<(&'static str, u32)>,
}

impl Lexicon {
    /// Looks up the required names, and the optional ones, which are written as text if they do not exist.
    ///
    /// # Errors
    /// `Incompatible` if one of `required` is not a special token.
    pub(crate) fn new(
        tokenizer: &dyn Tokenizer,
        required: &[&'static str],
        optional: &[&'static str],
    ) -> Result<Self> {
        let mut ids = Vec::new();
        for (index, &name) in required.iter().chain(optional).enumerate() {
            match marker_id(tokenizer, name) {
                Some(id) => ids.push((name, id)),
                None if index < required.len() => {
                    let detail = format!("tokenizer must have {name:?} as a special token, but it does not");
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
                None => {}
            }
        }
        Ok(Self { ids })
    }

    /// Returns the id of a looked-up name.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.ids.iter().find(|(other, _)| *other == name).map(|(_, id)| *id)
    }

    /// Returns the ids of the names that exist.
    pub(crate) fn ids(&self, names: &[&str]) -> Vec<u32> {
        names.iter().filter_map(|name| self.id(name)).collect()
    }

    /// Returns a fixed text in which every known name is its special token.
    pub(crate) fn scaffold(&self, text: &str) -> Scaffold {
        let mut scaffold = Scaffold { text: text.to_owned(), pieces: Vec::new() };
        let mut start = 0;
        while start < text.len() {
            let found = self.ids.iter().filter_map(|&(name, id)| {
                let at = text[start..].find(name)?;
                Some((at, std::cmp::Reverse(name.len()), id))
            });
            let Some((at, length, id)) = found.min() else { break };
            if at > 0 {
                scaffold.pieces.push((start + at, None));
            }
            start += at + length.0;
            scaffold.pieces.push((start, Some(id)));
        }
        if start < text.len() {
            scaffold.pieces.push((text.len(), None));
        }
        scaffold
    }
}

/// Returns the id of a token that plain text never becomes.
fn marker_id(tokenizer: &dyn Tokenizer, name: &str) -> Option<u32> {
    let id = tokenizer.id_of(name)?;
    let is_ordinary = tokenizer.encode(name).is_ok_and(|encoding| encoding.ids == [id]);
    (!is_ordinary).then_some(id)
}

#[derive(Debug, Clone, Copy)]
struct Span {
    end: usize,
    id: Option<u32>,
    message_index: i32,
    origin: Origin,
}

/// The writer. It attributes everything to the message of the last [`Script::start_message`].
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    spans: Vec<Span>,
    message_index: i32,
    expects_answer: bool,
    /// False if only the text is used.
    has_spans: bool,
}

impl Script {
    /// Returns an empty script with room for about `num_bytes` of text; it begins outside of all messages.
    pub(crate) fn with_capacity(num_bytes: usize) -> Self {
        Self { has_spans: true, ..Self::of_text(num_bytes) }
    }

    /// Returns an empty script of which only [`Script::into_text`] is used.
    pub(crate) fn of_text(num_bytes: usize) -> Self {
        Self {
            text: String::with_capacity(num_bytes),
            spans: Vec::new(),
            message_index: -1,
            expects_answer: false,
            has_spans: false,
        }
    }

    /// Sets whether the opening of an assistant's turn will follow the messages.
    pub(crate) fn expect_answer(&mut self, expects_answer: bool) {
        self.expects_answer = expects_answer;
    }

    /// Returns whether the opening of an assistant's turn will follow the messages.
    pub(crate) fn expects_answer(&self) -> bool {
        self.expects_answer
    }

    /// Attributes the following text to the message at `index`.
    pub(crate) fn start_message(&mut self, index: usize) {
        self.message_index = index as i32;
    }

    /// Attributes the following text to no message.
    pub(crate) fn leave_messages(&mut self) {
        self.message_index = -1;
    }

    /// Writes frame that is not sampled.
    pub(crate) fn frame(&mut self, scaffold: &Scaffold) {
        self.scaffold(scaffold, Origin::Template);
    }

    /// Writes a scaffold of `origin`; [`Origin::Assistant`] if an assistant samples it.
    pub(crate) fn scaffold(&mut self, scaffold: &Scaffold, origin: Origin) {
        let start = self.text.len();
        self.text.push_str(&scaffold.text);
        if !self.has_spans {
            return;
        }
        for &(end, id) in &scaffold.pieces {
            self.push_span(start + end, id, origin);
        }
    }

    /// Writes text of `origin`; names of special tokens in it stay text.
    pub(crate) fn text(&mut self, text: &str, origin: Origin) {
        self.text.push_str(text);
        self.end_text(origin);
    }

    /// Writes text of `origin` through `write`, which may only append.
    ///
    /// # Errors
    /// The errors of `write`.
    pub(crate) fn text_with(
        &mut self,
        origin: Origin,
        write: impl FnOnce(&mut String) -> Result<()>,
    ) -> Result<()> {
        write(&mut self.text)?;
        self.end_text(origin);
        Ok(())
    }

    /// Returns the number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the text, special tokens by name.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Appends the attributed ids to `rendered`.
    ///
    /// # Errors
    /// The errors of the tokenizer.
    pub(crate) fn encode_into(&self, tokenizer: &dyn Tokenizer, rendered: &mut Rendered) -> Result<()> {
        let mut encoding = Encoding::default();
        let mut run: Range<usize> = 0..0;
        let mut start = 0;
        for (index, span) in self.spans.iter().enumerate() {
            if let Some(id) = span.id {
                self.encode_run(tokenizer, run, start, &mut encoding, rendered)?;
                rendered.push(&[id], span.message_index, span.origin);
                start = span.end;
                run = index + 1..index + 1;
            } else {
                run.end = index + 1;
            }
        }
        self.encode_run(tokenizer, run, start, &mut encoding, rendered)
    }

    /// Encodes the text of the spans `run`, which begins at byte `start`, in one pass.
    fn encode_run(
        &self,
        tokenizer: &dyn Tokenizer,
        run: Range<usize>,
        start: usize,
        encoding: &mut Encoding,
        rendered: &mut Rendered,
    ) -> Result<()> {
        let spans = &self.spans[run];
        let Some(last) = spans.last() else { return Ok(()) };
        encoding.ids.clear();
        encoding.offsets.clear();
        tokenizer.encode_into(&self.text[start..last.end], AddedTokens::AsText, encoding)?;
        let mut first = 0;
        for span in spans {
            let rest = &encoding.offsets[first..];
            let count = rest.partition_point(|&[token_start, _]| start + (token_start as usize) < span.end);
            rendered.push(&encoding.ids[first..first + count], span.message_index, span.origin);
            first += count;
        }
        Ok(())
    }

    fn end_text(&mut self, origin: Origin) {
        if !self.has_spans {
            return;
        }
        let start = self.spans.last().map_or(0, |span| span.end);
        if self.text.len() > start {
            self.push_span(self.text.len(), None, origin);
        }
    }

    fn push_span(&mut self, end: usize, id: Option<u32>, origin: Origin) {
        let message_index = self.message_index;
        if let Some(last) = self.spans.last_mut()
            && last.id.is_none()
            && id.is_none()
            && (last.message_index, last.origin) == (message_index, origin)
        {
            last.end = end;
        } else {
            self.spans.push(Span { end, id, message_index, origin });
        }
    }
}
