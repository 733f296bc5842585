//! The JSON format of a ledger: for logs, and for other programs.

use fulmar_core::{Error, ErrorKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Ledger;
use super::form::{Form, KIND, check_version};
use crate::Result;

/// The fields that every version of the format has.
#[derive(Deserialize)]
struct Head {
    version: u32,
    kind: String,
}

impl Ledger {
    /// Returns the whole ledger as JSON, with a version number. Log-probabilities are restored to the bit.
    #[must_use]
    pub fn to_json(&self) -> String {
        // This fails only for maps with keys that are not text, and there are no maps.
        serde_json::to_string(&Form::from(self)).unwrap_or_default()
    }

    /// Reads the output of [`Ledger::to_json`], of this version of Fulmar or an earlier one.
    ///
    /// # Errors
    /// `Malformed` if `text` does not have that form, is inconsistent or has a log-probability beyond `f32`;
    /// `ShapeMismatch` if the number of log-probabilities differs; `Incompatible` for another kind or
    /// version; `LimitExceeded` as for [`Ledger::record_turn`].
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
            .because(error)
    })
}
