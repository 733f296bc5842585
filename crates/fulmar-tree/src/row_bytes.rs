//! The bytes of the rows of tensors, in which hashes and maps compare keys.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::Tensor;

/// Rows of equal length, one after another.
pub(crate) struct RowBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
}

impl RowBytes {
    /// Takes the first `rank` dimensions of `tensor` as rows. Floats that compare equal get equal bytes: -0 becomes 0 and all NaN become
    /// one, unless `compatible`.
    pub(crate) fn of(tensor: &Tensor, rank: usize, compatible: bool) -> Result<Self> {
        if tensor.rank() < rank {
            let detail = format!("rows must have at least {rank} dimensions: got shape {:?}", tensor.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let count = tensor.shape()[..rank].iter().product();
        let mut bytes = tensor.to_bytes();
        if !compatible {
            canonical(tensor.dtype(), &mut bytes);
        }
        Ok(Self { bytes, count })
    }

    pub(crate) fn width(&self) -> usize {
        self.bytes.len().checked_div(self.count).unwrap_or(0)
    }

    pub(crate) fn row(&self, at: usize) -> &[u8] {
        let width = self.width();
        &self.bytes[at * width..(at + 1) * width]
    }
}

/// Rewrites -0 and NaN of little-endian floats.
fn canonical(dtype: Dtype, bytes: &mut [u8]) {
    match dtype {
        Dtype::F32 => rewrite(bytes, |bits| {
            let value = f32::from_bits(u32::from_le_bytes(bits));
            // The sum of -0 and 0 is 0.
            (if value.is_nan() { f32::NAN } else { value + 0.0 }).to_bits().to_le_bytes()
        }),
        Dtype::F64 => rewrite(bytes, |bits| {
            let value = f64::from_bits(u64::from_le_bytes(bits));
            (if value.is_nan() { f64::NAN } else { value + 0.0 }).to_bits().to_le_bytes()
        }),
        Dtype::F16 => {
            rewrite(bytes, |bits| half_bits(u16::from_le_bytes(bits), 0x7C00, 0x7E00).to_le_bytes());
        }
        Dtype::Bf16 => {
            rewrite(bytes, |bits| half_bits(u16::from_le_bytes(bits), 0x7F80, 0x7FC0).to_le_bytes());
        }
        _ => {}
    }
}

fn rewrite<const N: usize>(bytes: &mut [u8], to: impl Fn([u8; N]) -> [u8; N]) {
    for chunk in bytes.as_chunks_mut::<N>().0 {
        *chunk = to(*chunk);
    }
}

fn half_bits(bits: u16, infinity: u16, nan: u16) -> u16 {
    match bits & 0x7FFF {
        0 => 0,
        magnitude if magnitude > infinity => nan,
        _ => bits,
    }
}
