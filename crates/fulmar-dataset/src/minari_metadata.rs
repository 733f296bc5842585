//! `metadata.json` of a Minari data set.

use fulmar_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

use crate::rows::named;

/// The fields of `metadata.json`, with the texts of JSON in it read.
#[derive(Debug, Clone, PartialEq)]
pub struct MinariMetadata {
    fields: Map<String, Value>,
    /// Number of episodes.
    pub total_episodes: usize,
    /// Number of steps of all episodes.
    pub total_steps: usize,
}

/// Fields that are JSON in a text.
const TEXTS: [&str; 4] = ["env_spec", "eval_env_spec", "observation_space", "action_space"];

impl MinariMetadata {
    /// Reads the text of a `metadata.json`.
    ///
    /// # Errors
    /// `Malformed` if it is not JSON or not an object, or with the key, if a field has another type; `UnknownName`,
    /// with the key, if a space or a number is missing; `Incompatible` if the data are not in HDF5.
    ///
    /// # Examples
    /// ```
    /// use fulmar_dataset::MinariMetadata;
    /// let text = r#"{ "total_episodes": 2, "total_steps": 9, "observation_space": "{\"type\": \"Box\"}",
    ///                 "action_space": "{\"type\": \"Discrete\", \"n\": 2}" }"#;
    /// let metadata = MinariMetadata::parse(text)?;
    /// assert_eq!(metadata.total_steps, 9);
    /// assert_eq!(metadata.to_json()["action_space"]["n"], 2);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let mut fields: Map<String, Value> = serde_json::from_str(&standard_json(text))
            .map_err(|error| malformed(&format!("must be an object of JSON: got {error}")).because(error))?;
        for name in TEXTS {
            let Some(value) = fields.get_mut(name) else { continue };
            if let Value::String(text) = value {
                let inner = serde_json::from_str(&standard_json(text)).map_err(|error| {
                    named(malformed(&format!("must be a text of JSON: got {error}")), name)
                })?;
                *value = inner;
            }
        }
        for name in ["observation_space", "action_space"] {
            if !fields.get(name).is_some_and(Value::is_object) {
                let detail = "must be the description of a space: there is none";
                return Err(named(Error::new(ErrorKind::UnknownName, detail), name));
            }
        }
        match fields.get("data_format").map(|format| format.as_str()) {
            None | Some(Some("hdf5")) => {}
            Some(other) => {
                let detail = format!("must be \"hdf5\": got {other:?}");
                return Err(named(Error::new(ErrorKind::Incompatible, detail), "data_format"));
            }
        }
        let count = |name: &str| {
            let count =
                fields.get(name).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| {
                let got = fields.get(name).cloned().unwrap_or_default();
                named(malformed(&format!("must be a number of rows: got {got}")), name)
            })
        };
        let (total_episodes, total_steps) = (count("total_episodes")?, count("total_steps")?);
        Ok(Self { fields, total_episodes, total_steps })
    }

    /// Returns all fields; spaces and specs of environments are objects.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.fields.clone())
    }
}

/// Returns the text with the numbers that Python writes and JSON lacks, `NaN` and `Infinity`, as strings.
fn standard_json(text: &str) -> String {
    let mut standard = String::with_capacity(text.len());
    let (mut rest, mut is_string) = (text, false);
    while let Some(first) = rest.chars().next() {
        let word =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !is_string && rest.starts_with(*word));
        // The character behind a backslash ends no string.
        let taken = match (word, first) {
            (Some(word), _) => word.len(),
            (None, '\\') => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, other) => other.len_utf8(),
        };
        is_string ^= first == '"';
        let part = &rest[..taken];
        if word.is_some() {
            standard.extend(["\"", part, "\""]);
        } else {
            standard.push_str(part);
        }
        rest = &rest[taken..];
    }
    standard
}

fn malformed(detail: &str) -> Error {
    Error::new(ErrorKind::Malformed, detail)
}
