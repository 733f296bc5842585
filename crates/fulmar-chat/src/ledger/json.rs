//! The JSON form of a ledger: for logs, and for programs that know no Fulmar.

use fulmar_core::{Error, ErrorKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Ledger;
use super::form::{Form, KIND, check_version};
use crate::Result;

/// What every version of the form holds, whatever else it does.
#[derive(Deserialize)]
struct Head {
    version: u32,
    kind: String,
}

impl Ledger {
    /// The whole ledger as JSON, with a version number. Log-probabilities come back bit for bit.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Fails only for maps with keys that are no text, and there are no maps.
        serde_json::to_string(&Form::from(self)).unwrap_or_default()
    }

    /// Reads what [`Ledger::to_json`] wrote, in this version of Fulmar or an earlier one.
    ///
    /// # Errors
    /// `Malformed` if `text` is not that form, contradicts itself or holds a log-probability beyond `f32`;
    /// `ShapeMismatch` if the log-probabilities differ in number; `Incompatible` if its kind or version is another;
    /// `LimitExceeded` as [`Ledger::record_turn`].
    pub fn from_json(text: &str) -> Result<Self> {
        let Head { version, kind } = read(text)?;
        if kind != KIND {
            let detail = format!("ledger JSON must be of kind {KIND:?}: got kind {kind:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        check_version("ledger JSON", version)?;
        read::<Form>(text)?.into_ledger()
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::Malformed, format!("ledger JSON must be of its documented form: got {error}"))
    })
}
