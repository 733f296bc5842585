//! Storages as options describe them.

use fulmar_core::Result;
use serde::{Deserialize, Serialize};

use crate::storage::Storage;
use crate::{CompressedListStorage, LazyStackStorage, ListStorage, TensorStorage};

/// A storage as options describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum StorageOptions {
    /// A [`TensorStorage`] that takes its leaves from the first items.
    LazyTensor {
        /// `[capacity]`, or `[time, lanes..]`.
        shape: Vec<usize>,
        /// The most bytes it may take. The machine's limit.
        #[serde(default)]
        bytes_max: Option<u64>,
    },
    /// A [`ListStorage`].
    List {
        /// Rows there is room for.
        max_size: usize,
    },
    /// A [`LazyStackStorage`].
    LazyStack {
        /// Rows there is room for.
        max_size: usize,
    },
    /// A [`CompressedListStorage`].
    CompressedList {
        /// Rows there is room for.
        max_size: usize,
        /// How hard to compress, 0 to 9. 3.
        #[serde(default = "level")]
        compression_level: u8,
    },
}

const fn level() -> u8 {
    3
}

impl StorageOptions {
    /// The storage, without an item.
    ///
    /// # Errors
    /// Those of its constructor.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::StorageOptions;
    /// let options: StorageOptions = serde_json::from_str(r#"{"kind": "list", "maxSize": 4}"#).unwrap();
    /// assert_eq!(options.build()?.capacity(), 4);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn build(&self) -> Result<Box<dyn Storage>> {
        Ok(match self {
            Self::LazyTensor { shape, bytes_max } => {
                let storage = TensorStorage::new(shape)?;
                Box::new(if let Some(bytes) = bytes_max { storage.with_bytes_max(*bytes) } else { storage })
            }
            Self::List { max_size } => Box::new(ListStorage::new(*max_size)?),
            Self::LazyStack { max_size } => Box::new(LazyStackStorage::new(*max_size)?),
            Self::CompressedList { max_size, compression_level } => {
                Box::new(CompressedListStorage::new(*max_size, *compression_level)?)
            }
        })
    }
}
