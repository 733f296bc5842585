//! Reconstructs a step's next observation from the following step.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::time::{flags, next_key};
use crate::transform::Transform;

/// Fills `next` of a flat sample of slices from the following row, so that a buffer need not store every
/// observation twice. The last row of a trajectory, and of the sample, gets `fillValue`.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{NextStateReconstructor, Transform};
/// let mut sample = TensorDict::new(&[3])?;
/// sample.set("observation", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
/// sample.set(["collector", "traj_ids"], Tensor::from_vec(&[3], vec![0_i64, 0, 1])?)?;
/// sample.set(["next", "done"], Tensor::from_vec(&[3], vec![false; 3])?)?;
/// let mut reconstructor = NextStateReconstructor { fill_value: -1.0, ..Default::default() };
/// let filled = reconstructor.forward(sample)?;
/// assert_eq!(filled.tensor(["next", "observation"])?.to_vec::<i64>()?, [2, -1, -1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NextStateReconstructor {
    /// The keys that are copied below `next`. Defaults to `observation`.
    pub keys: Vec<Key>,
    /// The key of trajectory ids; `null` without such ids.
    pub traj_key: Option<Key>,
    /// The flag that ends a trajectory; `null` without such a flag.
    pub done_key: Option<Key>,
    /// The key of step counts, which increase by 1 along a trajectory; ignored by default.
    pub step_count_key: Option<Key>,
    /// The value where no row follows. Defaults to NaN, which integers cannot represent.
    #[serde(deserialize_with = "crate::next_state::or_nan")]
    pub fill_value: f64,
    /// If true, `trajKey` and `doneKey` are required.
    pub strict: bool,
}

/// Parses a number, or `null` as NaN, which JSON lacks.
pub(crate) fn or_nan<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Default for NextStateReconstructor {
    fn default() -> Self {
        Self {
            keys: vec!["observation".into()],
            traj_key: Some(["collector", "traj_ids"].into()),
            done_key: Some(["next", "done"].into()),
            step_count_key: None,
            fill_value: f64::NAN,
            strict: true,
        }
    }
}

impl NextStateReconstructor {
    pub(crate) fn checked(self) -> Result<Self> {
        Ok(self)
    }

    /// Returns for each row whether no row follows it.
    fn ends(&self, dict: &TensorDict, len: usize) -> Result<Vec<bool>> {
        let wanted = |key: &&Key| self.strict || dict.get((*key).clone()).is_some();
        let mut ends = match self.done_key.as_ref().filter(wanted) {
            Some(key) => flags(dict, key)?,
            None => vec![false; len],
        };
        if let Some(key) = self.traj_key.as_ref().filter(wanted) {
            let ids = integers(dict, key)?;
            ends.iter_mut().zip(ids.windows(2)).for_each(|(end, pair)| *end |= pair[0] != pair[1]);
        }
        if let Some(key) = &self.step_count_key {
            let counts = integers(dict, key)?;
            let follows = |pair: &[i64]| pair[0].checked_add(1) == Some(pair[1]);
            ends.iter_mut().zip(counts.windows(2)).for_each(|(end, pair)| *end |= !follows(pair));
        }
        if let Some(last) = ends.last_mut() {
            *last = true;
        }
        Ok(ends)
    }
}

impl Transform for NextStateReconstructor {
    fn forward(&mut self, mut dict: TensorDict) -> Result<TensorDict> {
        let &[len] = dict.batch_size() else {
            let detail = format!(
                "a sample must be flat, with one batch dimension: got batch size {:?}",
                dict.batch_size()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let ends = Tensor::from_vec(&[len], self.ends(&dict, len)?)?;
        let following: Vec<usize> = (0..len).map(|row| (row + 1).min(len - 1)).collect();
        for key in &self.keys {
            let mut next = dict.tensor(key.clone())?.index_select(0, &following)?;
            let fill = Tensor::scalar(next.dtype(), self.fill_value).map_err(|error| error.at(key))?;
            next.set_at(&[ends.clone().into()], &fill)?;
            dict.set(next_key(key), next)?;
        }
        Ok(dict)
    }
}

/// Returns one integer for each element of a flat batch.
pub(crate) fn integers(dict: &TensorDict, key: &Key) -> Result<Vec<i64>> {
    let tensor = dict.tensor(key.clone())?;
    let values = tensor.to(Dtype::I64).map_err(|error| error.at(key))?.to_vec::<i64>()?;
    let len: usize = dict.batch_size().iter().product();
    if values.len() == len {
        return Ok(values);
    }
    let detail =
        format!("{key} must hold one integer for each of {len} steps: got shape {:?}", tensor.shape());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}
