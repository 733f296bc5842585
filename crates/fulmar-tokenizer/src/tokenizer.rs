//! The trait that every tokenizer implements.

use std::sync::LazyLock;

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::{Map, Value};

use crate::Result;

/// The treatment of an added token's name, such as `<|im_end|>`, inside a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AddedTokens {
    /// It stays text: users and models can never end a turn.
    #[default]
    AsText,
    /// It becomes the token's id: for the output of templates, which contain markers by name.
    AsIds,
}

impl From<bool> for AddedTokens {
    /// Returns [`AddedTokens::AsIds`] for `true`.
    fn from(as_ids: bool) -> Self {
        if as_ids { Self::AsIds } else { Self::AsText }
    }
}

/// The result of [`Tokenizer::encode`]: two parallel lists, one entry for each token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoding {
    /// Token ids.
    pub ids: Vec<u32>,
    /// `[start, end)` of each token in bytes of the UTF-8 text. Starts never decrease; the tokens of a split
    /// character share its range.
    pub offsets: Vec<[u32; 2]>,
}

impl Encoding {
    pub(crate) fn push(&mut self, id: u32, start: usize, end: usize) {
        self.ids.push(id);
        self.offsets.push([start as u32, end as u32]);
    }
}

/// Converts text to ids and back. Ids are below `vocab_size()`; some may have no token.
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
    /// Returns the largest id + 1, special ones included; more than the number of tokens if ids have gaps.
    fn vocab_size(&self) -> usize;

    /// Appends the ids of `text` to `encoding`, with offsets from the beginning of `text`. Empty text gives
    /// no ids. Adds nothing before or after the text. A vocabulary with a token for unknown text uses it.
    ///
    /// # Errors
    /// `UnknownText` if the vocabulary cannot express a character, with the character and its byte position;
    /// `LimitExceeded` if `text` is longer than [`limits::MESSAGE_BYTES_MAX`]. `encoding` is unchanged then.
    fn encode_into(&self, text: &str, added: AddedTokens, encoding: &mut Encoding) -> Result<()>;

    /// Returns the ids of `text` without added tokens: a marker spelled in `text` stays text.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode_into`].
    fn encode(&self, text: &str) -> Result<Encoding> {
        let mut encoding = Encoding::default();
        self.encode_into(text, AddedTokens::AsText, &mut encoding)?;
        Ok(encoding)
    }

    /// Returns the ids of `text`, with spelled markers as their ids. For the output of a template.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode_into`].
    fn encode_added(&self, text: &str) -> Result<Encoding> {
        let mut encoding = Encoding::default();
        self.encode_into(text, AddedTokens::AsIds, &mut encoding)?;
        Ok(encoding)
    }

    /// Returns the text of `ids`. Special ids are skipped if `skip_special`, else written by name. Ids
    /// without a token have no text.
    ///
    /// # Errors
    /// `OutOfRange` if an id is not below [`Tokenizer::vocab_size`].
    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String>;

    /// Returns the id of `token`, special or not; `None` if there is no such token.
    fn id_of(&self, token: &str) -> Option<u32>;

    /// Returns the name of `id`; `None` if it has no token.
    fn token_of(&self, id: u32) -> Option<String>;

    /// Returns whether `id` is a special token; `false` for ids that do not exist.
    fn is_special(&self, id: u32) -> bool;

    /// Returns the tokenizer's own JSON form, which can be read again.
    fn to_json(&self) -> String;

    /// Returns the special ids that the tokenizer's file adds before and after a text without a chat
    /// template, such as `[CLS]` and `[SEP]`. Empty by default.
    fn surroundings(&self) -> [&[u32]; 2] {
        Default::default()
    }

    /// Returns special tokens by their name in chat templates, such as `eos_token`. Empty by default.
    fn special_tokens(&self) -> &Map<String, Value> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        &NONE
    }

    /// Returns the source of the tokenizer's chat template.
    fn chat_template(&self) -> Option<&str> {
        self.named_template("default")
    }

    /// Returns the source of one of the tokenizer's named templates; some have one called `tool_use`. `None`
    /// by default.
    fn named_template(&self, _name: &str) -> Option<&str> {
        None
    }
}

/// Refuses a text of `num_bytes` bytes past the limit, before any allocation.
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
