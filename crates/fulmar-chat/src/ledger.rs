//! The token ledger of one rollout: every given or sampled token, once, with its origin.
//!
//! Ids are append-only. Runs of one origin are [`Segment`]s; log-probabilities are stored for sampled runs
//! only. While each prompt extends the stored tokens, there is one branch. If a prompt differs, because a
//! template rewrote history, a conversation was compacted, or an answer is sampled again, a new branch forks
//! off at that token and shares the tokens before it. Training samples are the root-to-leaf paths, and each
//! sampled token is trained in one of them.
//!
//! ```text
//! record(prompt, completion):
//!     if prompt starts with the path of the last turn: stay on its branch
//!     else: find the branch whose path shares the most tokens with prompt
//!           shared whole: continue that branch, else fork off after the shared tokens
//!     append the rest of prompt as context, then completion as sampled
//! ```

mod binary;
mod columns;
mod form;
mod json;
mod path;
mod samples;
mod segment;
mod turn;

use fulmar_core::{Error, ErrorKind, limits};

pub use columns::{TurnColumns, TurnOptions};
pub use samples::{SampleRef, Samples};
pub use segment::{Branch, BranchReason, Fork, Segment, VersionRange, Versions};
pub use turn::{Attribution, RecordedTurn, Turn};

use crate::{Origin, Result};

/// Append-only token ids with their origins, log-probabilities, weight versions and forks.
///
/// # Examples
/// ```
/// use fulmar_chat::{Ledger, Turn, Versions};
/// let mut ledger = Ledger::default();
/// let mut record = |prompt_ids: &[u32], completion_ids: &[u32]| {
///     let log_probs = vec![-0.5; completion_ids.len()];
///     ledger.record_turn(&Turn {
///         prompt_ids,
///         completion_ids,
///         log_probs: &log_probs,
///         sampled_log_probs: &log_probs,
///         versions: Versions::one(3),
///         attribution: None,
///         branch_reason: None,
///     })
/// };
/// record(&[1, 2], &[4])?;
/// assert!(record(&[1, 2, 4, 8], &[5, 6])?.fork.is_none(), "the second prompt extends the first turn");
/// assert!(record(&[1, 9], &[7])?.fork.is_some(), "the third does not");
///
/// let samples = ledger.samples()?;
/// assert_eq!(samples.get(0).map(|sample| sample.ids), Some(&[1, 2, 4, 8, 5, 6][..]));
/// assert_eq!(samples.get(0).map(|sample| sample.mask), Some(&[false, false, true, false, true, true][..]));
/// assert_eq!(samples.get(1).map(|sample| sample.ids), Some(&[1, 9, 7][..]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    ids: Vec<u32>,
    segments: Vec<Segment>,
    log_probs: Vec<f32>,
    sampled_log_probs: Vec<f32>,
    branches: Vec<Branch>,
    current: usize,
    num_turns: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            segments: Vec::new(),
            log_probs: Vec::new(),
            sampled_log_probs: Vec::new(),
            branches: vec![Branch::default()],
            current: 0,
            num_turns: 0,
        }
    }
}

impl Ledger {
    /// Appends one turn: stays on the branch of the last turn if the prompt extends it, continues another
    /// branch that the prompt extends, or forks. Costs `O(prompt)` plus the forks that share its beginning.
    ///
    /// An empty completion is accepted for the first turn only, and then no turn may follow.
    ///
    /// # Errors
    /// `Empty` for an empty prompt, and for an empty completion unless it is the only turn; `ShapeMismatch`
    /// if log-probabilities, versions or attributions differ in length from their tokens; `NonFinite` for a
    /// NaN or infinite log-probability; `OutOfRange` for an invalid version range or message index;
    /// `LimitExceeded` past [`limits::LEDGER_TOKENS_MAX`] or [`limits::LEDGER_FORKS_MAX`]. After an error the
    /// ledger is unchanged.
    pub fn record_turn(&mut self, turn: &Turn<'_>) -> Result<RecordedTurn> {
        self.check_turn(turn)?;
        let place = self.place(turn.prompt_ids);
        let num_new = turn.prompt_ids.len() - place.position + turn.completion_ids.len();
        check_num_tokens(self.ids.len() + num_new)?;
        let forks = place.position < self.branches[place.branch].len;
        if forks {
            check_num_forks(self.branches.len())?;
        }
        self.current = place.branch;
        let fork = forks.then(|| {
            let redrawn = place.position == turn.prompt_ids.len();
            let found = if redrawn { BranchReason::Resample } else { BranchReason::HistoryEdit };
            self.push_fork(place.position, turn.branch_reason.unwrap_or(found))
        });
        self.push_prompt(turn, place.position);
        let message_index = turn.attribution.as_ref().map_or(-1, Attribution::next_message_index);
        self.push_sampled(turn, message_index);
        self.num_turns += 1;
        Ok(RecordedTurn { turn: self.num_turns - 1, branch: self.current, fork })
    }

    /// Starts a branch that shares the first `position` tokens of the current path and becomes the current one.
    ///
    /// # Errors
    /// `OutOfRange` if the current path is shorter; `LimitExceeded` past [`limits::LEDGER_FORKS_MAX`].
    pub fn fork(&mut self, position: usize, reason: BranchReason) -> Result<Fork> {
        let len = self.num_path_tokens();
        if position > len {
            let detail = format!("position must be at most the {len} tokens of the path: got {position}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        check_num_forks(self.branches.len())?;
        Ok(self.push_fork(position, reason))
    }

    /// Returns the number of stored tokens; shared ones count once.
    #[must_use]
    pub const fn num_tokens(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of recorded turns.
    #[must_use]
    pub const fn num_turns(&self) -> usize {
        self.num_turns
    }

    /// Returns the number of tokens in the path of the last turn.
    #[must_use]
    pub fn num_path_tokens(&self) -> usize {
        self.branches[self.current].len
    }

    /// Returns the tokens of the path that ends with the last turn.
    #[must_use]
    pub fn path_ids(&self) -> Vec<u32> {
        let runs = self.path(self.current);
        runs.iter().flat_map(|run| &self.ids[run.start..run.start + run.len]).copied().collect()
    }

    /// Returns the runs of tokens in the order they were appended.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the forks in order: number `k` opened branch `k + 1`.
    pub fn forks(&self) -> impl Iterator<Item = Fork> {
        self.branches.iter().filter_map(|branch| branch.fork)
    }

    /// Returns the branches; the first is the root, which has no fork.
    #[must_use]
    pub fn branches(&self) -> &[Branch] {
        &self.branches
    }

    /// Adds a branch to the owner of `position` on the current path. The caller has checked both.
    fn push_fork(&mut self, position: usize, reason: BranchReason) -> Fork {
        let mut parent = self.current;
        // A branch owns the tokens after its own fork; shared tokens belong to an ancestor.
        while let Some(fork) = self.branches[parent].fork.filter(|fork| position <= fork.position) {
            parent = fork.branch;
        }
        let fork = Fork { branch: parent, position, reason };
        let branch = self.branches.len();
        self.branches[parent].children.push(branch);
        self.branches.push(Branch {
            fork: Some(fork),
            turn: self.num_turns,
            len: position,
            ..Branch::default()
        });
        self.current = branch;
        fork
    }

    /// Appends the prompt from `position` on, one segment for each run of one origin and message.
    fn push_prompt(&mut self, turn: &Turn<'_>, position: usize) {
        let num_prompt = turn.prompt_ids.len();
        let label = |t: usize| {
            turn.attribution
                .as_ref()
                .map_or((Origin::Env, -1), |attribution| attribution.label(t, num_prompt))
        };
        let mut start = position;
        while start < num_prompt {
            let (origin, message_index) = label(start);
            let same = |t: &usize| label(*t) == (origin, message_index);
            let end = start + (start..num_prompt).take_while(same).count();
            self.push_segment(&turn.prompt_ids[start..end], origin, message_index, None);
            start = end;
        }
    }

    /// Appends the completion, one segment for each run of one version.
    fn push_sampled(&mut self, turn: &Turn<'_>, message_index: i32) {
        let num_ids = turn.completion_ids.len();
        let mut start = 0;
        while start < num_ids {
            let version = turn.versions.at(start);
            let end = start + (start..num_ids).take_while(|&t| turn.versions.at(t) == version).count();
            self.push_segment(
                &turn.completion_ids[start..end],
                Origin::Sampled,
                message_index,
                Some(version),
            );
            start = end;
        }
        self.log_probs.extend_from_slice(turn.log_probs);
        self.sampled_log_probs.extend_from_slice(turn.sampled_log_probs);
    }

    /// Appends one run to the current branch. Sampled runs have a version; the caller adds their
    /// log-probabilities.
    fn push_segment(
        &mut self,
        ids: &[u32],
        origin: Origin,
        message_index: i32,
        version: Option<VersionRange>,
    ) {
        let sampled_start = self.segments.last().map_or(0, Segment::sampled_end);
        self.branches[self.current].segments.push(self.segments.len());
        self.branches[self.current].len += ids.len();
        self.segments.push(Segment {
            branch: self.current,
            length: ids.len(),
            origin,
            message_index,
            turn: self.num_turns,
            policy_version: version,
            start: self.ids.len(),
            sampled_start,
        });
        self.ids.extend_from_slice(ids);
    }
}

fn check_num_tokens(num_tokens: usize) -> Result<()> {
    if num_tokens > limits::LEDGER_TOKENS_MAX {
        let max = limits::LEDGER_TOKENS_MAX;
        let detail = format!("a ledger must hold at most {max} tokens: got {num_tokens}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

fn check_num_forks(num_forks: usize) -> Result<()> {
    if num_forks > limits::LEDGER_FORKS_MAX {
        let max = limits::LEDGER_FORKS_MAX;
        let detail = format!("a ledger must hold at most {max} forks: got {num_forks}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_holds_as_many_tokens_as_the_limit_and_no_more() {
        assert_eq!(check_num_tokens(limits::LEDGER_TOKENS_MAX), Ok(()));
        let refused = check_num_tokens(limits::LEDGER_TOKENS_MAX + 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn a_ledger_forks_as_often_as_the_limit_and_no_more() {
        let mut ledger = Ledger::default();
        for _ in 0..limits::LEDGER_FORKS_MAX {
            ledger.fork(0, BranchReason::Resample).unwrap();
        }
        let before = ledger.clone();
        assert_eq!(ledger.fork(0, BranchReason::Resample).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(ledger, before);
    }

    #[test]
    fn a_fork_hangs_on_the_branch_that_owns_its_position() {
        let mut ledger = Ledger::default();
        ledger.push_segment(&[1, 2, 3], Origin::User, 0, None);
        let first = ledger.fork(2, BranchReason::Compaction).unwrap();
        ledger.push_segment(&[4, 5], Origin::User, 0, None);
        let inside = ledger.fork(3, BranchReason::HistoryEdit).unwrap();
        assert_eq!((first.branch, inside.branch), (0, 1));
        let shared = ledger.fork(1, BranchReason::HistoryEdit).unwrap();
        assert_eq!((shared.branch, shared.position), (0, 1));
        assert_eq!(ledger.fork(2, BranchReason::Opaque).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}
