//! SipHash-1-3 of the bytes of rows (Aumasson and Bernstein, "SipHash: a fast short-input PRF", <https://doi.org/10.1007/978-3-642-34931-7_28>).

use fulmar_core::{Dtype, Result};
use fulmar_tensor::Tensor;
use serde::Deserialize;
use siphasher::sip::SipHasher13;

use crate::row_bytes::RowBytes;

/// A function from the rows of a tensor to 64-bit numbers.
pub trait RowHash: Send + Sync {
    /// Returns one hash for each row; the first `rank` dimensions of `rows` count the rows, row-major.
    ///
    /// # Errors
    /// `ShapeMismatch` if `rows` has fewer dimensions; the errors of the function.
    fn hash_rows(&self, rows: &Tensor, rank: usize) -> Result<Vec<i64>>;
}

/// Options of [`SipHash`].
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct SipHashOptions {
    /// The key: equal keys give equal hashes in every process.
    pub key: [u64; 2],
    /// True: hashes the bytes as they are, so -0 differs from 0 and one NaN from another, as in torchrl.
    pub compatible: bool,
}

/// SipHash-1-3 of each row's little-endian bytes. With key 0 and `compatible` the numbers are those of Python's `hash(bytes)` under
/// `PYTHONHASHSEED=0`: a row without elements gives 0, and -2 replaces -1. A row of `bf16` is hashed as `f16`.
///
/// # Examples
/// ```
/// use fulmar_tensor::Tensor;
/// use fulmar_tree::{RowHash, SipHash};
/// let rows = Tensor::from_vec(&[3, 2], vec![0_i64, 1, 2, 3, 4, 5])?;
/// let hashes = SipHash::default().hash_rows(&rows, 1)?;
/// assert_eq!(hashes, [8311861578736502650, -91117564047421083, -7586561633979513742]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SipHash {
    options: SipHashOptions,
}

impl SipHash {
    /// Makes one with a key.
    #[must_use]
    pub fn new(options: SipHashOptions) -> Self {
        Self { options }
    }
}

impl RowHash for SipHash {
    fn hash_rows(&self, rows: &Tensor, rank: usize) -> Result<Vec<i64>> {
        let halves = (rows.dtype() == Dtype::Bf16).then(|| rows.to(Dtype::F16)).transpose()?;
        let rows = RowBytes::of(halves.as_ref().unwrap_or(rows), rank, self.options.compatible)?;
        let [first, second] = self.options.key;
        let hasher = SipHasher13::new_with_keys(first, second);
        Ok((0..rows.count).map(|row| python(rows.row(row), &hasher)).collect())
    }
}

/// The hash as Python gives it.
fn python(bytes: &[u8], hasher: &SipHasher13) -> i64 {
    if bytes.is_empty() {
        return 0;
    }
    let hash = hasher.hash(bytes).cast_signed();
    if hash == -1 { -2 } else { hash }
}
