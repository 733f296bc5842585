//! Resizes images. Bilinear and bicubic are antialiased: each result is the mean of the elements around its
//! place in the source, weighted by a kernel as wide as the scale (at least 1), as in Pillow and torchvision.
//! Sums run in doubles in a fixed order, so all targets give the same bits.
//!
//! ```text
//! center = (at + 1/2) scale;  x = (index + 1/2 - center) / max(scale, 1)
//! bilinear   1 - |x|                                        for |x| < 1
//! bicubic    (3/2 |x| - 5/2) x^2 + 1                        for |x| < 1       (Keys, a = -1/2)
//!            ((-1/2 |x| + 5/2) |x| - 4) |x| + 2             for 1 <= |x| < 2
//! ```

use fulmar_core::limits::TRANSFORM_IMAGE_SIDE_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::image::{check_rank, is_float};
use crate::number::{at_least_1, check_out_keys, check_size, doubles, replaced};
use crate::observation::pixels;
use crate::transform::Transform;

/// The interpolation of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Interpolation {
    /// The weighted mean of the elements around its place.
    #[default]
    Bilinear,
    /// The weighted mean with a sharpening kernel: floats may leave the range of the source.
    Bicubic,
    /// The element at its place, rounded towards the first.
    Nearest,
    /// The element whose centre is nearest, as in Pillow.
    #[serde(rename = "nearest-exact")]
    NearestExact,
}

/// Resizes `[..., A, B]` to `[..., w, h]`.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{Resize, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("pixels", Tensor::from_vec(&[1, 2, 2], vec![0.0_f32, 1.0, 2.0, 3.0])?)?;
/// let small = Resize::new(1, None)?.forward(batch)?;
/// assert_eq!(small.tensor("pixels")?.to_f32_vec(), [1.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resize {
    /// The new length of the second to last dimension.
    pub w: usize,
    /// The new length of the last dimension. Defaults to `w`.
    #[serde(default)]
    pub h: Option<usize>,
    /// The interpolation. Defaults to bilinear.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// The keys of the tensors. Defaults to `pixels`.
    #[serde(default = "pixels")]
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    #[serde(default)]
    pub out_keys: Vec<Key>,
}

impl Resize {
    /// Resizes `pixels` with bilinear interpolation.
    ///
    /// # Errors
    /// `OutOfRange` if a length is 0; `LimitExceeded` if one is more than [`TRANSFORM_IMAGE_SIDE_MAX`].
    pub fn new(w: usize, h: Option<usize>) -> Result<Self> {
        Self { w, h, interpolation: Interpolation::default(), in_keys: pixels(), out_keys: vec![] }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self> {
        check_side("w", self.w)?;
        check_side("h", self.h.unwrap_or(self.w))?;
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }

    fn resized(&self, tensor: &Tensor) -> Result<Tensor> {
        check_rank(tensor, 2)?;
        let rank = tensor.rank();
        let mut shape = tensor.shape().to_vec();
        let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
        (shape[rank - 2], shape[rank - 1]) = (self.w, self.h.unwrap_or(self.w));
        check_size(&shape)?;
        if rows == 0 || columns == 0 {
            let detail = format!("an image must have elements: got shape {:?}", tensor.shape());
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        let down = self.weights(rows, shape[rank - 2]);
        let across = self.weights(columns, shape[rank - 1]);
        let images = doubles(tensor)?;
        let mut values = Vec::with_capacity(shape.iter().product());
        for image in images.chunks_exact(rows * columns) {
            values.extend(weighted(&narrowed(image, columns, &across), across.len(), &down));
        }
        // Round integers, as the mean of bytes is rarely a whole number.
        if !is_float(tensor.dtype()) && tensor.dtype() != Dtype::Bool {
            let (min, max) = integers(tensor.dtype());
            values.iter_mut().for_each(|value: &mut f64| *value = value.round_ties_even().clamp(min, max));
        }
        Tensor::from_vec::<f64>(&shape, values)?.to(tensor.dtype())
    }

    /// Returns for each of `to` elements the first element of `from` that it uses, and the weights of that
    /// and the following ones.
    fn weights(&self, from: usize, to: usize) -> Vec<(usize, Vec<f64>)> {
        let scale = from as f64 / to as f64;
        let nearest = |at: usize| ((at as f64 * scale) as usize).min(from - 1);
        match self.interpolation {
            Interpolation::Nearest => (0..to).map(|at| (nearest(at), vec![1.0])).collect(),
            Interpolation::NearestExact => {
                (0..to).map(|at| (nearest_exact(from, to, at), vec![1.0])).collect()
            }
            Interpolation::Bilinear => (0..to).map(|at| around(from, scale, at, 1.0, triangle)).collect(),
            Interpolation::Bicubic => (0..to).map(|at| around(from, scale, at, 2.0, cubic)).collect(),
        }
    }
}

impl Transform for Resize {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| self.resized(tensor))
    }
}

/// Returns the element whose centre is nearest to that of result `at`; in single precision, as in torch.
fn nearest_exact(from: usize, to: usize, at: usize) -> usize {
    (((at as f32 + 0.5) * (from as f32 / to as f32)) as usize).min(from - 1)
}

/// Returns the weights of `kernel`, which is 0 from `radius` on, around the place of result `at`.
fn around(from: usize, scale: f64, at: usize, radius: f64, kernel: fn(f64) -> f64) -> (usize, Vec<f64>) {
    let (center, width) = ((at as f64 + 0.5) * scale, scale.max(1.0));
    let first = (center - radius * width + 0.5).max(0.0) as usize;
    let end = ((center + radius * width + 0.5) as usize).min(from);
    let height = |index: usize| kernel(((index as f64 - center + 0.5) / width).abs());
    let weights: Vec<f64> = (first..end).map(height).collect();
    let sum: f64 = weights.iter().sum();
    (first, weights.into_iter().map(|weight| weight / sum).collect())
}

fn triangle(distance: f64) -> f64 {
    (1.0 - distance).max(0.0)
}

fn cubic(distance: f64) -> f64 {
    if distance < 1.0 {
        (1.5 * distance - 2.5) * distance * distance + 1.0
    } else if distance < 2.0 {
        ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    } else {
        0.0
    }
}

/// Returns the smallest and the largest number of an integer dtype, as far as a double represents them.
fn integers(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::U8 => (0.0, f64::from(u8::MAX)),
        Dtype::U32 => (0.0, f64::from(u32::MAX)),
        Dtype::I8 => (f64::from(i8::MIN), f64::from(i8::MAX)),
        Dtype::I16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
        Dtype::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

/// Resamples rows of `columns` elements to rows with one element for each of `weights`.
fn narrowed(image: &[f64], columns: usize, weights: &[(usize, Vec<f64>)]) -> Vec<f64> {
    let mut values = Vec::with_capacity(image.len() / columns * weights.len());
    for row in image.chunks_exact(columns) {
        for (first, weights) in weights {
            values.push(row[*first..].iter().zip(weights).map(|(value, weight)| value * weight).sum());
        }
    }
    values
}

/// Resamples to one row for each of `weights`, each a weighted sum of rows of `columns` elements.
fn weighted(image: &[f64], columns: usize, weights: &[(usize, Vec<f64>)]) -> Vec<f64> {
    let mut values = Vec::with_capacity(columns * weights.len());
    for (first, weights) in weights {
        let mut sums = vec![0.0; columns];
        for (row, weight) in image[first * columns..].chunks_exact(columns).zip(weights) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * weight);
        }
        values.append(&mut sums);
    }
    values
}

pub(crate) fn check_side(name: &str, side: usize) -> Result<()> {
    at_least_1(name, side)?;
    if side <= TRANSFORM_IMAGE_SIDE_MAX {
        return Ok(());
    }
    let detail = format!("{name} must be at most {TRANSFORM_IMAGE_SIDE_MAX}: got {side}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}
