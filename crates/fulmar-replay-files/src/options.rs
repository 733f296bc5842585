//! Options of checkpointers.

use fulmar_replay::StorageCheckpointer;
use fulmar_ted::TedKeys;
use serde::{Deserialize, Serialize};

use crate::{
    CompressedListStorageCheckpointer, FlatStorageCheckpointer, H5StorageCheckpointer,
    ListStorageCheckpointer, NestedStorageCheckpointer, TensorStorageCheckpointer,
};

/// The format of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum CheckpointerOptions {
    /// A [`TensorStorageCheckpointer`].
    Tensor,
    /// A [`ListStorageCheckpointer`].
    List,
    /// A [`CompressedListStorageCheckpointer`].
    CompressedList {
        /// The compression level, 0 to 9. Defaults to 3.
        #[serde(default = "level")]
        compression_level: u8,
    },
    /// A [`FlatStorageCheckpointer`].
    Flat {
        /// The entries that are not observations.
        #[serde(default)]
        keys: TedKeys,
    },
    /// A [`NestedStorageCheckpointer`].
    Nested {
        /// The entries that are not observations.
        #[serde(default)]
        keys: TedKeys,
    },
    /// An [`H5StorageCheckpointer`].
    H5 {
        /// The name of the file in the folder. Defaults to `"checkpoint.h5"`.
        #[serde(default)]
        file: Option<String>,
        /// The entries that are not observations.
        #[serde(default)]
        keys: TedKeys,
    },
}

const fn level() -> u8 {
    3
}

impl CheckpointerOptions {
    /// Returns the checkpointer.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay_files::CheckpointerOptions;
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
