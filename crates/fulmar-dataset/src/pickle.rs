//! Pickles of plain values and NumPy arrays, read without calling anything.
//!
//! A pickle is a program for a machine with a stack. This machine makes numbers, texts, bytes, lists, tuples and
//! dictionaries, and the arrays of NumPy. Other objects need a function or a class by name, a global; all but those that make
//! arrays are refused by their names. Values are in one flat list and point to each other by position, so neither reading nor
//! dropping recurses. Long bytes are borrowed from the input.

mod array;
mod escapes;
mod global;
mod input;
mod machine;
mod tree;

use std::borrow::Cow;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::Tensor;
use indexmap::IndexMap;

use self::array::{Array, ArrayDtype};
use self::global::Global;

/// The values of a pickle of protocol 0 to 5.
#[derive(Debug)]
pub struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: usize,
}

/// A value; values inside are positions in the list of all.
#[derive(Debug)]
enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    List(Vec<usize>),
    Tuple(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    Global(Global),
    Dtype(ArrayDtype),
    Array(Box<Array>),
}

impl<'a> Pickle<'a> {
    /// Reads a pickle. Memory is bounded by the length of `bytes`, and by [`PICKLE_VALUES_MAX`].
    ///
    /// # Errors
    /// `Forbidden`, with its name, for a global that does not make arrays, and for objects of classes; `LimitExceeded` for more than
    /// [`PICKLE_VALUES_MAX`] values or more than [`PICKLE_DEPTH_MAX`] values inside each other; `Corrupt` for bytes that are not a
    /// whole pickle, and for a value inside itself; `Incompatible` for integers of more than 64 bits and arrays of another dtype than
    /// tensors have.
    ///
    /// # Examples
    /// ```
    /// use fulmar_dataset::Pickle;
    /// let pickle = Pickle::read(b"\x80\x04}\x8c\x01aK\x07s.")?; // {"a": 7}
    /// assert_eq!(pickle.root().entries()?["a"].as_int(), Some(7));
    /// let error = Pickle::read(b"cos\ngetenv\n.").unwrap_err();
    /// assert!(error.to_string().contains("os.getenv"));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    ///
    /// [`PICKLE_VALUES_MAX`]: fulmar_core::limits::PICKLE_VALUES_MAX
    /// [`PICKLE_DEPTH_MAX`]: fulmar_core::limits::PICKLE_DEPTH_MAX
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let pickle = machine::run(bytes)?;
        tree::check(&pickle.values, pickle.root)?;
        Ok(pickle)
    }

    /// Returns the value of the whole pickle.
    #[must_use]
    pub fn root(&self) -> PickleItem<'_> {
        PickleItem { values: &self.values, at: self.root }
    }
}

/// A value of a [`Pickle`].
#[derive(Debug, Clone, Copy)]
pub struct PickleItem<'p> {
    values: &'p [Value<'p>],
    at: usize,
}

impl<'p> PickleItem<'p> {
    /// Returns the kind of the value, for messages.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self.value() {
            Value::None => "None",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Global(_) => "function",
            Value::Dtype(_) => "dtype",
            Value::Array(_) => "array",
        }
    }

    /// Returns true for `None`.
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self.value(), Value::None)
    }

    /// Returns a bool.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        if let Value::Bool(value) = self.value() { Some(*value) } else { None }
    }

    /// Returns an integer.
    #[must_use]
    pub fn as_int(self) -> Option<i64> {
        if let Value::Int(value) = self.value() { Some(*value) } else { None }
    }

    /// Returns a number with a fraction.
    #[must_use]
    pub fn as_float(self) -> Option<f64> {
        if let Value::Float(value) = self.value() { Some(*value) } else { None }
    }

    /// Returns a text.
    #[must_use]
    pub fn as_text(self) -> Option<&'p str> {
        if let Value::Text(text) = self.value() { Some(text) } else { None }
    }

    /// Returns bytes.
    #[must_use]
    pub fn as_bytes(self) -> Option<&'p [u8]> {
        if let Value::Bytes(bytes) = self.value() { Some(bytes) } else { None }
    }

    /// Returns the items of a list, a tuple or an array of objects.
    #[must_use]
    pub fn items(self) -> Option<impl ExactSizeIterator<Item = PickleItem<'p>>> {
        let items = match self.value() {
            Value::List(items) | Value::Tuple(items) => items,
            Value::Array(array) => array.objects(self.values)?,
            _ => return None,
        };
        Some(items.iter().map(move |at| PickleItem { at: *at, ..self }))
    }

    /// Returns the entries of a dictionary in order; of several with the same key, the last.
    ///
    /// # Errors
    /// `Incompatible` for another value, and for keys that are not texts.
    pub fn entries(self) -> Result<IndexMap<&'p str, PickleItem<'p>>> {
        let Value::Dict(entries) = self.value() else {
            let detail = format!("must be a dictionary: got a value of kind {}", self.kind());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        let mut named = IndexMap::with_capacity(entries.len());
        for (key, value) in entries {
            let key = PickleItem { at: *key, ..self };
            let Some(text) = key.as_text() else {
                let detail = format!("keys must be texts: got a value of kind {}", key.kind());
                return Err(Error::new(ErrorKind::Incompatible, detail));
            };
            named.insert(text, PickleItem { at: *value, ..self });
        }
        Ok(named)
    }

    /// Returns an array of numbers as a tensor; `None` for another value. Copies.
    ///
    /// # Errors
    /// `Corrupt`, with both numbers, if the array's bytes are more or fewer than its shape has; `Incompatible` for an array of
    /// objects; `OutOfMemory`.
    pub fn to_tensor(self) -> Result<Option<Tensor>> {
        match self.value() {
            Value::Array(array) => array.to_tensor(self.values).map(Some),
            _ => Ok(None),
        }
    }

    fn value(self) -> &'p Value<'p> {
        &self.values[self.at]
    }
}
