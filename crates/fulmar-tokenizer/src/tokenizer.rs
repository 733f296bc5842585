//! The trait that every tokenizer implements.

use std::sync::LazyLock;

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::{Map, Value};

use crate::Result;

/// What becomes of the name of an added token, such as `<|im_end|>`, inside a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AddedTokens {
    /// It stays the text that it is: what users and models write can never end a turn.
    #[default]
    AsText,
    /// It becomes the token's id: for the output of templates, which write markers by name.
    AsIds,
}

impl From<bool> for AddedTokens {
    /// `true` is [`AddedTokens::AsIds`].
    fn from(as_ids: bool) -> Self {
        if as_ids { Self::AsIds } else { Self::AsText }
    }
}

/// What [`Tokenizer::encode`] returns: two parallel lists, one entry for each token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoding {
    /// Token ids.
    pub ids: Vec<u32>,
    /// `[start, end)` of each token in bytes of the UTF-8 text. Starts never decrease; tokens of one
    /// character that is split over several tokens share its range.
    pub offsets: Vec<[u32; 2]>,
}

impl Encoding {
    pub(crate) fn push(&mut self, id: u32, start: usize, end: usize) {
        self.ids.push(id);
        self.offsets.push([start as u32, end as u32]);
    }
}

/// Text to ids and back. Ids are below `vocab_size()`; some of those may have no token.
///
/// Implementations must pass [`crate::check_tokenizer`].
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
/// let encoding = tokenizer.encode("<|im_end|>")?;
/// assert_eq!(encoding.ids.len(), 10, "text never becomes a special id");
/// assert_eq!(tokenizer.decode(&encoding.ids, true)?, "<|im_end|>");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub trait Tokenizer: Send + Sync {
    /// The largest id + 1, special ones included; more than there are tokens if ids have gaps.
    fn vocab_size(&self) -> usize;

    /// Appends the ids of `text` to `encoding`, with offsets that count from the beginning of `text`. Empty text
    /// gives no ids. Nothing is put before or behind the text. A vocabulary that has a token for unknown text uses it.
    ///
    /// # Errors
    /// `UnknownText` if the vocabulary cannot express a character, with the character and its byte position;
    /// `LimitExceeded` if `text` is longer than [`limits::MESSAGE_BYTES_MAX`]. `encoding` is unchanged then.
    fn encode_into(&self, text: &str, added: AddedTokens, encoding: &mut Encoding) -> Result<()>;

    /// The ids of `text`, none of them an added token's: a marker that is spelled in `text` stays text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_into`].
    fn encode(&self, text: &str) -> Result<Encoding> {
        let mut encoding = Encoding::default();
        self.encode_into(text, AddedTokens::AsText, &mut encoding)?;
        Ok(encoding)
    }

    /// The ids of `text`, where a marker that is spelled in `text` becomes its id. For what a template wrote.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_into`].
    fn encode_added(&self, text: &str) -> Result<Encoding> {
        let mut encoding = Encoding::default();
        self.encode_into(text, AddedTokens::AsIds, &mut encoding)?;
        Ok(encoding)
    }

    /// The text of `ids`. Special ids are left out if `skip_special`, else written by name. Ids without a token are
    /// no text.
    ///
    /// # Errors
    /// `OutOfRange` if an id is not below [`Tokenizer::vocab_size`].
    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String>;

    /// The id of `token`, special or not; `None` if there is no such token.
    fn id_of(&self, token: &str) -> Option<u32>;

    /// The name of `id`; `None` if it has no token.
    fn token_of(&self, id: u32) -> Option<String>;

    /// Whether `id` is a special token. False for ids that do not exist.
    fn is_special(&self, id: u32) -> bool;

    /// The tokenizer's own JSON form, from which it can be read again.
    fn to_json(&self) -> String;

    /// The special ids that the tokenizer's file puts before a text and behind it, such as those of `[CLS]` and `[SEP]`,
    /// for text that no chat template wrote. None by default.
    fn surroundings(&self) -> [&[u32]; 2] {
        Default::default()
    }

    /// Special tokens by the name that chat templates know them by, such as `eos_token`. None by default.
    fn special_tokens(&self) -> &Map<String, Value> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        &NONE
    }

    /// The source of the chat template that came with the tokenizer.
    fn chat_template(&self) -> Option<&str> {
        self.named_template("default")
    }

    /// The source of one of several templates that came with the tokenizer; some have one called `tool_use`. None by
    /// default.
    fn named_template(&self, _name: &str) -> Option<&str> {
        None
    }
}

/// Refuses a text of `num_bytes` bytes past the limit, before anything is allocated for it.
pub(crate) fn check_text_length(num_bytes: usize) -> Result<()> {
    if num_bytes > limits::MESSAGE_BYTES_MAX {
        let max = limits::MESSAGE_BYTES_MAX;
        let detail = format!("text must be at most {max} bytes: got {num_bytes}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_be_as_long_as_the_limit_and_no_longer() {
        assert_eq!(check_text_length(limits::MESSAGE_BYTES_MAX), Ok(()));
        let error = check_text_length(limits::MESSAGE_BYTES_MAX + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
