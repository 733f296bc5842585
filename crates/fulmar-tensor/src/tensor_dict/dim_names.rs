//! Names of batch dimensions. They follow their dimensions through every operation, also in nested dictionaries.

use std::iter::repeat_n;

use fulmar_core::{Error, ErrorKind, Result};

use super::{Entry, TensorDict};
use crate::index::Index;

/// One name for each batch dimension, or an empty list if no dimension has a name.
pub(super) type Names = Vec<Option<String>>;

/// In [`TensorDict::refine_names`], all dimensions that the other names leave.
const ELLIPSIS: &str = "...";

impl TensorDict {
    /// Returns the name of each batch dimension that has one.
    #[must_use]
    pub fn names(&self) -> Vec<Option<&str>> {
        let names = self.names.iter().map(Option::as_deref).chain(repeat_n(None, self.batch_size.len()));
        names.take(self.batch_size.len()).collect()
    }

    /// Names all batch dimensions; nested dictionaries get the same names for theirs. Equality and folders
    /// ignore names.
    ///
    /// # Errors
    /// `ShapeMismatch` if there is not one for each dimension; `Incompatible` if a name comes twice. After an
    /// error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::TensorDict;
    /// let mut batch = TensorDict::new(&[2, 3])?;
    /// batch.set_names(&[None, Some("time")])?;
    /// assert_eq!(batch.transpose(0, 1)?.names(), [Some("time"), None]);
    /// assert_eq!(batch.index(0)?.names(), [Some("time")]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn set_names(&mut self, names: &[Option<&str>]) -> Result<()> {
        if names.len() != self.batch_size.len() {
            let detail = format!(
                "names must be one for each of {} batch dimensions: got {names:?}",
                self.batch_size.len()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        if let Some(name) =
            names.iter().enumerate().find_map(|(at, name)| names[..at].contains(name).then_some(*name)?)
        {
            let detail = format!("names must differ: got {name:?} twice");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        self.name_first(&names.iter().map(|name| name.map(str::to_owned)).collect::<Names>());
        Ok(())
    }

    /// Names dimensions that have no name yet; `"..."` represents all dimensions that the others leave,
    /// `None` one without a name.
    ///
    /// # Errors
    /// `Incompatible` if a dimension already has another name, or there are two `"..."`; the errors of
    /// [`TensorDict::set_names`]. After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::TensorDict;
    /// let mut batch = TensorDict::new(&[2, 3])?;
    /// batch.refine_names(&[Some("..."), Some("time")])?;
    /// assert_eq!(batch.names(), [None, Some("time")]);
    /// assert!(batch.refine_names(&[None, Some("step")]).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn refine_names(&mut self, names: &[Option<&str>]) -> Result<()> {
        let have: Vec<_> = self.names().into_iter().map(|name| name.map(str::to_owned)).collect();
        let have: Vec<_> = have.iter().map(Option::as_deref).collect();
        let mut wanted = names.to_vec();
        if let Some(at) = names.iter().position(|name| *name == Some(ELLIPSIS)) {
            let left = have.len().saturating_sub(names.len() - 1);
            wanted.splice(at..=at, have.iter().skip(at).take(left).copied());
        }
        for (have, wanted) in have.iter().zip(&wanted) {
            if *wanted == Some(ELLIPSIS) || (have.is_some() && have != wanted) {
                let detail = format!("a name must refine the one of its dimension, {have:?}: got {wanted:?}");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        self.set_names(&wanted)
    }

    /// Sets `names` for the first dimensions, here and in nested dictionaries.
    pub(super) fn name_first(&mut self, names: &[Option<String>]) {
        let mut all = names.to_vec();
        all.extend(self.names.drain(..).skip(names.len()));
        all.resize(self.batch_size.len(), None);
        for entry in self.entries.values_mut() {
            if let Entry::Dict(dict) = entry {
                dict.name_first(&all);
            }
        }
        self.names = if all.iter().all(Option::is_none) { Names::new() } else { all };
    }

    /// Sets `names` of this dictionary; nested dictionaries have computed theirs.
    pub(super) fn named(mut self, names: Names) -> Self {
        self.names = names;
        self
    }
}

/// Replaces the names of the dimensions `dims` by `len` missing names.
pub(super) fn forgotten(names: &mut Names, dims: std::ops::Range<usize>, len: usize) {
    names.splice(dims, repeat_n(None, len));
}

/// Updates `names` for the dimensions that `index`, without an ellipsis, leaves. A dimension with one pick
/// keeps its name; the joint dimension of several picks has none.
pub(super) fn indexed(names: &mut Names, index: &[Index]) {
    let picks = index.iter().filter(|item| matches!(item, Index::Pick(at) if at.rank() > 0)).count();
    let mut old = std::mem::take(names).into_iter();
    if picks > 1 {
        return;
    }
    for item in index {
        match item {
            Index::Slice { .. } => names.push(old.next().flatten()),
            Index::NewAxis => names.push(None),
            Index::Pick(at) if at.rank() == 1 => names.push(old.next().flatten()),
            Index::Pick(mask) if mask.dtype() == fulmar_core::Dtype::Bool => {
                names.push(None);
                old.by_ref().take(mask.rank()).for_each(drop);
            }
            Index::At(_) => drop(old.next()),
            Index::Pick(at) => {
                drop(old.next());
                names.extend(repeat_n(None, at.rank()));
            }
            Index::Ellipsis => {}
        }
    }
    names.extend(old);
}
