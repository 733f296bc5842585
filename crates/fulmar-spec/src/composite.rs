//! Specs of dictionaries.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Key, TensorDict};
use indexmap::IndexMap;

use crate::shape::Shape;
use crate::spec::TensorSpec;
use crate::step::Step;
use crate::structure::check_depth_of;

/// Names that a leaf must not have, as they are properties of every spec.
const RESERVED: [&str; 4] = ["shape", "device", "dtype", "space"];

/// A dictionary of specs whose shapes all begin with one batch shape. An entry may be empty: it accepts any
/// value, or none.
///
/// # Examples
/// ```
/// use fulmar_core::{Dtype, Rng};
/// use fulmar_spec::{Composite, TensorSpec};
/// let mut step = Composite::new([])?;
/// step.set("observation", TensorSpec::unbounded([4], Dtype::F32)?)?;
/// step.set(["next", "done"], TensorSpec::binary([1], Dtype::Bool)?)?;
/// let spec = TensorSpec::from(step);
/// let batch = spec.rand(&mut Rng::new(1), &[8])?;
/// assert!(spec.contains(&batch));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Composite {
    shape: Shape,
    /// One name for each dimension, or empty if no dimension has a name.
    names: Vec<Option<String>>,
    entries: IndexMap<String, Option<TensorSpec>>,
}

impl Composite {
    /// Returns a dictionary without entries whose batch size is `shape`.
    ///
    /// # Errors
    /// `LimitExceeded` if `shape` has too many dimensions.
    pub fn new(shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        num_elements(&shape.sizes())?;
        Ok(Self { shape, names: Vec::new(), entries: IndexMap::new() })
    }

    /// Returns the batch size.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the names of the dimensions of the batch; `None` if none has one.
    #[must_use]
    pub fn names(&self) -> Option<&[Option<String>]> {
        if self.names.is_empty() { None } else { Some(&self.names) }
    }

    /// Names the dimensions of the batch.
    ///
    /// # Errors
    /// `ShapeMismatch` if there are more or fewer names than dimensions; `OutOfRange` if two are the same.
    pub fn set_names(&mut self, names: Vec<Option<String>>) -> Result<()> {
        if names.len() != self.shape.rank() {
            let detail =
                format!("names must be one for each dimension of {}: got {}", self.shape, names.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        for (at, name) in names.iter().enumerate() {
            if name.is_some() && names[..at].contains(name) {
                let detail =
                    format!("names must differ: got {:?} twice", name.as_deref().unwrap_or_default());
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
        }
        self.names = if names.iter().all(Option::is_none) { Vec::new() } else { names };
        Ok(())
    }

    /// Names dimensions that have no name. `None` in `names` keeps a dimension's name, `"..."` represents any
    /// number of dimensions.
    ///
    /// # Errors
    /// The errors of [`Composite::set_names`]; `Incompatible` if a dimension has another name; `OutOfRange`
    /// for a second `"..."`.
    ///
    /// # Examples
    /// ```
    /// use fulmar_spec::Composite;
    /// let mut spec = Composite::new([4, 10])?;
    /// spec.refine_names(&[Some("...".to_owned()), Some("time".to_owned())])?;
    /// assert_eq!(spec.names(), Some(&[None, Some("time".to_owned())][..]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn refine_names(&mut self, names: &[Option<String>]) -> Result<()> {
        let mut old = self.names.clone();
        old.resize(self.shape.rank(), None);
        let is_rest = |name: &Option<String>| name.as_deref() == Some("...");
        let mut new = names.to_vec();
        if let Some(at) = names.iter().position(is_rest) {
            let rest = (self.shape.rank() + 1).saturating_sub(names.len());
            new.splice(at..=at, std::iter::repeat_n(None, rest));
        }
        if new.iter().any(is_rest) {
            let detail = "names must hold \"...\" at most once";
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        for (name, old) in new.iter_mut().zip(old) {
            if name.is_some() && old.is_some() && *name != old {
                let detail =
                    format!("a name must stay {:?}: got {:?}", old.unwrap_or_default(), name.as_deref());
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            *name = name.take().or(old);
        }
        self.set_names(new)
    }

    /// Sets all entries of `other` here, replacing entries at the same keys; nested dictionaries merge.
    ///
    /// # Errors
    /// The errors of [`Composite::set`]. After an error nothing has changed.
    pub fn update(&mut self, other: &Self) -> Result<()> {
        let mut changed = self.clone();
        for (name, spec) in &other.entries {
            match (changed.entries.get_mut(name), spec) {
                (Some(Some(TensorSpec::Composite(old))), Some(TensorSpec::Composite(new))) => {
                    old.update(new).map_err(|error| error.at(format!("{name:?}")))?;
                }
                _ => changed.set(name.as_str(), spec.clone())?,
            }
        }
        *self = changed;
        Ok(())
    }

    /// Returns whether there is an entry at `key`, even an empty one.
    #[must_use]
    pub fn has(&self, key: impl Into<Key>) -> bool {
        let key = key.into();
        let Some((name, parents)) = key.path().split_last() else { return false };
        let mut composite = self;
        for parent in parents {
            let Some(Some(TensorSpec::Composite(inner))) = composite.entries.get(parent) else {
                return false;
            };
            composite = inner;
        }
        composite.entries.contains_key(name)
    }

    /// Sets a spec at `key`, or with `None` an empty entry that accepts anything. Makes missing dictionaries
    /// of the path with this batch size.
    ///
    /// # Errors
    /// `ShapeMismatch` if the shape does not begin with the batch size; `OutOfRange` for a reserved name;
    /// `Incompatible` if the path leads through a spec that is not a dictionary; `Empty` or `LimitExceeded`
    /// if the key has no name or the nesting would be too deep. After an error nothing has changed.
    pub fn set(&mut self, key: impl Into<Key>, spec: impl Into<Option<TensorSpec>>) -> Result<()> {
        let (key, spec) = (key.into(), spec.into());
        let path = key.path();
        self.check_put(path, spec.as_ref()).map_err(|error| error.at(&key))?;
        check_depth_of(path.len() + spec.as_ref().map_or(0, TensorSpec::depth))?;
        self.put(path, spec)
    }

    /// Returns the spec at `key`; `None` if there is no such key, or its entry is empty.
    #[must_use]
    pub fn get(&self, key: impl Into<Key>) -> Option<&TensorSpec> {
        let key = key.into();
        let (name, parents) = key.path().split_last()?;
        let mut composite = self;
        for parent in parents {
            let Some(TensorSpec::Composite(inner)) = composite.entries.get(parent)? else { return None };
            composite = inner;
        }
        composite.entries.get(name)?.as_ref()
    }

    /// Removes the entry at `key`; the other keys keep their order. Returns whether there was one.
    pub fn remove(&mut self, key: impl Into<Key>) -> bool {
        let key = key.into();
        let Some((name, parents)) = key.path().split_last() else { return false };
        let mut composite = self;
        for parent in parents {
            let Some(Some(TensorSpec::Composite(inner))) = composite.entries.get_mut(parent) else {
                return false;
            };
            composite = inner;
        }
        composite.entries.shift_remove(name).is_some()
    }

    /// Returns the names with their specs, top level only.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Option<&TensorSpec>)> {
        self.entries.iter().map(|(name, spec)| (name.as_str(), spec.as_ref()))
    }

    /// Returns the keys of all entries, nested ones before the dictionary that holds them.
    #[must_use]
    pub fn nested_keys(&self) -> Vec<Key> {
        self.keys_below(true)
    }

    /// Returns the keys of all entries that are not dictionaries.
    #[must_use]
    pub fn leaf_keys(&self) -> Vec<Key> {
        self.keys_below(false)
    }

    fn keys_below(&self, with_dicts: bool) -> Vec<Key> {
        let mut keys = Vec::new();
        for (name, spec) in &self.entries {
            let inner = if let Some(TensorSpec::Composite(inner)) = spec { Some(inner) } else { None };
            for key in inner.map(|inner| inner.keys_below(with_dicts)).unwrap_or_default() {
                let path = std::iter::once(name.clone()).chain(key.path().iter().cloned());
                keys.push(Key::from(path.collect::<Vec<_>>()));
            }
            if with_dicts || inner.is_none() {
                keys.push(Key::from(name.as_str()));
            }
        }
        keys
    }

    /// Refuses a spec that cannot be set at `path`, before anything changes.
    fn check_put(&self, path: &[String], spec: Option<&TensorSpec>) -> Result<()> {
        let Some((_, parents)) = path.split_last() else {
            return Err(Error::new(ErrorKind::Empty, "key must have at least one name: got 0"));
        };
        if let Some(name) = path.iter().find(|name| RESERVED.contains(&name.as_str())) {
            let detail = format!("key must be none of {}: got {name:?}", RESERVED.join(", "));
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let mut composite = self;
        for name in parents {
            match composite.entries.get(name) {
                Some(Some(TensorSpec::Composite(inner))) => composite = inner,
                // Dictionaries made from here on have this batch size.
                None => break,
                Some(_) => {
                    let detail = format!("{name:?} must be a Composite to hold keys");
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
            }
        }
        match spec {
            Some(spec) if !composite.shape.begins(&spec.shape()) => {
                let (batch, got) = (&composite.shape, spec.shape());
                let detail = format!("shape must begin with the batch size {batch}: got {got}");
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
            _ => Ok(()),
        }
    }

    fn put(&mut self, path: &[String], spec: Option<TensorSpec>) -> Result<()> {
        let Some((name, rest)) = path.split_first() else { return Ok(()) };
        if rest.is_empty() {
            self.entries.insert(name.clone(), spec);
            return Ok(());
        }
        let made = || Some(TensorSpec::Composite(Self { shape: self.shape.clone(), ..Self::default() }));
        match self.entries.entry(name.clone()).or_insert_with(made) {
            Some(TensorSpec::Composite(inner)) => inner.put(rest, spec),
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&self, value: &Entry) -> Result<()> {
        let dict = dict(value)?;
        for (name, spec) in self.specs() {
            let entry = dict.get(name).ok_or_else(|| missing(name, dict))?;
            spec.check(entry).map_err(|error| error.at(format!("{name:?}")))?;
        }
        Ok(())
    }

    /// Refuses a dictionary with other keys.
    pub(crate) fn check_no_more(&self, dict: &TensorDict) -> Result<()> {
        for (name, entry) in dict.entries() {
            let Some(spec) = self.entries.get(name) else {
                let detail = format!("value must have no key {name:?}: got one");
                return Err(Error::new(ErrorKind::UnknownName, detail));
            };
            if let Some(spec) = spec {
                spec.check_no_more(entry).map_err(|error| error.at(format!("{name:?}")))?;
            }
        }
        Ok(())
    }

    pub(crate) fn project(&self, value: &Entry) -> Result<Entry> {
        let mut dict = dict(value)?.clone();
        // The copy is private.
        dict.unlock();
        for (name, spec) in self.specs() {
            let entry = dict.get(name).ok_or_else(|| missing(name, &dict))?;
            let projected = spec.project(entry).map_err(|error| error.at(format!("{name:?}")))?;
            dict.set(name, projected)?;
        }
        Ok(dict.into())
    }

    /// Returns a dictionary of the results of `make` for every spec.
    pub(crate) fn build(
        &self,
        batch: &[usize],
        make: &mut dyn FnMut(&TensorSpec) -> Result<Entry>,
    ) -> Result<Entry> {
        let mut dict = TensorDict::new(&[batch, &self.shape.sizes()].concat())?;
        for (name, spec) in self.specs() {
            let entry = make(spec).map_err(|error| error.at(format!("{name:?}")))?;
            dict.set(name, entry)?;
        }
        Ok(dict.into())
    }

    /// Returns the specs that are not empty.
    pub(crate) fn specs(&self) -> impl Iterator<Item = (&str, &TensorSpec)> {
        self.entries.iter().filter_map(|(name, spec)| Some((name.as_str(), spec.as_ref()?)))
    }

    pub(crate) fn map(&self, map: impl Fn(&TensorSpec) -> Result<TensorSpec>) -> Result<Self> {
        Ok(Self { entries: self.mapped(map)?, shape: self.shape.clone(), names: self.names.clone() })
    }

    /// Returns the same keys with the batch size that results from `step`.
    pub(crate) fn map_to(
        &self,
        shape: Shape,
        step: &Step,
        map: impl Fn(&TensorSpec) -> Result<TensorSpec>,
    ) -> Result<Self> {
        let mut moved = Self { shape, names: Vec::new(), entries: self.mapped(map)? };
        if !self.names.is_empty() {
            moved.set_names(step.names(&self.names, moved.shape.rank()))?;
        }
        Ok(moved)
    }

    fn mapped(
        &self,
        map: impl Fn(&TensorSpec) -> Result<TensorSpec>,
    ) -> Result<IndexMap<String, Option<TensorSpec>>> {
        let one = |(name, spec): (&String, &Option<TensorSpec>)| {
            let spec = spec.as_ref().map(&map).transpose().map_err(|error| error.at(format!("{name:?}")))?;
            Ok((name.clone(), spec))
        };
        self.entries.iter().map(one).collect()
    }

    pub(crate) fn depth(&self) -> usize {
        self.specs().map(|(_, spec)| spec.depth()).max().unwrap_or(0)
    }
}

impl From<Composite> for TensorSpec {
    fn from(composite: Composite) -> Self {
        Self::Composite(composite)
    }
}

/// Returns `value` as a dictionary, or an error.
pub(crate) fn dict(value: &Entry) -> Result<&TensorDict> {
    match value {
        Entry::Dict(dict) => Ok(dict),
        other => Err(Error::new(
            ErrorKind::Incompatible,
            format!("value must be a dictionary: got {}", other.kind()),
        )),
    }
}

fn missing(name: &str, dict: &TensorDict) -> Error {
    let known: Vec<_> = dict.entries().map(|(name, _)| format!("{name:?}")).collect();
    let known = if known.is_empty() { "no keys".to_owned() } else { known.join(", ") };
    Error::new(ErrorKind::UnknownName, format!("value must have the key {name:?}: got {known}"))
}
