//! An ordered, nested dictionary of tensors whose shapes all begin with one batch size.
//!
//! Entries are tensors, ragged tensors, JSON values and nested dictionaries. Operations on the batch (index,
//! slice, stack, concatenate) apply to every entry.

mod batch;
mod batch_of_one;
mod batch_shape;
mod batch_size;
mod dim_names;
mod entry;
mod leaves;
mod names;
mod operation;
pub(crate) mod rows;
mod values;

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use indexmap::IndexMap;

pub use self::batch_of_one::BatchOfOne;
pub(crate) use self::batch_shape::dim_in;
use self::dim_names::Names;
pub use self::entry::Entry;
pub use self::leaves::ApplyOptions;
pub use self::operation::{Operation, Partition};
pub use self::values::PadSequence;
use crate::key::Key;
use crate::non_tensor::NonTensor;
use crate::ragged::Ragged;
use crate::tensor::Tensor;

/// Named tensors of one batch. Keys keep the order in which they were first set. Cloning shares the elements.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut step = TensorDict::new(&[2])?;
/// step.set("reward", Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
/// step.set(["next", "ids"], Tensor::from_vec(&[2, 3], vec![1_u32, 2, 3, 4, 5, 6])?)?;
/// let last = step.index(1)?;
/// assert_eq!(last.tensor(["next", "ids"])?.to_vec::<u32>()?, [4, 5, 6]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TensorDict {
    batch_size: Vec<usize>,
    names: Names,
    entries: IndexMap<String, Entry>,
    locked: bool,
}

/// Equal batch sizes and equal entries at equal keys, in any order; locks and dimension names do not matter.
impl PartialEq for TensorDict {
    fn eq(&self, other: &Self) -> bool {
        self.batch_size == other.batch_size && self.entries == other.entries
    }
}

impl TensorDict {
    /// Returns a dictionary without entries; `batch_size` `[]` accepts tensors of any shape.
    ///
    /// # Errors
    /// `LimitExceeded` if `batch_size` has too many dimensions.
    pub fn new(batch_size: &[usize]) -> Result<Self> {
        num_elements(batch_size)?;
        Ok(Self::holding(batch_size.to_vec(), IndexMap::new()))
    }

    /// Returns the dimensions with which the shape of every tensor begins.
    #[must_use]
    pub fn batch_size(&self) -> &[usize] {
        &self.batch_size
    }

    /// Returns the number of entries, nested ones not counted.
    #[must_use]
    pub fn num_entries(&self) -> usize {
        self.entries.len()
    }

    /// Sets `entry` at `key`: a new key is added at the end, an existing key keeps its place. Missing
    /// dictionaries of the path are made with this batch size. A dictionary whose batch size does not begin
    /// with this one gets this one. Shares the elements.
    ///
    /// # Errors
    /// `ShapeMismatch`, with the key and both shapes, if a shape does not begin with the batch size;
    /// `Incompatible` if the path leads through an entry that is not a dictionary; `Empty` or `LimitExceeded`
    /// if the key has no name or too many, or the nesting would be too deep; `Closed` if this dictionary is
    /// locked. After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[4])?;
    /// let error = dict.set("a", Tensor::from_vec_f32(&[3], vec![0.0; 3])?).unwrap_err();
    /// assert_eq!(error.detail(), "\"a\": shape must begin with the batch size [4]: got [3]");
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn set(&mut self, key: impl Into<Key>, entry: impl Into<Entry>) -> Result<()> {
        let (key, entry) = (key.into(), entry.into());
        self.check_unlocked()?;
        let (parents, name) = key.split()?;
        let depth = parents.len() + entry.depth();
        if depth > TENSOR_DICT_DEPTH_MAX {
            let detail = format!("nesting must be at most {TENSOR_DICT_DEPTH_MAX} deep: got {depth}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail).at(&key));
        }
        self.put(parents, name, entry).map_err(|error| error.at(&key))
    }

    /// Returns the entry at `key`, if there is one.
    #[must_use]
    pub fn get(&self, key: impl Into<Key>) -> Option<&Entry> {
        let key = key.into();
        let (name, parents) = key.path().split_last()?;
        let mut dict = self;
        for parent in parents {
            let Entry::Dict(inner) = dict.entries.get(parent)? else { return None };
            dict = inner;
        }
        dict.entries.get(name)
    }

    /// Returns the entry at `key`.
    ///
    /// # Errors
    /// `UnknownName`, with the existing keys, if there is no such entry.
    pub fn entry(&self, key: impl Into<Key>) -> Result<&Entry> {
        let key = key.into();
        self.get(key.clone()).ok_or_else(|| {
            let known: Vec<_> = self.leaf_keys().iter().map(ToString::to_string).collect();
            let known = match known.as_slice() {
                [] => "the entries, and there are none".to_owned(),
                known => known.join(", "),
            };
            Error::new(ErrorKind::UnknownName, format!("key must be one of {known}: got {key}"))
        })
    }

    /// Returns the tensor at `key`.
    ///
    /// # Errors
    /// `UnknownName` if there is no entry; `Incompatible` if it is not a tensor.
    pub fn tensor(&self, key: impl Into<Key>) -> Result<&Tensor> {
        let key = key.into();
        match self.entry(key.clone())? {
            Entry::Tensor(tensor) => Ok(tensor),
            other => Err(other.is_not("a tensor", &key)),
        }
    }

    /// Returns the ragged tensor at `key`.
    ///
    /// # Errors
    /// `UnknownName` if there is no entry; `Incompatible` if it is not a ragged tensor.
    pub fn ragged(&self, key: impl Into<Key>) -> Result<&Ragged> {
        let key = key.into();
        match self.entry(key.clone())? {
            Entry::Ragged(ragged) => Ok(ragged),
            other => Err(other.is_not("a ragged tensor", &key)),
        }
    }

    /// Returns the JSON value or values at `key`.
    ///
    /// # Errors
    /// `UnknownName` if there is no entry; `Incompatible` if it is a tensor, a ragged tensor or a dictionary.
    pub fn non_tensor(&self, key: impl Into<Key>) -> Result<&NonTensor> {
        let key = key.into();
        match self.entry(key.clone())? {
            Entry::NonTensor(values) => Ok(values),
            other => Err(other.is_not("a JSON value", &key)),
        }
    }

    /// Returns the dictionary at `key`.
    ///
    /// # Errors
    /// `UnknownName` if there is no entry; `Incompatible` if it is not a dictionary.
    pub fn dict(&self, key: impl Into<Key>) -> Result<&Self> {
        let key = key.into();
        match self.entry(key.clone())? {
            Entry::Dict(dict) => Ok(dict),
            other => Err(other.is_not("a dictionary", &key)),
        }
    }

    /// Removes and returns the entry at `key`, if there is one; the other keys keep their order.
    ///
    /// # Errors
    /// `Closed` if the dictionary is locked.
    pub fn remove(&mut self, key: impl Into<Key>) -> Result<Option<Entry>> {
        self.check_unlocked()?;
        let key = key.into();
        Ok(self.holder(&key).and_then(|(dict, name)| dict.entries.shift_remove(name)))
    }

    /// Returns the entries with their names, nested ones not visited.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns the keys of all entries, nested ones before the dictionary that holds them.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Key, Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set(["b", "c"], Tensor::from_vec(&[], vec![1_i64])?)?;
    /// assert_eq!(dict.nested_keys(), [Key::from(["b", "c"]), Key::from("b")]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn nested_keys(&self) -> Vec<Key> {
        self.keys_below(true)
    }

    /// Returns the keys of all entries that are not dictionaries.
    #[must_use]
    pub fn leaf_keys(&self) -> Vec<Key> {
        self.keys_below(false)
    }

    /// Keeps only the entries at `keys`, in the order of this dictionary. Shares the elements.
    ///
    /// # Errors
    /// `UnknownName` if a key has no entry.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("a", Tensor::from_vec(&[], vec![1_u8])?)?;
    /// dict.set("b", Tensor::from_vec(&[], vec![2_u8])?)?;
    /// assert_eq!(dict.select(&["b".into()])?, dict.exclude(&["a".into()]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn select(&self, keys: &[Key]) -> Result<Self> {
        for key in keys {
            self.entry(key.clone())?;
        }
        Ok(self.select_known(keys))
    }

    /// Keeps only the entries at `keys`; ignores keys without an entry.
    #[must_use]
    pub fn select_known(&self, keys: &[Key]) -> Self {
        let paths: Vec<_> = keys.iter().map(Key::path).collect();
        self.filtered(&paths, true)
    }

    /// Returns all entries but those at `keys`; ignores keys without an entry. Shares the elements.
    #[must_use]
    pub fn exclude(&self, keys: &[Key]) -> Self {
        let paths: Vec<_> = keys.iter().map(Key::path).collect();
        self.filtered(&paths, false)
    }

    /// Splits the entries: one dictionary for each of `sets`, and a last one of all other entries. Shares the
    /// elements.
    ///
    /// # Errors
    /// `UnknownName` if a key has no entry.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Key, Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("a", Tensor::from_vec(&[], vec![1_u8])?)?;
    /// dict.set("b", Tensor::from_vec(&[], vec![2_u8])?)?;
    /// let parts = dict.split_keys(&[vec!["b".into()]])?;
    /// assert_eq!(parts[1].leaf_keys(), [Key::from("a")]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn split_keys(&self, sets: &[Vec<Key>]) -> Result<Vec<Self>> {
        let mut parts = sets.iter().map(|keys| self.select(keys)).collect::<Result<Vec<_>>>()?;
        parts.push(self.exclude(&sets.concat()));
        Ok(parts)
    }

    /// Returns the dictionary without its tensors and ragged tensors; JSON values stay.
    #[must_use]
    pub fn structure(&self) -> Self {
        let entries = self.entries.iter().filter_map(|(name, entry)| match entry {
            Entry::Dict(dict) => Some((name.clone(), Entry::Dict(dict.structure()))),
            Entry::NonTensor(_) => Some((name.clone(), entry.clone())),
            Entry::Tensor(_) | Entry::Ragged(_) => None,
        });
        Self::holding(self.batch_size.clone(), entries.collect()).named(self.names.clone())
    }

    fn holding(batch_size: Vec<usize>, entries: IndexMap<String, Entry>) -> Self {
        Self { batch_size, names: Names::new(), entries, locked: false }
    }

    fn put(&mut self, parents: &[String], name: &str, entry: Entry) -> Result<()> {
        let Some((parent, rest)) = parents.split_first() else {
            let mut fitted = entry.fitted(&self.batch_size)?;
            if let Entry::Dict(dict) = &mut fitted {
                dict.name_first(&self.names);
            }
            self.entries.insert(name.to_owned(), fitted);
            return Ok(());
        };
        match self.entries.get_mut(parent) {
            Some(Entry::Dict(dict)) => dict.put(rest, name, entry),
            Some(other) => Err(other.is_not("a dictionary", &Key::from(parent.as_str()))),
            None => {
                let mut dict =
                    Self::holding(self.batch_size.clone(), IndexMap::new()).named(self.names.clone());
                dict.put(rest, name, entry)?;
                self.entries.insert(parent.clone(), Entry::Dict(dict));
                Ok(())
            }
        }
    }

    /// Returns the dictionary that holds `key`'s last name, and that name.
    fn holder<'a>(&mut self, key: &'a Key) -> Option<(&mut Self, &'a str)> {
        let (name, parents) = key.path().split_last()?;
        let mut dict = self;
        for parent in parents {
            let Entry::Dict(inner) = dict.entries.get_mut(parent)? else { return None };
            dict = inner;
        }
        Some((dict, name))
    }

    fn keys_below(&self, with_dicts: bool) -> Vec<Key> {
        let mut keys = Vec::new();
        for (name, entry) in self.entries() {
            if let Entry::Dict(dict) = entry {
                keys.extend(dict.keys_below(with_dicts).into_iter().map(|key| key.below(name)));
            }
            if with_dicts || !matches!(entry, Entry::Dict(_)) {
                keys.push(Key::from(name));
            }
        }
        keys
    }

    /// Keeps (`keep`) or drops the entries at `paths`. Dictionaries on a path stay.
    fn filtered(&self, paths: &[&[String]], keep: bool) -> Self {
        let mut entries = IndexMap::new();
        for (name, entry) in &self.entries {
            let below: Vec<_> = paths
                .iter()
                .filter_map(|path| path.split_first())
                .filter(|(head, _)| *head == name)
                .map(|(_, rest)| rest)
                .collect();
            let whole = below.iter().any(|rest| rest.is_empty());
            match entry {
                Entry::Dict(dict) if !whole && !below.is_empty() => {
                    entries.insert(name.clone(), Entry::Dict(dict.filtered(&below, keep)));
                }
                _ if whole == keep => {
                    entries.insert(name.clone(), entry.clone());
                }
                _ => {}
            }
        }
        let mut kept = Self::holding(self.batch_size.clone(), entries).named(self.names.clone());
        kept.unlock();
        kept
    }
}
