//! Batches of rows, whose position can be saved.

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_tensor::TensorDict;

/// Options of [`Dataloader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataloaderOptions {
    /// Rows of a batch, from 1.
    pub batch_size: usize,
    /// True: passes follow one another without end; else there is one. True by default.
    pub infinite: bool,
    /// Fixes the order of each pass. 0 by default.
    pub seed: u64,
}

impl DataloaderOptions {
    /// Returns the default options for batches of a size.
    #[must_use]
    pub fn of(batch_size: usize) -> Self {
        Self { batch_size, infinite: true, seed: 0 }
    }
}

/// Batches without replacement, in a new order for each pass; rows that fill no batch are left for another pass. Equal seeds give the batches of
/// `getDataloader` in TypeScript, from any position.
///
/// # Examples
/// ```
/// use fulmar_dataset::{Dataloader, DataloaderOptions};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut rows = TensorDict::new(&[5])?;
/// rows.set("id", Tensor::from_vec(&[5], vec![0_i64, 1, 2, 3, 4])?)?;
/// let mut loader = Dataloader::new(rows.clone(), DataloaderOptions::of(2))?;
/// let batches: Vec<_> = loader.by_ref().take(3).collect::<Result<_, _>>()?;
/// assert_eq!((loader.num_batches(), loader.position()), (2, 3)); // the third is of the second pass
///
/// let mut resumed = Dataloader::new(rows, DataloaderOptions::of(2))?;
/// resumed.set_position(2);
/// assert_eq!(resumed.next().transpose()?.as_ref(), batches.last());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dataloader {
    rows: TensorDict,
    options: DataloaderOptions,
    num_batches: u64,
    position: u64,
    /// A pass, and the order of its rows.
    order: Option<(u64, Vec<u32>)>,
}

impl Dataloader {
    /// Makes a loader of rows `[N]` at its beginning.
    ///
    /// # Errors
    /// `ShapeMismatch` for rows of other than one batch dimension; `OutOfRange` for a batch of no rows, or of more than there are.
    pub fn new(rows: TensorDict, options: DataloaderOptions) -> Result<Self> {
        let &[num_rows] = rows.batch_size() else {
            let detail = format!("rows must be of the batch size [N]: got {:?}", rows.batch_size());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        if options.batch_size == 0 || options.batch_size > num_rows {
            let detail =
                format!("batch_size must be from 1 to the {num_rows} rows: got {}", options.batch_size);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let num_batches = (num_rows / options.batch_size) as u64;
        Ok(Self { rows, options, num_batches, position: 0, order: None })
    }

    /// Returns the number of batches of a pass.
    #[must_use]
    pub fn num_batches(&self) -> u64 {
        self.num_batches
    }

    /// Returns the number of batches taken so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues behind so many batches.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    fn batch_at(&mut self, position: u64) -> Result<TensorDict> {
        let (pass, place) = (position / self.num_batches, position % self.num_batches);
        let size = self.options.batch_size;
        if self.order.as_ref().is_none_or(|(known, _)| *known != pass) {
            let mut rng = Rng::new(self.options.seed).stream("getDataloader").fork(pass);
            self.order = Some((pass, rng.permutation(self.rows.batch_size()[0] as u64)?));
        }
        let start = place as usize * size;
        let order = self.order.iter().flat_map(|(_, rows)| &rows[start..start + size]);
        self.rows.index_select(&order.map(|row| *row as usize).collect::<Vec<_>>())
    }
}

impl Iterator for Dataloader {
    type Item = Result<TensorDict>;

    /// Returns the next batch, `[batch_size]`; nothing behind the only pass. The errors are those of [`TensorDict::index_select`] and
    /// [`Rng::permutation`].
    fn next(&mut self) -> Option<Self::Item> {
        if !self.options.infinite && self.position >= self.num_batches {
            return None;
        }
        let batch = self.batch_at(self.position);
        self.position += u64::from(batch.is_ok());
        Some(batch)
    }
}
