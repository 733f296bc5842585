//! Slices of trajectories.
//!
//! ```text
//! trajectory ~ uniform over those of at least slice_len steps (over all, if lengths are not strict)
//! seq   = min(len, slice_len)
//! first ~ uniform over -left ..= len - seq + right        left, right: steps that may be cut off, below seq
//! slice = steps max(first, 0) .. min(first + seq, len)    of the trajectory, around the end of the ring
//! ```

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use serde::{Deserialize, Serialize};

use crate::row::checked_draw;
use crate::{Trajectory, TrajectoryIndex, TrajectoryIndexState};

/// The number of steps of a slice that an end of its trajectory may cut off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Span {
    /// Nothing.
    #[default]
    None,
    /// Up to this many steps, less than the slice length.
    UpTo(usize),
    /// All but one step.
    Any,
}

/// The unit of a uniform draw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SliceBy {
    /// All trajectories are equally likely, whatever their length.
    #[default]
    Trajectories,
    /// All steps at which a slice may begin are equally likely. A draw costs O(trajectories); spans must be
    /// none.
    Steps,
}

/// The shape of a batch of slices; checked by [`SliceSampler::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SliceOptions {
    /// Number of slices in a batch, at least 1; exclusive with `slice_len`.
    pub num_slices: Option<usize>,
    /// Number of steps in a slice, at least 1; exclusive with `num_slices`.
    pub slice_len: Option<usize>,
    /// If true, shorter trajectories are excluded, else taken whole. Defaults to true.
    pub strict_length: bool,
    /// If true, short slices repeat their last row. Defaults to false.
    pub pad_output: bool,
    /// The number of steps that the beginning of a trajectory may cut off. Defaults to none.
    pub left_span: Span,
    /// The number of steps that the end of a trajectory may cut off. Defaults to none.
    pub right_span: Span,
    /// The unit of a uniform draw. Defaults to trajectories.
    pub by: SliceBy,
}

impl Default for SliceOptions {
    fn default() -> Self {
        Self {
            num_slices: None,
            slice_len: None,
            strict_length: true,
            pad_output: false,
            left_span: Span::None,
            right_span: Span::None,
            by: SliceBy::Trajectories,
        }
    }
}

impl SliceOptions {
    /// Returns the number of slices in a batch of `count` rows, and their length.
    pub(crate) fn shape(&self, count: usize) -> Result<(usize, usize)> {
        let part = self.num_slices.or(self.slice_len).unwrap_or(1);
        if !count.is_multiple_of(part) {
            let detail = format!("count must be divisible by {part}: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (num_slices, slice_len) =
            if self.num_slices.is_some() { (part, count / part) } else { (count / part, part) };
        check_spans(self, slice_len)?;
        Ok((num_slices, slice_len))
    }
}

/// A batch of slices in sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slices {
    /// The rows of all slices.
    pub rows: Vec<usize>,
    /// The number of rows of each slice, padding included.
    pub lens: Vec<usize>,
    /// `true` if the row is a step of the trajectory, not padding.
    pub mask: Vec<bool>,
    /// `true` if the row is the last of its slice that is not padding; a batch ends a trajectory there.
    pub truncated: Vec<bool>,
}

/// Draws slices of trajectories; all trajectories are equally likely, whatever their length.
///
/// # Examples
/// ```
/// use fulmar_replay::{SliceOptions, SliceSampler};
/// let options = SliceOptions { slice_len: Some(2), ..Default::default() };
/// let mut sampler = SliceSampler::new(10, options, 7)?;
/// sampler.extend(&[false, false, true, true, false, true]);
/// let batch = sampler.sample(4)?;
/// assert!(batch.rows.chunks(2).all(|slice| [[0, 1], [1, 2], [4, 5]].contains(&[slice[0], slice[1]])));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SliceSampler {
    pub(crate) options: SliceOptions,
    pub(crate) index: TrajectoryIndex,
    rng: Rng,
}

/// The state of a [`SliceSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SliceSamplerState {
    /// The options.
    pub options: SliceOptions,
    /// The trajectories.
    pub index: TrajectoryIndexState,
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl SliceSampler {
    /// Returns a sampler of slices of a ring of `capacity` rows; `seed` makes its draws reproducible.
    ///
    /// # Errors
    /// `OutOfRange` unless exactly one of `num_slices` and `slice_len` is given and at least 1, for padding
    /// with strict lengths, or for a span that is not below `slice_len`; the errors of
    /// [`TrajectoryIndex::new`].
    pub fn new(capacity: usize, options: SliceOptions, seed: u64) -> Result<Self> {
        check_shape(&options)?;
        if options.by == SliceBy::Steps && [options.left_span, options.right_span] != [Span::None; 2] {
            let detail = "spans must be none where slices are drawn by their first step: got a span";
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let rng = Rng::new(seed).stream("slice sampler");
        Ok(Self { options, index: TrajectoryIndex::new(capacity)?, rng })
    }

    /// Records the next steps of the ring: `end_t` flags those that end a trajectory.
    pub fn extend(&mut self, end_t: &[bool]) {
        self.index.extend(end_t);
    }

    /// Records the next steps of the ring: a trajectory is a run of equal ids.
    pub fn extend_ids(&mut self, id_t: &[i64]) {
        self.index.extend_ids(id_t);
    }

    /// Returns the trajectories.
    #[must_use]
    pub const fn index(&self) -> &TrajectoryIndex {
        &self.index
    }

    /// Draws slices of `count` rows in all; fewer if lengths are not strict, a trajectory is short and there
    /// is no padding.
    ///
    /// # Errors
    /// `Empty` if no step was written; `OutOfRange` if `count` is 0, above the limit of a draw or not
    /// divisible by the number or length of slices, or if no trajectory is long enough.
    pub fn sample(&mut self, count: usize) -> Result<Slices> {
        checked_draw(self.index.len(), count)?;
        let (num_slices, slice_len) = self.options.shape(count)?;
        let num_choices = self.num_choices(slice_len);
        if num_choices == 0 {
            return Err(self.too_short(slice_len));
        }
        let mut slices = Slices::default();
        for _ in 0..num_slices {
            let place = self.rng.below(num_choices)?;
            self.take_choice(place, slice_len, &mut slices)?;
        }
        Ok(slices)
    }

    /// Returns the number of trajectories, or of first steps, for slices of `slice_len` steps.
    pub(crate) fn num_choices(&mut self, slice_len: usize) -> u64 {
        let min_len = if self.options.strict_length { slice_len } else { 1 };
        match self.options.by {
            SliceBy::Trajectories => self.index.num_long(min_len) as u64,
            SliceBy::Steps => {
                let long = self.index.trajectories().filter(|one| one.len >= min_len);
                long.map(|one| (one.len - slice_len.min(one.len) + 1) as u64).sum()
            }
        }
    }

    /// Draws one slice of trajectory `place`, or takes the slice that begins at step `place`, of
    /// [`SliceSampler::num_choices`].
    pub(crate) fn take_choice(&mut self, place: u64, slice_len: usize, slices: &mut Slices) -> Result<()> {
        if self.options.by == SliceBy::Trajectories {
            return match self.index.long(place as usize) {
                Some(trajectory) => self.take(trajectory, slice_len, slices),
                None => Ok(()),
            };
        }
        let min_len = if self.options.strict_length { slice_len } else { 1 };
        let mut left = place as usize;
        for one in self.index.trajectories().filter(|one| one.len >= min_len) {
            let seq = slice_len.min(one.len);
            let num_starts = one.len - seq + 1;
            if left < num_starts {
                let row = |step: usize| (one.start + step) % self.index.capacity();
                slices.push((left..left + seq).map(row), if self.options.pad_output { slice_len } else { 0 });
                return Ok(());
            }
            left -= num_starts;
        }
        Ok(())
    }

    /// Removes all steps.
    pub fn clear(&mut self) {
        self.index.clear();
    }

    /// Returns all that must be kept to continue with the same draws. O(trajectories).
    #[must_use]
    pub fn state(&self) -> SliceSamplerState {
        SliceSamplerState { options: self.options, index: self.index.state(), rng: self.rng.state().words() }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// As [`SliceSampler::new`] and [`TrajectoryIndex::from_state`].
    pub fn from_state(state: &SliceSamplerState) -> Result<Self> {
        let mut sampler = Self::new(state.index.capacity, state.options, 0)?;
        sampler.index = TrajectoryIndex::from_state(&state.index)?;
        sampler.rng = Rng::from_state(RngState::from_words(&state.rng)?);
        Ok(sampler)
    }

    /// Returns the error for trajectories that are all too short.
    pub(crate) fn too_short(&self, slice_len: usize) -> Error {
        let longest = self.index.trajectories().map(|one| one.len).max().unwrap_or_default();
        let detail = format!("a trajectory must have {slice_len} steps: the longest has {longest}");
        Error::new(ErrorKind::OutOfRange, detail)
    }

    /// Draws one slice of `trajectory`.
    pub(crate) fn take(
        &mut self,
        trajectory: Trajectory,
        slice_len: usize,
        slices: &mut Slices,
    ) -> Result<()> {
        let seq = slice_len.min(trajectory.len);
        let cut = |span| match span {
            Span::None => 0,
            Span::UpTo(steps) => steps.min(seq - 1),
            Span::Any => seq - 1,
        };
        let (left, right) = (cut(self.options.left_span), cut(self.options.right_span));
        // Counted from `left` steps before the trajectory, so it cannot be negative.
        let first = self.rng.below((left + trajectory.len - seq + right + 1) as u64)? as usize;
        let start = first.saturating_sub(left);
        let end = (first + seq).saturating_sub(left).min(trajectory.len);
        let row = |step: usize| (trajectory.start + step) % self.index.capacity();
        let padded_len = if self.options.pad_output { slice_len } else { 0 };
        slices.push((start..end).map(row), padded_len);
        Ok(())
    }
}

impl Slices {
    /// Appends one slice; repeats its last row up to `padded_len`.
    pub(crate) fn push(&mut self, rows: impl Iterator<Item = usize>, padded_len: usize) {
        let start = self.rows.len();
        self.rows.extend(rows);
        self.mask.resize(self.rows.len(), true);
        self.truncated.resize(self.rows.len(), false);
        if let Some(last) = self.truncated.last_mut() {
            *last = true;
        }
        if let Some(&last) = self.rows.last() {
            self.rows.resize(self.rows.len().max(start + padded_len), last);
        }
        self.mask.resize(self.rows.len(), false);
        self.lens.push(self.rows.len() - start);
        self.truncated.resize(self.rows.len(), false);
    }
}

/// Refuses options for which no batch exists.
pub(crate) fn check_shape(options: &SliceOptions) -> Result<()> {
    let given = [options.num_slices, options.slice_len];
    if given.iter().flatten().count() != 1 || given.contains(&Some(0)) {
        let detail = format!("one of num_slices and slice_len must be given, and >= 1: got {given:?}");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if options.pad_output && options.strict_length {
        let detail = "pad_output must be false where strict_length is true, as no slice is short: got true";
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if let Some(slice_len) = options.slice_len {
        check_spans(options, slice_len)?;
    }
    Ok(())
}

fn check_spans(options: &SliceOptions, slice_len: usize) -> Result<()> {
    for span in [options.left_span, options.right_span] {
        if let Span::UpTo(steps) = span
            && steps >= slice_len
        {
            let detail = format!("span must be < slice_len, {slice_len}: got {steps}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
    }
    Ok(())
}
