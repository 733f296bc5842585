//! Pairs of texts of which the first is preferred, as records.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, TensorDict};

use super::fields::{check_names, dict_of};
use super::reward_data::RewardData;
use super::text_lines::{TextRow, text_at};

/// Pairs of texts to train a reward model on: `[B]` of them.
///
/// # Examples
/// ```
/// use fulmar_dataset::PairwiseDataset;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut texts = TensorDict::new(&[2])?; // the preferred ones, then the others
/// texts.set("input_ids", Tensor::from_vec(&[2, 2], vec![1_i64, 2, 1, 3])?)?;
/// texts.set("attention_mask", Tensor::from_vec(&[2, 2], vec![1_i64; 4])?)?;
/// let pairs = PairwiseDataset::from_texts(&texts)?;
/// assert_eq!(pairs.rejected_data.input_ids.to_vec::<i64>()?, [1, 3]);
/// assert_eq!(PairwiseDataset::from_dict(&pairs.to_dict()?)?, pairs);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PairwiseDataset {
    /// The preferred texts, `[B]`.
    pub chosen_data: RewardData,
    /// The others, `[B]`.
    pub rejected_data: RewardData,
}

impl PairwiseDataset {
    /// Makes pairs of the first half of the texts and the second, as [`pre_tokenization_hook`] orders them.
    ///
    /// # Errors
    /// `ShapeMismatch` for an odd number of texts, or other than one batch dimension; those of [`RewardData::from_dict`].
    pub fn from_texts(texts: &TensorDict) -> Result<Self> {
        let num_texts = match *texts.batch_size() {
            [num_texts] if num_texts % 2 == 0 => num_texts,
            ref size => {
                let detail = format!("the texts of pairs must be an even number, [2 B]: got {size:?}");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
        };
        Ok(Self {
            chosen_data: RewardData::from_dict(&texts.slice(0..num_texts / 2)?)?,
            rejected_data: RewardData::from_dict(&texts.slice(num_texts / 2..num_texts)?)?,
        })
    }

    /// Reads a dictionary with these fields as keys.
    ///
    /// # Errors
    /// `UnknownName` for a key that is missing, and for another one; `Incompatible` for an entry that is no dictionary; those of
    /// [`RewardData::from_dict`].
    pub fn from_dict(dict: &TensorDict) -> Result<Self> {
        check_names(dict, &["chosen_data", "rejected_data"])?;
        let side = |name: &str| RewardData::from_dict(dict.dict(name)?).map_err(|error| error.at(name));
        Ok(Self { chosen_data: side("chosen_data")?, rejected_data: side("rejected_data")? })
    }

    /// Returns both fields, in a dictionary of the batch size `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if the numbers of texts differ; those of [`RewardData::to_dict`].
    pub fn to_dict(&self) -> Result<TensorDict> {
        let (chosen, rejected) = (self.chosen_data.to_dict()?, self.rejected_data.to_dict()?);
        let size = chosen.batch_size().to_vec();
        dict_of(
            &size,
            [("chosen_data", Some(Entry::Dict(chosen))), ("rejected_data", Some(Entry::Dict(rejected)))],
        )
    }
}

/// Returns one text for each pair of `rows`: `prompt`, a line feed and the summary in the column `side`, which is `chosen` or `rejected`. Pairs of
/// equal summaries are left out, and those with a summary of fewer than `min_length` words; TorchRL's number is 5. The rows of both sides are
/// in the same order.
///
/// # Errors
/// `Malformed`, with the row, for a column without a text; `UnknownName` for another side.
///
/// # Examples
/// ```
/// use fulmar_dataset::{pre_tokenization_hook, read_text_lines};
/// let lines = concat!(
///     r#"{"prompt": "TL;DR:", "chosen": "a short one", "rejected": "a bad one"}"#, "\n",
///     r#"{"prompt": "TL;DR:", "chosen": "the same", "rejected": "the same"}"#, "\n",
/// );
/// let rows: Vec<_> = read_text_lines(lines.as_bytes()).collect::<Result<_, _>>()?;
/// assert_eq!(pre_tokenization_hook(&rows, "chosen", 2)?, ["TL;DR:\na short one"]);
/// assert_eq!(pre_tokenization_hook(&rows, "rejected", 2)?, ["TL;DR:\na bad one"]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn pre_tokenization_hook(rows: &[TextRow], side: &str, min_length: usize) -> Result<Vec<String>> {
    if !["chosen", "rejected"].contains(&side) {
        let detail = format!("side must be chosen or rejected: got {side}");
        return Err(Error::new(ErrorKind::UnknownName, detail));
    }
    let mut texts = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let text = |name: &str| text_at(row, name).map_err(|error| error.at(format!("row {at}")));
        let (prompt, chosen, rejected) = (text("prompt")?, text("chosen")?, text("rejected")?);
        let has_words = |summary: &str| summary.split_whitespace().nth(min_length.wrapping_sub(1)).is_some();
        let is_long = min_length == 0 || (has_words(chosen) && has_words(rejected));
        if chosen != rejected && is_long {
            let summary = if side == "chosen" { chosen } else { rejected };
            texts.push(format!("{prompt}\n{summary}"));
        }
    }
    Ok(texts)
}
