//! Text as tokens arrive.
//!
//! A token may end inside a character (byte-level vocabularies), and a token's text may depend on the tokens before
//! it. So the stream decodes a short window twice, without and with the new token, and emits what was added, once
//! that does not end in U+FFFD, the mark of an unfinished character.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};

use crate::{Result, Tokenizer};

/// Most tokens that one unfinished character may take before it is emitted as it is. UTF-8 needs at most 4.
const PENDING_TOKENS_MAX: usize = 8;

/// Decodes one token at a time. The pieces and [`DecodeStream::finish`] add up to [`Tokenizer::decode`] of all ids.
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
    window: Vec<u32>,
    num_emitted: usize,
}

impl DecodeStream {
    /// An empty stream; `skip_special` as in [`Tokenizer::decode`].
    #[must_use]
    pub fn new(tokenizer: Arc<dyn Tokenizer>, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, window: Vec::new(), num_emitted: 0 }
    }

    /// The text that `id` completes; empty while a character is unfinished. The stream is unchanged on failure.
    ///
    /// # Errors
    /// `OutOfRange` if `id` is not in the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.window.push(id);
        match self.added_text() {
            Err(error) => {
                self.window.pop();
                Err(error)
            }
            Ok(added) if added.ends_with('\u{FFFD}') && self.num_pending() < PENDING_TOKENS_MAX => {
                Ok(String::new())
            }
            Ok(added) => {
                self.window.drain(..self.num_emitted);
                self.num_emitted = self.window.len();
                Ok(added)
            }
        }
    }

    /// What is still held back, as it is; the stream is empty afterwards.
    ///
    /// # Errors
    /// None for ids that [`DecodeStream::push`] accepted.
    pub fn finish(&mut self) -> Result<String> {
        let added = self.added_text()?;
        self.window.clear();
        self.num_emitted = 0;
        Ok(added)
    }

    fn num_pending(&self) -> usize {
        self.window.len() - self.num_emitted
    }

    /// The text of the whole window less the text of its emitted part.
    fn added_text(&self) -> Result<String> {
        let emitted = self.tokenizer.decode(&self.window[..self.num_emitted], self.skip_special)?;
        let whole = self.tokenizer.decode(&self.window, self.skip_special)?;
        whole.strip_prefix(&emitted).map(str::to_owned).ok_or_else(|| {
            let detail =
                format!("decode must only append as ids are appended: got {whole:?} after {emitted:?}");
            Error::new(ErrorKind::Incompatible, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddedTokens, CharTokenizer, CharTokenizerOptions, Encoding};

    /// The naive byte tokenizer: ids 0..256 are bytes, 256 is special; broken UTF-8 decodes to U+FFFD.
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
    fn unfinished_bytes_come_out_at_the_end_and_after_a_bounded_wait() {
        let mut stream = DecodeStream::new(Arc::new(Bytes), true);
        assert_eq!(stream.push(0xF0).unwrap(), "");
        assert_eq!(stream.finish().unwrap(), "\u{FFFD}");
        let pieces: Vec<String> = (0..PENDING_TOKENS_MAX).map(|_| stream.push(0xFF).unwrap()).collect();
        assert!(pieces[..PENDING_TOKENS_MAX - 1].iter().all(String::is_empty));
        assert_eq!(pieces[PENDING_TOKENS_MAX - 1], "\u{FFFD}".repeat(PENDING_TOKENS_MAX));
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
