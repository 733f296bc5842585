//! Prompts with their labels, as records. B prompts, L tokens of a row.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};

use super::fields::{check_dtype, check_names, check_shape, dict_of, field, optional};

const NAMES: [&str; 6] = ["input_ids", "attention_mask", "prompt_rindex", "labels", "logits", "loss"];

/// Prompts with their labels, one behind the other in a row: `prompt_rindex` is where a prompt ends.
///
/// # Examples
/// ```
/// use fulmar_dataset::PromptData;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut dict = TensorDict::new(&[2])?;
/// dict.set("input_ids", Tensor::from_vec(&[2, 3], vec![1_i64, 2, 3, 4, 5, 6])?)?;
/// dict.set("attention_mask", Tensor::from_vec(&[2, 3], vec![1_i64; 6])?)?;
/// dict.set("prompt_rindex", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
/// let prompts = PromptData::from_dict(&dict)?.mask_label(0)?;
/// assert_eq!(prompts.input_ids.to_vec::<i64>()?, [1, 0, 0, 4, 5, 0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PromptData {
    /// Ids of prompts and labels, `i64` `[B, L]`.
    pub input_ids: Tensor,
    /// 1 where the ids are no padding, `i64` `[B, L]`.
    pub attention_mask: Tensor,
    /// Positions that end the prompts, `i64` `[B]`.
    pub prompt_rindex: Tensor,
    /// Ids that a model shall write, `i64` `[B, L]`.
    pub labels: Option<Tensor>,
    /// Logits of a model, `f32` `[B, L, V]`.
    pub logits: Option<Tensor>,
    /// Loss of each row, `f32` `[B]`.
    pub loss: Option<Tensor>,
}

impl PromptData {
    /// Reads a dictionary with these fields as keys.
    ///
    /// # Errors
    /// `UnknownName` for a key that is missing, and for another one; `Incompatible` for another dtype.
    pub fn from_dict(dict: &TensorDict) -> Result<Self> {
        check_names(dict, &NAMES)?;
        Ok(Self {
            input_ids: field(dict, "input_ids", Dtype::I64)?,
            attention_mask: field(dict, "attention_mask", Dtype::I64)?,
            prompt_rindex: field(dict, "prompt_rindex", Dtype::I64)?,
            labels: optional(dict, "labels", Dtype::I64)?,
            logits: optional(dict, "logits", Dtype::F32)?,
            loss: optional(dict, "loss", Dtype::F32)?,
        })
    }

    /// Returns the fields that there are, in a dictionary of the batch size `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if a field has another number of rows.
    pub fn to_dict(&self) -> Result<TensorDict> {
        let num_rows = self.prompt_rindex.num_elements();
        dict_of(
            &[num_rows],
            [
                ("input_ids", Some(self.input_ids.clone().into())),
                ("attention_mask", Some(self.attention_mask.clone().into())),
                ("prompt_rindex", Some(self.prompt_rindex.clone().into())),
                ("labels", self.labels.clone().map(Into::into)),
                ("logits", self.logits.clone().map(Into::into)),
                ("loss", self.loss.clone().map(Into::into)),
            ],
        )
    }

    /// Returns the prompts without their labels: the tokens before `prompt_rindex`, then `pad_token_id`.
    ///
    /// # Errors
    /// `ShapeMismatch` for ids that have not two dimensions, or fields that do not agree; `OutOfRange` for a position outside its row;
    /// `Incompatible` for another dtype.
    pub fn mask_label(&self, pad_token_id: u32) -> Result<Self> {
        let width = self.width()?;
        let (mut ids, mut mask) = (self.input_ids.to_vec::<i64>()?, self.attention_mask.to_vec::<i64>()?);
        for (row, end) in self.prompt_ends()?.into_iter().enumerate() {
            let behind = row * width + end..(row + 1) * width;
            ids[behind.clone()].fill(pad_token_id.into());
            mask[behind].fill(0);
        }
        Ok(Self {
            input_ids: Tensor::from_vec(self.input_ids.shape(), ids)?,
            attention_mask: Tensor::from_vec(self.input_ids.shape(), mask)?,
            prompt_rindex: self.prompt_rindex.clone(),
            labels: None,
            logits: None,
            loss: None,
        })
    }

    /// Returns the number of tokens of a row, after a check of the shapes.
    pub(super) fn width(&self) -> Result<usize> {
        let fields = [
            ("input_ids", &self.input_ids),
            ("attention_mask", &self.attention_mask),
            ("prompt_rindex", &self.prompt_rindex),
        ];
        for (name, tensor) in fields {
            check_dtype(name, tensor, Dtype::I64)?;
        }
        let &[num_rows, width] = self.input_ids.shape() else {
            let detail = format!("input_ids must be of [B, L]: got {:?}", self.input_ids.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        check_shape("attention_mask", &self.attention_mask, &[num_rows, width])?;
        check_shape("prompt_rindex", &self.prompt_rindex, &[num_rows])?;
        Ok(width)
    }

    /// Returns the positions that end the prompts, each in its row.
    pub(super) fn prompt_ends(&self) -> Result<Vec<usize>> {
        let width = self.width()?;
        let inside = |end: i64| usize::try_from(end).ok().filter(|end| *end <= width);
        let ends = self.prompt_rindex.to_vec::<i64>()?.into_iter().map(|end| {
            inside(end).ok_or_else(|| {
                let detail = format!("prompt_rindex must be from 0 to {width}: got {end}");
                Error::new(ErrorKind::OutOfRange, detail)
            })
        });
        ends.collect()
    }
}
