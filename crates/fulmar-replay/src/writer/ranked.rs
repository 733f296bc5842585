//! The writer of the best items, which reads their ranks.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};
use serde_json::Value;

use crate::read::reduced;
use crate::stateful::{check_capacity, from_state, to_state};
use crate::writer::{WritePlan, Writer};
use crate::{MaxValueWriter, MaxValueWriterState, Reduction, Stateful};

/// A [`MaxValueWriter`] of the values at a key. A write that is kept costs O(capacity).
///
/// # Examples
/// ```
/// use fulmar_replay::{RankedWriter, Reduction, Writer};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let writer = RankedWriter::new(2, "reward".into(), Reduction::Sum)?;
/// let mut items = TensorDict::new(&[3])?;
/// items.set("reward", Tensor::from_vec_f32(&[3], vec![3.0, 1.0, 2.0])?)?;
/// assert_eq!(writer.plan(&items, &[])?.rows, [Some(0), None, Some(1)]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RankedWriter {
    best: MaxValueWriter,
    rank_key: Key,
    reduction: Reduction,
}

impl RankedWriter {
    /// Returns a writer of `capacity` rows, none of them written, of items ranked by the values at
    /// `rank_key`.
    ///
    /// # Errors
    /// The errors of [`MaxValueWriter::new`].
    pub fn new(capacity: usize, rank_key: Key, reduction: Reduction) -> Result<Self> {
        Ok(Self { best: MaxValueWriter::new(capacity)?, rank_key, reduction })
    }

    /// Returns the writer by rank.
    #[must_use]
    pub const fn best(&self) -> &MaxValueWriter {
        &self.best
    }

    fn ranks(&self, items: &TensorDict) -> Result<Vec<f64>> {
        // Ranks use single precision, like rewards: sums in double precision would order ties differently.
        let ranks = reduced(items, &self.rank_key, self.reduction)?;
        Ok(ranks.into_iter().map(|rank| f64::from(rank as f32)).collect())
    }
}

impl Writer for RankedWriter {
    fn plan(&self, items: &TensorDict, _: &[usize]) -> Result<WritePlan> {
        let mut trial = Self { best: self.best.clone(), rank_key: self.rank_key.clone(), ..*self };
        let rows = trial.best.extend(&self.ranks(items)?)?;
        let (cursor, write_count) = trial.position();
        Ok(WritePlan { rows, cursor, write_count })
    }

    fn commit(&mut self, items: &TensorDict, _: &[usize]) -> Result<()> {
        let ranks = self.ranks(items)?;
        self.best.extend(&ranks).map(|_| ())
    }

    fn write_at(&mut self, _: &[usize], foreign: bool) -> Result<()> {
        if foreign {
            return Ok(());
        }
        let detail = "rows must be given by rank where the best items are kept: got rows";
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    fn position(&self) -> (usize, u64) {
        (self.best.len() % self.best.capacity(), self.best.write_count())
    }

    /// The ranks are those of the rows: items that were not kept left no trace.
    fn resume(
        &mut self,
        len: usize,
        (_, write_count): (usize, u64),
        items: &dyn Fn() -> Result<TensorDict>,
    ) -> Result<()> {
        let ranks = if len == 0 { Vec::new() } else { self.ranks(&items()?)? };
        let state = MaxValueWriterState { capacity: self.best.capacity(), write_count, ranks };
        self.best = MaxValueWriter::from_state(&state)?;
        Ok(())
    }

    fn clear(&mut self, keeps_count: bool) {
        self.best.clear();
        if !keeps_count {
            self.best.reset_write_count();
        }
    }
}

impl Stateful for RankedWriter {
    fn state(&self) -> Result<Value> {
        to_state(&self.best.state())
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let best = MaxValueWriter::from_state(&from_state("writer", state)?)?;
        check_capacity(self.best.capacity(), best.capacity())?;
        self.best = best;
        Ok(())
    }
}
