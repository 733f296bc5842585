//! Rows in a store that survives a crash.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fulmar_core::{Error, ErrorKind, Result, num_elements, options_from_json};
use fulmar_replay::row::{check_count, check_written, checked_capacity, grown_len};
use fulmar_replay::{LastingRows, Storage, StorageAbilities};
use fulmar_store::{Disk, Durability, RowSchema, Store, StoreOptions, StoreStats};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};

/// Options of a [`DurableStorage`].
///
/// # Examples
/// ```
/// use fulmar_replay_store::DurableStorageOptions;
/// use fulmar_store::Durability;
/// assert_eq!(DurableStorageOptions::default().durability, Durability::Sync);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableStorageOptions {
    /// The time at which rows become durable. Defaults to every commit.
    pub durability: Durability,
    /// The length of each file of rows, in bytes; an existing store keeps its own. Defaults to 64 MiB.
    pub segment_bytes: u32,
}

impl Default for DurableStorageOptions {
    fn default() -> Self {
        let StoreOptions { durability, segment_bytes, .. } = StoreOptions::new(1);
        Self { durability, segment_bytes }
    }
}

/// A storage over a [`Store`]: acknowledged rows survive a crash of the process and, depending on its
/// [`Durability`], of the machine. A buffer over it commits after every write, and a buffer over a storage
/// with rows continues where the last acknowledged write left the ring. The first write determines the
/// entries of items; they have one batch dimension.
///
/// Clones share the rows: one for a buffer, another to commit and to inspect.
///
/// # Examples
/// ```
/// use fulmar_replay::ReplayBuffer;
/// use fulmar_replay_store::DurableStorage;
/// use fulmar_store::MemoryDisk;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let disk = MemoryDisk::default();
/// let open = || -> fulmar_core::Result<ReplayBuffer> {
///     let storage = DurableStorage::open(disk.clone(), &[4], Default::default())?;
///     ReplayBuffer::new(Box::new(storage), Default::default())
/// };
/// let mut items = TensorDict::new(&[3])?;
/// items.set("action", Tensor::from_vec(&[3], vec![7_i64, 8, 9])?)?;
/// open()?.extend(&items)?;
/// let mut again = open()?;
/// assert_eq!((again.len(), again.writer().cursor(), again.writer().write_count()), (3, 3, 3));
/// assert_eq!(again.extend(&items)?, [Some(3), Some(0), Some(1)]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone)]
pub struct DurableStorage {
    shape: Vec<usize>,
    capacity: usize,
    inner: Arc<RwLock<Inner>>,
}

struct Inner {
    /// `None` once the store exists.
    maker: Option<Maker>,
    options: DurableStorageOptions,
    opened: Option<Opened>,
    position: Position,
    revision: u64,
    /// The error that prevented emptying the store.
    failed: Option<Error>,
}

struct Opened {
    store: Store,
    schema: RowSchema,
    /// Number of damaged records before the first row.
    num_reserved_damaged: u64,
}

/// The schema of the store: row `r` of the storage is in slot `r + RESERVED`. The marks of the slots before
/// hold a [`Position`], written after the rows that it counts, so a crash in between shows none of those
/// rows.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    format: u32,
    shape: Vec<usize>,
    rows: String,
}

const FORMAT: u32 = 2;
/// Slots before the first row: one for each number of a position, with empty records.
const RESERVED: u64 = 3;
const RESERVED_SLOTS: [u64; RESERVED as usize] = [0, 1, 2];

/// The number of written rows, and the position of a buffer's writer after them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Position {
    len: usize,
    /// Cursor and write count.
    writer: Option<(usize, u64)>,
}

impl Position {
    /// Returns the number of rows, cursor + 1 (0 without a writer), and the write count. As marks they are
    /// among the data that the store keeps twice.
    fn to_marks(self) -> [u64; RESERVED as usize] {
        let (cursor, write_count) = self.writer.map_or((0, 0), |(cursor, count)| (cursor as u64 + 1, count));
        [self.len as u64, cursor, write_count]
    }

    /// Returns the position in a store. If it is damaged, all rows count, and the writer is unknown.
    fn of(store: &Store) -> Result<Self> {
        let num_rows = store.len() - RESERVED;
        let marks = RESERVED_SLOTS.iter().map(|slot| store.mark(*slot)).collect::<Result<Vec<_>>>();
        let position = match marks.as_deref() {
            Ok(&[len, cursor, write_count]) => {
                let writer = cursor.checked_sub(1).map(|cursor| (cursor as usize, write_count));
                Self { len: len as usize, writer }
            }
            _ => Self { len: num_rows as usize, writer: None },
        };
        if position.len as u64 > num_rows {
            let detail =
                format!("a store must have the {} rows that it counts: got {num_rows}", position.len);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        Ok(position)
    }
}

/// Makes the store once its content is known.
type Maker = Box<dyn FnOnce(&StoreOptions) -> Result<Store> + Send + Sync>;

impl std::fmt::Debug for DurableStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableStorage").field("shape", &self.shape).field("len", &self.len()).finish()
    }
}

impl DurableStorage {
    /// Opens the rows on `disk`, of a storage of `shape`, `[capacity]` or `[time, lanes..]`. Writes nothing
    /// before the first item.
    ///
    /// # Errors
    /// `OutOfRange` or `LimitExceeded` for invalid shapes; `Incompatible` if the rows have another shape or
    /// are open elsewhere; the errors of [`Store::open`].
    pub fn open(disk: impl Disk + 'static, shape: &[usize], options: DurableStorageOptions) -> Result<Self> {
        let capacity = checked_capacity(num_elements(shape)?)?;
        let mut inner = Inner {
            maker: None,
            options,
            opened: None,
            position: Position::default(),
            revision: 0,
            failed: None,
        };
        match Store::describe(&disk)? {
            None => inner.maker = Some(Box::new(move |options| Store::open(disk, options))),
            Some(found) => {
                let store = Store::open(disk, &StoreOptions { durability: options.durability, ..found })?;
                let described: Described = options_from_json("schema", store.schema())?;
                if described.format != FORMAT || described.shape != shape {
                    let detail = format!(
                        "the store must be of format {FORMAT} and shape {shape:?}: got {} and {:?}",
                        described.format, described.shape
                    );
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
                let schema = RowSchema::parse(&described.rows)?;
                let opened = Opened::new(store, schema)?;
                inner.position = Position::of(&opened.store)?;
                inner.opened = Some(opened);
            }
        }
        Ok(Self { shape: shape.to_vec(), capacity, inner: Arc::new(RwLock::new(inner)) })
    }

    /// Acknowledges all writes so far, as the [`Durability`] specifies.
    ///
    /// # Errors
    /// The errors of [`Store::commit`].
    pub fn commit(&self) -> Result<()> {
        self.write().with_store(|store| store.commit().map(|_| ()))
    }

    /// Passes the current time, see [`Store::tick`].
    ///
    /// # Errors
    /// The errors of [`Store::tick`].
    pub fn tick(&self, now_ms: u64) -> Result<()> {
        self.write().with_store(|store| store.tick(now_ms).map(|_| ()))
    }

    /// Returns statistics of the store; zeros before the first item. Rows are counted as in the storage.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let inner = self.read();
        let Some(opened) = &inner.opened else { return StoreStats::default() };
        let stats = opened.store.stats();
        StoreStats {
            num_rows: stats.num_rows.saturating_sub(RESERVED),
            num_damaged_rows: stats.num_damaged_rows.saturating_sub(opened.num_reserved_damaged),
            ..stats
        }
    }

    /// Returns the rows that are lost to damaged files, in order: reading one is an error, writing it repairs
    /// it. Reads all rows.
    ///
    /// # Errors
    /// `Io` if the disk refuses.
    pub fn damaged_rows(&self) -> Result<Vec<usize>> {
        let inner = self.read();
        let slots = inner.opened.as_ref().map_or(Ok(Vec::new()), |opened| opened.store.damaged_slots())?;
        let rows = slots.into_iter().filter_map(|slot| slot.checked_sub(RESERVED)).map(|row| row as usize);
        Ok(rows.filter(|row| *row < inner.position.len).collect())
    }

    /// Makes everything durable, whatever the [`Durability`], and records the end of the rows, see
    /// [`Store::sync`]. Dropping the last clone does so too, but cannot report an error.
    ///
    /// # Errors
    /// The errors of [`Store::commit`].
    pub fn sync(&self) -> Result<()> {
        self.write().with_store(Store::sync)
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn with_store(&mut self, act: impl FnOnce(&mut Store) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.opened.as_mut().map_or(Ok(()), |opened| act(&mut opened.store))
    }

    /// Returns the store for rows like `items`; makes it if necessary.
    fn opened(&mut self, items: &TensorDict, shape: &[usize]) -> Result<&mut Opened> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.maker.is_some() {
            let schema = RowSchema::of(items)?;
            let options = store_options(&schema, shape, self.options)?;
            let store = self.maker.take().map(|maker| maker(&options)).transpose()?;
            self.opened = store.map(|store| Opened::new(store, schema)).transpose()?;
        }
        let closed = || {
            Error::new(
                ErrorKind::Closed,
                "the store must be open: got one that could not be made, open it anew",
            )
        };
        self.opened.as_mut().ok_or_else(closed)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // After a failed sync there is nothing to record; acknowledged rows are safe without it.
        let _ = self.with_store(Store::sync);
    }
}

impl Opened {
    /// Wraps `store` and its records before the first row, which a crash or damage may have removed.
    fn new(mut store: Store, schema: RowSchema) -> Result<Self> {
        reserve(&mut store)?;
        let mut num_reserved_damaged = 0;
        for slot in RESERVED_SLOTS {
            match store.read(slot) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    store.update(slot, b"")?;
                    num_reserved_damaged += 1;
                }
                read => drop(read?),
            }
        }
        Ok(Self { store, schema, num_reserved_damaged })
    }

    /// Writes each record to its row. New rows are written in row order, whatever the order of `rows`.
    fn put(&mut self, rows: &[usize], records: &[Vec<u8>]) -> Result<()> {
        let mut last: Vec<(usize, &Vec<u8>)> = rows.iter().copied().zip(records).collect();
        // Stable sort: if a row comes twice, the last item wins.
        last.sort_by_key(|(row, _)| *row);
        for (at, (row, record)) in last.iter().enumerate() {
            if last.get(at + 1).is_some_and(|(next, _)| next == row) {
                continue;
            }
            let slot = *row as u64 + RESERVED;
            if slot < self.store.len() {
                self.store.update(slot, record)?;
            } else {
                self.store.append(&[record])?;
            }
        }
        Ok(())
    }
}

/// Adds the records before the first row.
fn reserve(store: &mut Store) -> Result<()> {
    while store.len() < RESERVED {
        store.append(&[b""])?;
    }
    Ok(())
}

/// Returns the options of a store for rows of `schema`.
fn store_options(
    schema: &RowSchema,
    shape: &[usize],
    options: DurableStorageOptions,
) -> Result<StoreOptions> {
    let described = Described { format: FORMAT, shape: shape.to_vec(), rows: schema.to_text() };
    let schema = serde_json::to_string(&described)
        .map_err(|error| Error::new(ErrorKind::Malformed, error.to_string()).because(error))?;
    let DurableStorageOptions { durability, segment_bytes } = options;
    Ok(StoreOptions { capacity: num_elements(shape)? as u64 + RESERVED, schema, segment_bytes, durability })
}

impl Storage for DurableStorage {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.read().position.len
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let mut inner = self.write();
        let len = grown_len(inner.position.len, self.capacity, rows)?;
        check_count(rows, items)?;
        let position = Position { len, ..inner.position };
        let opened = inner.opened(items, &self.shape)?;
        let records = opened.schema.encode(items)?;
        if let Some(record) = records.iter().find(|record| record.len() > opened.store.record_bytes_max()) {
            let detail = format!(
                "a row must take at most {} bytes, one segment: got {}",
                opened.store.record_bytes_max(),
                record.len()
            );
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        opened.put(rows, &records)?;
        if position.len != inner.position.len {
            inner.with_store(|store| store.set_marks(&RESERVED_SLOTS, &position.to_marks()))?;
        }
        inner.position = position;
        inner.revision += 1;
        Ok(())
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        let inner = self.read();
        check_written(rows, inner.position.len)?;
        let Some(opened) = &inner.opened else { return TensorDict::new(&[rows.len()]) };
        let read = |row: &usize| {
            opened.store.read(*row as u64 + RESERVED).map_err(|error| error.at(format!("row {row}")))
        };
        opened.schema.decode(&rows.iter().map(read).collect::<Result<Vec<_>>>()?)
    }

    /// If the store refuses, every later operation returns the error.
    fn clear(&mut self) {
        let mut inner = self.write();
        inner.position = Position::default();
        let cleared = inner.with_store(|store| {
            store.clear()?;
            reserve(store)
        });
        inner.failed = cleared.err();
        inner.revision += 1;
    }

    fn revision(&self) -> u64 {
        self.read().revision
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { lasting_rows: Some(self), ..Default::default() }
    }
}

impl LastingRows for DurableStorage {
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        let mut inner = self.write();
        inner.position.writer = Some((cursor, write_count));
        let marks = inner.position.to_marks();
        inner.with_store(|store| {
            store.set_marks(&RESERVED_SLOTS, &marks)?;
            store.commit().map(|_| ())
        })
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        self.read().position.writer
    }

    /// Returns 2^32 for each time that the store was opened before.
    fn first_generation(&self) -> i64 {
        let openings = self.read().opened.as_ref().map_or(0, |opened| opened.store.num_openings() - 1);
        i64::from(openings) << 32
    }
}
