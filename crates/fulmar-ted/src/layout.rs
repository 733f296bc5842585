//! Where each step of a ring goes in the flat form: lane by lane, the oldest step first, one more observation behind each end.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::Tensor;

use crate::ring::Ring;

/// What stands at a place of the flat form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The step at this index of the ring, `time * lanes + lane`.
    Step(usize),
    /// What follows that step.
    Next(usize),
    /// Nothing: this step was never written.
    Unwritten,
}

/// Where steps stand in the flat form.
pub struct Layout {
    /// What each place for a step holds, `N` of them.
    pub steps: Vec<Source>,
    /// What each place for an observation holds: `N` and one for each trajectory.
    pub observations: Vec<Source>,
    /// For each trajectory, and each run of unwritten steps, how many steps and how many observations it has.
    pub runs: Vec<(usize, usize)>,
    /// For each step of the ring: its place among steps, that of its observation and that of the next one; nothing if it was never
    /// written.
    pub places: Vec<Option<(usize, usize, usize)>>,
}

impl Layout {
    /// The layout of steps of `shape`, in which a trajectory ends at the newest step of each lane, and where `is_end` is true of a
    /// place for a step and of the step there. Without a step the place is that of one that was never written: `TorchRL` writes
    /// whatever its memory holds there, and an end among it has a next observation like any other.
    pub fn new(ring: Ring, shape: &[usize], is_end: &dyn Fn(usize, Option<usize>) -> bool) -> Result<Self> {
        let Some((&capacity, lanes)) = shape.split_first() else {
            let detail = "steps must have at least one batch dimension, time: got none";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let (count, lanes) = (num_elements(shape)?, num_elements(lanes)?);
        let (oldest, written) = (ring.oldest(capacity)?, ring.written(capacity)?);
        let mut layout = Self {
            steps: Vec::with_capacity(count),
            observations: Vec::with_capacity(count),
            runs: Vec::new(),
            places: vec![None; count],
        };
        for lane in 0..lanes {
            let mut len = 0;
            for at in 0..written {
                let step = (oldest + at) % capacity * lanes + lane;
                let (place, observation) = (layout.steps.len(), layout.observations.len());
                layout.places[step] = Some((place, observation, observation + 1));
                layout.steps.push(Source::Step(step));
                layout.observations.push(Source::Step(step));
                len += 1;
                if at + 1 == written || is_end(place, Some(step)) {
                    layout.observations.push(Source::Next(step));
                    layout.runs.push((len, len + 1));
                    len = 0;
                }
            }
            let mut len = 0;
            for _ in written..capacity {
                let place = layout.steps.len();
                layout.steps.push(Source::Unwritten);
                layout.observations.push(Source::Unwritten);
                len += 1;
                if is_end(place, None) {
                    layout.observations.push(Source::Unwritten);
                    layout.runs.push((len, len + 1));
                    len = 0;
                }
            }
            if len > 0 {
                layout.runs.push((len, len));
            }
        }
        Ok(layout)
    }
}

/// The rows of `root` and of `next`, both `[N, ...]`, that `sources` name, zeros for those that were never written. Copies.
pub fn gathered(root: &Tensor, next: &Tensor, sources: &[Source]) -> Result<Tensor> {
    let count = root.shape()[0];
    let blank = Tensor::zeros(root.dtype(), &[&[1], &root.shape()[1..]].concat())?;
    let indices: Vec<_> = sources
        .iter()
        .map(|source| match source {
            Source::Step(step) => *step,
            Source::Next(step) => count + step,
            Source::Unwritten => count + next.shape()[0],
        })
        .collect();
    Tensor::cat(&[root.clone(), next.clone(), blank], 0)?.index_select(0, &indices)
}
