//! The places of a ring's steps in the flat form: lane by lane, the oldest step first, one more observation
//! after each end.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::Tensor;

use crate::ring::Ring;

/// The content of a place in the flat form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The step at this index of the ring, `time * lanes + lane`.
    Step(usize),
    /// The next entry of that step.
    Next(usize),
    /// Nothing: this step was never written.
    Unwritten,
}

/// The places of steps in the flat form.
pub struct Layout {
    /// The content of each place for a step, `N` of them.
    pub steps: Vec<Source>,
    /// The content of each place for an observation: `N` and one for each trajectory.
    pub observations: Vec<Source>,
    /// For each trajectory, and each run of unwritten steps, its number of steps and of observations.
    pub runs: Vec<(usize, usize)>,
    /// For each step of the ring: its place among steps, that of its observation and that of the next one;
    /// `None` if it was never written.
    pub places: Vec<Option<(usize, usize, usize)>>,
}

impl Layout {
    /// Returns the layout of steps of `shape`. A trajectory ends at the newest step of each lane, and where
    /// `is_end` is true for a place and its step. Without a step the place is unwritten: TorchRL writes
    /// whatever its memory holds there, and an end among it has a next observation like any other.
    pub fn new(ring: Ring, shape: &[usize], is_end: &dyn Fn(usize, Option<usize>) -> bool) -> Result<Self> {
        let Some((&capacity, lanes)) = shape.split_first() else {
            let detail = "steps must have at least one batch dimension, time: got 0";
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

/// Returns the rows of `root` and of `next`, both `[N, ...]`, in the order of `sources`, with zeros for
/// unwritten ones. Copies.
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
