//! Operations on keys: rename, flatten, unflatten and merge them, and lock them.

use fulmar_core::{Error, ErrorKind, Result};

use super::{Entry, TensorDict};
use crate::key::Key;

impl TensorDict {
    /// Moves the entry at `old` to `new`, replacing any entry there. Makes missing dictionaries of the path.
    ///
    /// # Errors
    /// `UnknownName` if there is no entry at `old`; the errors of [`TensorDict::set`]. After an error nothing
    /// has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Key, Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("reward", Tensor::from_vec(&[], vec![1_i64])?)?;
    /// dict.rename("reward", ["next", "reward"])?;
    /// assert_eq!(dict.leaf_keys(), [Key::from(["next", "reward"])]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn rename(&mut self, old: impl Into<Key>, new: impl Into<Key>) -> Result<()> {
        let (old, new) = (old.into(), new.into());
        self.check_unlocked()?;
        let entry = self.entry(old.clone())?.clone();
        if old == new {
            return Ok(());
        }
        let mut renamed = self.clone();
        renamed.remove(old)?;
        renamed.set(new, entry)?;
        *self = renamed;
        Ok(())
    }

    /// Renames, but never replaces an entry.
    ///
    /// # Errors
    /// `Incompatible` if there is an entry at `new`; the errors of [`TensorDict::rename`].
    pub fn rename_safe(&mut self, old: impl Into<Key>, new: impl Into<Key>) -> Result<()> {
        let new = new.into();
        if self.get(new.clone()).is_some() {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("new must be a free key: got {new}, which is taken"),
            ));
        }
        self.rename(old, new)
    }

    /// Returns all leaves without nesting: the names of each key are joined by `separator`. Shares the
    /// elements.
    ///
    /// # Errors
    /// `Incompatible` if two joined keys are equal.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Key, Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set(["next", "reward"], Tensor::from_vec(&[], vec![1_i64])?)?;
    /// let flat = dict.flatten_keys(".")?;
    /// assert_eq!(flat.leaf_keys(), [Key::from("next.reward")]);
    /// assert_eq!(flat.unflatten_keys(".")?, dict);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn flatten_keys(&self, separator: &str) -> Result<Self> {
        let mut flat = Self::new(&self.batch_size)?.named(self.names.clone());
        for key in self.leaf_keys() {
            let name = key.path().join(separator);
            if flat.entries.contains_key(&name) {
                let detail = format!("keys must differ when joined by {separator:?}: got {name:?} twice");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            flat.set(name.as_str(), self.entry(key)?.clone())?;
        }
        Ok(flat)
    }

    /// Returns all entries, those with `separator` in their name nested at the path that it separates, after
    /// the others. Shares the elements.
    ///
    /// # Errors
    /// `Empty` if `separator` is empty; `Incompatible` if a path leads to or through another entry;
    /// `LimitExceeded` if it is too long.
    pub fn unflatten_keys(&self, separator: &str) -> Result<Self> {
        if separator.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "separator must have at least one character: got 0"));
        }
        let (paths, names): (Vec<_>, Vec<_>) = self.entries().partition(|(name, _)| name.contains(separator));
        let mut nested = Self::new(&self.batch_size)?.named(self.names.clone());
        for (name, entry) in names {
            nested.set(name, entry.clone())?;
        }
        for (name, entry) in paths {
            let key = Key::from(name.split(separator).map(str::to_owned).collect::<Vec<_>>());
            if nested.get(key.clone()).is_some() {
                let detail = format!("{name:?} must not lead to another entry: got {key}, which is taken");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            nested.set(key, entry.clone())?;
        }
        Ok(nested)
    }

    /// Sets all entries of `other` here, replacing entries at the same keys; nested dictionaries merge.
    /// Shares the elements.
    ///
    /// # Errors
    /// The errors of [`TensorDict::set`]. After an error nothing has changed.
    pub fn update(&mut self, other: &Self) -> Result<()> {
        self.check_unlocked()?;
        let mut updated = self.clone();
        for key in other.leaf_keys() {
            updated.set(key.clone(), other.entry(key)?.clone())?;
        }
        *self = updated;
        Ok(())
    }

    /// Refuses new, renamed and removed keys from now on, here and in nested dictionaries. Elements can still
    /// be written: [`TensorDict::write`], [`TensorDict::set_at`]. Clones are locked too; results of other
    /// operations are not.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::ErrorKind;
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("a", Tensor::from_vec(&[], vec![1_i64])?)?;
    /// dict.lock();
    /// assert_eq!(dict.remove("a").unwrap_err().kind(), ErrorKind::Closed);
    /// dict.write("a", &Tensor::from_vec(&[], vec![2_i64])?)?;
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn lock(&mut self) {
        self.set_locked(true);
    }

    /// Lets keys change again, also those of nested dictionaries.
    pub fn unlock(&mut self) {
        self.set_locked(false);
    }

    pub(super) fn set_locked(&mut self, locked: bool) {
        self.locked = locked;
        for entry in self.entries.values_mut() {
            if let Entry::Dict(dict) = entry {
                dict.set_locked(locked);
            }
        }
    }

    /// Returns whether the dictionary is locked: keys may not change.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        self.locked
    }

    pub(super) fn check_unlocked(&self) -> Result<()> {
        if self.locked {
            let detail = "a dictionary must be unlocked to change its keys: got a locked one";
            return Err(Error::new(ErrorKind::Closed, detail));
        }
        Ok(())
    }

    /// Returns whether there are no leaves, at any depth.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.values().all(|entry| matches!(entry, Entry::Dict(dict) if dict.is_empty()))
    }
}
