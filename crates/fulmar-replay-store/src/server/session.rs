//! Commands and replies of a storage on a server.

use std::collections::{HashSet, VecDeque};

use fulmar_core::limits::REPLAY_WRITE_TRIES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::row::{check_count, grown_len};
use fulmar_store::RowSchema;
use fulmar_tensor::TensorDict;
use redis::{Pipeline, Value};

use super::connection::{Connection, checked};
use super::head::{FIELDS, FORMAT, Head, Write};

/// Number of writes that the server and a storage remember; a storage that is further behind rereads all
/// rows.
const WRITES_KEPT: usize = 256;
/// Number of rows in one command.
const COMMAND_ROWS: usize = 1024;

/// The rows as they were last read from the server.
pub(super) struct Session {
    pub(super) connection: Connection,
    /// The keys of the head, of the rows and of the last writes.
    pub(super) keys: [String; 3],
    pub(super) shape: String,
    pub(super) capacity: usize,
    pub(super) record_bytes_max: usize,
    /// The head last read from the server.
    pub(super) head: Option<Head>,
    pub(super) schema: Option<RowSchema>,
    /// Counts all seen changes; the last one covers all rows if they are unknown.
    pub(super) revision: u64,
    pub(super) seen: VecDeque<(u64, Option<Vec<usize>>)>,
    /// True if the call that empties every row must still be sent.
    pub(super) owes_clear: bool,
    pub(super) first_generation: i64,
}

impl Session {
    /// Watches the keys of the storage until the next transaction; returns the head and the server's clock in
    /// microseconds.
    pub(super) fn watch(&mut self) -> Result<(Option<Head>, String)> {
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
        // An emptied storage has no rows, one that was never written has no keys.
        let empty = ["hash", "none", "list"].map(names);
        let absent = ["none", "none", "none"].map(names);
        if !(if head.is_some() { kinds == whole || kinds == empty } else { kinds == absent }) {
            let detail = format!("keys {:?} must be the keys of a storage", self.keys);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok((head, microseconds(&time)))
    }

    /// Returns the replies after checking that none is an error.
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

    /// Records the server's current head, in which `rows` were written, or possibly all if they are unknown.
    pub(super) fn adopt(&mut self, head: Option<Head>, rows: Option<Vec<usize>>) -> Result<()> {
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

    pub(super) fn len(&self) -> usize {
        self.head.as_ref().filter(|_| !self.owes_clear).map_or(0, |head| head.len)
    }

    /// Reads the head from the server, and the rows written since the last refresh.
    pub(super) fn refresh(&mut self) -> Result<()> {
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
        // More may be written before the reply: head and writes must be read atomically.
        let mut commands = redis::pipe();
        // Keys watched for a write that did not happen would abort this transaction.
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

    /// Returns the rows of the writes counted by `head` since the last refresh, the last written at the end;
    /// `None` if some of them are unknown.
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

    /// Writes rows in one transaction, if the server still has the head last read.
    pub(super) fn set(
        &mut self,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
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

    /// Adds the commands that write the head and the last write, and end a transaction.
    pub(super) fn note(&self, commands: &mut Pipeline, head: &Head, rows: Option<Vec<usize>>) {
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

    /// Returns whether a transaction took place; it does not if another process wrote first.
    pub(super) fn committed(&mut self, commands: &Pipeline) -> Result<bool> {
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

    /// Tells the server that every row is emptied, if that is still pending.
    pub(super) fn pay_clear(&mut self) -> Result<()> {
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

    /// Returns the records of rows atomically; `None` if the storage has been replaced.
    pub(super) fn read(&mut self, rows: &[usize]) -> Result<Option<TensorDict>> {
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

/// Converts the reply to `TIME`, seconds and microseconds, to one number.
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
    Error::new(ErrorKind::Incompatible, "the list of writes must have the form that a storage writes")
}

pub(super) fn too_many_writers() -> Error {
    let detail = format!(
        "a write must succeed within {REPLAY_WRITE_TRIES_MAX} tries: other writers changed the storage each time"
    );
    Error::new(ErrorKind::LimitExceeded, detail)
}
