//! Keys of a map: the tensors of each, compared byte by byte.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::row_bytes::RowBytes;

/// The bytes and hashes of the keys of one batch.
pub(crate) struct KeyRows<'a> {
    bytes: Vec<u8>,
    width: usize,
    hashes: &'a [i64],
}

impl KeyRows<'_> {
    pub(crate) fn count(&self) -> usize {
        self.hashes.len()
    }

    fn row(&self, at: usize) -> &[u8] {
        &self.bytes[at * self.width..(at + 1) * self.width]
    }
}

/// Dtype and shape of the part of a key that is at one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    dtype: String,
    shape: Vec<usize>,
}

/// Numbers keys in the order in which they come, from 0. Two keys are one if all their bytes are equal, whatever their hashes.
#[derive(Debug, Clone)]
pub(crate) struct KeyTable {
    in_keys: Vec<Key>,
    compatible: bool,
    parts: Option<Vec<Part>>,
    /// `[len, width]`.
    bytes: Vec<u8>,
    width: usize,
    hashes: Vec<i64>,
    rows: HashTable<u32>,
}

impl KeyTable {
    pub(crate) fn new(in_keys: Vec<Key>, compatible: bool) -> Self {
        let (parts, bytes, hashes, rows) = (None, Vec::new(), Vec::new(), HashTable::new());
        Self { in_keys, compatible, parts, bytes, width: 0, hashes, rows }
    }

    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(crate) fn in_keys(&self) -> &[Key] {
        &self.in_keys
    }

    pub(crate) fn hashes(&self) -> &[i64] {
        &self.hashes
    }

    /// Takes the keys of a batch; they must have the shapes and dtypes of the first ones.
    pub(crate) fn rows_of<'a>(&self, dict: &TensorDict, hashes: &'a [i64]) -> Result<KeyRows<'a>> {
        let rank = dict.batch_size().len();
        let count: usize = dict.batch_size().iter().product();
        if hashes.len() != count {
            let detail = format!("hashes must be {count}, one for each key: got {}", hashes.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let tensors: Vec<&Tensor> =
            self.in_keys.iter().map(|key| dict.tensor(key.clone())).collect::<Result<_>>()?;
        self.check_parts(&tensors, rank)?;
        let of_tensor = |tensor: &&Tensor| RowBytes::of(tensor, rank, self.compatible);
        let mut columns: Vec<RowBytes> = tensors.iter().map(of_tensor).collect::<Result<_>>()?;
        if columns.len() == 1 {
            let column = columns.swap_remove(0);
            return Ok(KeyRows { width: column.width(), bytes: column.bytes, hashes });
        }
        let width = columns.iter().map(RowBytes::width).sum();
        let mut bytes = Vec::with_capacity(width * count);
        for row in 0..count {
            columns.iter().for_each(|column| bytes.extend_from_slice(column.row(row)));
        }
        Ok(KeyRows { bytes, width, hashes })
    }

    /// Remembers the shapes and dtypes of the first keys.
    pub(crate) fn keep_parts(&mut self, dict: &TensorDict) -> Result<()> {
        if self.parts.is_none() {
            let rank = dict.batch_size().len();
            let of_key = |key: &Key| Ok(part(dict.tensor(key.clone())?, rank));
            self.parts = Some(self.in_keys.iter().map(of_key).collect::<Result<_>>()?);
        }
        Ok(())
    }

    fn check_parts(&self, tensors: &[&Tensor], rank: usize) -> Result<()> {
        for ((key, have), tensor) in self.in_keys.iter().zip(self.parts.iter().flatten()).zip(tensors) {
            let got = part(tensor, rank);
            if *have != got {
                let kind =
                    if have.dtype == got.dtype { ErrorKind::ShapeMismatch } else { ErrorKind::Incompatible };
                let detail = format!(
                    "{key}: a key must be {} of shape {:?}, as the first: got {} of {:?}",
                    have.dtype, have.shape, got.dtype, got.shape
                );
                return Err(Error::new(kind, detail));
            }
        }
        Ok(())
    }

    pub(crate) fn find(&self, keys: &KeyRows<'_>, at: usize) -> Option<usize> {
        let (hash, key) = (keys.hashes[at], keys.row(at));
        let is_key = |row: &u32| self.hashes[*row as usize] == hash && self.key(*row as usize) == key;
        self.rows.find(spread(hash), is_key).map(|row| *row as usize)
    }

    /// Returns the row of a key, which is added if it is new.
    pub(crate) fn insert(&mut self, keys: &KeyRows<'_>, at: usize) -> usize {
        if let Some(row) = self.find(keys, at) {
            return row;
        }
        let row = self.hashes.len();
        self.width = keys.width;
        self.hashes.push(keys.hashes[at]);
        self.bytes.extend_from_slice(keys.row(at));
        let hashes = &self.hashes;
        self.rows.insert_unique(spread(keys.hashes[at]), row as u32, |row| spread(hashes[*row as usize]));
        row
    }

    /// Removes the rows from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        for row in len..self.hashes.len() {
            if let Ok(entry) = self.rows.find_entry(spread(self.hashes[row]), |at| *at as usize == row) {
                entry.remove();
            }
        }
        self.hashes.truncate(len);
        self.bytes.truncate(len * self.width);
    }

    /// Removes all rows and the shapes of keys.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.in_keys), self.compatible);
    }

    /// Returns the number, among those of this batch with the same key, of each key: 0 for the first.
    pub(crate) fn repeats(&self, keys: &KeyRows<'_>) -> Vec<u32> {
        let mut seen = Self::new(Vec::new(), self.compatible);
        let mut counts: Vec<u32> = Vec::new();
        let count_row = |at: usize| {
            let row = seen.insert(keys, at);
            counts.resize(counts.len().max(row + 1), 0);
            counts[row] += 1;
            counts[row] - 1
        };
        (0..keys.count()).map(count_row).collect()
    }

    /// Returns the keys of rows as a dictionary.
    pub(crate) fn keys_at(&self, rows: &[usize]) -> Result<TensorDict> {
        let mut dict = TensorDict::new(&[rows.len()])?;
        let mut start = 0;
        for (key, part) in self.in_keys.iter().zip(self.parts.iter().flatten()) {
            let dtype = Dtype::parse(&part.dtype)?;
            let width = part.shape.iter().product::<usize>() * dtype.size_bytes();
            let bytes: Vec<u8> =
                rows.iter().flat_map(|row| &self.key(*row)[start..start + width]).copied().collect();
            let shape = [&[rows.len()], &part.shape[..]].concat();
            dict.set(key.clone(), Tensor::from_bytes(dtype, &shape, &bytes)?)?;
            start += width;
        }
        Ok(dict)
    }

    fn key(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.width..(row + 1) * self.width]
    }
}

fn part(tensor: &Tensor, rank: usize) -> Part {
    let shape = tensor.shape().get(rank..).unwrap_or_default().to_vec();
    Part { dtype: tensor.dtype().name().to_owned(), shape }
}

/// Spreads hashes of few bits over all of them.
fn spread(hash: i64) -> u64 {
    hash.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
