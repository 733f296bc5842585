//! The folder of a storage: one file for each leaf in tensordict's format, and `%fulmar/`, a name that no key
//! can have, for the communication between processes.
//!
//! ```text
//! meta.json, <leaf>.memmap, <dict>/..     tensordict's
//! %fulmar/lock                            held while files are made
//! %fulmar/board                           head, words of the ring, schema
//! %fulmar/writer.<slot>/lock, journal     held by a process that writes; the row that it is writing
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_core::limits::{MEMMAP_META_BYTES_MAX, REPLAY_MEMMAP_WAITS_MAX, REPLAY_MEMMAP_WRITERS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::row::checked_capacity;
use fulmar_store::{Disk, DiskLock, FsDisk};
use fulmar_tensor::{Tensor, TensorDict, memmap};
use serde::{Deserialize, Serialize};

use crate::mapping::Mapping;
use crate::patience::{PAUSE, SPINS};
use crate::ring::{Ring, Sizes};
use crate::schema::{Leaf, Schema};

pub(super) const OURS: &str = "%fulmar";
const MAGIC: u64 = u64::from_le_bytes(*b"FULMARMM");
const FORMAT: u64 = 1;
const LOG: usize = 4096;

// The first words of a board.
const HEAD_MAGIC: usize = 0;
const HEAD_FORMAT: usize = 1;
const HEAD_SIZES: usize = 2;
const HEAD_SCHEMA_BYTES: usize = 5;
const HEAD_CHECKSUM: usize = 6;
/// 1 once another storage was made in the folder.
const HEAD_REPLACED: usize = 7;
const HEAD: usize = 8;

/// The description of the rows in a board.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct About {
    pub(super) shape: Vec<usize>,
    pub(super) rows: Schema,
}

/// A folder with mapped files.
pub(super) struct Folder {
    path: PathBuf,
    board: Mapping,
    sizes: Sizes,
    pub(super) schema: Schema,
    /// One row of zeros, as the blank of all rows.
    pub(super) blank: TensorDict,
    /// With their files, except for leaves without elements.
    leaves: Vec<(Leaf, Option<Mapping>)>,
    journal_bytes: u64,
    writers: Vec<OnceLock<FsDisk>>,
}

/// The resources that a process needs to write.
pub(super) struct Slot {
    pub(super) index: usize,
    journal: Mapping,
    _lock: DiskLock,
}

/// Returns whether the folder at `path` has a storage, or files that tensordict would read as one.
pub(super) fn is_taken(path: &Path) -> bool {
    path.join("meta.json").exists() || has_board(path)
}

/// Returns whether the folder at `path` can be joined.
pub(super) fn has_board(path: &Path) -> bool {
    path.join(OURS).join("board").exists()
}

impl Folder {
    /// Makes the files for items like those of `row`, `[1, ..]`, replacing existing ones; or joins the files
    /// of another process, if `joins`.
    pub(super) fn make(
        path: &Path,
        shape: &[usize],
        row: &TensorDict,
        joins: bool,
        exists_ok: bool,
    ) -> Result<Self> {
        let ours = FsDisk::new(path.join(OURS))?;
        let _lock = locked(&ours)?;
        if joins && has_board(path) {
            return Self::join(path, shape);
        }
        if is_taken(path) && !exists_ok {
            return Err(taken(path));
        }
        let about = About { shape: shape.to_vec(), rows: Schema::of(row)? };
        let made = make_files(path, &ours, &about, row);
        if made.is_err() {
            // Return the first error; leftover files without a board are not a storage.
            let _ = remove_files(path, &about.rows);
        }
        made?;
        Self::join(path, shape)
    }

    /// Maps existing files.
    ///
    /// # Errors
    /// `Corrupt` if they are not those of a storage, `Incompatible` for another shape; all with the path.
    pub(super) fn join(path: &Path, shape: &[usize]) -> Result<Self> {
        let at = path.join(OURS).join("board");
        let (board, sizes, about) = read_board(&at).map_err(|error| error.at(at.display()))?;
        if about.shape != shape {
            let detail = format!("the storage must have the shape {shape:?}: got {:?}", about.shape);
            return Err(Error::new(ErrorKind::Incompatible, detail).at(path.display()));
        }
        let schema = about.rows;
        let mut leaves = Vec::new();
        for leaf in schema.leaves().map_err(|error| error.at(at.display()))? {
            let bytes = (leaf.row_bytes as u64).saturating_mul(sizes.capacity as u64);
            let mapping = (bytes > 0).then(|| Mapping::open(&path.join(memmap::leaf_path(&leaf.key)), bytes));
            leaves.push((leaf, mapping.transpose()?));
        }
        let journal_bytes = leaves.last().and_then(|(leaf, _)| leaf.end()).unwrap_or(0).max(8) as u64;
        let blank = schema.rows(&[1], &mut |dtype, shape| Tensor::zeros(dtype, shape))?;
        let writers = (0..sizes.slots).map(|_| OnceLock::new()).collect();
        Ok(Self { path: path.to_owned(), board, sizes, schema, blank, leaves, journal_bytes, writers })
    }

    pub(super) fn ring(&self) -> Ring<'_, AtomicU64> {
        Ring::new(&self.board.words()[HEAD..][..self.sizes.num_words()], self.sizes)
    }

    /// Refuses a folder in which another storage was made.
    pub(super) fn check_current(&self) -> Result<()> {
        if self.board.words()[HEAD_REPLACED].load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let detail = "the folder must be this storage's: got one in which another was made, by existsOk";
        Err(Error::new(ErrorKind::Closed, detail).at(self.path.display()))
    }

    pub(super) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves.iter().map(|(leaf, _)| leaf)
    }

    /// Copies a row's elements to place `at` of `out`, one list of bytes for each leaf; skips leaves without
    /// one.
    pub(super) fn read(&self, row: usize, at: usize, out: &mut [Option<Vec<u8>>]) {
        for ((leaf, mapping), out) in self.leaves.iter().zip(out) {
            if let (Some(mapping), Some(out)) = (mapping, out) {
                mapping.read(
                    leaf.unit,
                    row * leaf.row_bytes,
                    &mut out[at * leaf.row_bytes..][..leaf.row_bytes],
                );
            }
        }
    }

    /// Writes item `at` of `items`, one list of bytes for each leaf, to the journal of `slot`.
    pub(super) fn note(&self, slot: &Slot, items: &[Vec<u8>], at: usize) {
        for ((leaf, _), bytes) in self.leaves.iter().zip(items) {
            slot.journal.write(leaf.unit, leaf.offset, &bytes[at * leaf.row_bytes..][..leaf.row_bytes]);
        }
    }

    /// Writes item `at` of `items` to a row.
    pub(super) fn write(&self, row: usize, items: &[Vec<u8>], at: usize) {
        for ((leaf, mapping), bytes) in self.leaves.iter().zip(items) {
            if let Some(mapping) = mapping {
                mapping.write(
                    leaf.unit,
                    row * leaf.row_bytes,
                    &bytes[at * leaf.row_bytes..][..leaf.row_bytes],
                );
            }
        }
    }

    /// Takes a free slot, after completing the writes of the dead process that had it before.
    pub(super) fn take_slot(&self) -> Result<Slot> {
        for index in 0..self.sizes.slots {
            let Some(lock) = self.lock_slot(index)? else { continue };
            let writer = self.writer(index)?;
            writer.allocate("journal", self.journal_bytes)?;
            self.end(index, None)?;
            self.ring().free_all(index);
            self.ring().enter(index);
            let journal = self.journal(index)?;
            return Ok(Slot { index, journal, _lock: lock });
        }
        let detail = format!("at most {} processes may write to a folder at a time", self.sizes.slots);
        Err(Error::new(ErrorKind::LimitExceeded, detail).at(self.path.display()))
    }

    /// Completes the writes of a slot if its writer is dead, and frees the row that waited for it; returns
    /// whether the writer is dead.
    pub(super) fn bury(&self, slot: usize, row: Option<usize>) -> Result<bool> {
        if slot >= self.sizes.slots {
            let detail = format!("a slot must be < {}: got {slot}", self.sizes.slots);
            return Err(Error::new(ErrorKind::Corrupt, detail).at(self.path.display()));
        }
        let Some(_lock) = self.lock_slot(slot)? else { return Ok(false) };
        self.end(slot, row)?;
        Ok(true)
    }

    /// The caller must hold the lock.
    fn end(&self, slot: usize, row: Option<usize>) -> Result<()> {
        let journal = self.journal(slot)?;
        self.ring().recover(slot, |row| {
            for (leaf, mapping) in &self.leaves {
                if let Some(mapping) = mapping {
                    let mut bytes = vec![0; leaf.row_bytes];
                    journal.read(leaf.unit, leaf.offset, &mut bytes);
                    mapping.write(leaf.unit, row * leaf.row_bytes, &bytes);
                }
            }
        });
        if let Some(row) = row {
            self.ring().free(slot, row);
        }
        Ok(())
    }

    fn journal(&self, slot: usize) -> Result<Mapping> {
        Mapping::open(&self.writer(slot)?.path().join("journal"), self.journal_bytes)
    }

    fn writer(&self, slot: usize) -> Result<&FsDisk> {
        let path = self.path.join(OURS).join(format!("writer.{slot}"));
        match self.writers[slot].get() {
            Some(disk) => Ok(disk),
            None => {
                let disk = FsDisk::new(path)?;
                Ok(self.writers[slot].get_or_init(|| disk))
            }
        }
    }

    /// Returns the lock of a slot, if it is free.
    fn lock_slot(&self, slot: usize) -> Result<Option<DiskLock>> {
        unless_held(self.writer(slot)?.lock())
    }
}

/// Removes the folder with its content.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from(error).at(path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the error for an existing storage.
pub(super) fn taken(path: &Path) -> Error {
    let detail = "the folder must be without a storage, or existsOk must be true: got one with a storage";
    Error::new(ErrorKind::Incompatible, detail).at(path.display())
}

fn unless_held(lock: Result<DiskLock>) -> Result<Option<DiskLock>> {
    match lock {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::Incompatible => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the lock of a folder, waiting until it is free.
fn locked(disk: &FsDisk) -> Result<DiskLock> {
    for _ in 0..REPLAY_MEMMAP_WAITS_MAX / SPINS {
        if let Some(lock) = unless_held(disk.lock())? {
            return Ok(lock);
        }
        std::thread::sleep(PAUSE);
    }
    // Its error names the holder.
    disk.lock()
}

fn make_files(path: &Path, ours: &FsDisk, about: &About, row: &TensorDict) -> Result<()> {
    let capacity: usize = about.shape.iter().product();
    replace_board(path)?;
    let descriptions = memmap::outline(row, &about.shape)?;
    let disk = FsDisk::new(path)?;
    let leaves = about.rows.leaves()?;
    let row_bytes: usize = leaves.iter().map(|leaf| leaf.row_bytes).sum();
    let bytes = (row_bytes as u64).saturating_mul(capacity as u64);
    if let Some(free) = ours.free_bytes().filter(|free| *free < bytes) {
        let detail = format!(
            "disk must have room for {capacity} rows of {row_bytes} bytes, {bytes} together: got {free} free"
        );
        return Err(Error::new(ErrorKind::Io, detail).at(path.display()));
    }
    for leaf in leaves {
        let name = memmap::leaf_path(&leaf.key);
        let file = path.join(&name);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(|error| Error::from(error).at(parent.display()))?;
        }
        remove_file(&file)?;
        let bytes = (leaf.row_bytes as u64).saturating_mul(capacity as u64);
        if bytes > 0 {
            disk.allocate(&name, bytes)?;
        }
    }
    for (name, text) in descriptions {
        fulmar_tensor::replace_file(path.join(name), |writer| Ok(writer.write_all(text.as_bytes())?))?;
    }
    make_board(path, ours, about, capacity)
}

/// Makes the board last and atomically: a folder has a storage if and only if it has a board.
pub(super) fn make_board(path: &Path, ours: &FsDisk, about: &About, capacity: usize) -> Result<()> {
    let text = serde_json::to_string(about)
        .map_err(|error| Error::new(ErrorKind::Malformed, error.to_string()).because(error))?;
    if text.len() > MEMMAP_META_BYTES_MAX {
        let detail =
            format!("a description must have at most {MEMMAP_META_BYTES_MAX} bytes: got {}", text.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail).at(path.display()));
    }
    let sizes = Sizes { slots: REPLAY_MEMMAP_WRITERS_MAX, log: LOG, capacity };
    let mut head = [0_u64; HEAD];
    (head[HEAD_MAGIC], head[HEAD_FORMAT]) = (MAGIC, FORMAT);
    head[HEAD_SIZES..HEAD_SCHEMA_BYTES]
        .copy_from_slice(&[sizes.slots, sizes.log, capacity].map(|size| size as u64));
    head[HEAD_SCHEMA_BYTES] = text.len() as u64;
    head[HEAD_CHECKSUM] = checksum(&head[..HEAD_CHECKSUM], text.as_bytes());
    let words = (HEAD + sizes.num_words()) as u64;
    let _ = remove_file(&ours.path().join("board.tmp"));
    ours.allocate("board.tmp", words * 8 + text.len() as u64)?;
    let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    ours.write_at("board.tmp", 0, &head)?;
    ours.write_at("board.tmp", words * 8, text.as_bytes())?;
    ours.rename("board.tmp", "board")
}

fn read_board(path: &Path) -> Result<(Mapping, Sizes, About)> {
    let corrupt =
        |rule: &str| Error::new(ErrorKind::Corrupt, format!("must be a storage's board: got {rule}"));
    let len = fs::metadata(path)?.len();
    if len < (HEAD * 8) as u64 {
        return Err(corrupt("a file that is too short"));
    }
    let board = Mapping::open(path, len)?;
    let head: Vec<u64> = board.words()[..HEAD].iter().map(|word| word.load(Ordering::Acquire)).collect();
    if head[HEAD_MAGIC] != MAGIC {
        return Err(corrupt("another file"));
    }
    if head[HEAD_FORMAT] != FORMAT {
        let detail = format!("the format of a board must be {FORMAT}: got {}", head[HEAD_FORMAT]);
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let size = |at: usize| usize::try_from(head[at]).ok();
    let (Some(slots), Some(log), Some(capacity)) =
        (size(HEAD_SIZES), size(HEAD_SIZES + 1), size(HEAD_SIZES + 2))
    else {
        return Err(corrupt("invalid sizes"));
    };
    if slots != REPLAY_MEMMAP_WRITERS_MAX || log != LOG {
        return Err(corrupt("other sizes than this format has"));
    }
    let capacity = checked_capacity(capacity)?;
    let sizes = Sizes { slots, log, capacity };
    let words = HEAD + sizes.num_words();
    let text_bytes = head[HEAD_SCHEMA_BYTES];
    if text_bytes > MEMMAP_META_BYTES_MAX as u64 || len != words as u64 * 8 + text_bytes {
        return Err(corrupt("a file whose length differs from its header"));
    }
    let mut text = vec![0; text_bytes as usize];
    board.read(1, words * 8, &mut text);
    if head[HEAD_CHECKSUM] != checksum(&head[..HEAD_CHECKSUM], &text) {
        return Err(corrupt("another checksum"));
    }
    let about: About =
        serde_json::from_slice(&text).map_err(|error| corrupt(&error.to_string()).because(error))?;
    if fulmar_core::num_elements(&about.shape)? != capacity {
        return Err(corrupt("a shape of another capacity"));
    }
    Ok((board, sizes, about))
}

/// Marks the old storage as replaced for processes that have mapped it, and removes its board.
fn replace_board(path: &Path) -> Result<()> {
    let board = path.join(OURS).join("board");
    let mut old = None;
    if let Ok((words, _, about)) = read_board(&board) {
        words.words()[HEAD_REPLACED].store(1, Ordering::Release);
        old = Some(about);
    }
    for slot in 0..REPLAY_MEMMAP_WRITERS_MAX {
        remove_file(&path.join(OURS).join(format!("writer.{slot}")).join("journal"))?;
        remove_file(&path.join(OURS).join(format!("writer.{slot}")).join("lock"))?;
    }
    remove_file(&board)?;
    let Some(old) = old else { return Ok(()) };
    // Remove the old files, which nothing describes any more. Processes that have mapped them keep their
    // content.
    remove_files(path, &old.rows)?;
    let row = old.rows.rows(&[1], &mut |dtype, shape| Tensor::zeros(dtype, shape))?;
    memmap::outline(&row, &old.shape)?.iter().try_for_each(|(name, _)| remove_file(&path.join(name)))
}

fn remove_files(path: &Path, schema: &Schema) -> Result<()> {
    for leaf in schema.leaves()? {
        remove_file(&path.join(memmap::leaf_path(&leaf.key)))?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from(error).at(path.display()))
        }
        _ => Ok(()),
    }
}

/// FNV-1a: detects other files, not forgery.
fn checksum(head: &[u64], text: &[u8]) -> u64 {
    let bytes = head.iter().flat_map(|word| word.to_le_bytes()).chain(text.iter().copied());
    bytes.fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
