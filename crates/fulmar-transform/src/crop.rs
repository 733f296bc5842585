//! Crops the center of images.

use fulmar_core::Result;
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::image::check_rank;
use crate::number::{check_out_keys, check_size, replaced};
use crate::observation::pixels;
use crate::resize::check_side;
use crate::transform::Transform;

/// Crops `[..., A, B]` to the middle `[..., w, h]`, with zeros around an image that is too small.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{CenterCrop, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("pixels", Tensor::from_vec(&[3, 3], vec![1_u8, 2, 3, 4, 5, 6, 7, 8, 9])?)?;
/// assert_eq!(CenterCrop::new(1, Some(3))?.forward(batch)?.tensor("pixels")?.to_vec::<u8>()?, [4, 5, 6]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CenterCrop {
    /// The new length of the second to last dimension.
    pub w: usize,
    /// The new length of the last dimension. Defaults to `w`.
    #[serde(default)]
    pub h: Option<usize>,
    /// The keys of the tensors. Defaults to `pixels`.
    #[serde(default = "pixels")]
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    #[serde(default)]
    pub out_keys: Vec<Key>,
}

impl CenterCrop {
    /// Crops `pixels`.
    ///
    /// # Errors
    /// `OutOfRange` if a length is 0; `LimitExceeded` if one is more than
    /// [`TRANSFORM_IMAGE_SIDE_MAX`](fulmar_core::limits::TRANSFORM_IMAGE_SIDE_MAX).
    pub fn new(w: usize, h: Option<usize>) -> Result<Self> {
        Self { w, h, in_keys: pixels(), out_keys: vec![] }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self> {
        check_side("w", self.w)?;
        check_side("h", self.h.unwrap_or(self.w))?;
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }

    fn cropped(&self, tensor: &Tensor) -> Result<Tensor> {
        check_rank(tensor, 2)?;
        let first = tensor.rank() - 2;
        let mut shape = tensor.shape().to_vec();
        let mut around = vec![(0, 0); first];
        for (dim, len) in [(first, self.w), (first + 1, self.h.unwrap_or(self.w))] {
            let missing = len.saturating_sub(shape[dim]);
            around.push((missing / 2, missing.div_ceil(2)));
            shape[dim] += missing;
        }
        check_size(&shape)?;
        let padded = if shape == tensor.shape() { tensor.clone() } else { tensor.pad(&around, 0.0)? };
        let rows = middle(shape[first], self.w);
        let columns = middle(shape[first + 1], self.h.unwrap_or(self.w));
        padded.slice(first, rows)?.slice(first + 1, columns).map(|middle| middle.contiguous())
    }
}

impl Transform for CenterCrop {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| self.cropped(tensor))
    }
}

/// Half of an odd remainder rounds to even, as in torchvision.
fn middle(from: usize, len: usize) -> std::ops::Range<usize> {
    let begin = ((from - len) as f64 / 2.0).round_ties_even() as usize;
    begin..begin + len
}
