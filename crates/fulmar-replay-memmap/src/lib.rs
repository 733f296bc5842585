//! Rows of replay buffers in memory-mapped files that several processes share. Not for WebAssembly, which maps
//! no files.
//!
//! ```
//! use fulmar_replay::{ReplayBuffer, ReplayBufferOptions};
//! use fulmar_replay_memmap::LazyMemmapStorage;
//! use fulmar_tensor::TensorDict;
//! let storage = LazyMemmapStorage::new(&[100], Default::default())?;
//! let mut buffer = ReplayBuffer::new(Box::new(storage), ReplayBufferOptions::default())?;
//! assert_eq!(buffer.extend(&TensorDict::new(&[2])?)?, [Some(0), Some(1)]);
//! # Ok::<(), fulmar_core::Error>(())
//! ```

mod folder;
mod mapping;
mod news;
mod options;
mod patience;
mod ring;
mod rows;
mod schema;
#[cfg(test)]
mod sparse;
mod storage;

pub use options::LazyMemmapStorageOptions;
pub use storage::LazyMemmapStorage;
