//! Keys of specs that have keys: dictionaries, and stacks of them.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::Key;

use crate::composite::Composite;
use crate::spec::TensorSpec;
use crate::stacked::Stacked;

impl TensorSpec {
    /// Returns the names of the top-level entries; of a stack, those that all its specs have.
    ///
    /// # Errors
    /// `Incompatible` if the spec is not a dictionary.
    pub fn keys(&self) -> Result<Vec<Key>> {
        self.keys_by(&|composite| composite.entries().map(|(name, _)| name.into()).collect())
    }

    /// Returns the keys of all entries, nested ones before the dictionary that holds them.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::keys`].
    pub fn nested_keys(&self) -> Result<Vec<Key>> {
        self.keys_by(&Composite::nested_keys)
    }

    /// Returns the keys of all entries that are not dictionaries.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::keys`].
    pub fn leaf_keys(&self) -> Result<Vec<Key>> {
        self.keys_by(&Composite::leaf_keys)
    }

    /// Returns the spec at `key`, for a stack the specs at that key stacked; `None` if there is no such key,
    /// or its entry is empty.
    ///
    /// # Errors
    /// `Incompatible` if the specs of a stack differ in kind at that key.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::{Composite, TensorSpec};
    /// let robot = |actions| {
    ///     let mut robot = Composite::new([])?;
    ///     robot.set("action", TensorSpec::categorical(actions, [], Dtype::I64)?)?;
    ///     fulmar_spec::Result::Ok(TensorSpec::from(robot))
    /// };
    /// let robots = TensorSpec::stack(&[robot(2)?, robot(3)?], 0)?;
    /// assert_eq!(robots.get("action")?.map(|action| action.shape()), Some([2].into()));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn get(&self, key: impl Into<Key>) -> Result<Option<Self>> {
        let key = key.into();
        match self {
            Self::Composite(composite) => Ok(composite.get(key).cloned()),
            Self::Stacked(stacked) => {
                let found = stacked.specs().iter().map(|spec| spec.get(key.clone()));
                let found = found.collect::<Result<Option<Vec<_>>>>()?;
                found.map(|specs| Self::stack(&specs, stacked.dim())).transpose()
            }
            _ => Ok(None),
        }
    }

    /// Returns whether there is an entry at `key`.
    pub fn has(&self, key: impl Into<Key>) -> bool {
        let key = key.into();
        match self {
            Self::Composite(composite) => composite.has(key),
            Self::Stacked(stacked) => stacked.specs().iter().all(|spec| spec.has(key.clone())),
            _ => false,
        }
    }

    /// Returns the dictionary without entries; its dimensions lose their names.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::keys`].
    pub fn empty(&self) -> Result<Self> {
        match self {
            Self::Composite(composite) => Composite::new(composite.shape().clone()).map(Self::Composite),
            Self::Stacked(stacked) => {
                let specs = stacked.specs().iter().map(Self::empty).collect::<Result<Vec<_>>>()?;
                Self::stack(&specs, stacked.dim())
            }
            other => Err(no_dictionary(other)),
        }
    }

    /// Returns the specs of a stack or of a choice, in order; empty for other specs.
    #[must_use]
    pub fn parts(&self) -> &[Self] {
        match self {
            Self::Stacked(stacked) => stacked.specs(),
            Self::Choice(choice) => choice.specs(),
            _ => &[],
        }
    }

    /// Returns the dictionary for changes.
    ///
    /// # Errors
    /// `Incompatible` if it is not a dictionary, or is a stack: change the dictionaries of a stack before
    /// stacking.
    pub fn as_composite_mut(&mut self) -> Result<&mut Composite> {
        match self {
            Self::Composite(composite) => Ok(composite),
            other => Err(no_dictionary(other)),
        }
    }

    fn keys_by(&self, keys: &dyn Fn(&Composite) -> Vec<Key>) -> Result<Vec<Key>> {
        match self {
            Self::Composite(composite) => Ok(keys(composite)),
            Self::Stacked(stacked) => shared(stacked, keys),
            other => Err(no_dictionary(other)),
        }
    }
}

/// Returns the keys of the first spec of a stack that all others have.
fn shared(stacked: &Stacked, keys: &dyn Fn(&Composite) -> Vec<Key>) -> Result<Vec<Key>> {
    let mut all = stacked.specs().iter().map(|spec| spec.keys_by(keys));
    let first = all.next().transpose()?.unwrap_or_default();
    all.try_fold(first, |left, right| {
        let right = right?;
        Ok(left.into_iter().filter(|key| right.contains(key)).collect())
    })
}

fn no_dictionary(spec: &TensorSpec) -> Error {
    Error::new(ErrorKind::Incompatible, format!("a spec with keys must be a Composite: got {}", spec.kind()))
}
