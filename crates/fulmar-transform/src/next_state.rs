//! The next observation of a step, found in the step behind it.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::time::{flags, next_key};
use crate::transform::Transform;

/// Fills `next` of a flat sample of slices from the following row, so that a buffer need not store every observation twice. The
/// last row of a trajectory, and of the sample, has no following one and gets `fillValue`.
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
    /// What is copied to below `next`; `observation` unless told.
    pub keys: Vec<Key>,
    /// Integers that differ from trajectory to trajectory; `null` if there are none.
    pub traj_key: Option<Key>,
    /// What ends a trajectory; `null` if nothing does.
    pub done_key: Option<Key>,
    /// Integers that grow by 1 from a step to the one that follows it; not looked at unless told.
    pub step_count_key: Option<Key>,
    /// What stands where no row follows; NaN unless told, which integers cannot hold.
    #[serde(deserialize_with = "crate::next_state::or_nan")]
    pub fill_value: f64,
    /// Whether `trajKey` and `doneKey` must be there.
    pub strict: bool,
}

/// A number, or `null` for NaN, which JSON has no number for.
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

    /// For each row whether none follows it.
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

/// One integer for each element of a flat batch.
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
