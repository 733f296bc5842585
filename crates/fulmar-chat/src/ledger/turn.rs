//! The input of [`Ledger::record_turn`], and the checks before anything changes.

use fulmar_core::{Error, ErrorKind};
use serde::Serialize;

use super::{BranchReason, Fork, Ledger, VersionRange, Versions};
use crate::{Origin, Result};

/// One turn: the policy's whole prompt, and its sampled tokens.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// The prompt, at least one token.
    pub prompt_ids: &'a [u32],
    /// The sampled tokens. Shape `[T]`.
    pub completion_ids: &'a [u32],
    /// Log-probability of each sampled token under the model itself (temperature 1). Shape `[T]`.
    pub log_probs: &'a [f32],
    /// Log-probability of each sampled token under the distribution it was drawn from. Shape `[T]`.
    pub sampled_log_probs: &'a [f32],
    /// The weights that sampled the tokens.
    pub versions: Versions<'a>,
    /// The origins of the prompt's tokens. Without them tokens count as [`Origin::Env`].
    pub attribution: Option<Attribution<'a>>,
    /// The reason why the prompt may not extend the last turn, if there is one.
    pub branch_reason: Option<BranchReason>,
}

/// The origins of the last tokens of a prompt, from the [`crate::Rendered`] of the whole prompt or of a
/// bridge's extension. Both lists have the same length, at most that of the prompt; tokens before them count
/// as [`Origin::Env`] of no message.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    /// The origin of each token.
    pub origin: &'a [Origin],
    /// The message of each token; -1 for none.
    pub message_index: &'a [i32],
    /// Added to every index that is not -1: the number of messages before those that a bridge rendered.
    pub message_offset: u32,
}

impl Attribution<'_> {
    /// Returns origin and message of token `t` of a prompt of `num_prompt`.
    pub(super) fn label(&self, t: usize, num_prompt: usize) -> (Origin, i32) {
        let Some(t) = t.checked_sub(num_prompt - self.origin.len()) else { return (Origin::Env, -1) };
        let index = self.message_index[t];
        let offset = if index < 0 { 0 } else { self.message_offset as i32 };
        (self.origin[t], index + offset)
    }

    /// Returns the message index of a completion: the one after the last of the prompt.
    pub(super) fn next_message_index(&self) -> i32 {
        let last = self.message_index.iter().copied().max().unwrap_or(-1);
        if last < 0 { -1 } else { last + self.message_offset as i32 + 1 }
    }
}

/// The place of a recorded turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RecordedTurn {
    /// The number of the turn, from 0.
    pub turn: usize,
    /// The branch that ends with this turn.
    pub branch: usize,
    /// The fork that this turn made; `None` if it extended a branch.
    pub fork: Option<Fork>,
}

impl Ledger {
    /// Refuses an invalid turn; limits are checked elsewhere.
    pub(super) fn check_turn(&self, turn: &Turn<'_>) -> Result<()> {
        if turn.prompt_ids.is_empty() {
            return Err(Error::new(
                ErrorKind::Empty,
                "prompt_ids must hold at least one token, but the array is empty",
            ));
        }
        self.check_completion(turn.completion_ids.len())?;
        check_sampled(turn)?;
        turn.attribution
            .as_ref()
            .map_or(Ok(()), |attribution| check_attribution(attribution, turn.prompt_ids.len()))
    }

    fn check_completion(&self, num_ids: usize) -> Result<()> {
        let silent = if self.num_turns > 0 && self.log_probs.is_empty() {
            0
        } else if self.num_turns > 0 && num_ids == 0 {
            self.num_turns
        } else {
            return Ok(());
        };
        let detail =
            format!("every turn of several must hold a sampled token: got no completion in turn {silent}");
        Err(Error::new(ErrorKind::Empty, detail))
    }
}

fn check_sampled(turn: &Turn<'_>) -> Result<()> {
    let num_ids = turn.completion_ids.len();
    check_length("log_probs", turn.log_probs.len(), num_ids)?;
    check_length("sampled_log_probs", turn.sampled_log_probs.len(), num_ids)?;
    check_finite("log_probs", turn.log_probs)?;
    check_finite("sampled_log_probs", turn.sampled_log_probs)?;
    match turn.versions {
        Versions::Each(versions) => check_length("versions", versions.len(), num_ids),
        Versions::Within(range) => check_range(range),
    }
}

pub(super) fn check_range(VersionRange { min, max }: VersionRange) -> Result<()> {
    if min <= max {
        return Ok(());
    }
    let detail = format!("policy_version must have min <= max: got {min} and {max}");
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

pub(super) fn check_finite(name: &str, values: &[f32]) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(t) => {
            Err(Error::new(ErrorKind::NonFinite, format!("{name}[{t}] must be finite: got {}", values[t])))
        }
    }
}

pub(super) fn check_length(name: &str, length: usize, expected: usize) -> Result<()> {
    if length == expected {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ShapeMismatch,
        format!("{name} must have one entry a token, {expected}: got {length}"),
    ))
}

fn check_attribution(attribution: &Attribution<'_>, num_ids: usize) -> Result<()> {
    let num_labels = attribution.origin.len();
    if num_labels > num_ids {
        let detail =
            format!("origin must have at most one entry a prompt token, {num_ids}: got {num_labels}");
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    check_length("message_index", attribution.message_index.len(), num_labels)?;
    if let Some(t) = attribution.origin.iter().position(|&origin| origin == Origin::Sampled) {
        let detail = format!("origin[{t}] must be one of context: got sampled, which only completions are");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let last = i64::from(i32::MAX) - 1 - i64::from(attribution.message_offset);
    match attribution.message_index.iter().find(|&&index| index < -1 || i64::from(index) > last) {
        None => Ok(()),
        Some(index) => {
            let detail = format!("message_index must be -1 or at most {last}: got {index}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}
