//! The JSON form of a ledger. Reading replays it, so a file can hold nothing that recording could not.

use fulmar_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::turn::{check_length, check_range};
use super::{Branch, Fork, Ledger, Segment, check_num_forks, check_num_tokens};
use crate::{Origin, Result};

const JSON_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonForm {
    version: u32,
    kind: String,
    num_turns: usize,
    current: usize,
    branches: Vec<JsonBranch>,
    segments: Vec<Segment>,
    ids: Vec<u32>,
    log_probs: Vec<f32>,
    sampled_log_probs: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonBranch {
    turn: usize,
    fork: Option<Fork>,
}

impl Ledger {
    /// The whole ledger as JSON, with a version number. Log-probabilities come back bit for bit.
    #[must_use]
    pub fn to_json(&self) -> String {
        let branches = self.branches.iter().map(|branch| JsonBranch { turn: branch.turn, fork: branch.fork });
        let form = JsonForm {
            version: JSON_VERSION,
            kind: "ledger".to_owned(),
            num_turns: self.num_turns,
            current: self.current,
            branches: branches.collect(),
            segments: self.segments.clone(),
            ids: self.ids.clone(),
            log_probs: self.log_probs.clone(),
            sampled_log_probs: self.sampled_log_probs.clone(),
        };
        // Fails only for maps with keys that are no text, and there are no maps.
        serde_json::to_string(&form).unwrap_or_default()
    }

    /// Reads what [`Ledger::to_json`] wrote.
    ///
    /// # Errors
    /// `Malformed` if `text` is not that form, contradicts itself or holds a log-probability beyond `f32`;
    /// `Incompatible` if its kind or version is another; `LimitExceeded` as [`Ledger::record_turn`].
    pub fn from_json(text: &str) -> Result<Self> {
        let form: JsonForm =
            serde_json::from_str(text).map_err(|error| malformed(&format!("be valid: got {error}")))?;
        if form.version != JSON_VERSION || form.kind != "ledger" {
            let detail = format!(
                "ledger JSON must be of kind \"ledger\", version {JSON_VERSION}: got kind {:?}, version {}",
                form.kind, form.version
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        form.check_columns()?;
        let mut ledger = Self { branches: read_branches(&form)?, ..Self::default() };
        let mut start = 0;
        for segment in &form.segments {
            form.check_segment(segment)?;
            let end = start + segment.length;
            (ledger.current, ledger.num_turns) = (segment.branch, segment.turn);
            let version = segment.policy_version;
            ledger.push_segment(&form.ids[start..end], segment.origin, segment.message_index, version);
            start = end;
        }
        ledger.check_forks()?;
        (ledger.current, ledger.num_turns) = (form.current, form.num_turns);
        (ledger.log_probs, ledger.sampled_log_probs) = (form.log_probs, form.sampled_log_probs);
        Ok(ledger)
    }

    /// A fork must lie on what its parent owns.
    fn check_forks(&self) -> Result<()> {
        for Fork { branch, position, .. } in self.branches.iter().filter_map(|branch| branch.fork) {
            let parent = &self.branches[branch];
            let from = parent.fork.map_or(0, |fork| fork.position + 1);
            if position < from || position > parent.len {
                let rule = format!("fork branch {branch} from {from} to {}: got {position}", parent.len);
                return Err(malformed(&rule));
            }
        }
        Ok(())
    }
}

impl JsonForm {
    /// Lengths that must agree, before anything is sliced by them.
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
}

/// Branches with their forks and children, without tokens yet. Their lengths start at their forks.
fn read_branches(form: &JsonForm) -> Result<Vec<Branch>> {
    check_num_forks(form.branches.len().saturating_sub(1))?;
    let mut branches: Vec<Branch> = Vec::with_capacity(form.branches.len());
    for (index, JsonBranch { turn, fork }) in form.branches.iter().enumerate() {
        let parent = fork.map_or(0, |fork| fork.branch);
        let len = fork.map_or(0, |fork| fork.position);
        if (index == 0) != fork.is_none()
            || (index > 0 && parent >= index)
            || *turn > form.num_turns
            || len > form.ids.len()
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

fn malformed(rule: &str) -> Error {
    Error::new(ErrorKind::Malformed, format!("ledger JSON must {rule}"))
}
