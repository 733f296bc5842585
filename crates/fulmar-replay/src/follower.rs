//! Parts of a buffer that follow its writes.

use std::ops::Range;

use fulmar_core::Result;
use fulmar_tensor::TensorDict;

use crate::{Reads, Stateful};

/// Most rows of a run in one call.
const RUN_AT_ONCE: usize = 1 << 16;

/// A part that a buffer passes every write to.
pub trait Follower: Stateful {
    /// Returns the part of items that [`Follower::extend`] reads, so that a buffer reads no more of stored
    /// rows.
    fn reads(&self) -> Reads {
        Reads::Items
    }

    /// Returns whether the part depends on the write order of rows, so that an edit requires passing all rows
    /// again.
    fn in_order(&self) -> bool {
        false
    }

    /// Checks that [`Follower::extend`] would accept the same arguments. A buffer checks before it stores the
    /// items.
    ///
    /// # Errors
    /// The errors of [`Follower::extend`].
    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let _ = (rows, items);
        Ok(())
    }

    /// Records that `items`, one for each of `rows`, were written there, in this order.
    ///
    /// # Errors
    /// `UnknownName` if an item lacks a leaf that the part reads; other errors of the part.
    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()>;

    /// Runs [`Follower::extend`] for a run of rows, for a part that [reads](Follower::reads) only row numbers.
    ///
    /// # Errors
    /// The errors of [`Follower::extend`] for these rows.
    fn extend_run(&mut self, mut rows: Range<usize>) -> Result<()> {
        while !rows.is_empty() {
            let some: Vec<usize> = rows.by_ref().take(RUN_AT_ONCE).collect();
            self.extend(&some, &TensorDict::new(&[some.len()])?)?;
        }
        Ok(())
    }

    /// Removes all rows.
    fn clear(&mut self);
}
