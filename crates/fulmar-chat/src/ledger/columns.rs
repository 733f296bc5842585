//! A turn across a language boundary: typed arrays, and the small rest as JSON.

use fulmar_core::{Error, ErrorKind};
use serde::Deserialize;

use super::{Attribution, BranchReason, Ledger, RecordedTurn, Turn, VersionRange, Versions};
use crate::{BridgeRefusal, Origin, Result};

/// The columns of a [`Turn`].
#[derive(Debug, Clone, Copy, Default)]
pub struct TurnColumns<'a> {
    /// See [`Turn::prompt_ids`].
    pub prompt_ids: &'a [u32],
    /// See [`Turn::completion_ids`].
    pub completion_ids: &'a [u32],
    /// See [`Turn::log_probs`].
    pub log_probs: &'a [f32],
    /// See [`Turn::sampled_log_probs`].
    pub sampled_log_probs: &'a [f32],
    /// See [`Versions::Each`].
    pub versions: Option<&'a [u32]>,
    /// The code of each [`Attribution::origin`]; given together with `message_indices`.
    pub origins: Option<&'a [u8]>,
    /// See [`Attribution::message_index`]; given together with `origins`.
    pub message_indices: Option<&'a [i32]>,
}

/// The other fields of a [`Turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TurnOptions {
    /// See [`Attribution::message_offset`].
    pub message_offset: u32,
    /// See [`Turn::branch_reason`].
    pub branch_reason: Option<BranchReason>,
    /// The reason why the renderer refused to bridge, used if there is no `branch_reason`.
    pub bridge_refusal: Option<BridgeRefusal>,
    /// See [`Versions::Within`]; used without a version for each token.
    pub policy_version: Option<VersionRange>,
}

impl Ledger {
    /// Runs [`Ledger::record_turn`] with columns.
    ///
    /// # Errors
    /// `Malformed` unless exactly one of the two forms of versions is given, or for origins or message
    /// indices without the other; `OutOfRange` for an unknown code of an origin; the errors of
    /// [`Ledger::record_turn`].
    pub fn record_columns(
        &mut self,
        columns: &TurnColumns<'_>,
        options: &TurnOptions,
    ) -> Result<RecordedTurn> {
        let origin = columns.origins.map(Origin::from_codes).transpose()?;
        let attribution = match (&origin, columns.message_indices) {
            (None, None) => None,
            (Some(origin), Some(message_index)) => {
                Some(Attribution { origin, message_index, message_offset: options.message_offset })
            }
            _ => {
                return Err(malformed(
                    "origins and message_indices must come together, but only one of them was given",
                ));
            }
        };
        self.record_turn(&Turn {
            prompt_ids: columns.prompt_ids,
            completion_ids: columns.completion_ids,
            log_probs: columns.log_probs,
            sampled_log_probs: columns.sampled_log_probs,
            versions: versions(columns.versions, options.policy_version)?,
            attribution,
            branch_reason: options.branch_reason.or(options.bridge_refusal.map(Into::into)),
        })
    }
}

fn versions(each: Option<&[u32]>, range: Option<VersionRange>) -> Result<Versions<'_>> {
    match (each, range) {
        (Some(each), None) => Ok(Versions::Each(each)),
        (None, Some(range)) => Ok(Versions::Within(range)),
        (Some(_), Some(_)) => {
            Err(malformed("policy_version must be one range or one version a token, but both were given"))
        }
        (None, None) => {
            Err(malformed("policy_version must be given, as one range or as one version a token"))
        }
    }
}

fn malformed(detail: &str) -> Error {
    Error::new(ErrorKind::Malformed, detail)
}
