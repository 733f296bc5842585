//! Options that arrive as JSON text.

use serde::de::DeserializeOwned;

use crate::{Error, ErrorKind, Result};

/// The options that `json` holds; `name` is the argument for the message.
///
/// # Errors
/// `UnknownName` for a key or a value outside a closed set, `Malformed` for text that is not of the documented form.
///
/// # Examples
/// ```
/// let sizes: Vec<u32> = fulmar_core::options_from_json("sizes", "[1, 2]")?;
/// assert_eq!(sizes, [1, 2]);
/// let error = fulmar_core::options_from_json::<Vec<u32>>("sizes", "{}").unwrap_err();
/// assert!(error.detail().starts_with("sizes must be of the documented form"));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn options_from_json<T: DeserializeOwned>(name: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        let text = error.to_string();
        let unknown = ["unknown field", "unknown variant"].iter().any(|start| text.starts_with(start));
        let kind = if unknown { ErrorKind::UnknownName } else { ErrorKind::Malformed };
        Error::new(kind, format!("{name} must be of the documented form: got {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sizes {
        width: u32,
    }

    #[test]
    fn unknown_keys_and_bad_values_are_told_apart() {
        assert_eq!(options_from_json::<Sizes>("sizes", r#"{"width": 3}"#), Ok(Sizes { width: 3 }));
        let kind = |json: &str| options_from_json::<Sizes>("sizes", json).unwrap_err().kind();
        assert_eq!(kind(r#"{"width": 3, "hight": 4}"#), ErrorKind::UnknownName);
        assert_eq!(kind(r#"{"width": -3}"#), ErrorKind::Malformed);
        assert_eq!(kind("{"), ErrorKind::Malformed);
    }
}
