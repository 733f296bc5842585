//! Prompts with their labels to dictionaries of ids of one length. B prompts, L ids of a row.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};
use fulmar_tokenizer::Tokenizer;

use super::tensor_dict_tokenizer::{TensorDictTokenizer, named_id};

/// Maps prompts and labels to ids, each label right behind its prompt, padded and cut on the right to one length.
///
/// # Examples
/// ```
/// use fulmar_dataset::PromptTensorDictTokenizer;
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let options = CharTokenizerOptions { alphabet: "_abc".to_owned(), special_tokens: Vec::new() };
/// let tokenizer = CharTokenizer::new(options)?;
/// let map = PromptTensorDictTokenizer::new(&tokenizer, 5, Some(0), Some(0))?;
/// let dict = map.apply(&["ab", "a"], &["c", "bbbb"])?;
/// assert_eq!(dict.tensor("input_ids")?.to_vec::<i64>()?, [1, 2, 3, 0, 0, 1, 2, 2, 2, 2]);
/// assert_eq!(dict.tensor("prompt_rindex")?.to_vec::<i64>()?, [1, 0]);
/// assert_eq!(dict.tensor("valid_sample")?.to_vec::<bool>()?, [true, false]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct PromptTensorDictTokenizer<'a> {
    map: TensorDictTokenizer<'a>,
    max_length: usize,
    end_id: u32,
}

impl<'a> PromptTensorDictTokenizer<'a> {
    /// Makes a mapper to rows of `max_length` ids. The ids that pad and that end a text are those of the tokenizer's `pad_token` and `eos_token` if
    /// absent.
    ///
    /// # Errors
    /// `OutOfRange` as in [`TensorDictTokenizer::new`]; `Incompatible` without an id for padding or for the end.
    pub fn new(
        tokenizer: &'a dyn Tokenizer,
        max_length: usize,
        pad_id: Option<u32>,
        end_id: Option<u32>,
    ) -> Result<Self> {
        let map = TensorDictTokenizer::new(tokenizer, max_length, pad_id)?;
        let end_id = end_id.map_or_else(|| named_id(tokenizer, "end_id", "eos_token"), Ok)?;
        Ok(Self { map, max_length, end_id })
    }

    /// Returns `input_ids` and `attention_mask`, `i64` `[B, L]`; `prompt_rindex`, `i64` `[B]`, the position of the last token of the prompt; and
    /// `valid_sample`, `bool` `[B]`, true where the last token of the row is the end. The batch size is `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` for lists of two lengths; `Empty` for a prompt without a token; those of [`TensorDictTokenizer::apply`].
    pub fn apply(
        &self,
        prompts: &[impl AsRef<str> + Sync],
        labels: &[impl AsRef<str> + Sync],
    ) -> Result<TensorDict> {
        if prompts.len() != labels.len() {
            let detail =
                format!("labels must be {}, one for each prompt: got {}", prompts.len(), labels.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let whole: Vec<_> = prompts
            .iter()
            .zip(labels)
            .map(|(prompt, label)| joined(prompt.as_ref(), label.as_ref()))
            .collect();
        let mut dict = self.map.apply(&whole)?;
        let mut ends = Vec::with_capacity(prompts.len());
        for (at, ids) in self.map.encoded(prompts)?.iter().enumerate() {
            let Some(last) = ids.len().checked_sub(1) else {
                let detail = format!("prompts[{at}] must have a token: got {:?}", prompts[at].as_ref());
                return Err(Error::new(ErrorKind::Empty, detail));
            };
            ends.push(last as i64);
        }
        let ids = dict.tensor("input_ids")?.to_vec::<i64>()?;
        let is_end = |row: &[i64]| row.last() == Some(&i64::from(self.end_id));
        let valid: Vec<_> = ids.chunks(self.max_length).map(is_end).collect();
        dict.set("prompt_rindex", Tensor::from_vec(&[ends.len()], ends)?)?;
        dict.set("valid_sample", Tensor::from_vec(&[valid.len()], valid)?)?;
        Ok(dict)
    }

    /// Returns true for each prompt that is, with its label, longer than a row.
    pub(super) fn are_long(&self, prompts: &[&str], labels: &[&str]) -> Result<Vec<bool>> {
        let whole: Vec<_> = prompts.iter().zip(labels).map(|(prompt, label)| joined(prompt, label)).collect();
        self.map.are_long(&whole)
    }
}

fn joined(prompt: &str, label: &str) -> String {
    format!("{prompt}{label}")
}
