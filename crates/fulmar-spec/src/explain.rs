//! Explains a violated rule in parts.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::Entry;
use serde::Serialize;

use crate::spec::TensorSpec;

/// The rule that a value violates, and the place. As JSON an object of these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The path to the invalid leaf, or to the missing or additional key.
    pub path: Vec<Place>,
    /// `"shape"`, `"dtype"`, `"kind"` (not a tensor, not a dictionary, ...), `"key"`, `"domain"` or `"nan"`.
    pub rule: &'static str,
    /// The required value.
    pub expected: String,
    /// The actual value.
    pub got: String,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Place {
    /// A name in a dictionary.
    Key(String),
    /// An index of a stack.
    Index(usize),
}

impl TensorSpec {
    /// Returns the first rule that `value` violates; `None` if it matches this spec. `strict` as in
    /// [`TensorSpec::check_strict`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::{Composite, Place, TensorSpec};
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut spec = Composite::new([])?;
    /// spec.set(["next", "reward"], TensorSpec::bounded(0.0, 1.0, [1], Dtype::F32)?)?;
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set(["next", "reward"], Tensor::from_vec(&[1], vec![7.0_f32])?)?;
    /// let wrong = TensorSpec::from(spec).explain(&dict.into(), false).unwrap();
    /// assert_eq!(wrong.path, [Place::Key("next".to_owned()), Place::Key("reward".to_owned())]);
    /// assert_eq!((wrong.rule, &*wrong.expected, &*wrong.got), ("domain", "from 0 to 1", "7"));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn explain(&self, value: &Entry, strict: bool) -> Option<Violation> {
        if self.check(value).is_err() {
            return self.violation(value, &Self::check);
        }
        if strict { self.violation(value, &Self::check_no_more) } else { None }
    }

    /// Returns the violation that `check` reports, from the innermost spec that reports it.
    fn violation(&self, value: &Entry, check: &dyn Fn(&Self, &Entry) -> Result<()>) -> Option<Violation> {
        let error = check(self, value).err()?;
        let inner = match (self, value) {
            (Self::Composite(composite), Entry::Dict(dict)) => composite
                .specs()
                .filter_map(|(name, spec)| Some((name, spec.violation(dict.get(name)?, check)?)))
                .map(|(name, violation)| violation.below(Place::Key(name.to_owned())))
                .next(),
            (Self::Stacked(stacked), _) => {
                stacked.parts(value).into_iter().flatten().zip(stacked.specs()).enumerate().find_map(
                    |(at, (part, spec))| Some(spec.violation(&part, check)?.below(Place::Index(at))),
                )
            }
            _ => None,
        };
        Some(inner.unwrap_or_else(|| Violation::new(&error, self.key_of(value))))
    }

    /// Returns the first missing key of a dictionary, else the first additional one.
    fn key_of(&self, value: &Entry) -> Option<String> {
        let (Self::Composite(composite), Entry::Dict(dict)) = (self, value) else { return None };
        let lacks = composite.specs().map(|(name, _)| name).find(|name| dict.get(*name).is_none());
        let more = || dict.entries().map(|(name, _)| name).find(|name| !composite.has(*name));
        lacks.or_else(more).map(str::to_owned)
    }
}

impl Violation {
    fn new(error: &Error, key: Option<String>) -> Self {
        let detail = error.detail();
        let rule = match error.kind() {
            ErrorKind::ShapeMismatch => "shape",
            ErrorKind::UnknownName => "key",
            ErrorKind::NonFinite => "nan",
            ErrorKind::Incompatible if detail.starts_with("dtype") => "dtype",
            ErrorKind::Incompatible => "kind",
            _ => "domain",
        };
        // Errors have the form `<argument> must <rule>: got <value>`.
        let rest = detail.split_once(" must ").map_or(detail, |(_, rest)| rest);
        let (expected, got) = rest.split_once(": got ").unwrap_or((rest, ""));
        let path = key.filter(|_| rule == "key").map(Place::Key).into_iter().collect();
        let expected = expected.strip_prefix("be ").unwrap_or(expected);
        Self { path, rule, expected: expected.to_owned(), got: got.to_owned() }
    }

    fn below(mut self, place: Place) -> Self {
        self.path.insert(0, place);
        self
    }
}
