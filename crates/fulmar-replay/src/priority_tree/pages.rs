//! Long arrays on huge pages if the system has them: a draw from 100 million rows touches pages everywhere,
//! and each small one costs a page-table walk.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use fulmar_core::{Error, ErrorKind, Result};

/// Shorter arrays, below two huge pages of x86-64, are on the heap.
#[cfg(not(target_family = "wasm"))]
const HUGE_BYTES: usize = 4 << 20;

/// `len` items, initially zero.
pub(super) struct Pages<T> {
    memory: Memory<T>,
    len: usize,
}

enum Memory<T> {
    Heap(Vec<T>),
    #[cfg(not(target_family = "wasm"))]
    Mapped(memmap2::MmapMut),
}

impl<T: Pod> Pages<T> {
    pub(super) fn zeroed(len: usize) -> Result<Self> {
        Ok(Self { memory: Memory::zeroed(len)?, len })
    }
}

impl<T: Pod> Memory<T> {
    #[cfg(not(target_family = "wasm"))]
    fn zeroed(len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| too_long(len))?;
        if bytes < HUGE_BYTES {
            return Self::on_heap(len);
        }
        let mapped = memmap2::MmapMut::map_anon(bytes).map_err(|_| too_long(len))?;
        #[cfg(target_os = "linux")]
        {
            // A system that ignores this advice is only slower.
            let _ = mapped.advise(memmap2::Advice::HugePage);
        }
        Ok(Self::Mapped(mapped))
    }

    #[cfg(target_family = "wasm")]
    fn zeroed(len: usize) -> Result<Self> {
        Self::on_heap(len)
    }

    fn on_heap(len: usize) -> Result<Self> {
        let mut items = Vec::new();
        items.try_reserve_exact(len).map_err(|_| too_long(len))?;
        items.resize(len, T::zeroed());
        Ok(Self::Heap(items))
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.memory {
            Memory::Heap(items) => items,
            #[cfg(not(target_family = "wasm"))]
            Memory::Mapped(bytes) => &bytemuck::cast_slice(bytes)[..self.len],
        }
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Heap(items) => items,
            #[cfg(not(target_family = "wasm"))]
            Memory::Mapped(bytes) => &mut bytemuck::cast_slice_mut(bytes)[..self.len],
        }
    }
}

impl<T: Pod> Clone for Pages<T> {
    fn clone(&self) -> Self {
        let Ok(mut copy) = Self::zeroed(self.len) else {
            return Self { memory: Memory::Heap(self.to_vec()), len: self.len };
        };
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Pod> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} items)", self.len)
    }
}

fn too_long(len: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("capacity must fit in memory: got {len} items"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_zero_and_keep_what_is_written_on_heap_and_map() {
        for len in [1, HUGE_BYTES / 8 - 1, HUGE_BYTES / 8, HUGE_BYTES / 8 + 1] {
            let mut pages: Pages<u64> = Pages::zeroed(len).unwrap();
            assert!(pages.len() == len && pages.iter().all(|item| *item == 0));
            pages[len - 1] = 7;
            assert_eq!(pages.last(), Some(&7));
        }
        assert_eq!(Pages::<u64>::zeroed(usize::MAX / 4).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
