//! The spec of any value, with the operations of all kinds of specs.

use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng};
use fulmar_tensor::{Entry, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::choice::Choice;
use crate::composite::Composite;
use crate::discrete::Class;
use crate::json::Form;
use crate::leaf::{Leaf, Space, counts_of, discrete};
use crate::non_tensor::NonTensorSpec;
use crate::number::cast;
use crate::shape::Shape;
use crate::stacked::Stacked;

/// The spec of a value. In JSON an object with `type`, `shape` and the arguments of the type.
///
/// Two specs are equal if class, shape, dtype, domain and masks are.
///
/// # Examples
/// ```
/// use fulmar_core::{Dtype, Rng};
/// use fulmar_spec::TensorSpec;
/// use fulmar_tensor::Tensor;
/// let action = TensorSpec::bounded(-1.0, 1.0, [2], Dtype::F32)?;
/// assert!(action.contains(&action.rand(&mut Rng::new(7), &[])?));
/// let wild = Tensor::from_vec(&[2], vec![0.5_f32, 9.0])?.into();
/// assert_eq!(action.check(&wild).unwrap_err().detail(), "value must be from -1 to 1: got 9");
/// assert_eq!(action.project(&wild)?, Tensor::from_vec(&[2], vec![0.5_f32, 1.0])?.into());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
#[non_exhaustive]
pub enum TensorSpec {
    /// One tensor: `Unbounded`, `Bounded`, `Categorical`, `OneHot`, `MultiOneHot`, `MultiCategorical` or `Binary`.
    Leaf(Leaf),
    /// Any JSON value.
    NonTensor(NonTensorSpec),
    /// One of several specs or JSON values.
    Choice(Choice),
    /// A dictionary of specs.
    Composite(Composite),
    /// One spec for each index of a dimension.
    Stacked(Stacked),
}

impl TensorSpec {
    /// Accepts any numbers of `dtype` except NaN.
    ///
    /// # Errors
    /// `LimitExceeded` if `shape` has too many dimensions.
    pub fn unbounded(shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        Leaf::new(shape.into(), dtype, Space::Unbounded).map(Self::Leaf)
    }

    /// Accepts numbers from `low` to `high`, both included; either may be infinite.
    ///
    /// # Errors
    /// `OutOfRange` if a bound is NaN or `low` is above `high`; `LimitExceeded` if `shape` has too many dimensions.
    pub fn bounded(low: f64, high: f64, shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let bound = |value| Tensor::from_vec(&[], vec![value]);
        if low.is_nan() || high.is_nan() {
            let detail = format!("bounds must be numbers: got {low} and {high}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Self::bounded_by(&bound(low)?, &bound(high)?, shape, dtype)
    }

    /// Accepts numbers between bounds that are broadcast to `shape`. Bounds are rounded to `dtype`.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::bounded`]; `ShapeMismatch` if a bound cannot be broadcast.
    pub fn bounded_by(low: &Tensor, high: &Tensor, shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let space = Space::Bounded { low: cast(low, dtype)?, high: cast(high, dtype)? };
        Leaf::new(shape.into(), dtype, space).map(Self::Leaf)
    }

    /// Accepts an integer from 0 below `n` in each element.
    ///
    /// # Errors
    /// `OutOfRange` if `n` is 0, past [`SPEC_VALUES_MAX`](fulmar_core::limits::SPEC_VALUES_MAX), or so large that `dtype` would round an
    /// index; `LimitExceeded` if `shape` has too many dimensions.
    pub fn categorical(n: usize, shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let space = discrete(Class::Categorical, counts_of(&[n])?, None);
        Leaf::new(shape.into(), dtype, space).map(Self::Leaf)
    }

    /// Accepts a single 1 among zeros along the last dimension, which must be `n` in `shape`.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::categorical`]; `ShapeMismatch` if the last dimension is not `n`.
    pub fn one_hot(n: usize, shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let space = discrete(Class::OneHot, counts_of(&[n])?, None);
        Leaf::new(shape.into(), dtype, space).map(Self::Leaf)
    }

    /// Accepts one-hot blocks of the lengths `nvec`, concatenated along the last dimension.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::one_hot`]; `Empty` if `nvec` is empty.
    pub fn multi_one_hot(nvec: &[usize], shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let space = discrete(Class::MultiOneHot, counts_of(nvec)?, None);
        Leaf::new(shape.into(), dtype, space).map(Self::Leaf)
    }

    /// Accepts, along the last dimension, one integer below each number of `nvec`.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::categorical`]; `Empty` if `nvec` is empty; `ShapeMismatch` if the last
    /// dimension has another length.
    pub fn multi_categorical(nvec: &[usize], shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let space = discrete(Class::MultiCategorical, counts_of(nvec)?, None);
        Leaf::new(shape.into(), dtype, space).map(Self::Leaf)
    }

    /// Accepts 0 or 1 in each element.
    ///
    /// # Errors
    /// `LimitExceeded` if `shape` has too many dimensions.
    pub fn binary(shape: impl Into<Shape>, dtype: Dtype) -> Result<Self> {
        let space = discrete(Class::Binary, counts_of(&[2])?, None);
        Leaf::new(shape.into(), dtype, space).map(Self::Leaf)
    }

    /// Returns the dimensions of a value; those of a dictionary are its batch size.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self {
            Self::Leaf(leaf) => leaf.shape.clone(),
            Self::NonTensor(spec) => spec.shape().clone(),
            Self::Choice(choice) => choice.shape(),
            Self::Composite(composite) => composite.shape().clone(),
            Self::Stacked(stacked) => stacked.shape(),
        }
    }

    /// Returns the element type; `None` for dictionaries and JSON values.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        match self {
            Self::Leaf(leaf) => Some(leaf.dtype),
            Self::NonTensor(_) | Self::Composite(_) => None,
            Self::Choice(choice) => choice.dtype(),
            Self::Stacked(stacked) => stacked.specs()[0].dtype(),
        }
    }

    /// Returns the name of the class: `"Bounded"`, `"Composite"`, ...
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Leaf(leaf) => leaf.kind(),
            Self::NonTensor(_) => "NonTensor",
            Self::Choice(_) => "Choice",
            Self::Composite(_) => "Composite",
            Self::Stacked(stacked) if matches!(stacked.specs()[0], Self::Composite(_)) => "StackedComposite",
            Self::Stacked(_) => "Stacked",
        }
    }

    /// Returns whether `value` matches this spec. Dimensions before those of the spec are a batch; additional
    /// keys of a dictionary are allowed.
    #[must_use]
    pub fn contains(&self, value: &Entry) -> bool {
        self.check(value).is_ok()
    }

    /// Checks `value`; the error names the key of the leaf first.
    ///
    /// # Errors
    /// `ShapeMismatch`; `Incompatible` for another dtype or kind; `UnknownName` for a missing key;
    /// `OutOfRange` for a number outside the domain; `NonFinite` for NaN.
    pub fn check(&self, value: &Entry) -> Result<()> {
        match self {
            Self::Leaf(leaf) => leaf.check(tensor(value)?),
            Self::NonTensor(spec) => spec.check(value),
            Self::Choice(choice) => choice.check(value),
            Self::Composite(composite) => composite.check(value),
            Self::Stacked(stacked) => stacked.check(value),
        }
    }

    /// Runs [`TensorSpec::check`] and also refuses keys that the spec does not have.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::check`]; `UnknownName` for an additional key.
    ///
    /// # Examples
    /// ```
    /// use fulmar_spec::{Composite, TensorSpec};
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let spec = TensorSpec::from(Composite::new([])?);
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("extra", Tensor::from_vec(&[], vec![1_u8])?)?;
    /// let value = dict.into();
    /// assert!(spec.check(&value).is_ok());
    /// assert_eq!(spec.check_strict(&value).unwrap_err().detail(), r#"value must have no key "extra": got one"#);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn check_strict(&self, value: &Entry) -> Result<()> {
        self.check(value)?;
        self.check_no_more(value)
    }

    /// Refuses keys that the spec does not have, and checks nothing else.
    pub(crate) fn check_no_more(&self, value: &Entry) -> Result<()> {
        match (self, value) {
            (Self::Composite(composite), Entry::Dict(dict)) => composite.check_no_more(dict),
            (Self::Stacked(stacked), _) => {
                stacked.specs().iter().try_for_each(|spec| spec.check_no_more(value))
            }
            _ => Ok(()),
        }
    }

    /// Returns the value of this spec nearest to `value`: clamped, rounded to even, the largest element of a
    /// one-hot block (ties by the first). NaN becomes the middle of the bounds. Deterministic; a valid value
    /// is unchanged.
    ///
    /// # Errors
    /// `ShapeMismatch`, `Incompatible` or `UnknownName` if shape, kind or keys differ from those of the spec.
    pub fn project(&self, value: &Entry) -> Result<Entry> {
        match self {
            Self::Leaf(leaf) => leaf.project(tensor(value)?).map(Entry::Tensor),
            Self::NonTensor(spec) => spec.check(value).map(|()| value.clone()),
            Self::Choice(choice) => choice.project(value),
            Self::Composite(composite) => composite.project(value),
            Self::Stacked(stacked) => stacked.project(value),
        }
    }

    /// Draws a value with `batch` before the shape of the spec; dynamic dimensions have length 1. Bounded
    /// integers are uniform, the bounds included; unbounded floats are normal.
    ///
    /// # Errors
    /// `LimitExceeded` if the value would have more elements than
    /// [`SPEC_ELEMENTS_MAX`](fulmar_core::limits::SPEC_ELEMENTS_MAX); `Incompatible` if stacked specs make
    /// values that no tensor can hold.
    pub fn rand(&self, rng: &mut Rng, batch: &[usize]) -> Result<Entry> {
        match self {
            Self::Leaf(leaf) => leaf.rand(rng, batch).map(Entry::Tensor),
            Self::NonTensor(spec) => spec.example(batch),
            Self::Choice(choice) => choice.rand(rng, batch),
            Self::Composite(composite) => composite.build(batch, &mut |spec| spec.rand(rng, batch)),
            Self::Stacked(stacked) => stacked.build(batch, &mut |spec| spec.rand(rng, batch)),
        }
    }

    /// Returns zeros with `batch` before the shape of the spec. They need not be in the domain.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::rand`].
    pub fn zero(&self, batch: &[usize]) -> Result<Entry> {
        self.full(batch, 0)
    }

    /// Returns ones with `batch` before the shape of the spec. They need not be in the domain.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::rand`].
    pub fn one(&self, batch: &[usize]) -> Result<Entry> {
        self.full(batch, 1)
    }

    fn full(&self, batch: &[usize], number: i64) -> Result<Entry> {
        match self {
            Self::Leaf(leaf) => leaf.full(batch, number).map(Entry::Tensor),
            Self::NonTensor(spec) => spec.example(batch),
            Self::Choice(choice) => choice.first(&|spec| spec.full(batch, number)),
            Self::Composite(composite) => composite.build(batch, &mut |spec| spec.full(batch, number)),
            Self::Stacked(stacked) => stacked.build(batch, &mut |spec| spec.full(batch, number)),
        }
    }

    /// Sets the allowed values, `true` for allowed; `None` allows all. `mask` is broadcast to the shape of
    /// the spec, with all values of a cell in its last dimension.
    ///
    /// # Errors
    /// `Incompatible` if the spec has no choices; `ShapeMismatch` if `mask` does not match; `Empty` if it
    /// allows no value somewhere.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// use fulmar_tensor::Tensor;
    /// let mut action = TensorSpec::categorical(3, [], Dtype::I64)?;
    /// action.update_mask(Some(Tensor::from_vec(&[3], vec![false, true, true])?))?;
    /// let zero = Tensor::from_vec(&[], vec![0_i64])?.into();
    /// assert_eq!(action.project(&zero)?, Tensor::from_vec(&[], vec![1_i64])?.into());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn update_mask(&mut self, mask: Option<Tensor>) -> Result<()> {
        let Self::Leaf(Leaf { shape, dtype, space: Space::Discrete(old) }) = self else {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("a masked spec must be discrete: got {}", self.kind()),
            ));
        };
        if old.class == Class::Binary {
            return Err(Error::new(
                ErrorKind::Incompatible,
                "a masked spec must not be Binary: use Categorical of 2",
            ));
        }
        *self = Self::Leaf(Leaf::new(shape.clone(), *dtype, discrete(old.class, old.counts.clone(), mask))?);
        Ok(())
    }

    /// Returns the mask, broadcast to the shape of the spec; `None` if all values are allowed.
    #[must_use]
    pub fn mask(&self) -> Option<&Tensor> {
        match self {
            Self::Leaf(Leaf { space: Space::Discrete(discrete), .. }) => discrete.mask.as_ref(),
            _ => None,
        }
    }

    /// Returns the least and the largest value, both included, broadcast to the shape of the spec; `None`
    /// unless it is `Bounded`.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// let spec = TensorSpec::bounded(-1.0, 1.0, [2], Dtype::F32)?;
    /// let bounds = spec.bounds().map(|(low, high)| (low.to_f32_vec(), high.to_f32_vec()));
    /// assert_eq!(bounds, Some((vec![-1.0], vec![1.0])));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn bounds(&self) -> Option<(&Tensor, &Tensor)> {
        match self {
            Self::Leaf(Leaf { space: Space::Bounded { low, high }, .. }) => Some((low, high)),
            _ => None,
        }
    }

    /// Returns the number of values of each choice of a cell, 64-bit integers broadcast to the shape of the
    /// spec; `None` unless it is discrete.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// let spec = TensorSpec::multi_categorical(&[2, 3], [4, 2], Dtype::I64)?;
    /// assert_eq!(spec.nvec().map(|nvec| nvec.to_vec::<i64>()), Some(Ok(vec![2, 3])));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn nvec(&self) -> Option<&Tensor> {
        match self {
            Self::Leaf(Leaf { space: Space::Discrete(discrete), .. }) => Some(&discrete.counts),
            _ => None,
        }
    }

    /// Converts the spec to another dtype, leaf by leaf; bounds are rounded.
    ///
    /// # Errors
    /// `OutOfRange` if a bound becomes NaN in `dtype`, or it would round an index.
    pub fn to_dtype(&self, dtype: Dtype) -> Result<Self> {
        match self {
            Self::Leaf(leaf) => leaf.to_dtype(dtype).map(Self::Leaf),
            Self::NonTensor(spec) => Ok(Self::NonTensor(spec.clone())),
            Self::Choice(choice) => choice.map(|spec| spec.to_dtype(dtype)).map(Self::Choice),
            Self::Composite(composite) => composite.map(|spec| spec.to_dtype(dtype)).map(Self::Composite),
            Self::Stacked(stacked) => stacked.map(|spec| spec.to_dtype(dtype)).map(Self::Stacked),
        }
    }

    /// Parses a spec from JSON text.
    ///
    /// # Errors
    /// `UnknownName` for an unknown key or type; `Malformed` for text of another form; the errors of the
    /// spec's constructor.
    pub fn from_json(json: &str) -> Result<Self> {
        fulmar_core::options_from_json::<Form>("spec", json)?.try_into()
    }

    /// Returns the spec as JSON, which [`TensorSpec::from_json`] reads.
    ///
    /// # Examples
    /// ```
    /// use fulmar_spec::TensorSpec;
    /// let json = r#"{"type":"Categorical","shape":[2],"dtype":"i64","n":3}"#;
    /// assert_eq!(TensorSpec::from_json(json)?.to_json().to_string(), json);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the nesting depth of specs, this one included.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::Leaf(_) | Self::NonTensor(_) => 1,
            Self::Choice(choice) => 1 + choice.depth(),
            Self::Composite(composite) => 1 + composite.depth(),
            Self::Stacked(stacked) => 1 + stacked.specs().iter().map(Self::depth).max().unwrap_or(0),
        }
    }
}

/// Returns `value` as a tensor, or an error.
pub(crate) fn tensor(value: &Entry) -> Result<&Tensor> {
    match value {
        Entry::Tensor(tensor) => Ok(tensor),
        other => {
            Err(Error::new(ErrorKind::Incompatible, format!("value must be a tensor: got {}", other.kind())))
        }
    }
}
