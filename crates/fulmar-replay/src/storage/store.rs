//! Rows on a server that several processes share.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulmar_core::limits::{REPLAY_WRITE_TRIES_MAX, STORE_REPLY_BYTES_MAX};
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_store::RowSchema;
use fulmar_tensor::TensorDict;
use redis::{Pipeline, Value};
use serde::{Deserialize, Serialize};

use crate::row::checked_capacity;
use crate::storage::{Storage, check_count, check_written, grown_len};

mod connection;
mod head;

use connection::{Connection, checked};
use head::{FIELDS, FORMAT, Head, Write};

/// Writes that the server remembers, and that a storage does; who is further behind looks at all rows.
const WRITES_KEPT: usize = 256;
/// Rows of one command.
const COMMAND_ROWS: usize = 1024;

/// Where a [`StoreStorage`] keeps its rows.
///
/// # Examples
/// ```
/// use fulmar_replay::StoreStorageOptions;
/// let options = StoreStorageOptions { name: "experience".to_owned(), ..Default::default() };
/// assert_eq!((&*options.host, options.port, options.timeout_ms), ("127.0.0.1", 6379, 10_000));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreStorageOptions {
    /// The server's name or address. `127.0.0.1`.
    pub host: String,
    /// Its port. 6379.
    pub port: u16,
    /// The number of its database. 0.
    pub db: u32,
    /// The key of the storage; those of its rows and writes begin with it and a colon. `fulmar`.
    pub name: String,
    /// The user, where it is not the default one.
    pub username: Option<String>,
    /// The password, if the server wants one. Travels as it is: there is no TLS.
    pub password: Option<String>,
    /// How long to wait for a connection, in milliseconds. 5,000.
    pub connect_timeout_ms: u64,
    /// How long an operation may take from its first to its last byte, in milliseconds. 10,000.
    pub timeout_ms: u64,
    /// Most bytes of replies to one operation, so also of a batch: [`STORE_REPLY_BYTES_MAX`].
    pub reply_bytes_max: usize,
}

impl Default for StoreStorageOptions {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 6379,
            db: 0,
            name: "fulmar".to_owned(),
            username: None,
            password: None,
            connect_timeout_ms: 5_000,
            timeout_ms: 10_000,
            reply_bytes_max: STORE_REPLY_BYTES_MAX,
        }
    }
}

impl std::fmt::Debug for StoreStorageOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreStorageOptions").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl StoreStorageOptions {
    /// Where the rows are, for messages: no password.
    fn place(&self) -> String {
        format!("redis://{}:{}/{}#{}", self.host, self.port, self.db, self.name)
    }

    fn check(&self) -> Result<()> {
        for (field, text) in [("host", &self.host), ("name", &self.name)] {
            if text.is_empty() {
                return Err(Error::new(ErrorKind::Empty, format!("{field} must hold a character: got none")));
            }
        }
        let counts = [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("timeout_ms", self.timeout_ms),
            ("reply_bytes_max", self.reply_bytes_max as u64),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            None => Ok(()),
            Some((field, _)) => {
                Err(Error::new(ErrorKind::OutOfRange, format!("{field} must be >= 1: got 0")))
            }
        }
    }
}

/// A storage whose rows lie on a server that speaks Redis' protocol, for all processes that name it alike: each sees what the others
/// write, and their buffers go round one ring. The first write fixes which entries items have; they have one batch dimension.
///
/// A write is one transaction: it is there whole or not at all, whoever dies, and a row is never seen half written. Where two processes
/// write at once, one of them begins anew behind the other. What a server forgets that keeps nothing on disk is an emptied storage. After
/// an error of the connection the next operation makes another; only of a write that was sent it is not known whether it took place,
/// and the next look tells.
///
/// # Examples
/// ```no_run
/// use fulmar_replay::{ReplayBuffer, StoreStorage, StoreStorageOptions};
/// use fulmar_tensor::TensorDict;
/// let storage = StoreStorage::new(&[10_000], StoreStorageOptions::default())?;
/// let mut buffer = ReplayBuffer::new(Box::new(storage), Default::default())?;
/// buffer.extend(&TensorDict::new(&[3])?)?;
/// assert!(buffer.len() >= 3);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct StoreStorage {
    shape: Vec<usize>,
    capacity: usize,
    place: String,
    inner: Mutex<Inner>,
}

struct Inner {
    connection: Connection,
    /// The keys of the head, of the rows and of the last writes.
    keys: [String; 3],
    shape: String,
    capacity: usize,
    record_bytes_max: usize,
    /// What the server was last seen to hold.
    head: Option<Head>,
    schema: Option<RowSchema>,
    /// Counts what was seen to happen, by whomever; the last of it, all rows where they are not known.
    revision: u64,
    seen: VecDeque<(u64, Option<Vec<usize>>)>,
    /// Whether the server has yet to be told that every row is emptied.
    owes_clear: bool,
    first_generation: i64,
}

impl std::fmt::Debug for StoreStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreStorage").field("place", &self.place).field("shape", &self.shape).finish()
    }
}

impl StoreStorage {
    /// The rows that a server has under a name, of a storage of `shape`, `[capacity]` or `[time, lanes..]`; nothing is written before
    /// the first item.
    ///
    /// # Errors
    /// `OutOfRange`, `Empty` or `LimitExceeded` for absurd options; `Io` if there is no server; `Forbidden` if it wants another password;
    /// `Incompatible` if the name stands for something else, or for rows of another shape.
    pub fn new(shape: &[usize], options: StoreStorageOptions) -> Result<Self> {
        let capacity = checked_capacity(num_elements(shape)?)?;
        options.check()?;
        let (place, name) = (options.place(), options.name.clone());
        let mut inner = Inner {
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
        // Microseconds are later than any count of rewrites that began with earlier ones.
        inner.first_generation = now.parse().unwrap_or(0);
        inner.adopt(head, None)?;
        Ok(Self { shape: shape.to_vec(), capacity, place, inner: Mutex::new(inner) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // What a thread left that panicked is what the server was last seen to hold.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Has the server watch the keys of the storage until the next transaction; what it holds, and its clock in microseconds.
    fn watch(&mut self) -> Result<(Option<Head>, String)> {
        let mut commands = redis::pipe();
        commands.cmd("UNWATCH").cmd("WATCH").arg(&self.keys);
        for key in &self.keys {
            commands.cmd("TYPE").arg(key);
        }
        commands.cmd("TIME");
        commands.cmd("HMGET").arg(&self.keys[0]).arg(&FIELDS);
        let mut replies = self.asked(&commands)?.into_iter().skip(2);
        let mut next = || replies.next().unwrap_or_default();
        let (kinds, time) = ([next(), next(), next()], next());
        let head = self.checked_head(next())?;
        let names = |kind: &str| Value::SimpleString(kind.to_owned());
        let whole = ["hash", "hash", "list"].map(names);
        // What is emptied has no rows, what was never written nothing at all.
        let empty = ["hash", "none", "list"].map(names);
        let absent = ["none", "none", "none"].map(names);
        if !(if head.is_some() { kinds == whole || kinds == empty } else { kinds == absent }) {
            let detail = format!("keys {:?} must be those of a storage: got others", self.keys);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok((head, microseconds(&time)))
    }

    /// The replies, none of which is a refusal.
    fn asked(&mut self, commands: &Pipeline) -> Result<Vec<Value>> {
        self.connection.ask(commands)?.into_iter().map(checked).collect()
    }

    fn checked_head(&self, reply: Value) -> Result<Option<Head>> {
        let head = Head::of(reply)?;
        match head.as_ref().filter(|head| head.shape != self.shape || head.len > self.capacity) {
            None => Ok(head),
            Some(head) => {
                let detail = format!(
                    "the storage must be of shape {}: got {} with {} rows",
                    self.shape, head.shape, head.len
                );
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    }

    /// Takes note of what the server holds now, in which `rows` were written; all may have been if they are not known.
    fn adopt(&mut self, head: Option<Head>, rows: Option<Vec<usize>>) -> Result<()> {
        self.schema = head.as_ref().map(|head| RowSchema::parse(&head.schema)).transpose()?;
        self.head = head;
        self.revision += 1;
        self.seen.push_back((self.revision, rows));
        if self.seen.len() > WRITES_KEPT {
            self.seen.pop_front();
        }
        Ok(())
    }

    fn is_seen(&self, head: Option<&Head>) -> bool {
        let of = |head: Option<&Head>| head.map(|head| (head.id.clone(), head.revision));
        of(self.head.as_ref()) == of(head)
    }

    fn len(&self) -> usize {
        self.head.as_ref().filter(|_| !self.owes_clear).map_or(0, |head| head.len)
    }

    /// Looks what the server holds, and which rows were written since the last look.
    fn refresh(&mut self) -> Result<()> {
        self.pay_clear()?;
        let mut commands = redis::pipe();
        commands.cmd("HMGET").arg(&self.keys[0]).arg(&FIELDS);
        let reply = self.asked(&commands)?.pop().unwrap_or_default();
        let head = self.checked_head(reply)?;
        if self.is_seen(head.as_ref()) {
            return Ok(());
        }
        let behind = match (&self.head, &head) {
            (Some(seen), Some(now)) if seen.id == now.id => now.revision.checked_sub(seen.revision),
            _ => None,
        };
        let Some(behind) = behind.filter(|behind| *behind <= WRITES_KEPT as u64) else {
            return self.adopt(head, None);
        };
        // More may be written before this is answered: head and writes must be of one moment.
        let mut commands = redis::pipe();
        // What was watched for a write that did not come would undo it.
        commands.cmd("UNWATCH").cmd("MULTI").cmd("HMGET").arg(&self.keys[0]).arg(&FIELDS);
        let most = behind as i64 + WRITES_KEPT as i64;
        commands.cmd("LRANGE").arg(&self.keys[2]).arg(-most).arg(-1).cmd("EXEC");
        let replies = self.asked(&commands)?;
        let Some(Value::Array(mut both)) = replies.into_iter().next_back() else {
            return Err(foreign_writes());
        };
        let (writes, head) = (both.pop().unwrap_or_default(), both.pop().unwrap_or_default());
        let head = self.checked_head(checked(head)?)?;
        let rows = self.rows_since(head.as_ref(), checked(writes)?)?;
        self.adopt(head, rows)
    }

    /// The rows of the writes that `head` counts and the last look did not, the last to be written at the end; nothing if some of them are
    /// not told.
    fn rows_since(&self, head: Option<&Head>, writes: Value) -> Result<Option<Vec<usize>>> {
        let (Some(seen), Some(now)) = (&self.head, head) else { return Ok(None) };
        if seen.id != now.id {
            return Ok(None);
        }
        let Value::Array(writes) = writes else { return Err(foreign_writes()) };
        let mut rows = Vec::new();
        let mut count = 0;
        for write in writes {
            let Value::BulkString(bytes) = write else { return Err(foreign_writes()) };
            let write = Write::decode(&bytes, self.capacity).ok_or_else(foreign_writes)?;
            if write.revision <= seen.revision {
                continue;
            }
            let Some(written) = write.rows else { return Ok(None) };
            rows.push(written);
            count += 1;
        }
        let mut told = HashSet::new();
        let mut rows: Vec<usize> = rows.concat().into_iter().rev().filter(|row| told.insert(*row)).collect();
        rows.reverse();
        Ok((seen.revision + count == now.revision).then_some(rows))
    }

    /// Writes rows in one transaction, if the server holds what it was last seen to hold.
    fn set(&mut self, rows: &[usize], items: &TensorDict, writer: Option<(usize, u64)>) -> Result<bool> {
        check_count(rows, items)?;
        let len = grown_len(self.len(), self.capacity, rows)?;
        let schema = match &self.schema {
            Some(schema) => schema.clone(),
            None => RowSchema::of(items)?,
        };
        let records = schema.encode(items)?;
        if let Some(record) = records.iter().find(|record| record.len() > self.record_bytes_max) {
            let detail =
                format!("a row must take at most {} bytes: got {}", self.record_bytes_max, record.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let (found, now) = self.watch()?;
        if !self.is_seen(found.as_ref()) {
            return Ok(false);
        }
        let head = match &self.head {
            Some(head) => {
                Head { revision: head.revision + 1, len, writer: writer.or(head.writer), ..head.clone() }
            }
            None => Head {
                id: now,
                shape: self.shape.clone(),
                schema: schema.to_text(),
                revision: 1,
                len,
                writer,
            },
        };
        let told = (rows.len() <= self.capacity).then(|| rows.to_vec());
        let mut commands = redis::pipe();
        commands.cmd("MULTI");
        let pairs: Vec<_> = rows.iter().zip(&records).collect();
        for part in pairs.chunks(COMMAND_ROWS) {
            let command = commands.cmd("HSET").arg(&self.keys[1]);
            for (row, record) in part {
                command.arg(**row).arg(&record[..]);
            }
        }
        self.note(&mut commands, &head, told.clone());
        if !self.committed(&commands)? {
            return Ok(false);
        }
        self.adopt(Some(head), told)?;
        Ok(true)
    }

    /// The commands that write the head and the last write, and end a transaction.
    fn note(&self, commands: &mut Pipeline, head: &Head, rows: Option<Vec<usize>>) {
        let (cursor, write_count) =
            head.writer.map(|(cursor, count)| (cursor.to_string(), count.to_string())).unwrap_or_default();
        let numbers = [head.revision.to_string(), head.len.to_string(), cursor, write_count];
        let texts = [FORMAT, &head.id, &head.shape, &head.schema];
        let command = commands.cmd("HSET").arg(&self.keys[0]);
        for (field, value) in FIELDS.iter().zip(texts.into_iter().chain(numbers.iter().map(String::as_str))) {
            command.arg(field).arg(value);
        }
        commands.cmd("RPUSH").arg(&self.keys[2]).arg(Write { revision: head.revision, rows }.encode());
        commands.cmd("LTRIM").arg(&self.keys[2]).arg(-(WRITES_KEPT as i64)).arg(-1).cmd("EXEC");
    }

    /// Whether a transaction took place; it does not if somebody else wrote first.
    fn committed(&mut self, commands: &Pipeline) -> Result<bool> {
        let replies = self.connection.ask(commands).map_err(|error| {
            let unknown = "whether the write took place is not known";
            Error::new(error.kind(), format!("{} ({unknown})", error.detail()))
        })?;
        let mut done = Value::Nil;
        for reply in replies {
            done = checked(reply)?;
        }
        let Value::Array(results) = done else { return Ok(false) };
        results.into_iter().try_for_each(|reply| checked(reply).map(|_| ()))?;
        Ok(true)
    }

    /// Tells the server that every row is emptied, if it does not know yet.
    fn pay_clear(&mut self) -> Result<()> {
        for _ in 0..REPLAY_WRITE_TRIES_MAX {
            if !self.owes_clear {
                return Ok(());
            }
            let (found, _) = self.watch()?;
            let Some(found) = found else {
                self.owes_clear = false;
                return self.adopt(None, None);
            };
            let head = Head { revision: found.revision + 1, len: 0, writer: None, ..found };
            let mut commands = redis::pipe();
            commands.cmd("MULTI").cmd("UNLINK").arg(&self.keys[1]);
            self.note(&mut commands, &head, None);
            if self.committed(&commands)? {
                self.owes_clear = false;
                return self.adopt(Some(head), None);
            }
        }
        Err(too_many_writers())
    }

    /// The records of rows, all of one moment; nothing if the storage is another one by now.
    fn read(&mut self, rows: &[usize]) -> Result<Option<TensorDict>> {
        let Some(Head { id, .. }) = self.head.clone() else { return Ok(None) };
        let mut commands = redis::pipe();
        commands.cmd("UNWATCH").cmd("MULTI").cmd("HGET").arg(&self.keys[0]).arg("id");
        for part in rows.chunks(COMMAND_ROWS) {
            commands.cmd("HMGET").arg(&self.keys[1]).arg(part);
        }
        commands.cmd("EXEC");
        let Some(Value::Array(results)) = self.asked(&commands)?.pop() else { return Ok(None) };
        let mut results = results.into_iter().map(checked);
        if results.next().transpose()? != Some(Value::BulkString(id.into_bytes())) {
            return Ok(None);
        }
        let mut records = Vec::with_capacity(rows.len());
        for part in results {
            let Value::Array(part) = part? else { return Ok(None) };
            for record in part {
                let Value::BulkString(record) = record else { return Ok(None) };
                records.push(record);
            }
        }
        if records.len() != rows.len() {
            return Ok(None);
        }
        self.schema.as_ref().map(|schema| schema.decode(&records)).transpose()
    }
}

/// The reply to `TIME`, seconds and microseconds, as one number.
fn microseconds(time: &Value) -> String {
    let Value::Array(parts) = time else { return String::new() };
    let number = |at: usize| match parts.get(at) {
        Some(Value::BulkString(digits)) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let (seconds, rest) = (number(0).unwrap_or(0), number(1).unwrap_or(0));
    seconds.saturating_mul(1_000_000).saturating_add(rest).to_string()
}

fn foreign_writes() -> Error {
    Error::new(ErrorKind::Incompatible, "the list of writes must be that of a storage: got another")
}

fn too_many_writers() -> Error {
    let detail = format!(
        "a write must find its storage unchanged within {REPLAY_WRITE_TRIES_MAX} tries: got others' writes"
    );
    Error::new(ErrorKind::LimitExceeded, detail)
}

impl Storage for StoreStorage {
    fn capacity(&self) -> usize {
        self.capacity
    }

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

    fn set_if_unchanged(
        &mut self,
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

    /// Rows that another process emptied after the last look are `OutOfRange` too.
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
            Error::new(ErrorKind::OutOfRange, "rows must hold items: got some that others emptied")
        })
    }

    /// Should the server not be there, the next operation tells it, or says so.
    fn clear(&mut self) {
        let mut inner = self.inner();
        inner.owes_clear = true;
        if inner.pay_clear().is_err() {
            inner.revision += 1;
            let revision = inner.revision;
            inner.seen.push_back((revision, None));
        }
    }

    fn refresh(&self) -> Result<()> {
        self.inner().refresh()
    }

    fn revision(&self) -> u64 {
        self.inner().revision
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

    /// In one write with [`Storage::set_if_unchanged`]; alone where rows were loaded.
    fn note_writer(&mut self, cursor: usize, write_count: u64) -> Result<()> {
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

    fn first_generation(&self) -> Option<i64> {
        Some(self.inner().first_generation)
    }
}
