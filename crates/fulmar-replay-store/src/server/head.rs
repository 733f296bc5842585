//! A storage's metadata on a server.

use fulmar_core::{Error, ErrorKind, Result};
use redis::Value;

/// The value of the first field.
pub const FORMAT: &str = "fulmar replay storage 1";

/// The fields, in the order of [`Head::of`].
pub const FIELDS: [&str; 8] = ["format", "id", "shape", "schema", "revision", "len", "cursor", "write_count"];

/// The hash at the storage's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The server's clock when the storage was made, which is unique.
    pub id: String,
    /// The shape as JSON.
    pub shape: String,
    /// The text of the rows' schema.
    pub schema: String,
    /// Number of writes.
    pub revision: u64,
    /// Number of rows with items.
    pub len: usize,
    /// The position of the writers, and the write count.
    pub writer: Option<(usize, u64)>,
}

impl Head {
    /// Parses the reply to `HMGET` of [`FIELDS`]; `None` if there is no storage.
    ///
    /// # Errors
    /// `Incompatible` if the fields belong to other data.
    pub fn of(reply: Value) -> Result<Option<Self>> {
        let foreign = || {
            let detail = format!("keys of that name must belong to a storage of format {FORMAT:?}");
            Error::new(ErrorKind::Incompatible, detail)
        };
        let Value::Array(values) = reply else { return Err(foreign()) };
        let texts = values.into_iter().map(text).collect::<Option<Vec<_>>>().ok_or_else(foreign)?;
        let Ok([format, id, shape, schema, revision, len, cursor, write_count]) = <[_; 8]>::try_from(texts)
        else {
            return Err(foreign());
        };
        // A missing hash has no fields; a hash of another program has no format.
        if format.is_none() && id.is_none() && shape.is_none() && revision.is_none() {
            return Ok(None);
        }
        let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
        let head = (|| {
            let len = usize::try_from(number(len)?).ok()?;
            let cursor = number(cursor).and_then(|cursor| usize::try_from(cursor).ok());
            let writer = cursor.zip(number(write_count));
            let head =
                Self { id: id?, shape: shape?, schema: schema?, revision: number(revision)?, len, writer };
            (format? == FORMAT).then_some(head)
        })();
        head.map(Some).ok_or_else(foreign)
    }
}

/// Returns the text of a value, `Some(None)` for nil, and `None` for any other type.
fn text(value: Value) -> Option<Option<String>> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(bytes) => String::from_utf8(bytes).ok().map(Some),
        _ => None,
    }
}

/// An entry of the list of writes: its revision, and the ranges of its rows; no ranges if all rows must be
/// reread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub revision: u64,
    pub rows: Option<Vec<usize>>,
}

/// A write with more ranges is stored as all rows.
const RANGES_MAX: usize = 4096;

impl Write {
    /// Returns eight bytes of revision, then start and length of each range, four bytes each; little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut ranges: Vec<[u32; 2]> = Vec::new();
        for row in self.rows.iter().flatten().map(|row| *row as u32) {
            match ranges.last_mut() {
                Some([start, len]) if *start + *len == row => *len += 1,
                _ => ranges.push([row, 1]),
            }
        }
        if ranges.len() > RANGES_MAX {
            ranges.clear();
        }
        let mut bytes = self.revision.to_le_bytes().to_vec();
        bytes.extend(ranges.iter().flatten().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    /// Parses the write in `bytes`, of a storage of `capacity` rows; `None` for other bytes.
    pub fn decode(bytes: &[u8], capacity: usize) -> Option<Self> {
        let (revision, ranges) = bytes.split_first_chunk::<8>()?;
        let revision = u64::from_le_bytes(*revision);
        let (ranges, rest) = ranges.as_chunks::<8>();
        if !rest.is_empty() || ranges.len() > RANGES_MAX {
            return None;
        }
        let mut rows = Vec::new();
        for [a, b, c, d, e, f, g, h] in ranges {
            let start = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let end = start + u32::from_le_bytes([*e, *f, *g, *h]) as usize;
            // A write has each row at most once, except for rings that it wraps around.
            if end > capacity || rows.len() > capacity {
                return None;
            }
            rows.extend(start..end);
        }
        Some(Self { revision, rows: (!ranges.is_empty()).then_some(rows) })
    }
}
