//! Consecutive numbers for hashes.

use std::collections::HashMap;

use fulmar_core::limits::MAP_KEYS_MAX;
use fulmar_core::{Error, ErrorKind, Result};

/// Gives each new hash the next number, from 0.
///
/// # Examples
/// ```
/// use fulmar_tree::HashToInt;
/// let mut ids = HashToInt::new(1000)?;
/// assert_eq!(ids.extend(&[50, -7, 50])?, [0, 1, 0]);
/// assert_eq!(ids.lookup(&[-7, 3]), [1, 2]); // an unknown one gets the next number, which stays free
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct HashToInt {
    ids: HashMap<i64, i64>,
    hashes: Vec<i64>,
    max_size: usize,
}

impl HashToInt {
    /// Makes an empty one for at most `max_size` hashes.
    ///
    /// # Errors
    /// `OutOfRange` if `max_size` is not from 1 to [`MAP_KEYS_MAX`].
    pub fn new(max_size: usize) -> Result<Self> {
        check_size("max_size", max_size)?;
        Ok(Self { ids: HashMap::new(), hashes: Vec::new(), max_size })
    }

    /// Makes one that gives `hashes` their positions, as [`HashToInt::hashes`] returned them.
    ///
    /// # Errors
    /// The errors of [`HashToInt::new`]; `LimitExceeded` if they are too many; `Corrupt` if one comes twice.
    pub fn from_hashes(hashes: &[i64], max_size: usize) -> Result<Self> {
        let mut made = Self::new(max_size)?;
        made.extend(hashes)?;
        if made.len() != hashes.len() {
            let detail = format!("hashes must differ: got {} of {}", made.len(), hashes.len());
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        Ok(made)
    }

    /// Returns the number of each hash; new ones get the next numbers.
    ///
    /// # Errors
    /// `LimitExceeded` if there would be more than `max_size`; then nothing has changed.
    pub fn extend(&mut self, hashes: &[i64]) -> Result<Vec<i64>> {
        let before = self.hashes.len();
        for hash in hashes {
            if !self.ids.contains_key(hash) {
                self.ids.insert(*hash, self.hashes.len() as i64);
                self.hashes.push(*hash);
            }
        }
        if self.hashes.len() > self.max_size {
            let detail = format!("max_size must be >= {} hashes: got {}", self.hashes.len(), self.max_size);
            for hash in self.hashes.drain(before..) {
                self.ids.remove(&hash);
            }
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(self.lookup(hashes))
    }

    /// Returns the number of each hash, and for an unknown one the number of known ones.
    #[must_use]
    pub fn lookup(&self, hashes: &[i64]) -> Vec<i64> {
        let next = self.hashes.len() as i64;
        hashes.iter().map(|hash| self.ids.get(hash).copied().unwrap_or(next)).collect()
    }

    /// Returns the known hashes, each at the position of its number.
    #[must_use]
    pub fn hashes(&self) -> &[i64] {
        &self.hashes
    }

    /// Returns the number of known hashes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns true without hashes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

impl Default for HashToInt {
    fn default() -> Self {
        Self { ids: HashMap::new(), hashes: Vec::new(), max_size: MAP_KEYS_MAX }
    }
}

/// Checks the number of keys that a map may have.
pub(crate) fn check_size(name: &str, size: usize) -> Result<()> {
    if (1..=MAP_KEYS_MAX).contains(&size) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be from 1 to {MAP_KEYS_MAX}: got {size}")))
}
