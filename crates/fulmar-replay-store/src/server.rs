//! Rows on a server that several processes share.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulmar_core::limits::REPLAY_WRITE_TRIES_MAX;
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_replay::row::{check_written, checked_capacity};
use fulmar_replay::{LastingRows, SharedWrites, Storage, StorageAbilities};
use fulmar_tensor::TensorDict;

mod connection;
mod head;
mod options;
mod session;

use connection::Connection;
use head::Head;
use session::{Session, too_many_writers};

pub use options::StoreStorageOptions;

/// A storage of rows on a server with Redis' protocol, shared by all processes that use its name: each sees
/// the writes of the others, and their buffers share one ring. The first write determines the entries of
/// items; they have one batch dimension.
///
/// A write is one transaction, so it is atomic even if a process dies, and a row is never half written. If
/// two processes write at once, one of them retries after the other. A server without persistence that loses
/// its data shows an emptied storage. After an error of the connection the next operation reconnects; whether
/// a write that was already sent took place is unknown until the next refresh.
///
/// # Examples
/// ```no_run
/// use fulmar_replay::ReplayBuffer;
/// use fulmar_replay_store::{StoreStorage, StoreStorageOptions};
/// use fulmar_tensor::TensorDict;
/// let storage = StoreStorage::new(&[10_000], StoreStorageOptions::default())?;
/// let mut buffer = ReplayBuffer::new(Box::new(storage), Default::default())?;
/// buffer.extend(&TensorDict::new(&[3])?)?;
/// assert!(buffer.len() >= 3);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct StoreStorage {
    shape: Vec<usize>,
    place: String,
    inner: Mutex<Session>,
}

impl std::fmt::Debug for StoreStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreStorage").field("place", &self.place).field("shape", &self.shape).finish()
    }
}

impl StoreStorage {
    /// Opens the rows under a name on a server, of a storage of `shape`, `[capacity]` or `[time, lanes..]`.
    /// Writes nothing before the first item.
    ///
    /// # Errors
    /// `OutOfRange`, `Empty` or `LimitExceeded` for invalid options; `Io` if there is no server; `Forbidden`
    /// for a wrong password; `Incompatible` if the name has other data, or rows of another shape.
    pub fn new(shape: &[usize], options: StoreStorageOptions) -> Result<Self> {
        let capacity = checked_capacity(num_elements(shape)?)?;
        options.check()?;
        let (place, name) = (options.place(), options.name.clone());
        let mut inner = Session {
            record_bytes_max: options.reply_bytes_max,
            connection: Connection::new(options),
            keys: [name.clone(), format!("{name}:rows"), format!("{name}:writes")],
            shape: format!("{shape:?}"),
            capacity,
            head: None,
            schema: None,
            revision: 0,
            seen: VecDeque::new(),
            owes_clear: false,
            first_generation: 0,
        };
        let (head, now) = inner.watch()?;
        // Microseconds exceed any generation that began with an earlier time.
        inner.first_generation = now.parse().unwrap_or(0);
        inner.adopt(head, None)?;
        Ok(Self { shape: shape.to_vec(), place, inner: Mutex::new(inner) })
    }

    fn inner(&self) -> MutexGuard<'_, Session> {
        // The state that a panicked thread left is the one last read from the server.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for StoreStorage {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.inner().len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let mut inner = self.inner();
        for _ in 0..REPLAY_WRITE_TRIES_MAX {
            inner.refresh()?;
            if inner.set(rows, items, None)? {
                return Ok(());
            }
        }
        Err(too_many_writers())
    }

    /// Rows that another process emptied after the last refresh are `OutOfRange` too.
    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        let mut inner = self.inner();
        if inner.owes_clear {
            inner.refresh()?;
        }
        check_written(rows, inner.len())?;
        if let Some(items) = inner.read(rows)? {
            return Ok(items);
        }
        inner.refresh()?;
        check_written(rows, inner.len())?;
        if rows.is_empty() {
            return TensorDict::new(&[0]);
        }
        inner.read(rows)?.ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, "rows must hold items: another process removed some of them")
        })
    }

    /// If the server is unavailable, the next operation tells it, or returns the error.
    fn clear(&mut self) {
        let mut inner = self.inner();
        inner.owes_clear = true;
        if inner.pay_clear().is_err() {
            inner.revision += 1;
            let revision = inner.revision;
            inner.seen.push_back((revision, None));
        }
    }

    fn revision(&self) -> u64 {
        self.inner().revision
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { shared_writes: Some(self), lasting_rows: Some(self), partial_reads: None }
    }
}

impl SharedWrites for StoreStorage {
    fn set_if_unchanged(
        &self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
        let mut inner = self.inner();
        inner.pay_clear()?;
        if inner.revision != revision {
            return Ok(false);
        }
        inner.set(rows, items, writer)
    }

    fn refresh(&self) -> Result<()> {
        self.inner().refresh()
    }

    fn written_after(&self, revision: u64) -> Vec<usize> {
        let inner = self.inner();
        let len = inner.len();
        if revision == inner.revision {
            return Vec::new();
        }
        let first = inner.seen.front().map_or(u64::MAX, |(first, _)| *first);
        let newer = inner.seen.iter().filter(|(made, _)| *made > revision);
        let rows: Option<Vec<&Vec<usize>>> = newer.map(|(_, rows)| rows.as_ref()).collect();
        match rows.filter(|_| revision.saturating_add(1) >= first) {
            Some(rows) => rows.into_iter().flatten().copied().filter(|row| *row < len).collect(),
            None => (0..len).collect(),
        }
    }
}

impl LastingRows for StoreStorage {
    /// One write with [`SharedWrites::set_if_unchanged`]; a separate one if rows were loaded.
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        let mut inner = self.inner();
        for _ in 0..REPLAY_WRITE_TRIES_MAX {
            inner.refresh()?;
            let Some(head) = inner.head.clone() else { return Ok(()) };
            inner.watch()?;
            let head = Head { revision: head.revision + 1, writer: Some((cursor, write_count)), ..head };
            let mut commands = redis::pipe();
            commands.cmd("MULTI");
            inner.note(&mut commands, &head, Some(Vec::new()));
            if inner.committed(&commands)? {
                return inner.adopt(Some(head), Some(Vec::new()));
            }
        }
        Err(too_many_writers())
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        let inner = self.inner();
        inner.head.as_ref().filter(|_| !inner.owes_clear).and_then(|head| head.writer)
    }

    fn first_generation(&self) -> i64 {
        self.inner().first_generation
    }
}
