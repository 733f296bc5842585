//! The name of an entry of a tensor dictionary: one name, or a path of them.

use std::fmt;

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A path of names. `"a"` is one name, `["a", "b"]` the entry `b` of the dictionary `a`; a dot in a name has
/// no meaning.
///
/// # Examples
/// ```
/// use fulmar_tensor::Key;
/// assert_eq!(Key::from(["next", "reward"]).to_string(), r#"["next", "reward"]"#);
/// assert_eq!(Key::from("next.reward").to_string(), r#""next.reward""#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Vec<String>);

impl Key {
    /// Returns the names, outermost first.
    #[must_use]
    pub fn path(&self) -> &[String] {
        &self.0
    }

    /// Returns the key of a name or of a list of names, nested to any depth.
    ///
    /// # Errors
    /// `Malformed` if it holds anything else; `LimitExceeded` with more than [`TENSOR_DICT_DEPTH_MAX`] names
    /// or nested lists.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Key;
    /// use serde_json::json;
    /// assert_eq!(Key::unravel(&json!(["a", ["b", ["c"]]]))?, Key::from(["a", "b", "c"]));
    /// assert!(Key::unravel(&json!(["a", 3])).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn unravel(nested: &Value) -> Result<Self> {
        let mut path = Vec::new();
        gather(nested, 0, &mut path)?;
        Ok(Self(path))
    }

    /// Returns all names but the last, and the last.
    ///
    /// # Errors
    /// `Empty` without a name; `LimitExceeded` with more than [`TENSOR_DICT_DEPTH_MAX`].
    pub(crate) fn split(&self) -> Result<(&[String], &str)> {
        if self.0.len() > TENSOR_DICT_DEPTH_MAX {
            let detail = format!("key must have at most {TENSOR_DICT_DEPTH_MAX} names: got {}", self.0.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        match self.0.split_last() {
            Some((last, parents)) => Ok((parents, last)),
            None => Err(Error::new(ErrorKind::Empty, "key must have at least one name: got 0")),
        }
    }

    /// Returns this key below `parent`.
    pub(crate) fn below(mut self, parent: &str) -> Self {
        self.0.insert(0, parent.to_owned());
        self
    }
}

/// Appends the names in `nested` to `path`.
fn gather(nested: &Value, depth: usize, path: &mut Vec<String>) -> Result<()> {
    let is_name = nested.is_string();
    if depth > TENSOR_DICT_DEPTH_MAX || (is_name && path.len() == TENSOR_DICT_DEPTH_MAX) {
        let detail = format!("key must have at most {TENSOR_DICT_DEPTH_MAX} names or nested lists");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    match nested {
        Value::String(name) => path.push(name.clone()),
        Value::Array(parts) => parts.iter().try_for_each(|part| gather(part, depth + 1, path))?,
        other => {
            let detail = format!("key must be names and lists of them: got {other}");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
    }
    Ok(())
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl<const N: usize> From<[&str; N]> for Key {
    fn from(path: [&str; N]) -> Self {
        Self(path.map(str::to_owned).to_vec())
    }
}

impl From<Vec<String>> for Key {
    fn from(path: Vec<String>) -> Self {
        Self(path)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [name] => write!(f, "{name:?}"),
            path => write!(f, "{path:?}"),
        }
    }
}
