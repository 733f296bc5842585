//! Stacks the last frames of a trajectory as one observation.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::{at_least_1, check_out_keys, check_size, feature_dim};
use crate::time::{Steps, flags};
use crate::transform::Transform;

/// The padding before the first frame of a trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FramePadding {
    /// The first frame.
    #[default]
    Same,
    /// `paddingValue` everywhere.
    Constant,
}

/// Replaces each frame of a sampled batch by the last `n` frames, the newest last, concatenated along `dim`.
/// A window never reaches into the previous trajectory.
///
/// For a key below `next`, the frames are those before it at the root, if `inKeys` has that key too, and then
/// its own.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{CatFrames, Transform};
/// let mut batch = TensorDict::new(&[3])?;
/// batch.set("obs", Tensor::from_vec(&[3, 1], vec![1_u8, 2, 3])?)?;
/// batch.set(["next", "done"], Tensor::from_vec(&[3], vec![false, true, false])?)?;
/// let stacked = CatFrames::new(2, -1, vec!["obs".into()])?.forward(batch)?;
/// assert_eq!(stacked.tensor("obs")?.to_vec::<u8>()?, [1, 1, 1, 2, 3, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatFrames {
    /// Number of frames.
    pub n: usize,
    /// The dimension of a frame along which they are concatenated; negative from the last.
    pub dim: isize,
    /// The padding. Defaults to `same`.
    #[serde(default)]
    pub padding: FramePadding,
    /// The value of constant padding. Defaults to 0.
    #[serde(default)]
    pub padding_value: f64,
    /// The keys of the tensors.
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `inKeys`.
    #[serde(default)]
    pub out_keys: Vec<Key>,
    /// The flag that ends a trajectory. Defaults to `["next", "done"]`.
    #[serde(default = "done")]
    pub done_key: Key,
}

fn done() -> Key {
    ["next", "done"].into()
}

impl CatFrames {
    /// Stacks `n` frames of `in_keys` along `dim`, with the defaults for all other options.
    ///
    /// # Errors
    /// `OutOfRange` if `n` is 0.
    pub fn new(n: usize, dim: isize, in_keys: Vec<Key>) -> Result<Self> {
        let (padding, padding_value, out_keys, done_key) = (FramePadding::default(), 0.0, vec![], done());
        Self { n, dim, padding, padding_value, in_keys, out_keys, done_key }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self> {
        at_least_1("n", self.n)?;
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }

    /// Returns the tensor at `key` without `next`, if `key` is below it and that tensor is stacked too.
    fn root(&self, dict: &TensorDict, key: &Key) -> Result<Option<Tensor>> {
        match key.path() {
            [next, rest @ ..] if next == "next" && !rest.is_empty() => {
                let root = Key::from(rest.to_vec());
                self.in_keys.contains(&root).then(|| dict.tensor(root).cloned()).transpose()
            }
            _ => Ok(None),
        }
    }

    fn windows(
        &self,
        frames: &Tensor,
        root: Option<&Tensor>,
        batch: usize,
        firsts: &[usize],
    ) -> Result<Tensor> {
        let (shape, steps) = (frames.shape(), firsts.len());
        let dim = feature_dim(frames, self.dim, batch)?;
        let mut result = shape.to_vec();
        result[dim] = result[dim].saturating_mul(self.n);
        check_size(&result)?;
        check_size(&[steps, self.n])?;
        let flat = |tensor: &Tensor| tensor.reshape(&[&[steps], &shape[batch..]].concat());
        let fill = Tensor::scalar(frames.dtype(), self.padding_value)?;
        let mut frame = vec![1];
        frame.extend_from_slice(&shape[batch..]);
        // One list of frames to take from: those of the key, those of the root, and a padding frame.
        let older = root.map_or_else(|| Ok(None), |root| flat(root).map(Some))?;
        let mut sources = vec![flat(frames)?];
        sources.extend(older.clone());
        sources.push(fill.expand(&frame)?);
        let (before, padding) =
            (if root.is_some() { steps } else { 0 }, steps * (1 + usize::from(root.is_some())));
        let pick = |at: usize, age: usize| {
            // For a key of the root, frame `age` is the root's `age - 1` steps ago.
            let ago = if root.is_some() { age.saturating_sub(1) } else { age };
            match (age, self.padding) {
                (0, _) => at,
                _ if firsts[at] + ago <= at => before + at - ago,
                (_, FramePadding::Same) => before + firsts[at],
                (_, FramePadding::Constant) => padding,
            }
        };
        let picks: Vec<usize> = (0..steps)
            .flat_map(|at| (0..self.n).rev().map(move |age| (at, age)))
            .map(|(at, age)| pick(at, age))
            .collect();
        let taken = Tensor::cat(&sources, 0)?.index_select(0, &picks)?;
        let (outer, inner) = (shape[batch..dim].iter().product(), shape[dim..].iter().product());
        taken.reshape(&[steps, self.n, outer, inner])?.transpose(1, 2)?.reshape(&result)
    }
}

impl Transform for CatFrames {
    fn forward(&mut self, mut dict: TensorDict) -> Result<TensorDict> {
        let batch = dict.batch_size().len();
        let firsts = Steps::of(&dict)?.firsts(&flags(&dict, &self.done_key)?);
        let out_keys = if self.out_keys.is_empty() { &self.in_keys } else { &self.out_keys };
        let mut stacked = Vec::with_capacity(self.in_keys.len());
        for key in &self.in_keys {
            let (frames, root) = (dict.tensor(key.clone())?, self.root(&dict, key)?);
            if let Some(root) = root.as_ref().filter(|root| !alike(root, frames)) {
                let detail = format!(
                    "{key} must have the dtype and shape that it has at the root, {} {:?}: got {} {:?}",
                    root.dtype().name(),
                    root.shape(),
                    frames.dtype().name(),
                    frames.shape()
                );
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
            let windows = self.windows(frames, root.as_ref(), batch, &firsts);
            stacked.push(windows.map_err(|error| error.at(key))?);
        }
        for (key, windows) in out_keys.iter().zip(stacked) {
            dict.set(key.clone(), windows)?;
        }
        Ok(dict)
    }
}

fn alike(left: &Tensor, right: &Tensor) -> bool {
    let kind = |tensor: &Tensor| -> (Dtype, Vec<usize>) { (tensor.dtype(), tensor.shape().to_vec()) };
    kind(left) == kind(right)
}
