//! The folder of several storages.

use std::fs;
use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::folder::{read_json, write_json};
use super::{StorageCheckpointer, StoredRows};
use crate::Storage;

const ABOUT: &str = "metadata.json";

/// Folders `0`, `1`, ... of the storages of an ensemble, each in the same form, and `metadata.json` with those that are empty and have
/// none.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, ListStorageCheckpointer, Storage, StorageEnsembleCheckpointer};
/// use fulmar_tensor::TensorDict;
/// let (mut one, other) = (ListStorage::new(4)?, ListStorage::new(2)?);
/// one.set_one(0, &TensorDict::new(&[])?)?;
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-ensemble-{}", std::process::id()));
/// let form = StorageEnsembleCheckpointer { member: Box::new(ListStorageCheckpointer) };
/// form.save(&[(&one, 1), (&other, 0)], &folder)?;
/// let rows = form.load(&[&[4], &[2]], &folder)?;
/// assert_eq!((rows[0].len(), rows[1].len()), (1, 0));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct StorageEnsembleCheckpointer {
    /// The form of each storage.
    pub member: Box<dyn StorageCheckpointer>,
}

#[derive(Serialize, Deserialize)]
struct About {
    empty_members: Vec<usize>,
}

impl StorageEnsembleCheckpointer {
    /// Makes `folder`, which is not there yet and whose parent is, of storages and the time steps that are written next in each.
    ///
    /// # Errors
    /// Those of [`StorageCheckpointer::save`], with the number of the storage.
    pub fn save(&self, storages: &[(&dyn Storage, usize)], folder: &Path) -> Result<()> {
        fs::create_dir(folder)?;
        let mut empty_members = Vec::new();
        for (id, (storage, cursor)) in storages.iter().enumerate() {
            if storage.is_empty() {
                empty_members.push(id);
                continue;
            }
            let saved = self.member.save(*storage, *cursor, &folder.join(id.to_string()));
            saved.map_err(|error| error.at(format!("storage {id}")))?;
        }
        write_json(&folder.join(ABOUT), &About { empty_members })
    }

    /// What `folder` holds of storages of `shapes`. An old folder does not say which are empty: then none is.
    ///
    /// # Errors
    /// Those of [`StorageCheckpointer::load`], with the number of the storage; `Incompatible` if the folder has more storages.
    pub fn load(&self, shapes: &[&[usize]], folder: &Path) -> Result<Vec<StoredRows>> {
        let about: Option<About> = read_json(&folder.join(ABOUT))?;
        let empty = about.map_or_else(Vec::new, |about| about.empty_members);
        let more =
            folder.join(shapes.len().to_string()).exists() || empty.iter().any(|id| *id >= shapes.len());
        if more {
            let detail = format!("the folder must be of {} storages: got more", shapes.len());
            return Err(Error::new(ErrorKind::Incompatible, detail).at(folder.display()));
        }
        let member = |(id, shape): (usize, &&[usize])| {
            if empty.contains(&id) {
                return Ok(StoredRows { items: Vec::new(), cursor: None });
            }
            let loaded = self.member.load(shape, &folder.join(id.to_string()));
            loaded.map_err(|error| error.at(format!("storage {id}")))
        };
        shapes.iter().enumerate().map(member).collect()
    }
}
