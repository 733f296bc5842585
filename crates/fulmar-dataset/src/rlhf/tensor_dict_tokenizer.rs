//! Texts to dictionaries of ids of one length. B texts, L ids of a row.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};
use fulmar_tokenizer::{AddedTokens, Tokenizer, encode_batch};

/// Maps texts to ids, padded and cut on the right to one length. Names of special tokens in the texts become their ids, and the special tokens
/// of the tokenizer's file are added around them.
///
/// # Examples
/// ```
/// use fulmar_dataset::TensorDictTokenizer;
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let options = CharTokenizerOptions { alphabet: "_abc".to_owned(), special_tokens: Vec::new() };
/// let tokenizer = CharTokenizer::new(options)?;
/// let dict = TensorDictTokenizer::new(&tokenizer, 3, Some(0))?.apply(&["ab", "cccc"])?;
/// assert_eq!(dict.tensor("input_ids")?.to_vec::<i64>()?, [1, 2, 0, 3, 3, 3]);
/// assert_eq!(dict.tensor("attention_mask")?.to_vec::<i64>()?, [1, 1, 0, 1, 1, 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct TensorDictTokenizer<'a> {
    tokenizer: &'a dyn Tokenizer,
    max_length: usize,
    pad_id: u32,
}

impl<'a> TensorDictTokenizer<'a> {
    /// Makes a mapper to rows of `max_length` ids; `pad_id` is that of the tokenizer's `pad_token` if absent.
    ///
    /// # Errors
    /// `OutOfRange` if `max_length` is 0 or less than the special tokens around a text; `Incompatible` without an id for padding.
    pub fn new(tokenizer: &'a dyn Tokenizer, max_length: usize, pad_id: Option<u32>) -> Result<Self> {
        let least = tokenizer.surroundings().iter().map(|ids| ids.len()).sum::<usize>().max(1);
        if max_length < least {
            let detail = format!("max_length must be at least {least}: got {max_length}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let pad_id = pad_id.map_or_else(|| named_id(tokenizer, "pad_id", "pad_token"), Ok)?;
        Ok(Self { tokenizer, max_length, pad_id })
    }

    /// Returns `input_ids` and `attention_mask`, `i64` `[B, L]`, of the batch size `[B]`.
    ///
    /// # Errors
    /// The errors of [`encode_batch`].
    pub fn apply(&self, texts: &[impl AsRef<str> + Sync]) -> Result<TensorDict> {
        let rows = self.encoded(texts)?;
        let shape = [rows.len(), self.max_length];
        let mut ids = vec![i64::from(self.pad_id); rows.len() * self.max_length];
        let mut mask = vec![0_i64; ids.len()];
        for (at, row) in rows.iter().enumerate() {
            let start = at * self.max_length;
            for (place, id) in ids[start..].iter_mut().zip(row) {
                *place = i64::from(*id);
            }
            mask[start..start + row.len()].fill(1);
        }
        let mut dict = TensorDict::new(&[rows.len()])?;
        dict.set("input_ids", Tensor::from_vec(&shape, ids)?)?;
        dict.set("attention_mask", Tensor::from_vec(&shape, mask)?)?;
        Ok(dict)
    }

    /// Returns the ids of each text, without padding.
    pub(super) fn encoded(&self, texts: &[impl AsRef<str> + Sync]) -> Result<Vec<Vec<u32>>> {
        let batch = encode_batch(self.tokenizer, texts, AddedTokens::AsIds)?;
        let [before, after] = self.tokenizer.surroundings();
        let most = self.max_length - before.len() - after.len();
        let row = |ends: &[u32]| {
            let (start, end) = (ends[0] as usize, ends[1] as usize);
            let ids = &batch.tokens.ids[start..end.min(start + most)];
            [before, ids, after].concat()
        };
        Ok(batch.rows.windows(2).map(row).collect())
    }

    /// Returns true for each text that is longer than a row.
    pub(super) fn are_long(&self, texts: &[impl AsRef<str> + Sync]) -> Result<Vec<bool>> {
        let batch = encode_batch(self.tokenizer, texts, AddedTokens::AsIds)?;
        let added: usize = self.tokenizer.surroundings().iter().map(|ids| ids.len()).sum();
        let is_long = |ends: &[u32]| (ends[1] - ends[0]) as usize + added > self.max_length;
        Ok(batch.rows.windows(2).map(is_long).collect())
    }
}

/// Returns the id of a special token, such as `eos_token`.
pub(super) fn named_id(tokenizer: &dyn Tokenizer, argument: &str, name: &str) -> Result<u32> {
    let token = tokenizer.special_tokens().get(name).and_then(|token| token.as_str());
    token.and_then(|token| tokenizer.id_of(token)).ok_or_else(|| {
        let detail = format!("{argument} must be given for a tokenizer without {name}: it is None");
        Error::new(ErrorKind::Incompatible, detail)
    })
}
