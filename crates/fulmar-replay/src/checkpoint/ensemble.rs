//! The checkpoint folder of several storages.

use std::fs;
use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::folder::{read_json, write_json};
use super::{StorageCheckpointer, StoredRows};
use crate::Storage;

const ABOUT: &str = "metadata.json";

/// Folders `0`, `1`, ... of the storages of an ensemble, all in one format, and `metadata.json` with the list
/// of empty storages, which have no folder.
pub struct StorageEnsembleCheckpointer {
    /// The format of each storage.
    pub member: Box<dyn StorageCheckpointer>,
}

#[derive(Serialize, Deserialize)]
struct About {
    empty_members: Vec<usize>,
}

impl StorageEnsembleCheckpointer {
    /// Writes storages as `folder`, which must not exist, inside an existing folder. Each storage comes with
    /// the time step that is written next.
    ///
    /// # Errors
    /// The errors of [`StorageCheckpointer::save`], with the index of the storage.
    pub fn save(&self, storages: &[(&dyn Storage, usize)], folder: &Path) -> Result<()> {
        let save = |id: usize, form: &dyn StorageCheckpointer, path: &Path| {
            let (storage, cursor) = storages[id];
            if storage.is_empty() {
                return Ok(false);
            }
            form.save(storage, cursor, path).map(|()| true)
        };
        self.save_each(storages.len(), folder, save)
    }

    /// Makes `folder`; `save` writes the storage of an index and returns `false` if it is empty.
    pub(crate) fn save_each(
        &self,
        count: usize,
        folder: &Path,
        mut save: impl FnMut(usize, &dyn StorageCheckpointer, &Path) -> Result<bool>,
    ) -> Result<()> {
        fs::create_dir(folder)?;
        let mut empty_members = Vec::new();
        for id in 0..count {
            let saved = save(id, self.member.as_ref(), &folder.join(id.to_string()));
            if !saved.map_err(|error| error.at(format!("storage {id}")))? {
                empty_members.push(id);
            }
        }
        write_json(&folder.join(ABOUT), &About { empty_members })
    }

    /// Reads storages of `shapes` from `folder`. Old folders have no list of empty storages: then none is
    /// empty.
    ///
    /// # Errors
    /// The errors of [`StorageCheckpointer::load`], with the index of the storage; `Incompatible` if the
    /// folder has more storages.
    pub fn load(&self, shapes: &[&[usize]], folder: &Path) -> Result<Vec<StoredRows>> {
        let about: Option<About> = read_json(&folder.join(ABOUT))?;
        let empty = about.map_or_else(Vec::new, |about| about.empty_members);
        let more =
            folder.join(shapes.len().to_string()).exists() || empty.iter().any(|id| *id >= shapes.len());
        if more {
            let detail = format!("the folder must be of {} storages: it holds more", shapes.len());
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
