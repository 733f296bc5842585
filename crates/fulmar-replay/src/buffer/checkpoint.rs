//! Checkpoint folders of whole buffers, in TorchRL's layout.

use std::path::{Path, PathBuf};

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, TensorDict, consolidated};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ReplayBuffer, ReplayBufferState};
use crate::WriterOptions;
use crate::checkpoint::folder::{NewFolder, corrupt, expect_json, read_json, write_json};
use crate::checkpoint::parts::{
    WriterAbout, leaves_of, load_leaves, load_sampler, load_writer, save_sampler, save_writer,
};
use crate::checkpoint::{StorageCheckpointer, StoredRows};

/// This crate's state in addition to TorchRL's files, so that draws continue exactly.
const STATE: &str = "fulmar_state.json";
const STATE_FORMAT: u32 = 1;
const ABOUT: &str = "buffer_metadata.json";
/// The prefetched batches, if there are any: a dictionary of them by index.
const AHEAD: &str = "fulmar_ahead.consolidated";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exact {
    format: u32,
    cursor: usize,
    write_count: u64,
    parts: Value,
}

#[derive(Serialize, Deserialize)]
struct About {
    batch_size: Option<usize>,
    #[serde(default)]
    consume_after_n_samples: Option<u32>,
}

/// The paths of a buffer's parts.
pub(crate) struct Places {
    rows: PathBuf,
    sampler: PathBuf,
    writer: PathBuf,
    about: PathBuf,
    state: PathBuf,
}

impl Places {
    fn of_buffer(folder: &Path) -> Self {
        Self {
            rows: folder.join("storage"),
            sampler: folder.join("sampler"),
            writer: folder.join("writer"),
            about: folder.join(ABOUT),
            state: folder.join(STATE),
        }
    }

    /// Returns the paths of one buffer of an ensemble, in the layout of TorchRL's ensembles.
    pub(crate) fn of_member(folder: &Path, id: usize) -> Self {
        let of = |part: &str| folder.join(part).join(id.to_string());
        Self {
            rows: of("storage"),
            sampler: of("sampler"),
            writer: of("writer"),
            about: folder.join(format!("{id}_{ABOUT}")),
            state: folder.join(format!("{id}_{STATE}")),
        }
    }
}

impl ReplayBuffer {
    /// Writes a folder at `path` that this crate and TorchRL can load: `storage/` in the format of
    /// `checkpointer`, `sampler/`, `writer/`, `buffer_metadata.json` and, for this crate only,
    /// `fulmar_state.json` with the whole state of draws. The folder is written atomically: under a hidden
    /// name next to it, synced, renamed.
    ///
    /// # Errors
    /// `Io` if `path` exists or the system refuses; the errors of [`StorageCheckpointer::save`];
    /// `LimitExceeded` if a description would be longer than
    /// [`CHECKPOINT_JSON_BYTES_MAX`](fulmar_core::limits::CHECKPOINT_JSON_BYTES_MAX).
    pub fn dumps(&self, path: impl AsRef<Path>, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        self.dumps_with(path.as_ref(), checkpointer, &[])
    }

    /// Runs [`ReplayBuffer::dumps`] with prefetched batches.
    pub(crate) fn dumps_with(
        &self,
        path: &Path,
        checkpointer: &dyn StorageCheckpointer,
        ahead: &[TensorDict],
    ) -> Result<()> {
        let write = || {
            let new = NewFolder::beside(path)?;
            self.write_parts(new.path(), checkpointer)?;
            save_ahead(ahead, new.path())?;
            new.finish()
        };
        write().map_err(|error| error.at(path.display()))
    }

    fn write_parts(&self, folder: &Path, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        checkpointer.save(self.storage(), self.writer.cursor(), &folder.join("storage"))?;
        self.write_beside_rows(&Places::of_buffer(folder))
    }

    /// Writes the rows, if there are any, and returns whether there are.
    pub(crate) fn write_rows(&self, checkpointer: &dyn StorageCheckpointer, path: &Path) -> Result<bool> {
        if self.storage.is_empty() {
            return Ok(false);
        }
        checkpointer.save(self.storage(), self.writer.cursor(), path).map(|()| true)
    }

    /// Writes all but the rows.
    pub(crate) fn write_beside_rows(&self, places: &Places) -> Result<()> {
        let (mut sampler, writer) = (self.sampler.state()?, self.writer.state()?);
        save_sampler(&sampler, &places.sampler)?;
        let counts = self.writer.position();
        let rank_key = match &self.options.writer {
            WriterOptions::MaxValue { rank_key, .. } => Some(rank_key),
            _ => None,
        };
        save_writer(&writer, counts, rank_key, &places.writer)?;
        let consumed = sampler["maxSampleCount"].as_u64().and_then(|count| u32::try_from(count).ok());
        let about = About { batch_size: self.options.batch_size, consume_after_n_samples: consumed };
        write_json(&places.about, &about)?;
        // The leaves of priorities have their own files.
        if let Some(leaves) = leaves_of(&mut sampler) {
            *leaves = Value::Null;
        }
        let parts = json!({ "sampler": sampler, "writer": writer, "unit": self.unit.state()?, "len": self.storage.len() });
        let exact = Exact { format: STATE_FORMAT, cursor: counts.0, write_count: counts.1, parts };
        write_json(&places.state, &exact)
    }

    /// Restores the folder at `path`, written by [`ReplayBuffer::dumps`] or by TorchRL from a buffer with the
    /// same parts. TorchRL's files `prefetch.pkl`, `transform.t` and `rng_state` are not read: draws use this
    /// buffer's own generator.
    ///
    /// # Errors
    /// The errors of [`StorageCheckpointer::load`]; with the file, `Corrupt` if a part of the folder is
    /// missing or inconsistent with another, `Incompatible` or `Malformed` if it is of another part; the
    /// errors of the storage. After an error the buffer is unchanged.
    pub fn loads(&mut self, path: impl AsRef<Path>, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        let path = path.as_ref();
        let rows = checkpointer.load(self.storage.shape(), &path.join("storage"))?;
        self.load_around_rows(&rows, &Places::of_buffer(path))
    }

    /// Restores `rows` and the other files. After an error the buffer is unchanged.
    pub(crate) fn load_around_rows(&mut self, rows: &StoredRows, places: &Places) -> Result<()> {
        let about: About = expect_json(&places.about)?;
        let exact = read_json::<Exact>(&places.state)?;
        self.check_rows(rows, places)?;
        let before = (StoredRows::of(self.storage())?, self.part_states()?);
        let loaded = match exact {
            Some(exact) => self.load_exact(exact, rows, places),
            None => self.load_parts(rows, places),
        };
        let noted =
            loaded.and_then(|()| self.storage.note_writer(self.writer.cursor(), self.writer.write_count()));
        if let Err(error) = noted {
            self.restore_parts(&before.1[0], &before.1[1], &before.1[2])?;
            before.0.put(&mut *self.storage)?;
            self.note_seen();
            return Err(error);
        }
        self.options.batch_size = about.batch_size.or(self.options.batch_size);
        Ok(())
    }

    /// Checks that there is room for `rows`, and that they agree with the writer.
    fn check_rows(&self, rows: &StoredRows, places: &Places) -> Result<()> {
        let cursor = WriterAbout::read(&places.writer)?.cursor;
        if rows.len() > self.storage.capacity() {
            let detail =
                format!("rows must be at most {}, the capacity: got {}", self.storage.capacity(), rows.len());
            return Err(Error::new(ErrorKind::Incompatible, detail).at(places.rows.display()));
        }
        match rows.cursor.filter(|ring| *ring != cursor) {
            None => Ok(()),
            Some(ring) => {
                let detail = format!("cursor must be {ring}, as in the storage: got {cursor}");
                Err(corrupt(detail).at(places.writer.display()))
            }
        }
    }

    fn part_states(&self) -> Result<[Value; 3]> {
        Ok([self.sampler.state()?, self.writer.state()?, self.unit.state()?])
    }

    fn load_exact(&mut self, mut exact: Exact, rows: &StoredRows, places: &Places) -> Result<()> {
        let about = WriterAbout::read(&places.writer)?;
        let counts = (exact.cursor, Some(exact.write_count), exact.parts["len"].as_u64());
        if exact.format != STATE_FORMAT
            || counts != (about.cursor, about.write_count, Some(rows.len() as u64))
        {
            let detail =
                format!("must have format {STATE_FORMAT} and match the writer and the storage in its folder");
            return Err(corrupt(detail).at(places.state.display()));
        }
        let capacity = self.storage.capacity();
        if let Some(leaves) = leaves_of(&mut exact.parts["sampler"]).filter(|leaves| leaves.is_null()) {
            *leaves = json!(load_leaves(capacity, &places.sampler)?);
        }
        // TorchRL's files hold no more information; if they are damaged, the other files may be too.
        let lanes = self.num_lanes().max(1);
        load_sampler(exact.parts["sampler"].clone(), &places.sampler)?;
        load_writer(exact.parts["writer"].clone(), rows.len() / lanes, &places.writer)?;
        let state = ReplayBufferState { parts: exact.parts, items: rows.items.clone(), ahead: Vec::new() };
        self.restore(&state).map_err(|error| error.at(places.state.display()))
    }

    fn load_parts(&mut self, rows: &StoredRows, places: &Places) -> Result<()> {
        let lanes = self.num_lanes().max(1);
        let writer = load_writer(self.writer.state()?, rows.len() / lanes, &places.writer)?;
        self.writer.restore(&writer).map_err(|error| error.at(places.writer.display()))?;
        rows.put(&mut *self.storage).map_err(|error| error.at(places.rows.display()))?;
        self.note_seen();
        self.sampler.clear();
        self.unit.clear();
        self.tell_all(true).map_err(|error| error.at(places.rows.display()))?;
        let sampler = load_sampler(self.sampler.state()?, &places.sampler)?;
        self.sampler.restore(&sampler).map_err(|error| error.at(places.sampler.display()))
    }
}

fn save_ahead(ahead: &[TensorDict], folder: &Path) -> Result<()> {
    if ahead.is_empty() {
        return Ok(());
    }
    let mut all = TensorDict::new(&[])?;
    for (place, batch) in ahead.iter().enumerate() {
        all.set(place.to_string().as_str(), batch.clone())?;
    }
    consolidated::save(folder.join(AHEAD), &all)
}

/// Returns the prefetched batches in the folder at `path`.
pub(crate) fn load_ahead(path: &Path) -> Result<Vec<TensorDict>> {
    let path = path.join(AHEAD);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let all = consolidated::load(&path)?;
    let batch = |place: usize| match all.get(place.to_string().as_str()) {
        Some(Entry::Dict(batch)) => Ok(batch.clone()),
        _ => Err(corrupt(format!("batch {place} must be a dictionary")).at(path.display())),
    };
    (0..all.num_entries()).map(batch).collect()
}
