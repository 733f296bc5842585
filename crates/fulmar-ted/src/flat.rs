//! The flat form: all trajectories in sequence.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};

use crate::layout::{Layout, Source, gathered};
use crate::ring::{Ring, TedKeys, leaves, next, ring_of, with_ring};

/// Returns the flat form of `steps`, a ring of shape `[time]` or `[time, lanes...]`. Copies.
///
/// Entries of `keys` and entries that exist only at the root keep one row a step, `[N, ...]`. Entries both at
/// the root and below `"next"` are observations and get one more row a trajectory. A trajectory ends where
/// `keys.done` is true below `"next"`, and at the newest step of each lane.
///
/// # Errors
/// `Incompatible`, with the key, if an entry is not a tensor or has a key that `keys` reserve for the ring,
/// if `keys.done` does not hold bools, or if a step's next observation differs from the observation of the
/// step after it, which this form would lose (as with n-step returns and relabelled goals); `UnknownName` if
/// an entry below `"next"` is neither in `keys` nor at the root; `OutOfRange` or `Empty` as for
/// [`Ring::oldest`].
///
/// # Examples
/// ```
/// use fulmar_ted::{Ring, TedKeys, flat_to_ted, ted_to_flat};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("observation", Tensor::from_vec(&[3], vec![2_i64, 0, 1])?)?;
/// steps.set(["next", "observation"], Tensor::from_vec(&[3], vec![3_i64, 1, 2])?)?;
/// steps.set("done", Tensor::from_vec(&[3, 1], vec![false; 3])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[3, 1], vec![true, false, false])?)?;
/// let ring = Ring { cursor: 1, is_full: true };
/// let flat = ted_to_flat(&steps, ring, &TedKeys::default())?;
/// assert_eq!(flat.tensor("observation")?.as_slice::<i64>()?, [0, 1, 2, 3]);
/// assert_eq!(flat_to_ted(&flat, &TedKeys::default())?, (steps, ring));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn ted_to_flat(steps: &TensorDict, ring: Ring, keys: &TedKeys) -> Result<TensorDict> {
    let (layout, columns) = laid_out(steps, ring, keys)?;
    let mut flat = with_ring(&[], ring, steps.batch_size(), keys)?;
    for column in columns {
        flat.set(column.key.clone(), column.laid(&layout)?)?;
    }
    Ok(flat)
}

/// Returns the ring of this flat form, and its position. Steps that were never written are zeros, whatever
/// the flat form has in their place. Copies.
///
/// # Errors
/// `Malformed` if the dictionary lacks the position of its ring; `UnknownName` if it lacks `keys.done`;
/// `Incompatible`, with the key, if an entry is not a tensor; `ShapeMismatch` if an entry has neither one row
/// a step nor one more a trajectory; `OutOfRange` or `Empty` as for [`Ring::oldest`].
pub fn flat_to_ted(flat: &TensorDict, keys: &TedKeys) -> Result<(TensorDict, Ring)> {
    let (ring, shape) = ring_of(flat, keys)?;
    let ends = ends(flat.tensor(keys.done.clone())?, &keys.done)?;
    let count: usize = shape.iter().product();
    if ends.len() != count {
        let detail =
            format!("{} must hold one bool for each of {count} steps: got {}", keys.done, ends.len());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let layout = Layout::new(ring, &shape, &|place, _| ends[place])?;
    unfolded(flat, ring, &layout, &shape, keys)
}

/// Returns the ring of steps of `shape` stored in `flat` by `layout`.
pub(crate) fn unfolded(
    flat: &TensorDict,
    ring: Ring,
    layout: &Layout,
    shape: &[usize],
    keys: &TedKeys,
) -> Result<(TensorDict, Ring)> {
    let mut steps = TensorDict::new(shape)?;
    for (key, entry) in leaves(flat, keys) {
        let Entry::Tensor(tensor) = entry else { return Err(no_tensor(entry, &key)) };
        unfold(tensor, &key, keys, layout, &mut steps).map_err(|error| error.at(&key))?;
    }
    Ok((steps, Ring { cursor: if ring.is_full { ring.cursor % shape[0] } else { ring.cursor }, ..ring }))
}

/// Writes the entry at `key` of the flat form to its places among `steps`.
fn unfold(tensor: &Tensor, key: &Key, keys: &TedKeys, layout: &Layout, steps: &mut TensorDict) -> Result<()> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    // For each step of the ring, the row returned by `place`.
    let picked = |place: fn((usize, usize, usize)) -> usize| {
        let sources: Vec<_> = layout
            .places
            .iter()
            .map(|places| places.map_or(Source::Unwritten, |places| Source::Step(place(places))))
            .collect();
        let nothing = tensor.slice(0, 0..0)?;
        let picked = gathered(tensor, &nothing, &sources)?;
        let shape = [steps.batch_size(), &tensor.shape()[1..]].concat();
        picked.reshape(&shape)
    };
    if keys.is_of_step(key) && rows == layout.steps.len() {
        let values = picked(|(step, _, _)| step)?;
        if keys.ends.contains(key) {
            steps.set(key.clone(), Tensor::zeros(values.dtype(), values.shape())?)?;
        }
        steps.set(next(key), values)
    } else if rows == layout.observations.len() {
        let (root, following) = (picked(|(_, root, _)| root)?, picked(|(_, _, next)| next)?);
        steps.set(key.clone(), root)?;
        steps.set(next(key), following)
    } else if rows == layout.steps.len() {
        let values = picked(|(step, _, _)| step)?;
        steps.set(key.clone(), values)
    } else {
        let detail = format!(
            "rows must be {} (one a step) or {} (one more a trajectory): got {rows}",
            layout.steps.len(),
            layout.observations.len()
        );
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    }
}

/// An entry of the steps, with time and lanes as one dimension.
pub(crate) struct Column {
    pub key: Key,
    /// `[N, ...]`.
    root: Tensor,
    /// The tensor after each step, if this is an observation.
    next: Option<Tensor>,
}

impl Column {
    /// Returns whether it has one more row a trajectory.
    pub const fn is_observation(&self) -> bool {
        self.next.is_some()
    }

    /// Returns its rows in the order of the flat form.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them.
    pub fn laid(&self, layout: &Layout) -> Result<Tensor> {
        match &self.next {
            Some(next) => gathered(&self.root, next, &layout.observations),
            None => gathered(&self.root, &self.root.slice(0, 0..0)?, &layout.steps),
        }
    }

    /// Checks that inside each trajectory the next observation equals that of the next step.
    fn check_follows(&self, layout: &Layout) -> Result<()> {
        let Some(next) = &self.next else { return Ok(()) };
        let (mut earlier, mut later) = (Vec::new(), Vec::new());
        for pair in layout.observations.windows(2) {
            if let [Source::Step(at), Source::Step(after)] = pair {
                earlier.push(*at);
                later.push(*after);
            }
        }
        let (said, stands) = (next.index_select(0, &earlier)?, self.root.index_select(0, &later)?);
        // Compares bytes, so that NaN equals NaN.
        if said.to_bytes() == stands.to_bytes() {
            return Ok(());
        }
        let detail = "inside a trajectory, the next observation must equal the observation of the next step, or it would be lost";
        Err(Error::new(ErrorKind::Incompatible, detail).at(&self.key))
    }
}

/// Returns the layout of `steps` in the flat form, and their entries.
pub(crate) fn laid_out(steps: &TensorDict, ring: Ring, keys: &TedKeys) -> Result<(Layout, Vec<Column>)> {
    let done = next(&keys.done);
    let ends = ends(steps.tensor(done.clone())?, &done)?;
    let shape = steps.batch_size();
    if ends.len() != shape.iter().product::<usize>() {
        let detail = format!("{done} must hold one bool for each step of {shape:?}: got {}", ends.len());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let layout = Layout::new(ring, shape, &|_, step| step.is_some_and(|step| ends[step]))?;
    let columns = columns(steps, keys)?;
    columns.iter().try_for_each(|column| column.check_follows(&layout))?;
    Ok((layout, columns))
}

fn columns(steps: &TensorDict, keys: &TedKeys) -> Result<Vec<Column>> {
    let rank = steps.batch_size().len();
    let flattened = |key: &Key| -> Result<Tensor> {
        let entry = steps.entry(key.clone())?;
        let Entry::Tensor(tensor) = entry else { return Err(no_tensor(entry, key)) };
        let count: usize = steps.batch_size().iter().product();
        let shape = [&[count], &tensor.shape()[rank..]].concat();
        tensor.reshape(&shape)
    };
    let below = |key: &Key| match key.path().split_first() {
        Some((first, rest)) if first == "next" && !rest.is_empty() => Some(Key::from(rest.to_vec())),
        _ => None,
    };
    let mut columns = Vec::new();
    for key in steps.leaf_keys() {
        if let Some(inner) = below(&key) {
            if keys.is_of_step(&inner) {
                columns.push(Column { root: flattened(&key)?, key: inner, next: None });
            } else if steps.get(inner.clone()).is_none() {
                let detail =
                    "an entry below \"next\" must be at the root too, or be named as an end or a reward";
                return Err(Error::new(ErrorKind::UnknownName, detail).at(key));
            }
        } else if !keys.is_of_step(&key) {
            let following = next(&key);
            let following = steps.get(following.clone()).map(|_| flattened(&following)).transpose()?;
            columns.push(Column { root: flattened(&key)?, key, next: following });
        }
    }
    for column in &columns {
        if keys.is_of_ring(&column.key) {
            let detail = "an entry must not have a key that the form reserves for the position of its ring";
            return Err(Error::new(ErrorKind::Incompatible, detail).at(&column.key));
        }
        if column
            .next
            .as_ref()
            .is_some_and(|next| (next.dtype(), next.shape()) != (column.root.dtype(), column.root.shape()))
        {
            let detail = "an entry must have one dtype and shape at the root and below \"next\": got two";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(&column.key));
        }
    }
    Ok(columns)
}

/// Returns one bool for each row.
pub(crate) fn ends(tensor: &Tensor, key: &Key) -> Result<Vec<bool>> {
    if tensor.dtype() != Dtype::Bool {
        let detail = format!("{key} must hold bools: got {}", tensor.dtype().name());
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    tensor.to_vec()
}

pub(crate) fn no_tensor(entry: &Entry, key: &Key) -> Error {
    Error::new(
        ErrorKind::Incompatible,
        format!("{key} must be a tensor: got an entry of kind {}", entry.kind()),
    )
}
