//! The parts of a ledger: runs of tokens, branches, and the versions of the weights that sampled them.

use fulmar_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::{BridgeRefusal, Origin, Result};

/// A run of tokens of one branch with one origin, message, turn and weight version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Segment {
    /// The branch that owns the run.
    pub branch: usize,
    /// Number of tokens.
    pub length: usize,
    /// Origin of the tokens.
    pub origin: Origin,
    /// The message of the tokens; -1 for none.
    pub message_index: i32,
    /// The turn that recorded them.
    pub turn: usize,
    /// The weights that sampled them; only for sampled runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<VersionRange>,
    /// Index of the run's first token among the ledger's ids.
    #[serde(skip)]
    pub(super) start: usize,
    /// Index of its first log-probability, or of the next one if it has none.
    #[serde(skip)]
    pub(super) sampled_start: usize,
}

impl Segment {
    /// Returns the index of the first log-probability after this run.
    pub(super) fn sampled_end(&self) -> usize {
        self.sampled_start + if self.origin == Origin::Sampled { self.length } else { 0 }
    }
}

/// A line of tokens from its fork to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Branch {
    /// Its fork from another branch; `None` for the root.
    pub fork: Option<Fork>,
    /// The turn that opened it.
    pub turn: usize,
    /// Number of tokens in its path, shared ones included.
    pub(super) len: usize,
    pub(super) segments: Vec<usize>,
    pub(super) children: Vec<usize>,
}

/// A fork of the token tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fork {
    /// The branch that was left.
    pub branch: usize,
    /// Number of tokens of its path that the new branch shares.
    pub position: usize,
    /// The reason of the fork.
    pub reason: BranchReason,
}

/// The reason why earlier tokens are not a prefix of the next prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BranchReason {
    /// An earlier part of the conversation reads differently now.
    HistoryEdit,
    /// The conversation was summarised or cut to save room.
    Compaction,
    /// The template drops old reasoning.
    Retention,
    /// The template is opaque, so the conversation was rendered again.
    Opaque,
    /// The renderer refused to bridge for another reason.
    BridgeRefused,
    /// An answer was sampled again from the same place.
    Resample,
}

impl BranchReason {
    /// Every reason; the index is its code in the binary form.
    pub const ALL: [Self; 6] = [
        Self::HistoryEdit,
        Self::Compaction,
        Self::Retention,
        Self::Opaque,
        Self::BridgeRefused,
        Self::Resample,
    ];

    /// Returns the index in [`BranchReason::ALL`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the reasons of these codes.
    pub(super) fn from_codes(codes: &[u8]) -> Result<Vec<Self>> {
        let read = |&code: &u8| {
            let detail = || format!("reasons must be codes from 0 to 5: got {code}");
            let reason = Self::ALL.get(usize::from(code)).copied();
            reason.ok_or_else(|| Error::new(ErrorKind::OutOfRange, detail()))
        };
        codes.iter().map(read).collect()
    }
}

/// The reason of the branch after a refusal.
impl From<BridgeRefusal> for BranchReason {
    fn from(refusal: BridgeRefusal) -> Self {
        match refusal {
            BridgeRefusal::UserQueryUnderToolCycle => Self::Retention,
            BridgeRefusal::OpaqueTemplate => Self::Opaque,
            _ => Self::BridgeRefused,
        }
    }
}

/// The oldest and the newest weights that may have sampled a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VersionRange {
    /// The oldest.
    pub min: u32,
    /// The newest, at least `min`.
    pub max: u32,
}

/// The weight versions of the tokens of one completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions<'a> {
    /// The version of each token. Shape `[T]`.
    Each(&'a [u32]),
    /// One range for all tokens.
    Within(VersionRange),
}

impl Versions<'_> {
    /// Returns the same version for all tokens.
    #[must_use]
    pub const fn one(version: u32) -> Self {
        Self::Within(VersionRange { min: version, max: version })
    }

    /// Returns the range of token `t`, which must exist.
    pub(super) fn at(&self, t: usize) -> VersionRange {
        match self {
            Self::Each(versions) => VersionRange { min: versions[t], max: versions[t] },
            Self::Within(range) => *range,
        }
    }
}
