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
    /// How many tokens.
    pub length: usize,
    /// Where they came from.
    pub origin: Origin,
    /// The message that they belong to; -1 for none.
    pub message_index: i32,
    /// The turn that they were recorded with.
    pub turn: usize,
    /// The weights that sampled them; on sampled runs and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<VersionRange>,
    /// Where the run begins among the ledger's ids.
    #[serde(skip)]
    pub(super) start: usize,
    /// Where it begins, or would begin, among the ledger's log-probabilities.
    #[serde(skip)]
    pub(super) sampled_start: usize,
}

impl Segment {
    /// Where the log-probabilities after this run begin.
    pub(super) fn sampled_end(&self) -> usize {
        self.sampled_start + if self.origin == Origin::Sampled { self.length } else { 0 }
    }
}

/// A line of tokens that continues from its fork to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Branch {
    /// Where it left another branch; `None` for the root.
    pub fork: Option<Fork>,
    /// The turn that opened it.
    pub turn: usize,
    /// How many tokens its path has, the shared ones included.
    pub(super) len: usize,
    pub(super) segments: Vec<usize>,
    pub(super) children: Vec<usize>,
}

/// A place where the token tree branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fork {
    /// The branch that was left.
    pub branch: usize,
    /// How many tokens of its path the new branch shares.
    pub position: usize,
    /// Why.
    pub reason: BranchReason,
}

/// Why tokens stopped being the beginning of what follows.
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
    /// An answer was drawn again from the same place.
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

    /// The index in [`BranchReason::ALL`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reasons with these codes.
    pub(super) fn from_codes(codes: &[u8]) -> Result<Vec<Self>> {
        let read = |&code: &u8| {
            let detail = || format!("reasons must be codes from 0 to 5: got {code}");
            let reason = Self::ALL.get(usize::from(code)).copied();
            reason.ok_or_else(|| Error::new(ErrorKind::OutOfRange, detail()))
        };
        codes.iter().map(read).collect()
    }
}

/// What a refusal says of the branch that follows it.
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

/// What is known of the weights behind the tokens of one completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions<'a> {
    /// The version of each token. Shape `[T]`.
    Each(&'a [u32]),
    /// One range for all tokens.
    Within(VersionRange),
}

impl Versions<'_> {
    /// The same version for all tokens.
    #[must_use]
    pub const fn one(version: u32) -> Self {
        Self::Within(VersionRange { min: version, max: version })
    }

    /// The range of token `t`, which must exist.
    pub(super) fn at(&self, t: usize) -> VersionRange {
        match self {
            Self::Each(versions) => VersionRange { min: versions[t], max: versions[t] },
            Self::Within(range) => *range,
        }
    }
}
