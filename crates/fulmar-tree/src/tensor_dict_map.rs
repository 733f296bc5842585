//! A map from dictionaries to dictionaries.

use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict, memmap};
use serde::Deserialize;

use crate::hash_to_int::check_size;
use crate::key_table::KeyTable;
use crate::query_module::{QueryModule, QueryOptions};

/// Options of [`TensorDictMap`].
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TensorDictMapOptions {
    /// Most keys, from 1 to [`MAP_KEYS_MAX`](fulmar_core::limits::MAP_KEYS_MAX).
    pub max_size: usize,
    /// The entries of a value that are kept; all of them if absent.
    pub out_keys: Option<Vec<Key>>,
    /// True: keys are compared by their bytes, so -0 differs from 0 and one NaN from another, as in torchrl.
    pub compatible: bool,
}

impl Default for TensorDictMapOptions {
    fn default() -> Self {
        Self { max_size: 1000, out_keys: None, compatible: false }
    }
}

/// A map whose keys are the entries `in_keys` of a dictionary and whose values are dictionaries of dense tensors. One call takes a batch
/// of any shape. A lookup compares the whole key, so keys of one hash stay apart. Rows keep the order in which their keys came.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_tree::{QueryModule, QueryOptions, TensorDictMap, TensorDictMapOptions};
/// let query = QueryModule::new(vec!["state".into()], QueryOptions::default())?;
/// let mut map = TensorDictMap::new(query, TensorDictMapOptions::default())?;
/// let mut states = TensorDict::new(&[2])?;
/// states.set("state", Tensor::from_vec(&[2], vec![5_i64, 9])?)?;
/// let mut values = TensorDict::new(&[2])?;
/// values.set("value", Tensor::from_vec(&[2], vec![0.5_f32, -1.0])?)?;
/// map.insert(&states, &values)?;
/// assert_eq!(map.get(&states.index_select(&[1])?)?.tensor("value")?.to_vec::<f32>()?, [-1.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone)]
pub struct TensorDictMap {
    query: QueryModule,
    table: KeyTable,
    /// Rows `0..table.len()` hold values; the batch may be longer.
    values: Option<TensorDict>,
    options: TensorDictMapOptions,
}

impl TensorDictMap {
    /// Makes an empty map whose keys are the `in_keys` of `query`; its numbers of hashes are not used.
    ///
    /// # Errors
    /// `OutOfRange` if `max_size` is not in its range.
    pub fn new(query: QueryModule, options: TensorDictMapOptions) -> Result<Self> {
        check_size("max_size", options.max_size)?;
        let table = KeyTable::new(query.in_keys().to_vec(), options.compatible);
        Ok(Self { query, table, values: None, options })
    }

    /// Makes an empty map for such keys and values: `out_keys` are those of `values` if absent.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible` if an entry of `in_keys` or `out_keys` is missing or not a tensor; those of
    /// [`TensorDictMap::new`].
    pub fn from_tensordict_pair(
        keys: &TensorDict,
        values: &TensorDict,
        in_keys: Vec<Key>,
        options: TensorDictMapOptions,
    ) -> Result<Self> {
        in_keys.iter().try_for_each(|key| keys.tensor(key.clone()).map(|_| ()))?;
        let out_keys = options.out_keys.unwrap_or_else(|| values.leaf_keys());
        out_keys.iter().try_for_each(|key| values.tensor(key.clone()).map(|_| ()))?;
        let query = QueryModule::new(in_keys, QueryOptions::default())?;
        Self::new(query, TensorDictMapOptions { out_keys: Some(out_keys), ..options })
    }

    /// Returns the keys of the entries that are looked up.
    #[must_use]
    pub fn in_keys(&self) -> &[Key] {
        self.table.in_keys()
    }

    /// Returns the largest number of keys.
    #[must_use]
    pub fn max_size(&self) -> usize {
        self.options.max_size
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true without keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Returns the hash of each key.
    ///
    /// # Errors
    /// The errors of [`QueryModule::hash`].
    pub fn hash(&self, keys: &TensorDict) -> Result<Vec<i64>> {
        self.query.hash(keys)
    }

    /// Writes a value at each key; of keys that come twice the last value stays. Returns the rows.
    ///
    /// # Errors
    /// `LimitExceeded` if there would be more than `max_size` keys; `ShapeMismatch`, `UnknownName` or `Incompatible`, with the entry, if
    /// batch sizes differ or a key or a value is not like the first; `Incompatible` if an entry is not a dense tensor. After an error
    /// nothing has changed.
    pub fn insert(&mut self, keys: &TensorDict, values: &TensorDict) -> Result<Vec<usize>> {
        let hashes = self.hash(keys)?;
        self.insert_hashed(keys, &hashes, values)
    }

    /// Does what [`TensorDictMap::insert`] does with hashes that the caller has.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::insert`].
    pub fn insert_hashed(
        &mut self,
        keys: &TensorDict,
        hashes: &[i64],
        values: &TensorDict,
    ) -> Result<Vec<usize>> {
        if keys.batch_size() != values.batch_size() {
            let (keys, values) = (keys.batch_size(), values.batch_size());
            let detail = format!("values must have the batch size {keys:?} of the keys: got {values:?}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let kept = self.options.out_keys.as_ref().map(|out_keys| values.select(out_keys)).transpose()?;
        let values = flat(kept.as_ref().unwrap_or(values))?;
        let rows = self.table.rows_of(keys, hashes)?;
        let before = self.table.len();
        let rows: Vec<usize> = (0..rows.count()).map(|at| self.table.insert(&rows, at)).collect();
        match self.write(&rows, &values) {
            Ok(()) => self.table.keep_parts(keys)?,
            Err(error) => {
                self.table.truncate(before);
                return Err(error);
            }
        }
        Ok(rows)
    }

    /// Writes what `merge` makes of the new values and, for known keys, of the old ones. Keys that come several times are merged one
    /// after another.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::insert`] and of `merge`; what was merged before stays.
    pub fn insert_with(
        &mut self,
        keys: &TensorDict,
        values: &TensorDict,
        merge: &mut dyn FnMut(TensorDict, Option<TensorDict>) -> Result<TensorDict>,
    ) -> Result<()> {
        let hashes = self.hash(keys)?;
        let repeats = self.repeats(keys, &hashes)?;
        let (keys, values) = (flat(keys)?, flat(values)?);
        for turn in 0..=repeats.iter().copied().max().unwrap_or(0) {
            let rows: Vec<usize> = (0..repeats.len()).filter(|row| repeats[*row] == turn).collect();
            let known = self.find_all(&keys.index_select(&rows)?, &pick(&hashes, &rows))?;
            let (old, new): (Vec<_>, Vec<_>) = rows.iter().zip(&known).partition(|(_, row)| row.is_some());
            for (part, is_old) in [(new, false), (old, true)] {
                let rows: Vec<usize> = part.iter().map(|(row, _)| **row).collect();
                if rows.is_empty() {
                    continue;
                }
                let (keys, hashes) = (keys.index_select(&rows)?, pick(&hashes, &rows));
                let had = if is_old { Some(self.values_of_hashed(&keys, &hashes)?) } else { None };
                let merged = merge(values.index_select(&rows)?, had)?;
                self.insert_hashed(&keys, &hashes, &merged)?;
            }
        }
        Ok(())
    }

    /// Returns the value of each key, in the shape of their batch.
    ///
    /// # Errors
    /// `OutOfRange` if a key is not in the map; those of [`TensorDictMap::insert`] for a wrong key.
    pub fn get(&self, keys: &TensorDict) -> Result<TensorDict> {
        self.values_of_hashed(keys, &self.hash(keys)?)
    }

    /// Does what [`TensorDictMap::get`] does with hashes that the caller has.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::get`].
    pub fn values_of_hashed(&self, keys: &TensorDict, hashes: &[i64]) -> Result<TensorDict> {
        let found = self.find_all(keys, hashes)?;
        if let Some(at) = found.iter().position(Option::is_none) {
            let detail = format!("keys must be in the map: got one at row {at} that is not");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let rows: Vec<usize> = found.into_iter().flatten().collect();
        shaped(&self.values_at(&rows)?, keys.batch_size())
    }

    /// Returns whether each key is in the map: `bool`, of the batch's shape.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::insert`] for a wrong key.
    pub fn contains(&self, keys: &TensorDict) -> Result<Tensor> {
        self.contains_hashed(keys, &self.hash(keys)?)
    }

    /// Does what [`TensorDictMap::contains`] does with hashes that the caller has.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::contains`].
    pub fn contains_hashed(&self, keys: &TensorDict, hashes: &[i64]) -> Result<Tensor> {
        let found = self.find_all(keys, hashes)?.iter().map(Option::is_some).collect();
        Tensor::from_vec(keys.batch_size(), found)
    }

    /// Returns the row of each key, row-major; `None` where it is not in the map.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::contains`].
    pub fn find_all(&self, keys: &TensorDict, hashes: &[i64]) -> Result<Vec<Option<usize>>> {
        let rows = self.table.rows_of(keys, hashes)?;
        Ok((0..rows.count()).map(|at| self.table.find(&rows, at)).collect())
    }

    /// Returns, for each key of a batch, how many equal ones come before it in the batch.
    ///
    /// # Errors
    /// The errors of [`TensorDictMap::contains`].
    pub fn repeats(&self, keys: &TensorDict, hashes: &[i64]) -> Result<Vec<u32>> {
        Ok(self.table.repeats(&self.table.rows_of(keys, hashes)?))
    }

    /// Returns the values of rows: `[rows]`. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such row.
    pub fn values_at(&self, rows: &[usize]) -> Result<TensorDict> {
        match (&self.values, rows.iter().find(|row| **row >= self.len())) {
            (_, Some(row)) => {
                Err(Error::new(ErrorKind::OutOfRange, format!("row must be < {}: got {row}", self.len())))
            }
            (Some(values), None) => values.index_select(rows),
            (None, None) => TensorDict::new(&[rows.len()]),
        }
    }

    /// Returns the keys of rows: `[rows]`. Copies. Floats are canonical unless the map is `compatible`.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such row.
    pub fn keys_at(&self, rows: &[usize]) -> Result<TensorDict> {
        if let Some(row) = rows.iter().find(|row| **row >= self.len()) {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("row must be < {}: got {row}", self.len()),
            ));
        }
        self.table.keys_at(rows)
    }

    /// Returns the hashes of all keys, by row.
    #[must_use]
    pub fn hashes(&self) -> &[i64] {
        self.table.hashes()
    }

    /// Removes all keys and values; the next ones may have other shapes.
    pub fn clear(&mut self) {
        self.table.clear();
        self.values = None;
    }

    /// Returns the content: `keys`, `hashes` and `values`, of `[len]` each; without entries if the map is empty.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it.
    pub fn state(&self) -> Result<TensorDict> {
        let mut state = TensorDict::new(&[])?;
        if let Some(values) = self.values.as_ref().filter(|_| !self.is_empty()) {
            let rows: Vec<usize> = (0..self.len()).collect();
            state.set("keys", self.table.keys_at(&rows)?)?;
            state.set("hashes", Tensor::from_slice(&[self.len()], self.table.hashes())?)?;
            state.set("values", values.index_select(&rows)?)?;
        }
        Ok(state)
    }

    /// Replaces the content by one that [`TensorDictMap::state`] returned.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible` if an entry is missing or of another kind; `Corrupt` if a key comes twice; those of
    /// [`TensorDictMap::insert`]. After an error nothing has changed.
    pub fn load_state(&mut self, state: &TensorDict) -> Result<()> {
        let mut loaded = Self::new(self.query.clone(), self.options.clone())?;
        if state.num_entries() > 0 {
            let (keys, hashes) = (state.dict("keys")?, state.tensor("hashes")?.to_vec::<i64>()?);
            loaded.insert_hashed(keys, &hashes, state.dict("values")?)?;
            if loaded.len() != hashes.len() {
                let detail = format!("keys must differ: got {} of {}", loaded.len(), hashes.len());
                return Err(Error::new(ErrorKind::Corrupt, detail));
            }
        }
        *self = loaded;
        Ok(())
    }

    /// Writes the content into a folder of memory-mapped leaves.
    ///
    /// # Errors
    /// `Io` if the folder cannot be written.
    pub fn dump(&self, path: impl AsRef<Path>) -> Result<()> {
        memmap::save(path, &self.state()?)
    }

    /// Replaces the content by that of a folder which [`TensorDictMap::dump`] wrote.
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the folder cannot be read; those of [`TensorDictMap::load_state`].
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_state(&memmap::load(path)?)
    }

    /// Writes values, whose rows beyond those written have been added to the table.
    fn write(&mut self, rows: &[usize], values: &TensorDict) -> Result<()> {
        let needed = self.table.len();
        if needed > self.options.max_size {
            let detail = format!("max_size must be >= {needed} keys: got {}", self.options.max_size);
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        if rows.is_empty() {
            return Ok(());
        }
        if let Some(stored) = &self.values {
            stored.check_rows(values, rows.len())?;
        }
        let capacity = self.values.as_ref().map_or(0, |stored| stored.batch_size()[0]);
        if needed > capacity {
            let wanted = (2 * capacity).max(needed).max(16).min(self.options.max_size);
            // Rows behind the last one repeat a value, so that none shows memory that was never written.
            let more = values.index_select(&vec![0; wanted - capacity])?;
            self.values = Some(match &self.values {
                Some(stored) => TensorDict::cat(&[stored.clone(), more], 0)?,
                None => more,
            });
        }
        self.values.as_mut().map_or(Ok(()), |stored| stored.index_copy(rows, values))
    }
}

/// Returns a batch of any shape as one of one dimension.
fn flat(dict: &TensorDict) -> Result<TensorDict> {
    if dict.batch_size().len() == 1 { Ok(dict.clone()) } else { dict.reshape(&[-1]) }
}

fn shaped(dict: &TensorDict, batch_size: &[usize]) -> Result<TensorDict> {
    if batch_size.len() == 1 {
        return Ok(dict.clone());
    }
    dict.reshape(&batch_size.iter().map(|len| *len as isize).collect::<Vec<_>>())
}

fn pick(hashes: &[i64], rows: &[usize]) -> Vec<i64> {
    rows.iter().map(|row| hashes[*row]).collect()
}
