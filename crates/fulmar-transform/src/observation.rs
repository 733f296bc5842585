//! Reshapes and casts of tensors.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::{check_out_keys, check_size, feature_dim, replaced};
use crate::transform::Transform;

/// Flattens the dimensions `firstDim` to `lastDim`; negative ones count from the last.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{FlattenObservation, Transform};
/// let mut batch = TensorDict::new(&[2])?;
/// batch.set("pixels", Tensor::from_vec(&[2, 1, 3], vec![0_u8; 6])?)?;
/// let mut flatten =
///     FlattenObservation { first_dim: -2, last_dim: -1, in_keys: vec!["pixels".into()], out_keys: vec![] };
/// assert_eq!(flatten.forward(batch)?.tensor("pixels")?.shape(), [2, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlattenObservation {
    /// The first dimension.
    pub first_dim: isize,
    /// The last dimension.
    pub last_dim: isize,
    /// The keys of the tensors. Defaults to `pixels`.
    #[serde(default = "pixels")]
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    #[serde(default)]
    pub out_keys: Vec<Key>,
}

pub(crate) fn pixels() -> Vec<Key> {
    vec!["pixels".into()]
}

impl FlattenObservation {
    pub(crate) fn checked(self) -> Result<Self> {
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }
}

impl Transform for FlattenObservation {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let batch = dict.batch_size().len();
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| {
            let first = feature_dim(tensor, self.first_dim, batch)?;
            let last = feature_dim(tensor, self.last_dim, batch)?;
            if last < first {
                let detail = format!("lastDim must not be before firstDim = {first}: got {last}");
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
            let shape = tensor.shape();
            let flat = shape[first..=last].iter().product();
            tensor.reshape(&[&shape[..first], &[flat], &shape[last + 1..]].concat())
        })
    }
}

/// Inserts a dimension of length 1 at `dim` of the result.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{Transform, UnsqueezeTransform};
/// let mut batch = TensorDict::new(&[2])?;
/// batch.set("reward", Tensor::from_vec(&[2], vec![0.0_f32; 2])?)?;
/// let mut unsqueeze = UnsqueezeTransform { dim: -1, in_keys: vec!["reward".into()], out_keys: vec![] };
/// assert_eq!(unsqueeze.forward(batch)?.tensor("reward")?.shape(), [2, 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnsqueezeTransform {
    /// The place of the new dimension; negative from the end.
    pub dim: isize,
    /// The keys of the tensors.
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    #[serde(default)]
    pub out_keys: Vec<Key>,
}

impl UnsqueezeTransform {
    pub(crate) fn checked(self) -> Result<Self> {
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }
}

impl Transform for UnsqueezeTransform {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| {
            let rank = tensor.rank() as isize + 1;
            let dim = if self.dim < 0 { self.dim + rank } else { self.dim };
            let dim = usize::try_from(dim).map_err(|_| {
                let detail = format!("dim must be at least -{rank}: got {}", self.dim);
                Error::new(ErrorKind::OutOfRange, detail)
            })?;
            tensor.unsqueeze(dim)
        })
    }
}

/// Concatenates several tensors along a dimension.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{CatTensors, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("position", Tensor::from_vec(&[1], vec![1.0_f32])?)?;
/// batch.set("speed", Tensor::from_vec(&[2], vec![2.0_f32, 3.0])?)?;
/// let mut cat = CatTensors {
///     in_keys: vec!["position".into(), "speed".into()],
///     out_key: "observation".into(),
///     dim: -1,
///     del_keys: true,
/// };
/// assert_eq!(cat.forward(batch)?.tensor("observation")?.to_f32_vec(), [1.0, 2.0, 3.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatTensors {
    /// The keys of the tensors, in order.
    pub in_keys: Vec<Key>,
    /// The key of the result.
    pub out_key: Key,
    /// The dimension. Defaults to the last.
    #[serde(default = "last")]
    pub dim: isize,
    /// If true, the parts are removed. Defaults to true.
    #[serde(default = "yes")]
    pub del_keys: bool,
}

fn last() -> isize {
    -1
}

fn yes() -> bool {
    true
}

impl CatTensors {
    pub(crate) fn checked(self) -> Result<Self> {
        if self.in_keys.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "inKeys must hold at least one key: got 0"));
        }
        Ok(self)
    }
}

impl Transform for CatTensors {
    fn forward(&mut self, mut dict: TensorDict) -> Result<TensorDict> {
        let parts = self.in_keys.iter().map(|key| dict.tensor(key.clone()).cloned());
        let parts = parts.collect::<Result<Vec<Tensor>>>()?;
        let dim = feature_dim(&parts[0], self.dim, dict.batch_size().len())?;
        let joined = Tensor::cat(&parts, dim)?;
        check_size(joined.shape())?;
        if self.del_keys {
            self.in_keys.iter().try_for_each(|key| dict.remove(key.clone()).map(|_| ()))?;
        }
        dict.set(self.out_key.clone(), joined)?;
        Ok(dict)
    }
}

/// Converts doubles to singles when a batch is read, and singles to doubles when rows are written.
///
/// # Examples
/// ```
/// use fulmar_core::Dtype;
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{DoubleToFloat, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("reward", Tensor::from_vec(&[], vec![0.5_f64])?)?;
/// assert_eq!(DoubleToFloat::default().forward(batch)?.tensor("reward")?.dtype(), Dtype::F32);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DoubleToFloat {
    /// The keys of tensors read as singles. Defaults to all doubles.
    pub in_keys: Option<Vec<Key>>,
    /// The keys of tensors stored as doubles. None by default.
    pub in_keys_inv: Vec<Key>,
}

impl DoubleToFloat {
    pub(crate) fn checked(self) -> Result<Self> {
        Ok(self)
    }
}

impl Transform for DoubleToFloat {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let doubles = |key: &Key| matches!(dict.get(key.clone()), Some(Entry::Tensor(tensor)) if tensor.dtype() == Dtype::F64);
        let all = || dict.leaf_keys().into_iter().filter(doubles).collect();
        let keys = self.in_keys.clone().unwrap_or_else(all);
        replaced(dict, &keys, &[], |tensor| tensor.to(Dtype::F32))
    }

    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        replaced(dict, &self.in_keys_inv, &[], |tensor| tensor.to(Dtype::F64)).map(Some)
    }
}
