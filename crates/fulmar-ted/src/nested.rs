//! The nested form: one ragged row a trajectory.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Ragged, TensorDict};

use crate::flat::{ends, laid_out, unfolded};
use crate::layout::Layout;
use crate::ring::{Ring, TedKeys, leaves, ring_of, with_ring};

/// Returns the nested form of `steps`: [`ted_to_flat`](crate::ted_to_flat) with a ragged row for each
/// trajectory, and for the unwritten steps of each lane. Copies.
///
/// # Errors
/// The errors of [`ted_to_flat`](crate::ted_to_flat).
///
/// # Examples
/// ```
/// use fulmar_ted::{Ring, TedKeys, nested_to_ted, ted_to_nested};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("observation", Tensor::from_vec(&[3], vec![0_i64, 7, 8])?)?;
/// steps.set(["next", "observation"], Tensor::from_vec(&[3], vec![1_i64, 8, 9])?)?;
/// steps.set("done", Tensor::from_vec(&[3, 1], vec![false; 3])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[3, 1], vec![true, false, false])?)?;
/// let ring = Ring { cursor: 0, is_full: true };
/// let nested = ted_to_nested(&steps, ring, &TedKeys::default())?;
/// assert_eq!(nested.ragged("observation")?.row(1)?.to_vec::<i64>()?, [7, 8, 9]);
/// assert_eq!(nested_to_ted(&nested, &TedKeys::default())?, (steps, ring));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn ted_to_nested(steps: &TensorDict, ring: Ring, keys: &TedKeys) -> Result<TensorDict> {
    let (layout, columns) = laid_out(steps, ring, keys)?;
    let mut nested = with_ring(&[layout.runs.len()], ring, steps.batch_size(), keys)?;
    for column in columns {
        let offsets = offsets(&layout, column.is_observation());
        nested.set(column.key.clone(), Ragged::new(column.laid(&layout)?, &offsets)?)?;
    }
    Ok(nested)
}

/// Returns the ring of this nested form, and its position. Copies.
///
/// # Errors
/// The errors of [`flat_to_ted`](crate::flat_to_ted); `Incompatible`, with the key, if an entry is not
/// ragged; `ShapeMismatch` if its rows differ from the trajectories that `keys.done` ends.
pub fn nested_to_ted(nested: &TensorDict, keys: &TedKeys) -> Result<(TensorDict, Ring)> {
    let (ring, shape) = ring_of(nested, keys)?;
    let done = nested.ragged(keys.done.clone())?;
    let ends = ends(done.values(), &keys.done)?;
    let count: usize = shape.iter().product();
    if ends.len() != count {
        let detail =
            format!("{} must hold one bool for each of {count} steps: got {}", keys.done, ends.len());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    // Upstream gives the last run of a partly filled lane no next observation, even if its last step is an
    // end.
    let is_last = |place: usize| (place + 1).is_multiple_of(shape[0]);
    let layout =
        Layout::new(ring, &shape, &|place, step| ends[place] && (step.is_some() || !is_last(place)))?;
    let (steps, observations) = (offsets(&layout, false), offsets(&layout, true));
    let mut flat = with_ring(&[], ring, &shape, keys)?;
    for (key, entry) in leaves(nested, keys) {
        let Entry::Ragged(ragged) = entry else {
            let detail = format!("{key} must be a ragged tensor: got an entry of kind {}", entry.kind());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        if ragged.offsets() != steps && ragged.offsets() != observations {
            let detail = "rows must be the trajectories that `ends` delimits";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(key));
        }
        flat.set(key, ragged.values().clone())?;
    }
    unfolded(&flat, ring, &layout, &shape, keys)
}

/// Returns the offsets of the rows.
fn offsets(layout: &Layout, of_observations: bool) -> Vec<u64> {
    let mut end = 0;
    let ends = layout.runs.iter().map(|(steps, observations)| {
        end += if of_observations { *observations } else { *steps } as u64;
        end
    });
    std::iter::once(0).chain(ends).collect()
}
