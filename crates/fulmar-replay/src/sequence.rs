//! Windows of steps around drawn rows.
//!
//! ```text
//! offset_j = dilation * (j - burn_in)        j in 0..burn_in + length + bootstrap
//! pad            steps outside the anchor's trajectory become its nearest one, and are not valid
//! stop           the window moves back until its last step is in the trajectory, as far as the trajectory begins; then pad
//! includeReset   as pad, but only the oldest and the newest step of the ring bound the window
//! ```

use fulmar_core::limits::REPLAY_SAMPLE_ROWS_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::TrajectoryIndex;

/// The treatment of a window that exceeds its trajectory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EpisodeBoundary {
    /// The nearest step of the trajectory is repeated.
    #[default]
    Pad,
    /// The window moves back, then pads as [`EpisodeBoundary::Pad`].
    Stop,
    /// The window continues into the next trajectory, up to the ends of the ring.
    IncludeReset,
}

/// The shape of a window; checked by [`SequenceOptions::expand`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SequenceOptions {
    /// Number of steps to learn from, starting with the anchor; at least 1. Defaults to 1.
    pub length: usize,
    /// The treatment of episode boundaries. Defaults to padding.
    pub episode_boundary: EpisodeBoundary,
    /// Number of steps before the anchor. Defaults to 0.
    pub burn_in: usize,
    /// Number of steps after those to learn from. Defaults to 0.
    pub bootstrap: usize,
    /// Distance between a window's steps, at least 1. Defaults to 1.
    pub dilation: usize,
}

impl Default for SequenceOptions {
    fn default() -> Self {
        Self { length: 1, episode_boundary: EpisodeBoundary::Pad, burn_in: 0, bootstrap: 0, dilation: 1 }
    }
}

/// The windows of some anchors in sequence: all of shape `[anchors * steps of a window]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sequences {
    /// The row of each step.
    pub rows: Vec<usize>,
    /// The window of each step.
    pub sequence_id: Vec<usize>,
    /// The index of each step in its window.
    pub step_in_sequence: Vec<usize>,
    /// `true` if the step is the requested one, not the nearest one.
    pub validity_mask: Vec<bool>,
    /// `true` if the step is to learn from, neither burn-in nor bootstrap.
    pub learning_mask: Vec<bool>,
    /// The given anchor of each step.
    pub anchor_rows: Vec<usize>,
}

impl SequenceOptions {
    /// Returns the windows of `anchors`, rows of the ring of `index`.
    ///
    /// # Errors
    /// `OutOfRange` if `length` or `dilation` is 0 or an anchor holds no step; `LimitExceeded` if windows
    /// with their reach are above the limit of a draw.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::{SequenceOptions, TrajectoryIndex};
    /// let mut index = TrajectoryIndex::new(10)?;
    /// index.extend(&[false, false, true, false]);
    /// let windows = SequenceOptions { length: 3, ..Default::default() }.expand(&index, &[1])?;
    /// assert_eq!((windows.rows, windows.validity_mask), (vec![1, 2, 2], vec![true, true, false]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn expand(&self, index: &TrajectoryIndex, anchors: &[usize]) -> Result<Sequences> {
        let width = self.checked_width(anchors.len())?;
        let mut windows = Sequences::default();
        for (sequence, &anchor) in anchors.iter().enumerate() {
            let Some((before, after)) = self.room(index, anchor) else {
                let detail = format!("anchor must be a row that holds a step: got {anchor}");
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            };
            let reach = self.dilation * (width - 1 - self.burn_in);
            let moves = self.episode_boundary == EpisodeBoundary::Stop;
            let back = if moves { reach.saturating_sub(after).min(before) } else { 0 };
            for step in 0..width {
                // Steps are counted from the first in the window's reach; the anchor has the number `before`.
                let wanted = (before + self.dilation * step).checked_sub(back + self.dilation * self.burn_in);
                let taken = wanted.unwrap_or(0).min(before + after);
                let capacity = index.capacity();
                windows.rows.push((anchor + capacity + taken - before) % capacity);
                windows.sequence_id.push(sequence);
                windows.step_in_sequence.push(step);
                windows.validity_mask.push(wanted == Some(taken));
                windows.learning_mask.push((self.burn_in..self.burn_in + self.length).contains(&step));
                windows.anchor_rows.push(anchor);
            }
        }
        Ok(windows)
    }

    /// Returns the number of steps before and after `anchor` that a window may reach.
    fn room(&self, index: &TrajectoryIndex, anchor: usize) -> Option<(usize, usize)> {
        if self.episode_boundary == EpisodeBoundary::IncludeReset {
            return index.room(anchor);
        }
        let (trajectory, before) = index.at(anchor)?;
        Some((before, trajectory.len - 1 - before))
    }

    pub(crate) fn checked_width(&self, num_anchors: usize) -> Result<usize> {
        if self.length == 0 || self.dilation == 0 {
            let detail = format!("length and dilation must be >= 1: got {}, {}", self.length, self.dilation);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let width = self.burn_in.checked_add(self.length).and_then(|width| width.checked_add(self.bootstrap));
        let reach = width.and_then(|width| width.checked_mul(self.dilation.max(num_anchors)));
        match (width, reach) {
            (Some(width), Some(reach)) if reach <= REPLAY_SAMPLE_ROWS_MAX => Ok(width),
            _ => {
                let detail =
                    format!("windows must reach over <= {REPLAY_SAMPLE_ROWS_MAX} rows: got {self:?}");
                Err(Error::new(ErrorKind::LimitExceeded, detail))
            }
        }
    }
}
