//! Files in memory that simulate a loss of power.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar_core::{Error, ErrorKind, Result, Rng};

use crate::disk::{Disk, DiskLock};

/// The unit that a disk writes atomically.
const SECTOR_BYTES: u64 = 512;

/// A [`Disk`] in memory. With [`MemoryDisk::recording`] it keeps a trace of all operations, from which
/// [`MemoryDisk::after_power_loss`] makes the disks that a machine might find after it stopped at any moment:
/// synced data is there, of other data any sectors are.
///
/// Clones share their files.
///
/// # Examples
/// ```
/// use fulmar_store::{Disk, MemoryDisk};
/// let disk = MemoryDisk::recording();
/// disk.allocate("a", 1)?;
/// disk.write_at("a", 0, &[1])?;
/// disk.sync("a")?;
/// let mut byte = [0];
/// disk.after_power_loss(disk.num_ops(), 7).read_at("a", 0, &mut byte)?;
/// assert_eq!(byte, [1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    memory: Arc<Mutex<Memory>>,
    /// The folder, with a trailing slash; empty for the top.
    prefix: String,
}

#[derive(Debug, Default)]
struct Memory {
    /// Name -> number of the contents, which several names may share.
    names: BTreeMap<String, usize>,
    contents: Vec<Vec<u8>>,
    locked: BTreeSet<String>,
    trace: Option<Vec<Op>>,
}

#[derive(Debug, Clone)]
enum Op {
    Allocate { name: String, len: u64 },
    Write { name: String, offset: u64, bytes: Vec<u8> },
    Sync { name: String },
    Rename { from: String, to: String },
    Remove { name: String },
    Link { from: String, to: String },
}

impl MemoryDisk {
    /// Returns an empty disk that keeps a trace.
    #[must_use]
    pub fn recording() -> Self {
        let disk = Self::default();
        disk.memory().trace = Some(Vec::new());
        disk
    }

    /// Returns the number of operations in the trace; 0 without one.
    #[must_use]
    pub fn num_ops(&self) -> usize {
        self.memory().trace.as_ref().map_or(0, Vec::len)
    }

    /// Returns the disk of a folder below this one; it shares the files and the trace.
    #[must_use]
    pub fn subfolder(&self, name: &str) -> Self {
        Self { memory: Arc::clone(&self.memory), prefix: format!("{}{name}/", self.prefix) }
    }

    /// Returns an independent disk as it might be found after a loss of power after the first `num_ops`
    /// operations of the trace. `seed` selects which unsynced data survives: none, all or any sectors.
    #[must_use]
    pub fn after_power_loss(&self, num_ops: usize, seed: u64) -> Self {
        let mut platter = Platter::default();
        let memory = self.memory();
        for op in memory.trace.iter().flatten().take(num_ops) {
            platter.apply(op);
        }
        let (names, contents) = platter.found(seed);
        let found = Memory { names, contents, ..Memory::default() };
        Self { memory: Arc::new(Mutex::new(found)), prefix: self.prefix.clone() }
    }

    /// Flips the bits `mask` of the byte at `offset` of a file, like a failing disk.
    ///
    /// # Errors
    /// `Io` if there is no such byte.
    pub fn damage(&self, name: &str, offset: u64, mask: u8) -> Result<()> {
        let mut byte = [0];
        self.read_at(name, offset, &mut byte)?;
        self.write_at(name, offset, &[byte[0] ^ mask])
    }

    /// Truncates a file to `len` bytes, like a failing file system.
    ///
    /// # Errors
    /// `Io` if there is no such file.
    pub fn truncate(&self, name: &str, len: u64) -> Result<()> {
        let mut memory = self.memory();
        let number = memory.number(&self.full(name))?;
        memory.contents[number].truncate(len as usize);
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Memory {
    fn number(&self, name: &str) -> Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Io, format!("file must be there: got {name:?}")))
    }

    fn record(&mut self, op: impl FnOnce() -> Op) {
        if let Some(trace) = &mut self.trace {
            trace.push(op());
        }
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> Result<Vec<(String, u64)>> {
        let memory = self.memory();
        let here =
            memory.names.iter().filter_map(|(name, number)| Some((name.strip_prefix(&self.prefix)?, number)));
        let files = here.filter(|(name, _)| !name.contains('/'));
        Ok(files.map(|(name, number)| (name.to_owned(), memory.contents[*number].len() as u64)).collect())
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let memory = self.memory();
        let content = &memory.contents[memory.number(&self.full(name))?];
        let found = usize::try_from(offset).ok().and_then(|start| content.get(start..)?.get(..bytes.len()));
        let Some(found) = found else {
            let detail =
                format!("{name} must have {} bytes at {offset}: got {} in all", bytes.len(), content.len());
            return Err(Error::new(ErrorKind::Io, detail));
        };
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn allocate(&self, name: &str, len: u64) -> Result<()> {
        let mut memory = self.memory();
        let name = self.full(name);
        let old = memory.names.get(&name).copied();
        let old_len = old.map_or(0, |number| memory.contents[number].len());
        let len_wanted = usize::try_from(len).unwrap_or(usize::MAX).max(old_len);
        let mut content = Vec::new();
        if content.try_reserve_exact(len_wanted).is_err() {
            let detail = format!("{name} must fit in memory: got {len} bytes");
            return Err(Error::new(ErrorKind::OutOfMemory, detail));
        }
        let number = old.unwrap_or(memory.contents.len());
        match old {
            Some(number) => content.extend_from_slice(&memory.contents[number]),
            None => memory.contents.push(Vec::new()),
        }
        content.resize(len_wanted, 0);
        memory.contents[number] = content;
        memory.names.insert(name.clone(), number);
        memory.record(|| Op::Allocate { name, len });
        Ok(())
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut memory = self.memory();
        let name = self.full(name);
        let number = memory.number(&name)?;
        let content = &mut memory.contents[number];
        let len = content.len();
        let place =
            usize::try_from(offset).ok().and_then(|start| content.get_mut(start..)?.get_mut(..bytes.len()));
        let Some(place) = place else {
            let detail = format!("{name} must have room for {} bytes at {offset}: got {len}", bytes.len());
            return Err(Error::new(ErrorKind::Io, detail));
        };
        place.copy_from_slice(bytes);
        memory.record(|| Op::Write { name, offset, bytes: bytes.to_vec() });
        Ok(())
    }

    fn sync(&self, name: &str) -> Result<()> {
        let mut memory = self.memory();
        let name = self.full(name);
        memory.number(&name)?;
        memory.record(|| Op::Sync { name });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut memory = self.memory();
        let (from, to) = (self.full(from), self.full(to));
        let number = memory.number(&from)?;
        memory.names.remove(&from);
        memory.names.insert(to.clone(), number);
        memory.record(|| Op::Rename { from, to });
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut memory = self.memory();
        let name = self.full(name);
        let number = memory.number(&name)?;
        memory.names.remove(&name);
        if !memory.names.values().any(|other| *other == number) {
            memory.contents[number] = Vec::new();
        }
        memory.record(|| Op::Remove { name });
        Ok(())
    }

    fn link(&self, name: &str, folder: &str) -> Result<()> {
        let mut memory = self.memory();
        let (from, to) = (self.full(name), self.full(&format!("{folder}/{name}")));
        let number = memory.number(&from)?;
        if memory.names.contains_key(&to) {
            return Err(Error::new(ErrorKind::Io, format!("file must not be there: got {to:?}")));
        }
        memory.names.insert(to.clone(), number);
        memory.record(|| Op::Link { from, to });
        Ok(())
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Disk>> {
        Ok(Box::new(self.subfolder(name)))
    }

    fn lock(&self) -> Result<DiskLock> {
        if !self.memory().locked.insert(self.prefix.clone()) {
            let detail = format!("a store must be open once: got memory disk {:?}", self.prefix);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(Box::new(Locked(self.clone())))
    }
}

/// Releases the lock when dropped.
struct Locked(MemoryDisk);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.memory().locked.remove(&self.0.prefix);
    }
}

/// The certain and the possible content of a disk.
#[derive(Default)]
struct Platter {
    names: BTreeMap<String, usize>,
    files: Vec<PlatterFile>,
    /// Changes of names since the last sync of the folder.
    unsynced_names: Vec<Op>,
}

#[derive(Default)]
struct PlatterFile {
    synced: Vec<u8>,
    current: Vec<u8>,
    /// Sector -> its content after each write since the last sync.
    unsynced: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Platter {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Allocate { name, len } => {
                self.sync_names();
                let number = *self.names.entry(name.clone()).or_insert_with(|| {
                    self.files.push(PlatterFile::default());
                    self.files.len() - 1
                });
                let file = &mut self.files[number];
                let len = file.current.len().max(*len as usize);
                file.current.resize(len, 0);
                // Syncs the file with its new length and all earlier writes.
                file.sync();
            }
            Op::Write { name, offset, bytes } => {
                if let Some(number) = self.number(name) {
                    self.files[number].write(*offset, bytes);
                }
            }
            Op::Sync { name } => {
                if let Some(number) = self.number(name) {
                    self.files[number].sync();
                }
            }
            Op::Rename { .. } => {
                self.sync_names();
                self.rename(op);
            }
            Op::Remove { .. } | Op::Link { .. } => self.unsynced_names.push(op.clone()),
        }
    }

    /// Returns the contents of `name` for the running program.
    fn number(&self, name: &str) -> Option<usize> {
        let linked = self.unsynced_names.iter().rev().find_map(|op| match op {
            Op::Link { from, to } if to == name => Some(from.as_str()),
            _ => None,
        });
        self.names.get(linked.unwrap_or(name)).copied()
    }

    fn sync_names(&mut self) {
        for op in std::mem::take(&mut self.unsynced_names) {
            self.rename(&op);
        }
    }

    fn rename(&mut self, op: &Op) {
        match op {
            Op::Rename { from, to } => {
                if let Some(number) = self.names.remove(from) {
                    self.names.insert(to.clone(), number);
                }
            }
            Op::Link { from, to } => {
                if let Some(number) = self.names.get(from).copied() {
                    self.names.insert(to.clone(), number);
                }
            }
            Op::Remove { name } => {
                self.names.remove(name);
            }
            Op::Allocate { .. } | Op::Write { .. } | Op::Sync { .. } => {}
        }
    }

    fn found(mut self, seed: u64) -> (BTreeMap<String, usize>, Vec<Vec<u8>>) {
        let mut rng = Rng::new(seed).stream("power loss");
        let policy = rng.next_u32() % 4;
        let mut keeps = |num_versions: usize| match policy {
            0 => 0,
            1 => num_versions,
            _ => rng.next_u32() as usize % (num_versions + 1),
        };
        for op in std::mem::take(&mut self.unsynced_names) {
            if keeps(1) == 1 {
                self.rename(&op);
            }
        }
        let mut contents = Vec::new();
        for mut file in self.files {
            for (sector, versions) in file.unsynced {
                if let Some(kept) = keeps(versions.len()).checked_sub(1) {
                    let start = (sector * SECTOR_BYTES) as usize;
                    file.synced[start..start + versions[kept].len()].copy_from_slice(&versions[kept]);
                }
            }
            contents.push(file.synced);
        }
        (self.names, contents)
    }
}

impl PlatterFile {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        self.current[start..end].copy_from_slice(bytes);
        for sector in offset / SECTOR_BYTES..(end as u64).div_ceil(SECTOR_BYTES) {
            let from = (sector * SECTOR_BYTES) as usize;
            let to = (from + SECTOR_BYTES as usize).min(self.current.len());
            self.unsynced.entry(sector).or_default().push(self.current[from..to].to_vec());
        }
    }

    fn sync(&mut self) {
        self.synced.resize(self.current.len(), 0);
        for sector in std::mem::take(&mut self.unsynced).into_keys() {
            let from = (sector * SECTOR_BYTES) as usize;
            let to = (from + SECTOR_BYTES as usize).min(self.current.len());
            self.synced[from..to].copy_from_slice(&self.current[from..to]);
        }
    }
}
