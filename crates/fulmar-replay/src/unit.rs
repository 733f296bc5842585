//! Sample units: the rows that one drawn row expands to.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::read::{Reads, flags, of_lane};
use crate::sampler::Sampled;
use crate::stateful::{check_capacity, from_state, to_state};
use crate::trajectory::check_follows;
use crate::{Follower, SequenceOptions, Stateful, TrajectoryIndex};

/// Expands drawn rows before they are read.
pub trait SampleUnit: Follower {
    /// Returns the rows to read for the drawn ones, with their info.
    ///
    /// # Errors
    /// `OutOfRange` if a row is empty; `LimitExceeded` if there would be more rows than a draw may have.
    fn expand(&self, sampled: Sampled) -> Result<Sampled>;
}

/// The kind of a sample unit, with its options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum SampleUnitOptions {
    /// A [`Transition`].
    #[default]
    Transition,
    /// A [`Sequence`].
    Sequence {
        /// The shape of a window.
        window: SequenceOptions,
        /// The flag of a trajectory's last step; if absent, only the ends of the ring bound windows. Absent
        /// by default.
        #[serde(default)]
        done_key: Option<Key>,
    },
}

impl SampleUnitOptions {
    /// Returns the unit of a storage of `shape`, `[time]` or `[time, lanes..]`.
    ///
    /// # Errors
    /// The errors of [`Sequence::new`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::SampleUnitOptions;
    /// let options: SampleUnitOptions =
    ///     serde_json::from_str(r#"{"kind": "sequence", "window": {"length": 4}, "doneKey": ["next", "done"]}"#).unwrap();
    /// assert!(options.build(&[10])?.in_order());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn build(&self, shape: &[usize]) -> Result<Box<dyn SampleUnit>> {
        Ok(match self {
            Self::Transition => Box::new(Transition),
            Self::Sequence { window, done_key } => Box::new(Sequence::new(shape, *window, done_key.clone())?),
        })
    }
}

/// One row.
///
/// # Examples
/// ```
/// use fulmar_replay::{SampleUnit, Sampled, Transition};
/// assert_eq!(Transition.expand(Sampled::plain(vec![3])?)?.rows, [3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Transition;

impl SampleUnit for Transition {
    fn expand(&self, sampled: Sampled) -> Result<Sampled> {
        Ok(sampled)
    }
}

impl Stateful for Transition {
    fn state(&self) -> Result<Value> {
        Ok(Value::Null)
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        if state.is_null() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Malformed, format!("unit must be null: got {state}")))
    }
}

impl Follower for Transition {
    fn reads(&self) -> Reads {
        Reads::Nothing
    }

    fn extend(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Ok(())
    }

    fn clear(&mut self) {}
}

/// The window of steps around a row, in its trajectory and lane.
///
/// # Examples
/// ```
/// use fulmar_replay::{Follower, SampleUnit, Sampled, Sequence, SequenceOptions};
/// use fulmar_tensor::TensorDict;
/// let window = SequenceOptions { length: 3, ..Default::default() };
/// let mut unit = Sequence::new(&[8], window, None)?;
/// unit.extend(&[0, 1, 2, 3], &TensorDict::new(&[4])?)?;
/// assert_eq!(unit.expand(Sampled::plain(vec![2])?)?.rows, [2, 3, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sequence {
    window: SequenceOptions,
    done_key: Option<Key>,
    lanes: Vec<TrajectoryIndex>,
}

impl Sequence {
    /// Returns the unit of a storage of `shape`, `[time]` or `[time, lanes..]`; a flag at `done_key` ends a
    /// trajectory.
    ///
    /// # Errors
    /// `Empty` for an empty `shape`; `OutOfRange` if there are no rows or `window` is invalid;
    /// `LimitExceeded` if there are too many rows.
    pub fn new(shape: &[usize], window: SequenceOptions, done_key: Option<Key>) -> Result<Self> {
        let Some((&capacity, lanes)) = shape.split_first() else {
            return Err(Error::new(ErrorKind::Empty, "shape must have a dimension, that of time: got []"));
        };
        window.expand(&TrajectoryIndex::new(capacity)?, &[])?;
        let num_lanes = fulmar_core::num_elements(lanes)?;
        let lanes = (0..num_lanes).map(|_| TrajectoryIndex::new(capacity)).collect::<Result<_>>()?;
        Ok(Self { window, done_key, lanes })
    }

    /// Repeats `info`, of batch size `[anchors]`, for each step of their windows.
    fn spread(info: &TensorDict, sequence_id: &[usize]) -> Result<TensorDict> {
        info.index_select(sequence_id)
    }

    /// Returns for each item for `rows`, which follow those of their lanes, whether it ends its trajectory.
    fn ends(&self, rows: &[usize], items: &TensorDict) -> Result<Vec<bool>> {
        let num_lanes = self.lanes.len();
        for (lane, index) in self.lanes.iter().enumerate() {
            let steps: Vec<usize> =
                of_lane(rows, rows, lane, num_lanes).into_iter().map(|row| row / num_lanes).collect();
            check_follows(index.cursor(), index.capacity(), &steps)?;
        }
        self.done_key.as_ref().map_or_else(|| Ok(vec![false; rows.len()]), |key| flags(items, key))
    }
}

impl SampleUnit for Sequence {
    fn expand(&self, sampled: Sampled) -> Result<Sampled> {
        let num_lanes = self.lanes.len();
        let mut rows = Vec::new();
        let (mut sequence, mut step, mut anchors) = (Vec::new(), Vec::new(), Vec::new());
        let (mut valid, mut learn) = (Vec::new(), Vec::new());
        // All at once, so that the limit of a draw applies to their sum.
        self.window.checked_width(sampled.rows.len())?;
        for (place, row) in sampled.rows.iter().enumerate() {
            let (time, lane) = (row / num_lanes, row % num_lanes);
            let windows = self.window.expand(&self.lanes[lane], &[time])?;
            rows.extend(windows.rows.iter().map(|time| time * num_lanes + lane));
            sequence.extend(windows.rows.iter().map(|_| place));
            step.extend(windows.step_in_sequence.iter().map(|step| *step as i64));
            anchors.extend(windows.rows.iter().map(|_| *row as i64));
            valid.extend(windows.validity_mask);
            learn.extend(windows.learning_mask);
        }
        let mut info = Self::spread(&sampled.info, &sequence)?;
        let len = [rows.len()];
        let sequence = sequence.into_iter().map(|id| id as i64).collect();
        info.set("sequence_id", Tensor::from_vec::<i64>(&len, sequence)?)?;
        info.set("step_in_sequence", Tensor::from_vec::<i64>(&len, step)?)?;
        info.set("anchor_index", Tensor::from_vec::<i64>(&len, anchors)?)?;
        info.set("validity_mask", Tensor::from_vec(&len, valid)?)?;
        info.set("learning_mask", Tensor::from_vec(&len, learn)?)?;
        Ok(Sampled { rows, info, slice_lens: Vec::new() })
    }
}

impl Stateful for Sequence {
    fn state(&self) -> Result<Value> {
        let lanes = self.lanes.iter().map(|lane| to_state(&lane.state())).collect::<Result<Vec<_>>>()?;
        Ok(json!({ "lanes": lanes }))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let states: Vec<crate::TrajectoryIndexState> = from_state("unit", &state["lanes"])?;
        check_capacity(self.lanes.len(), states.len())?;
        let lanes = states.iter().map(TrajectoryIndex::from_state).collect::<Result<Vec<_>>>()?;
        for (have, lane) in self.lanes.iter().zip(&lanes) {
            check_capacity(have.capacity(), lane.capacity())?;
        }
        self.lanes = lanes;
        Ok(())
    }
}

impl Follower for Sequence {
    fn reads(&self) -> Reads {
        self.done_key.as_ref().map_or(Reads::Rows, |key| Reads::Keys(vec![key.clone()]))
    }

    fn in_order(&self) -> bool {
        true
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.ends(rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let end_t = self.ends(rows, items)?;
        let num_lanes = self.lanes.len();
        for (lane, index) in self.lanes.iter_mut().enumerate() {
            index.extend(&of_lane(&end_t, rows, lane, num_lanes));
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.lanes.iter_mut().for_each(TrajectoryIndex::clear);
    }
}
