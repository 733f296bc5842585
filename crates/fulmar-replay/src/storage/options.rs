//! Options of storages.

use fulmar_core::{Device, Result};
use serde::{Deserialize, Serialize};

use crate::storage::Storage;
use crate::{CompressedListStorage, LazyStackStorage, ListStorage, TensorStorage};

/// The kind of a storage, with its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum StorageOptions {
    /// A [`TensorStorage`] that takes its leaves from the first items.
    LazyTensor {
        /// `[capacity]`, or `[time, lanes..]`.
        shape: Vec<usize>,
        /// Maximum size in bytes. Defaults to the limit of a storage.
        #[serde(default)]
        bytes_max: Option<u64>,
        /// The device of tensors. Defaults to the CPU.
        #[serde(default)]
        device: Device,
    },
    /// A [`ListStorage`].
    List {
        /// Maximum number of rows.
        max_size: usize,
        /// The device of tensors. Defaults to the CPU.
        #[serde(default)]
        device: Device,
    },
    /// A [`LazyStackStorage`].
    LazyStack {
        /// Maximum number of rows.
        max_size: usize,
        /// The device of tensors. Defaults to the CPU.
        #[serde(default)]
        device: Device,
    },
    /// A [`CompressedListStorage`].
    CompressedList {
        /// Maximum number of rows.
        max_size: usize,
        /// The compression level, 0 to 9. Defaults to 3.
        #[serde(default = "level")]
        compression_level: u8,
        /// The device of read items. Defaults to the CPU.
        #[serde(default)]
        device: Device,
    },
}

const fn level() -> u8 {
    3
}

impl StorageOptions {
    /// Returns an empty storage.
    ///
    /// # Errors
    /// The errors of its constructor; `Unavailable` for a missing device.
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
            Self::LazyTensor { shape, bytes_max, device } => {
                let storage = TensorStorage::new(shape)?.on(*device)?;
                Box::new(if let Some(bytes) = bytes_max { storage.with_bytes_max(*bytes) } else { storage })
            }
            Self::List { max_size, device } => Box::new(ListStorage::new(*max_size)?.on(*device)?),
            Self::LazyStack { max_size, device } => Box::new(LazyStackStorage::new(*max_size)?.on(*device)?),
            Self::CompressedList { max_size, compression_level, device } => {
                Box::new(CompressedListStorage::new(*max_size, *compression_level)?.on(*device)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;

    use super::*;

    #[test]
    fn storages_are_made_where_there_is_a_device_and_nowhere_else() {
        for kind in [
            r#""kind": "lazyTensor", "shape": [4]"#,
            r#""kind": "list", "maxSize": 4"#,
            r#""kind": "lazyStack", "maxSize": 4"#,
            r#""kind": "compressedList", "maxSize": 4"#,
        ] {
            let build = |device: &str| {
                let json = format!(r#"{{ {kind}, "device": "{device}" }}"#);
                fulmar_core::options_from_json::<StorageOptions>("storage", &json)?.build().map(|_| ())
            };
            assert_eq!(build("cpu"), Ok(()), "{kind}");
            assert_eq!(build("cuda:9999").unwrap_err().kind(), ErrorKind::Unavailable, "{kind}");
        }
    }
}
