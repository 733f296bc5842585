//! The name of an entry of a tensor dictionary: one name, or a path of them.

use std::fmt;

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// A path of names. `"a"` is one name, `["a", "b"]` the entry `b` of the dictionary `a`; a dot in a name means nothing.
///
/// # Examples
/// ```
/// use fulmar_tensor::Key;
/// assert_eq!(Key::from(["next", "reward"]).to_string(), r#"["next", "reward"]"#);
/// assert_eq!(Key::from("next.reward").to_string(), r#""next.reward""#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Vec<String>);

impl Key {
    /// The names, outermost first.
    #[must_use]
    pub fn path(&self) -> &[String] {
        &self.0
    }

    /// All names but the last, and the last.
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
            None => Err(Error::new(ErrorKind::Empty, "key must have at least one name: got none")),
        }
    }

    /// This key below `parent`.
    pub(crate) fn below(mut self, parent: &str) -> Self {
        self.0.insert(0, parent.to_owned());
        self
    }
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
