//! Checkpointers as options describe them.

use fulmar_ted::TedKeys;
use serde::{Deserialize, Serialize};

use crate::{
    CompressedListStorageCheckpointer, FlatStorageCheckpointer, H5StorageCheckpointer,
    ListStorageCheckpointer, NestedStorageCheckpointer, StorageCheckpointer, TensorStorageCheckpointer,
};

/// A checkpointer as options describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum CheckpointerOptions {
    /// A [`TensorStorageCheckpointer`].
    Tensor,
    /// A [`ListStorageCheckpointer`].
    List,
    /// A [`CompressedListStorageCheckpointer`].
    CompressedList {
        /// How hard to compress, 0 to 9. 3.
        #[serde(default = "level")]
        compression_level: u8,
    },
    /// A [`FlatStorageCheckpointer`].
    Flat {
        /// Which entries are no observations.
        #[serde(default)]
        keys: TedKeys,
    },
    /// A [`NestedStorageCheckpointer`].
    Nested {
        /// Which entries are no observations.
        #[serde(default)]
        keys: TedKeys,
    },
    /// An [`H5StorageCheckpointer`].
    H5 {
        /// The name of the file in the folder. `"checkpoint.h5"`.
        #[serde(default)]
        file: Option<String>,
        /// Which entries are no observations.
        #[serde(default)]
        keys: TedKeys,
    },
}

const fn level() -> u8 {
    3
}

impl CheckpointerOptions {
    /// The checkpointer.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::CheckpointerOptions;
    /// let options: CheckpointerOptions = serde_json::from_str(r#"{"kind": "flat"}"#).unwrap();
    /// let _checkpointer = options.build();
    /// assert!(serde_json::from_str::<CheckpointerOptions>(r#"{"kind": "pickle"}"#).is_err());
    /// ```
    #[must_use]
    pub fn build(&self) -> Box<dyn StorageCheckpointer> {
        match self {
            Self::Tensor => Box::new(TensorStorageCheckpointer),
            Self::List => Box::new(ListStorageCheckpointer),
            Self::CompressedList { compression_level } => {
                Box::new(CompressedListStorageCheckpointer { level: *compression_level })
            }
            Self::Flat { keys } => Box::new(FlatStorageCheckpointer { keys: keys.clone() }),
            Self::Nested { keys } => Box::new(NestedStorageCheckpointer { keys: keys.clone() }),
            Self::H5 { file, keys } => {
                let default = H5StorageCheckpointer::default();
                Box::new(H5StorageCheckpointer {
                    file: file.clone().unwrap_or(default.file),
                    keys: keys.clone(),
                })
            }
        }
    }
}
