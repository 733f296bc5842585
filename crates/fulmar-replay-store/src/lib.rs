//! Rows of replay buffers that outlive their process: in a durable store on disk, or on a server that several
//! processes share (feature `redis`, natively).
//!
//! ```
//! use fulmar_replay::ReplayBuffer;
//! use fulmar_replay_store::DurableStorage;
//! use fulmar_store::MemoryDisk;
//! use fulmar_tensor::TensorDict;
//! let storage = DurableStorage::open(MemoryDisk::default(), &[4], Default::default())?;
//! let mut buffer = ReplayBuffer::new(Box::new(storage), Default::default())?;
//! assert_eq!(buffer.extend(&TensorDict::new(&[2])?)?, [Some(0), Some(1)]);
//! # Ok::<(), fulmar_core::Error>(())
//! ```

mod durable;
#[cfg(all(feature = "redis", not(target_family = "wasm")))]
mod server;

pub use durable::{DurableStorage, DurableStorageOptions};
#[cfg(all(feature = "redis", not(target_family = "wasm")))]
pub use server::{StoreStorage, StoreStorageOptions};
