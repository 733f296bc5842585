//! The trait that every tokenizer implements.

use fulmar_core::{Error, ErrorKind, limits};

use crate::Result;

/// What [`Tokenizer::encode`] returns: two parallel lists, one entry for each token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoding {
    /// Token ids, none of them special.
    pub ids: Vec<u32>,
    /// `[start, end)` of each token in bytes of the UTF-8 text. Starts never decrease; tokens of one
    /// character that is split over several tokens share its range.
    pub offsets: Vec<[u32; 2]>,
}

/// Text to ids and back. Ids are `0..vocab_size()`.
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
    /// How many ids there are, special ones included.
    fn vocab_size(&self) -> usize;

    /// The ids of `text`, none of them special. Empty text gives no ids.
    ///
    /// # Errors
    /// `UnknownText` if the vocabulary cannot express a character, with the character and its byte position;
    /// `LimitExceeded` if `text` is longer than [`limits::MESSAGE_BYTES_MAX`].
    fn encode(&self, text: &str) -> Result<Encoding>;

    /// The text of `ids`. Special ids are left out if `skip_special`, else written by name.
    ///
    /// # Errors
    /// `OutOfRange` if an id is not below [`Tokenizer::vocab_size`].
    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String>;

    /// The id of `token`, special or not; `None` if there is no such token.
    fn id_of(&self, token: &str) -> Option<u32>;

    /// The name of `id`; `None` if it is not below [`Tokenizer::vocab_size`].
    fn token_of(&self, id: u32) -> Option<String>;

    /// Whether `id` is a special token. False for ids that do not exist.
    fn is_special(&self, id: u32) -> bool;
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
