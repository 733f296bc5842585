//! The stored content of a ledger, whatever the format, and its checks. Reading replays the segments, so a
//! file cannot produce a state that recording could not.

use fulmar_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::turn::{check_finite, check_length, check_range};
use super::{Branch, Fork, Ledger, Segment, check_num_forks, check_num_tokens};
use crate::{Origin, Result};

/// The version of the written format. Raised when older readers would misread it.
pub(super) const VERSION: u32 = 1;
/// The `kind` of the stored form.
pub(super) const KIND: &str = "ledger";

/// The columns of a ledger. `T` tokens, `L` of them sampled.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Form {
    pub(super) version: u32,
    pub(super) kind: String,
    pub(super) num_turns: usize,
    pub(super) current: usize,
    pub(super) branches: Vec<StoredBranch>,
    pub(super) segments: Vec<Segment>,
    /// `[T]`, in the order of the segments.
    pub(super) ids: Vec<u32>,
    /// `[L]`
    pub(super) log_probs: Vec<f32>,
    /// `[L]`
    pub(super) sampled_log_probs: Vec<f32>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StoredBranch {
    pub(super) turn: usize,
    pub(super) fork: Option<Fork>,
}

impl From<&Ledger> for Form {
    fn from(ledger: &Ledger) -> Self {
        let stored = |branch: &Branch| StoredBranch { turn: branch.turn, fork: branch.fork };
        Self {
            version: VERSION,
            kind: KIND.to_owned(),
            num_turns: ledger.num_turns,
            current: ledger.current,
            branches: ledger.branches.iter().map(stored).collect(),
            segments: ledger.segments.clone(),
            ids: ledger.ids.clone(),
            log_probs: ledger.log_probs.clone(),
            sampled_log_probs: ledger.sampled_log_probs.clone(),
        }
    }
}

impl Form {
    /// Rebuilds the stored ledger.
    ///
    /// # Errors
    /// `Malformed` or `ShapeMismatch` if the columns are inconsistent or hold values that recording refuses;
    /// `NonFinite` for a log-probability; `LimitExceeded` as for [`Ledger::record_turn`].
    pub(super) fn into_ledger(self) -> Result<Ledger> {
        self.check_columns()?;
        let mut ledger = Ledger { branches: self.read_branches()?, ..Ledger::default() };
        let mut start = 0;
        for segment in &self.segments {
            self.check_segment(segment)?;
            let end = start + segment.length;
            (ledger.current, ledger.num_turns) = (segment.branch, segment.turn);
            let version = segment.policy_version;
            ledger.push_segment(&self.ids[start..end], segment.origin, segment.message_index, version);
            start = end;
        }
        check_forks(&ledger)?;
        (ledger.current, ledger.num_turns) = (self.current, self.num_turns);
        (ledger.log_probs, ledger.sampled_log_probs) = (self.log_probs, self.sampled_log_probs);
        Ok(ledger)
    }

    /// Checks lengths before anything is sliced by them.
    fn check_columns(&self) -> Result<()> {
        check_num_tokens(self.ids.len())?;
        let num_ids = self.segments.iter().map(|segment| segment.length as u128).sum::<u128>();
        let sampled = self.segments.iter().filter(|segment| segment.origin == Origin::Sampled);
        let num_sampled = sampled.map(|segment| segment.length as u128).sum::<u128>();
        if num_ids != self.ids.len() as u128 || num_sampled != self.log_probs.len() as u128 {
            let got = format!("{num_ids} tokens, {num_sampled} of them sampled");
            let rule =
                format!("have segments of {} and {} tokens: got {got}", self.ids.len(), self.log_probs.len());
            return Err(malformed(&rule));
        }
        check_length("sampledLogProbs", self.sampled_log_probs.len(), self.log_probs.len())?;
        check_finite("logProbs", &self.log_probs)?;
        check_finite("sampledLogProbs", &self.sampled_log_probs)?;
        if self.current >= self.branches.len() {
            return Err(malformed(&format!("have the current branch: got {}", self.current)));
        }
        if self.num_turns > self.ids.len() {
            return Err(malformed(&format!("have a token for each turn: got {} turns", self.num_turns)));
        }
        Ok(())
    }

    fn check_segment(&self, segment: &Segment) -> Result<()> {
        let is_sampled = segment.origin == Origin::Sampled;
        if segment.length == 0
            || segment.message_index < -1
            || segment.branch >= self.branches.len()
            || segment.turn >= self.num_turns
            || is_sampled != segment.policy_version.is_some()
        {
            return Err(malformed(&format!("have possible segments: got {segment:?}")));
        }
        segment.policy_version.map_or(Ok(()), check_range)
    }

    /// Reads branches with their forks and children, without tokens yet. Their lengths start at their forks.
    fn read_branches(&self) -> Result<Vec<Branch>> {
        check_num_forks(self.branches.len().saturating_sub(1))?;
        let mut branches: Vec<Branch> = Vec::with_capacity(self.branches.len());
        for (index, StoredBranch { turn, fork }) in self.branches.iter().enumerate() {
            let parent = fork.map_or(0, |fork| fork.branch);
            let len = fork.map_or(0, |fork| fork.position);
            if (index == 0) != fork.is_none()
                || (index > 0 && parent >= index)
                || *turn > self.num_turns
                || len > self.ids.len()
            {
                return Err(malformed(&format!(
                    "have possible branches: got {index} of turn {turn}, fork {fork:?}"
                )));
            }
            if fork.is_some() {
                branches[parent].children.push(index);
            }
            branches.push(Branch { fork: *fork, turn: *turn, len, ..Branch::default() });
        }
        Ok(branches)
    }
}

/// Checks that each fork is on tokens that its parent owns.
fn check_forks(ledger: &Ledger) -> Result<()> {
    for Fork { branch, position, .. } in ledger.forks() {
        let parent = &ledger.branches[branch];
        let from = parent.fork.map_or(0, |fork| fork.position + 1);
        if position < from || position > parent.len {
            let rule = format!("fork branch {branch} from {from} to {}: got {position}", parent.len);
            return Err(malformed(&rule));
        }
    }
    Ok(())
}

/// Refuses a version that only later readers support.
pub(super) fn check_version(what: &str, version: u32) -> Result<()> {
    if (1..=VERSION).contains(&version) {
        return Ok(());
    }
    let detail = format!("{what} must be of version 1 to {VERSION}: got version {version}");
    Err(Error::new(ErrorKind::Incompatible, detail))
}

fn malformed(rule: &str) -> Error {
    Error::new(ErrorKind::Malformed, format!("a stored ledger must {rule}"))
}
