//! One number for the values of some keys of a dictionary.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};

use crate::hash_to_int::HashToInt;
use crate::sip_hash::{RowHash, SipHash};

/// Options of [`QueryModule`].
#[derive(Clone)]
pub struct QueryOptions {
    /// Key of the numbers.
    pub index_key: Key,
    /// Key of the hashes.
    pub hash_key: Key,
    /// The hash of each input; if empty, [`SipHash`] for all.
    pub hashes: Vec<Arc<dyn RowHash>>,
    /// The hash of the hashes `[N, inputs]` of a row, if there are several inputs.
    pub aggregator: Arc<dyn RowHash>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self {
            index_key: "_index".into(),
            hash_key: "_hash".into(),
            hashes: Vec::new(),
            aggregator: Arc::new(SipHash::default()),
        }
    }
}

/// Hashes the entries `in_keys` of each element of a batch, of any shape, and numbers the hashes.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_tree::{QueryModule, QueryOptions};
/// let mut query = QueryModule::new(vec!["observation".into()], QueryOptions::default())?;
/// let mut states = TensorDict::new(&[3])?;
/// states.set("observation", Tensor::from_vec(&[3, 2], vec![0.0_f32, 1.0, 2.0, 3.0, 0.0, 1.0])?)?;
/// let numbered = query.forward(&states, true)?;
/// assert_eq!(numbered.tensor("_index")?.to_vec::<i64>()?, [0, 1, 0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone)]
pub struct QueryModule {
    in_keys: Vec<Key>,
    options: QueryOptions,
    ids: HashToInt,
}

impl QueryModule {
    /// Makes one without known hashes.
    ///
    /// # Errors
    /// `Empty` without `in_keys`; `ShapeMismatch` if the hashes are neither none nor one for each key.
    pub fn new(in_keys: Vec<Key>, options: QueryOptions) -> Result<Self> {
        if in_keys.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "in_keys must have at least one key: got 0"));
        }
        let mut options = options;
        if options.hashes.is_empty() {
            options.hashes =
                in_keys.iter().map(|_| Arc::new(SipHash::default()) as Arc<dyn RowHash>).collect();
        }
        if options.hashes.len() != in_keys.len() {
            let detail =
                format!("hashes must be {}, one for each key: got {}", in_keys.len(), options.hashes.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        Ok(Self { in_keys, options, ids: HashToInt::default() })
    }

    /// Returns the keys that are hashed.
    #[must_use]
    pub fn in_keys(&self) -> &[Key] {
        &self.in_keys
    }

    /// Returns the hash of each element of the batch, row-major.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible`, with the key, if an entry is missing or not a tensor; those of the hashes.
    pub fn hash(&self, dict: &TensorDict) -> Result<Vec<i64>> {
        let rank = dict.batch_size().len();
        let of_key = |(key, hash): (&Key, &Arc<dyn RowHash>)| hash.hash_rows(dict.tensor(key.clone())?, rank);
        let mut columns: Vec<Vec<i64>> =
            self.in_keys.iter().zip(&self.options.hashes).map(of_key).collect::<Result<_>>()?;
        if columns.len() == 1 {
            return Ok(columns.swap_remove(0));
        }
        let count = columns[0].len();
        let rows: Vec<i64> =
            (0..count).flat_map(|row| columns.iter().map(move |column| column[row])).collect();
        self.options.aggregator.hash_rows(&Tensor::from_vec(&[count, columns.len()], rows)?, 1)
    }

    /// Returns `dict` with the number and the hash of each element. New hashes get the next numbers if `extend`, otherwise the number of
    /// known ones.
    ///
    /// # Errors
    /// The errors of [`QueryModule::hash`] and [`HashToInt::extend`].
    pub fn forward(&mut self, dict: &TensorDict, extend: bool) -> Result<TensorDict> {
        let hashes = self.hash(dict)?;
        let ids = if extend { self.ids.extend(&hashes)? } else { self.ids.lookup(&hashes) };
        let mut numbered = dict.clone();
        numbered.set(self.options.index_key.clone(), Tensor::from_vec(dict.batch_size(), ids)?)?;
        numbered.set(self.options.hash_key.clone(), Tensor::from_vec(dict.batch_size(), hashes)?)?;
        Ok(numbered)
    }

    /// Returns the numbers of the hashes.
    #[must_use]
    pub fn hash_to_int(&self) -> &HashToInt {
        &self.ids
    }

    /// Replaces the numbers of the hashes.
    pub fn set_hash_to_int(&mut self, ids: HashToInt) {
        self.ids = ids;
    }
}
