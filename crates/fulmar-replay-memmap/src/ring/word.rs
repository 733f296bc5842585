//! A word that processes share: an atomic, or its model in tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// A shared word.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Replaces the word `from` by `to`; returns `false` if it was not `from`.
    fn replace(&self, from: u64, to: u64) -> bool;
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}
