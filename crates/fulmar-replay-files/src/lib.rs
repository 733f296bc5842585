//! Checkpoint formats of replay buffers: TorchRL's folders of leaves, its forms that store each trajectory's
//! observations once, HDF5 files, and folders of lists.
//!
//! A format is a [`StorageCheckpointer`](fulmar_replay::StorageCheckpointer): the argument of `dumps` and `loads` of
//! a buffer. An ensemble stores each of its buffers in one format.
//!
//! ```
//! use fulmar_replay::{ReplayBufferEnsemble, SharedReplayBuffer, StorageEnsembleCheckpointer, TensorStorage};
//! use fulmar_replay_files::TensorStorageCheckpointer;
//! use fulmar_tensor::TensorDict;
//! let ensemble = || {
//!     let buffer = SharedReplayBuffer::new(Box::new(TensorStorage::new(&[8])?), Default::default())?;
//!     ReplayBufferEnsemble::new(vec![buffer], Default::default())
//! };
//! let (one, mut other) = (ensemble()?, ensemble()?);
//! one.buffers()[0].extend(&TensorDict::new(&[3])?)?;
//! let path = std::env::temp_dir().join(format!("fulmar-doc-ensemble-dumps-{}", std::process::id()));
//! let form = StorageEnsembleCheckpointer { member: Box::new(TensorStorageCheckpointer) };
//! one.dumps(&path, &form)?;
//! other.loads(&path, &form)?;
//! assert_eq!(other.buffers()[0].len()?, 3);
//! # std::fs::remove_dir_all(path)?;
//! # Ok::<(), fulmar_core::Error>(())
//! ```

mod compressed;
mod list;
mod options;
mod steps;
mod ted;
mod tensor;

pub use compressed::CompressedListStorageCheckpointer;
pub use list::ListStorageCheckpointer;
pub use options::CheckpointerOptions;
pub use ted::{FlatStorageCheckpointer, H5StorageCheckpointer, NestedStorageCheckpointer};
pub use tensor::TensorStorageCheckpointer;
