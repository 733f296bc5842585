//! Memory of a GPU for the allocations of work that is captured.
//!
//! ```text
//! run      work allocates from the driver what the pool lacks; what it drops, the pool keeps
//! capture  the same work again: each of its allocations is one that the pool has
//! ```
//! A capture cannot allocate, and a graph writes to the addresses of its capture. So work runs once in a pool before it is captured
//! in it. The driver runs graphs and other work of a card in order, so graphs of one pool may share its memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fulmar_core::Result;

use crate::Card;
use crate::card::Lane;

/// Memory that work on a GPU allocates and drops, and allocates again at the same addresses. Clones are the same pool. The memory is
/// freed when the last of them, the last graph that was captured in it and the last buffer from it are dropped.
///
/// # Examples
/// ```
/// use fulmar_cuda::GraphPool;
/// assert_eq!(GraphPool::default().run(|| 3), 3); // on the CPU
/// ```
#[derive(Debug, Clone, Default)]
pub struct GraphPool(Arc<Free>);

/// The addresses of free memory, by GPU and exact number of bytes. So an allocation is served whatever was allocated before it.
#[derive(Debug, Default)]
struct Free(Mutex<HashMap<(Card, usize), Vec<u64>>>);

thread_local! {
    /// The pool of the work that this thread runs.
    static CURRENT: RefCell<Option<GraphPool>> = const { RefCell::new(None) };
}

impl GraphPool {
    /// Runs `work`, whose allocations on this thread are from this pool, except those of uploads.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = Restored(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// Returns the pool of the work that this thread runs, if it has one.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns the address of free memory, or of new memory.
    ///
    /// # Errors
    /// The errors of [`Card::allocate_bytes`].
    pub(crate) fn take(&self, card: Card, bytes: usize) -> Result<u64> {
        let mut free = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        match free.get_mut(&(card, bytes)).and_then(Vec::pop) {
            Some(address) => Ok(address),
            None => card.allocate_bytes(bytes, Lane::Work),
        }
    }

    /// Takes memory back.
    pub(crate) fn give(&self, card: Card, address: u64, bytes: usize) {
        let mut free = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry((card, bytes)).or_default().push(address);
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        for ((card, _), addresses) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain() {
            addresses.into_iter().for_each(|address| card.free_at(address));
        }
    }
}

/// Makes the pool of before that of the thread again.
struct Restored(Option<GraphPool>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
