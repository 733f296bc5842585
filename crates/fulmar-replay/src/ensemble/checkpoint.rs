//! Checkpoint folders of whole ensembles in TorchRL's layout.

use std::fs;
use std::path::Path;

use fulmar_core::{Result, Rng, RngState};
use serde::{Deserialize, Serialize};

use super::ReplayBufferEnsemble;
use crate::Storage;
use crate::buffer::checkpoint::Places;
use crate::checkpoint::ensemble::StorageEnsembleCheckpointer;
use crate::checkpoint::folder::{NewFolder, corrupt, read_json, write_json};

/// The file with the state of the choice of buffers.
const STATE: &str = "fulmar_ensemble.json";
const STATE_FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    format: u32,
    rng: [u64; 3],
}

impl ReplayBufferEnsemble {
    /// Writes a folder at `path`: `storage/` in the format of `checkpointer`, `sampler/<n>` and `writer/<n>`
    /// as in TorchRL's ensembles, and two more files for each buffer. Each buffer is locked while it is
    /// written, so each is consistent. The folder is written atomically.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::dumps`](crate::ReplayBuffer::dumps), with the index of the storage.
    pub fn dumps(&self, path: impl AsRef<Path>, checkpointer: &StorageEnsembleCheckpointer) -> Result<()> {
        let path = path.as_ref();
        let write = || {
            let new = NewFolder::beside(path)?;
            for part in ["sampler", "writer"] {
                fs::create_dir(new.path().join(part))?;
            }
            checkpointer.save_each(self.buffers.len(), &new.path().join("storage"), |id, form, rows| {
                self.buffers[id].with(|buffer| {
                    buffer.write_beside_rows(&Places::of_member(new.path(), id))?;
                    buffer.write_rows(form, rows)
                })
            })?;
            write_json(
                &new.path().join(STATE),
                &State { format: STATE_FORMAT, rng: self.rng.state().words() },
            )?;
            new.finish()
        };
        write().map_err(|error| error.at(path.display()))
    }

    /// Restores the folder at `path`, of an ensemble with the same parts.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::loads`](crate::ReplayBuffer::loads), with the index of the storage;
    /// `Incompatible` if the folder has more buffers. After an error every buffer is unchanged.
    pub fn loads(
        &mut self,
        path: impl AsRef<Path>,
        checkpointer: &StorageEnsembleCheckpointer,
    ) -> Result<()> {
        let path = path.as_ref();
        let shapes: Vec<Vec<usize>> =
            self.buffers.iter().map(|buffer| buffer.storage().shape().to_vec()).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let rows = checkpointer.load(&shapes, &path.join("storage"))?;
        let rng = match read_json::<State>(&path.join(STATE))? {
            Some(State { format: STATE_FORMAT, rng }) => Some(Rng::from_state(RngState::from_words(&rng)?)),
            Some(State { format, .. }) => {
                let detail = format!("format must be {STATE_FORMAT}: got {format}");
                return Err(corrupt(detail).at(path.join(STATE).display()));
            }
            None => None,
        };
        let mut before = Vec::new();
        for (id, (buffer, rows)) in self.buffers.iter().zip(&rows).enumerate() {
            before.push(buffer.state()?);
            let loaded = buffer.with(|buffer| buffer.load_around_rows(rows, &Places::of_member(path, id)));
            if let Err(error) = loaded {
                for (buffer, state) in self.buffers.iter().zip(&before[..id]) {
                    buffer.with(|buffer| buffer.restore(state))?;
                }
                return Err(error.at(format!("storage {id}")));
            }
        }
        self.rng = rng.unwrap_or_else(|| self.rng.clone());
        Ok(())
    }
}
