//! Maps whose keys and values are batches.

use fulmar_core::Result;
use fulmar_tensor::{Tensor, TensorDict};

use crate::tensor_dict_map::TensorDictMap;

/// A map whose keys and values are batches: one call reads or writes all of a batch.
///
/// # Examples
/// ```
/// use fulmar_core::Result;
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_tree::{QueryModule, QueryOptions, TensorDictMap, TensorDictMapOptions, TensorMap};
///
/// fn count_new(seen: &mut dyn TensorMap, states: &TensorDict) -> Result<usize> {
///     let before = seen.len();
///     seen.insert(states, states)?;
///     Ok(seen.len() - before)
/// }
///
/// let query = QueryModule::new(vec!["state".into()], QueryOptions::default())?;
/// let mut seen = TensorDictMap::new(query, TensorDictMapOptions::default())?;
/// let mut states = TensorDict::new(&[3])?;
/// states.set("state", Tensor::from_vec(&[3], vec![5_i64, 9, 5])?)?;
/// assert_eq!((count_new(&mut seen, &states)?, count_new(&mut seen, &states)?), (2, 0));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub trait TensorMap {
    /// Returns the number of keys.
    fn len(&self) -> usize;

    /// Returns true without keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of each key, in the shape of their batch.
    ///
    /// # Errors
    /// `OutOfRange` if a key is not in the map; those of [`TensorMap::insert`] for a wrong key.
    fn get(&self, keys: &TensorDict) -> Result<TensorDict>;

    /// Writes a value at each key; of keys that come twice the last value stays.
    ///
    /// # Errors
    /// `LimitExceeded` for more keys than the map takes; `ShapeMismatch`, `UnknownName` or `Incompatible`, with the entry, for keys or values that do
    /// not fit the map. After an error nothing has changed.
    fn insert(&mut self, keys: &TensorDict, values: &TensorDict) -> Result<()>;

    /// Returns whether each key is in the map: `bool`, of the batch's shape.
    ///
    /// # Errors
    /// The errors of [`TensorMap::insert`] for a wrong key.
    fn contains(&self, keys: &TensorDict) -> Result<Tensor>;

    /// Removes all keys.
    fn clear(&mut self);
}

impl TensorMap for TensorDictMap {
    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, keys: &TensorDict) -> Result<TensorDict> {
        self.get(keys)
    }

    fn insert(&mut self, keys: &TensorDict, values: &TensorDict) -> Result<()> {
        self.insert(keys, values).map(|_| ())
    }

    fn contains(&self, keys: &TensorDict) -> Result<Tensor> {
        self.contains(keys)
    }

    fn clear(&mut self) {
        self.clear();
    }
}
