//! Images in the layout of networks: channels first, floats.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::{check_out_keys, doubles, mapped, replaced};
use crate::observation::pixels;
use crate::transform::Transform;

/// Converts `[..., H, W, C]` to floats of shape `[..., C, H, W]`; integers are divided by 255.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{ToTensorImage, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("pixels", Tensor::from_vec(&[1, 2, 3], vec![0_u8, 51, 102, 153, 204, 255])?)?;
/// let image = ToTensorImage::default().forward(batch)?;
/// assert_eq!(image.tensor("pixels")?.shape(), [3, 1, 2]);
/// assert_eq!(image.tensor("pixels")?.to_f32_vec(), [0.0, 0.6, 0.2, 0.8, 0.4, 1.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToTensorImage {
    /// If true, elements are divided by 255. By default only elements that are not floats are.
    pub from_int: Option<bool>,
    /// If true, inserts a dimension of length 1 before an image with three.
    pub unsqueeze: bool,
    /// `"f32"` or another float dtype.
    pub dtype: String,
    /// If true, images whose last dimension is not 3 keep their order, as they already have their channels
    /// first.
    pub shape_tolerant: bool,
    /// The keys of the tensors. Defaults to `pixels`.
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    pub out_keys: Vec<Key>,
}

impl Default for ToTensorImage {
    fn default() -> Self {
        Self {
            from_int: None,
            unsqueeze: false,
            dtype: Dtype::F32.name().to_owned(),
            shape_tolerant: false,
            in_keys: pixels(),
            out_keys: vec![],
        }
    }
}

impl ToTensorImage {
    /// Checks and returns these options.
    ///
    /// # Errors
    /// `UnknownName` if there is no such dtype; `Incompatible` if it is not a float; `ShapeMismatch` if the
    /// numbers of input and output keys differ.
    pub fn checked(self) -> Result<Self> {
        let dtype = Dtype::parse(&self.dtype)?;
        if !is_float(dtype) {
            let detail = format!("dtype must be one of floats: got {:?}", self.dtype);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }

    fn image(&self, tensor: &Tensor) -> Result<Tensor> {
        let rank = tensor.rank();
        check_rank(tensor, 3)?;
        let channels_last = !self.shape_tolerant || tensor.shape()[rank - 1] == 3;
        let order: Vec<usize> = if channels_last {
            (0..rank - 3).chain([rank - 1, rank - 3, rank - 2]).collect()
        } else {
            (0..rank).collect()
        };
        let ordered = tensor.permute(&order)?;
        let ordered = if self.unsqueeze && rank == 3 { ordered.unsqueeze(0)? } else { ordered };
        let floats = ordered.to(Dtype::parse(&self.dtype)?)?;
        match self.from_int.unwrap_or(!is_float(tensor.dtype())) {
            true => mapped(&floats, |value| value / 255.0),
            false => Ok(floats.contiguous()),
        }
    }
}

impl Transform for ToTensorImage {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| self.image(tensor))
    }
}

/// Converts `[..., 3, H, W]` to the brightness `[..., 1, H, W]`: `0.2989 R + 0.587 G + 0.114 B`.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{GrayScale, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("pixels", Tensor::from_vec(&[3, 1, 1], vec![0.0_f32, 1.0, 0.0])?)?;
/// assert_eq!(GrayScale::default().forward(batch)?.tensor("pixels")?.to_f32_vec(), [0.587]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrayScale {
    /// The keys of the tensors. Defaults to `pixels`.
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    pub out_keys: Vec<Key>,
}

impl Default for GrayScale {
    fn default() -> Self {
        Self { in_keys: pixels(), out_keys: vec![] }
    }
}

impl GrayScale {
    pub(crate) fn checked(self) -> Result<Self> {
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }
}

impl Transform for GrayScale {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| {
            check_rank(tensor, 3)?;
            let mut shape = tensor.shape().to_vec();
            let channels = shape.len() - 3;
            if shape[channels] != 3 {
                let detail = format!("an image must have 3 channels, [..., 3, H, W]: got {shape:?}");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
            let size: usize = shape[channels + 1..].iter().product();
            let colors = doubles(tensor)?;
            let gray = colors.chunks_exact((3 * size).max(1)).flat_map(|image| {
                (0..size)
                    .map(|at| 0.2989 * image[at] + 0.587 * image[size + at] + 0.114 * image[2 * size + at])
            });
            shape[channels] = 1;
            Tensor::from_vec::<f64>(&shape, gray.collect())?.to(tensor.dtype())
        })
    }
}

pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}

pub(crate) fn check_rank(tensor: &Tensor, rank: usize) -> Result<()> {
    if tensor.rank() >= rank {
        return Ok(());
    }
    let detail = format!("an image must have at least {rank} dimensions: got shape {:?}", tensor.shape());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}
