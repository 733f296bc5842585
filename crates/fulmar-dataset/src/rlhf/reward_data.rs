//! Texts and the rewards of a model, as records. B texts, L tokens of a row.

use fulmar_core::{Dtype, Result};
use fulmar_tensor::{Tensor, TensorDict};

use super::fields::{check_names, dict_of, field, optional};

const NAMES: [&str; 4] = ["input_ids", "attention_mask", "rewards", "end_scores"];

/// Texts as ids, and the rewards of their tokens and of the whole.
///
/// # Examples
/// ```
/// use fulmar_dataset::RewardData;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut dict = TensorDict::new(&[1])?;
/// dict.set("input_ids", Tensor::from_vec(&[1, 2], vec![1_i64, 2])?)?;
/// dict.set("attention_mask", Tensor::from_vec(&[1, 2], vec![1_i64, 1])?)?;
/// let mut data = RewardData::from_dict(&dict)?;
/// data.end_scores = Some(Tensor::from_vec(&[1], vec![0.5_f32])?);
/// assert_eq!(data.to_dict()?.tensor("end_scores")?.to_f32_vec(), [0.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RewardData {
    /// Ids of the texts, `i64` `[B, L]`.
    pub input_ids: Tensor,
    /// 1 where the ids are no padding, `i64` `[B, L]`.
    pub attention_mask: Tensor,
    /// Rewards of the tokens, `f32` `[B, L]`.
    pub rewards: Option<Tensor>,
    /// Rewards of the texts, `f32` `[B]`.
    pub end_scores: Option<Tensor>,
}

impl RewardData {
    /// Reads a dictionary with these fields as keys.
    ///
    /// # Errors
    /// `UnknownName` for a key that is missing, and for another one; `Incompatible` for another dtype.
    pub fn from_dict(dict: &TensorDict) -> Result<Self> {
        check_names(dict, &NAMES)?;
        Ok(Self {
            input_ids: field(dict, "input_ids", Dtype::I64)?,
            attention_mask: field(dict, "attention_mask", Dtype::I64)?,
            rewards: optional(dict, "rewards", Dtype::F32)?,
            end_scores: optional(dict, "end_scores", Dtype::F32)?,
        })
    }

    /// Returns the fields that there are, in a dictionary of the batch size `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if a field has another number of rows.
    pub fn to_dict(&self) -> Result<TensorDict> {
        let num_rows = self.input_ids.shape().first().copied().unwrap_or(0);
        dict_of(
            &[num_rows],
            [
                ("input_ids", Some(self.input_ids.clone().into())),
                ("attention_mask", Some(self.attention_mask.clone().into())),
                ("rewards", self.rewards.clone().map(Into::into)),
                ("end_scores", self.end_scores.clone().map(Into::into)),
            ],
        )
    }
}
