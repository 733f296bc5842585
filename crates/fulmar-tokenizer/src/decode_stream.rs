//! Incremental decoding of tokens as they arrive.
//!
//! A token may end inside a character (byte-level vocabularies), and a token's text may depend on the tokens
//! before it. So the stream decodes a short window of tokens and returns its new text, once that does not end
//! in U+FFFD, the mark of an unfinished character. The window begins with the tokens of the last piece that
//! has text by itself. Hugging Face's `DecodeStream` does the same; here the wait is bounded, and nothing is
//! lost if a decoder strips several spaces.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};

use crate::{Result, Tokenizer};

/// Maximum number of tokens without a piece before their text is returned. A UTF-8 character takes at most 4.
const PENDING_TOKENS_MAX: usize = 64;

/// Number of tokens kept then, more than an unfinished character takes.
const KEPT_TOKENS: usize = 8;

const UNFINISHED: char = '\u{FFFD}';

/// Decodes one token at a time. The pieces and [`DecodeStream::finish`] concatenate to [`Tokenizer::decode`]
/// of all ids, unless a decoder revises text already returned: byte fallback does so for bytes that are not
/// UTF-8.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, DecodeStream, Tokenizer};
/// let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let mut stream = DecodeStream::new(tokenizer.clone(), true);
/// let mut text = String::new();
/// for id in tokenizer.encode("[ANSWER] 7")?.ids {
///     text.push_str(&stream.push(id)?);
/// }
/// text.push_str(&stream.finish()?);
/// assert_eq!(text, "[ANSWER] 7");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct DecodeStream {
    tokenizer: Arc<dyn Tokenizer>,
    skip_special: bool,
    /// The tokens of the last piece, and those after it.
    window: Vec<u32>,
    num_given: usize,
    /// The text of the window already returned.
    given: String,
}

impl DecodeStream {
    /// Returns an empty stream; `skip_special` as in [`Tokenizer::decode`].
    #[must_use]
    pub fn new(tokenizer: Arc<dyn Tokenizer>, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, window: Vec::new(), num_given: 0, given: String::new() }
    }

    /// Returns the text that `id` completes; empty while a character is unfinished. After an error the stream
    /// is unchanged.
    ///
    /// # Errors
    /// `OutOfRange` if `id` is not in the vocabulary; `Incompatible` if it changes text already returned, as
    /// some decoders do where words are joined.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let added = self.added().inspect_err(|_| {
            self.window.pop();
        })?;
        let is_piece = !added.is_empty() && !added.ends_with(UNFINISHED);
        if is_piece {
            self.forget()?;
            Ok(added)
        } else if self.window.len() - self.num_given >= PENDING_TOKENS_MAX {
            self.shorten(added)
        } else {
            Ok(String::new())
        }
    }

    /// Returns the text still held back and empties the stream.
    ///
    /// # Errors
    /// Never for ids that [`DecodeStream::push`] accepted.
    pub fn finish(&mut self) -> Result<String> {
        let added = self.added()?;
        self.window.clear();
        self.given.clear();
        self.num_given = 0;
        Ok(added)
    }

    /// Shortens the window to the tokens of the last piece. If these have no text of their own, because a
    /// decoder strips leading spaces, it would strip more of the following ones: then the window stays, up to
    /// a maximum length.
    /// would strip more of those that follow: then the window stays, up to a length.
    fn forget(&mut self) -> Result<()> {
        let last = self.tokenizer.decode(&self.window[self.num_given..], self.skip_special)?;
        if !last.is_empty() {
            self.window.drain(..self.num_given);
        } else if self.window.len() >= PENDING_TOKENS_MAX {
            self.window.drain(..self.window.len() - KEPT_TOKENS);
        }
        self.num_given = self.window.len();
        self.given = if last.is_empty() { self.decoded()? } else { last };
        Ok(())
    }

    /// Returns all of `added` except its last character, which more bytes may change, and shortens the
    /// window.
    fn shorten(&mut self, mut added: String) -> Result<String> {
        self.window.drain(..self.window.len() - KEPT_TOKENS);
        self.num_given = self.window.len();
        self.given = self.decoded()?;
        if added.ends_with(UNFINISHED) && self.given.ends_with(UNFINISHED) {
            added.pop();
            self.given.pop();
        }
        Ok(added)
    }

    fn decoded(&self) -> Result<String> {
        self.tokenizer.decode(&self.window, self.skip_special)
    }

    /// Returns the text of the window minus the returned part; empty if a decoder retracts a space.
    fn added(&self) -> Result<String> {
        let text = self.decoded()?;
        if text.len() <= self.given.len() || text.ends_with(UNFINISHED) && !text.starts_with(&self.given) {
            return Ok(String::new());
        }
        text.strip_prefix(&self.given).map(str::to_owned).ok_or_else(|| {
            let detail = format!("ids must not change what was given: got {text:?} after {:?}", self.given);
            Error::new(ErrorKind::Incompatible, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddedTokens, CharTokenizer, CharTokenizerOptions, Encoding};

    /// A naive byte tokenizer: ids 0..256 are bytes, 256 is special; invalid UTF-8 decodes to U+FFFD.
    struct Bytes;

    impl Tokenizer for Bytes {
        fn vocab_size(&self) -> usize {
            257
        }
        fn encode_into(&self, text: &str, _: AddedTokens, encoding: &mut Encoding) -> Result<()> {
            encoding.ids.extend(text.bytes().map(u32::from));
            let ranges = text.char_indices().flat_map(|(start, character)| {
                std::iter::repeat_n(
                    [start as u32, (start + character.len_utf8()) as u32],
                    character.len_utf8(),
                )
            });
            encoding.offsets.extend(ranges);
            Ok(())
        }
        fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
            let mut bytes = Vec::new();
            for &id in ids {
                match u8::try_from(id) {
                    Ok(byte) => bytes.push(byte),
                    Err(_) if id == 256 => bytes.extend_from_slice(if skip_special { b"" } else { b"<end>" }),
                    Err(_) => {
                        return Err(Error::new(
                            ErrorKind::OutOfRange,
                            format!("id must be below 257: got {id}"),
                        ));
                    }
                }
            }
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        fn id_of(&self, token: &str) -> Option<u32> {
            (0..257).find(|&id| self.token_of(id).as_deref() == Some(token))
        }
        fn token_of(&self, id: u32) -> Option<String> {
            (id <= 256).then(|| if id == 256 { "<end>".to_owned() } else { format!("<0x{id:02X}>") })
        }
        fn is_special(&self, id: u32) -> bool {
            id == 256
        }
        fn to_json(&self) -> String {
            "{}".to_owned()
        }
    }

    #[test]
    fn the_byte_tokenizer_passes_the_common_suite() {
        crate::check_tokenizer(&Bytes, &["", "a猫🐈", "<end>"]);
    }

    #[test]
    fn a_character_of_many_tokens_comes_out_whole() {
        let mut stream = DecodeStream::new(Arc::new(Bytes), true);
        let pieces: Vec<String> = "a🐈b".bytes().map(|byte| stream.push(u32::from(byte)).unwrap()).collect();
        assert_eq!(pieces, ["a", "", "", "", "🐈", "b"]);
        assert_eq!(stream.finish().unwrap(), "");
    }

    #[test]
    fn unfinished_bytes_come_out_at_the_end() {
        let mut stream = DecodeStream::new(Arc::new(Bytes), true);
        assert_eq!(stream.push(0xF0).unwrap(), "");
        assert_eq!(stream.finish().unwrap(), "\u{FFFD}");
        assert_eq!(stream.finish().unwrap(), "");
    }

    #[test]
    fn broken_bytes_come_out_after_a_bounded_wait() {
        let mut stream = DecodeStream::new(Arc::new(Bytes), true);
        let pieces: Vec<String> = (0..3 * PENDING_TOKENS_MAX).map(|_| stream.push(0xFF).unwrap()).collect();
        let sizes = |range: std::ops::Range<usize>| pieces[range].concat().chars().count();
        assert_eq!(sizes(0..PENDING_TOKENS_MAX - 1), 0);
        assert_eq!(sizes(PENDING_TOKENS_MAX - 1..PENDING_TOKENS_MAX), PENDING_TOKENS_MAX - 1);
        assert!(stream.window.len() <= PENDING_TOKENS_MAX + KEPT_TOKENS, "the window is bounded");
        assert_eq!(pieces.concat() + &stream.finish().unwrap(), "\u{FFFD}".repeat(3 * PENDING_TOKENS_MAX));
    }

    #[test]
    fn skipped_tokens_are_not_kept() {
        let mut stream = DecodeStream::new(Arc::new(Bytes), true);
        assert_eq!(stream.push(0xC3).unwrap(), "");
        assert!((0..1000).all(|_| stream.push(256).unwrap().is_empty()));
        assert_eq!(stream.window, [0xC3]);
        assert_eq!(stream.push(0xA9).unwrap(), "é");
    }

    proptest::proptest! {
        #[test]
        fn pieces_of_any_bytes_add_up(runs in proptest::collection::vec((0_u32..257, 1_usize..90), 0..40)) {
            let ids: Vec<u32> = runs.iter().flat_map(|&(id, count)| std::iter::repeat_n(id, count)).collect();
            let mut stream = DecodeStream::new(Arc::new(Bytes), false);
            let mut joined: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
            joined.push_str(&stream.finish().unwrap());
            proptest::prop_assert_eq!(joined, Bytes.decode(&ids, false).unwrap());
        }
    }

    #[test]
    fn a_refused_id_leaves_the_stream_as_it_was() {
        let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default()).unwrap());
        let mut stream = DecodeStream::new(tokenizer, false);
        assert_eq!(stream.push(1_000_000).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(stream.push(98).unwrap(), "<|im_end|>");
        assert_eq!(stream.finish().unwrap(), "");
    }

    #[test]
    fn pieces_add_up_to_the_whole_text() {
        let text = "one 猫\u{FFFD} two 🐈\u{FFFD}";
        let mut stream = DecodeStream::new(Arc::new(Bytes), true);
        let mut joined: String = text.bytes().map(|byte| stream.push(u32::from(byte)).unwrap()).collect();
        joined.push_str(&stream.finish().unwrap());
        assert_eq!(joined, text);
    }
}
