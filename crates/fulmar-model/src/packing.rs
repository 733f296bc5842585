//! A ragged batch of sequences as the rows that a forward pass computes.
//!
//! Sequences that begin with the same unscored tokens (a group of completions of one prompt) share those
//! rows, and nothing after a sequence's last scored token is computed. A shared row has the same bits as a
//! copied one, so packing changes the cost and never the result.

use std::collections::HashMap;

use fulmar_compute::{RowNumbers, Spans};
use fulmar_core::limits::{BATCH_TOKENS_MAX, SEQUENCE_TOKENS_MAX};
use fulmar_core::{Error, ErrorKind, Result};

use crate::config::DecoderConfig;

/// `S` sequences, flat: sequence `s` is `ids[offsets[s]..offsets[s + 1]]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenBatch<'a> {
    /// Token ids `[T]`.
    pub ids: &'a [u32],
    /// `[S + 1]`, from 0 to T, not decreasing.
    pub offsets: &'a [u32],
    /// `[T]`: 1 where the log-prob of that token is wanted, else 0. A sequence's first token has none: 0.
    pub mask: &'a [u8],
    /// `[T]`: the position of each token, for the rotary angles only: a token attends to all tokens before it
    /// in its sequence. Counted from 0 in each sequence if absent.
    pub positions: Option<&'a [u32]>,
}

impl TokenBatch<'_> {
    /// Refuses a batch that `config` cannot compute.
    ///
    /// # Errors
    /// `Empty` without a sequence, `ShapeMismatch` if lengths disagree, `OutOfRange` for an id or a masked first token,
    /// `LimitExceeded` for too many tokens or a position beyond the model's.
    pub fn check(&self, config: &DecoderConfig) -> Result<()> {
        self.check_rows(config)?;
        for bound in self.offsets.windows(2) {
            let (first, end) = (bound[0] as usize, bound[1] as usize);
            if first < end && self.mask[first] != 0 {
                let detail = format!(
                    "mask must be 0 at a sequence's first token: got {} at {first}",
                    self.mask[first]
                );
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
        }
        Ok(())
    }

    /// Runs [`TokenBatch::check`], but allows a masked first token.
    pub(crate) fn check_rows(&self, config: &DecoderConfig) -> Result<()> {
        let num_tokens = self.ids.len();
        if self.offsets.len() < 2 {
            return Err(Error::new(ErrorKind::Empty, "offsets must bound at least one sequence: got 0"));
        }
        if self.mask.len() != num_tokens {
            let detail = format!("mask must be as long as ids ({num_tokens}): got {}", self.mask.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let bounds = (self.offsets[0], self.offsets[self.offsets.len() - 1] as usize);
        if bounds != (0, num_tokens) || self.offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            let detail =
                format!("offsets must rise from 0 to the number of ids ({num_tokens}): got {bounds:?}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        check_limit("ids", num_tokens, BATCH_TOKENS_MAX)?;
        let longest = config.max_position_embeddings.min(SEQUENCE_TOKENS_MAX);
        self.check_positions(longest)?;
        for bound in self.offsets.windows(2) {
            let (first, end) = (bound[0] as usize, bound[1] as usize);
            check_limit("a sequence", end - first, longest)?;
        }
        check_ids(self.ids, config)
    }

    fn check_positions(&self, bound: usize) -> Result<()> {
        let Some(positions) = self.positions else { return Ok(()) };
        if positions.len() != self.ids.len() {
            let detail =
                format!("positions must be as long as ids ({}): got {}", self.ids.len(), positions.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        match positions.iter().position(|position| *position as usize >= bound) {
            None => Ok(()),
            Some(index) => {
                let detail = format!("positions must be below {bound}: got {} at {index}", positions[index]);
                Err(Error::new(ErrorKind::LimitExceeded, detail))
            }
        }
    }

    /// Returns the position of the token `token` of the sequence that begins at `first`.
    fn position(&self, token: usize, first: usize) -> u32 {
        self.positions.map_or((token - first) as u32, |positions| positions[token])
    }
}

/// Refuses ids outside the vocabulary.
pub(crate) fn check_ids(ids: &[u32], config: &DecoderConfig) -> Result<()> {
    let Some(index) = ids.iter().position(|id| *id as usize >= config.vocab_size) else { return Ok(()) };
    let detail =
        format!("ids must be below vocab_size ({}): got {} at {index}", config.vocab_size, ids[index]);
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

pub(crate) fn check_limit(what: &str, tokens: usize, max: usize) -> Result<()> {
    if tokens <= max {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LimitExceeded, format!("{what} must have at most {max} tokens: got {tokens}")))
}

/// The row from which a masked token is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// The row before it: its log-prob.
    Before,
    /// Its own row: the value after it.
    Own,
}

/// The masked token `token` of the flat batch, with the id `id`, is read at row `row`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub row: u32,
    pub id: u32,
    pub token: u32,
}

/// The row before a sequence's first one.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// The rows of one forward pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packed {
    pub ids: Vec<u32>,
    pub positions: RowNumbers,
    /// The row of the token before, or [`NO_ROW`].
    pub before: Vec<u32>,
    pub spans: Spans,
    /// Ranges of rows that attend only to one another: a shared prompt with its completions.
    pub blocks: Vec<(u32, u32)>,
    pub targets: Vec<Target>,
}

/// A sequence cut at its first and after its last scored token.
struct Cut {
    prompt: std::ops::Range<usize>,
    scored_end: usize,
}

impl Packed {
    /// Packs a checked batch.
    pub(crate) fn new(batch: &TokenBatch<'_>, read: Read) -> Self {
        let mut packed = Self::default();
        for siblings in group_by_prompt(batch) {
            packed.push_block(batch, &siblings, read);
        }
        packed
    }

    fn push_block(&mut self, batch: &TokenBatch<'_>, siblings: &[Cut], read: Read) {
        let first_row = self.ids.len() as u32;
        let prompt = siblings[0].prompt.clone();
        for token in prompt.clone() {
            let end = first_row + (token - prompt.start) as u32 + 1;
            self.push_row(batch.ids[token], batch.position(token, prompt.start), &[(first_row, end)]);
        }
        let prompt_rows = (first_row, self.ids.len() as u32);
        for cut in siblings {
            let own_first = self.ids.len() as u32;
            for token in cut.prompt.end..cut.scored_end {
                let row = match read {
                    Read::Own => self.ids.len() as u32,
                    Read::Before if token == cut.prompt.end => prompt_rows.1 - 1,
                    Read::Before => self.ids.len() as u32 - 1,
                };
                if batch.mask[token] != 0 {
                    self.targets.push(Target { row, id: batch.ids[token], token: token as u32 });
                }
                if token + 1 < cut.scored_end || read == Read::Own {
                    let end = self.ids.len() as u32 + 1;
                    self.push_row(
                        batch.ids[token],
                        batch.position(token, cut.prompt.start),
                        &[prompt_rows, (own_first, end)],
                    );
                }
            }
        }
        self.blocks.push((first_row, self.ids.len() as u32));
    }

    fn push_row(&mut self, id: u32, position: u32, ranges: &[(u32, u32)]) {
        // The row itself is the last of those that it attends to.
        let mut attended = ranges.iter().rev().flat_map(|(first, end)| (*first..*end).rev());
        self.before.push(attended.nth(1).unwrap_or(NO_ROW));
        self.ids.push(id);
        self.positions.push(position);
        self.spans.push_row(ranges);
    }
}

/// Returns the sequences with scored tokens, grouped by prompt, in order of first appearance.
fn group_by_prompt(batch: &TokenBatch<'_>) -> Vec<Vec<Cut>> {
    let mut groups: Vec<Vec<Cut>> = Vec::new();
    let mut index_of: HashMap<(&[u32], &[u32]), usize> = HashMap::new();
    for bound in batch.offsets.windows(2) {
        let (first, end) = (bound[0] as usize, bound[1] as usize);
        let scored = (first..end).find(|&token| batch.mask[token] != 0);
        let last = (first..end).rfind(|&token| batch.mask[token] != 0);
        let (Some(scored), Some(last)) = (scored, last) else { continue };
        let cut = Cut { prompt: first..scored, scored_end: last + 1 };
        let positions = batch.positions.map_or(&[][..], |positions| &positions[first..scored]);
        let group = *index_of.entry((&batch.ids[first..scored], positions)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(cut);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> DecoderConfig {
        let text = r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 4,
            "num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 8}"#;
        DecoderConfig::from_json(text).unwrap()
    }

    #[test]
    fn siblings_share_their_prompt_and_nothing_behind_the_last_scored_token_is_computed() {
        let ids = [1, 2, 3, 4, 9, 1, 2, 5, 7, 8, 6];
        let offsets = [0, 5, 8, 8, 11];
        let mask = [0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0];
        let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, positions: None };
        batch.check(&config()).unwrap();
        let packed = Packed::new(&batch, Read::Before);
        assert_eq!(packed.ids, [1, 2, 3]);
        assert_eq!(*packed.positions, [0, 1, 2]);
        assert_eq!(packed.before, [NO_ROW, 0, 1]);
        assert_eq!(packed.blocks, [(0, 3)]);
        let targets = packed.targets.iter().map(|t| (t.row, t.id, t.token)).collect::<Vec<_>>();
        assert_eq!(targets, [(1, 3, 2), (2, 4, 3), (1, 5, 7)]);
    }

    #[test]
    fn a_value_is_read_at_the_tokens_own_row() {
        let batch = TokenBatch {
            ids: &[1, 2, 3, 1, 2, 4, 9, 7],
            offsets: &[0, 3, 7, 8],
            mask: &[0, 0, 1, 0, 0, 1, 0, 1],
            positions: None,
        };
        assert!(batch.check_rows(&config()).is_ok());
        assert_eq!(batch.check(&config()).unwrap_err().kind(), ErrorKind::OutOfRange);
        let packed = Packed::new(&batch, Read::Own);
        assert_eq!(packed.ids, [1, 2, 3, 4, 7]);
        assert_eq!(*packed.positions, [0, 1, 2, 2, 0]);
        assert_eq!(packed.before, [NO_ROW, 0, 1, 1, NO_ROW]);
        assert_eq!(packed.blocks, [(0, 4), (4, 5)]);
        let targets = packed.targets.iter().map(|t| (t.row, t.token)).collect::<Vec<_>>();
        assert_eq!(targets, [(2, 2), (3, 5), (4, 7)]);
    }

    type BadBatch<'a> = (&'a [u32], &'a [u32], &'a [u8], ErrorKind);

    #[test]
    fn bad_batches_are_refused_with_the_argument() {
        let ok = [0, 1];
        let cases: [BadBatch<'_>; 6] = [
            (&[1, 2], &[0], &ok, ErrorKind::Empty),
            (&[1, 2], &[0, 3], &ok, ErrorKind::ShapeMismatch),
            (&[1, 2], &[0, 2], &[1], ErrorKind::ShapeMismatch),
            (&[1, 2], &[0, 2], &[1, 0], ErrorKind::OutOfRange),
            (&[1, 10], &[0, 2], &ok, ErrorKind::OutOfRange),
            (&[0; 9], &[0, 9], &[0; 9], ErrorKind::LimitExceeded),
        ];
        for (ids, offsets, mask, kind) in cases {
            assert_eq!(
                TokenBatch { ids, offsets, mask, positions: None }.check(&config()).unwrap_err().kind(),
                kind
            );
        }
        let (ids, offsets) = ([0; 8], [0, 8]);
        let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &[0; 8], positions: None };
        assert!(batch.check(&config()).is_ok());
        let at = |positions| TokenBatch { positions: Some(positions), ..batch }.check(&config());
        assert!(at(&[7; 8]).is_ok());
        assert_eq!(at(&[0, 1, 2, 3, 4, 5, 6, 8]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(at(&[7; 7]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    }

    #[test]
    fn positions_are_the_callers_and_only_equal_ones_are_shared() {
        let ids = [1, 2, 3, 1, 2, 3, 1, 2, 3];
        let mask = [0, 0, 1, 0, 0, 1, 0, 0, 1];
        let positions = [4, 6, 7, 4, 6, 7, 0, 1, 2];
        let batch =
            TokenBatch { ids: &ids, offsets: &[0, 3, 6, 9], mask: &mask, positions: Some(&positions) };
        let packed = Packed::new(&batch, Read::Before);
        assert_eq!(*packed.positions, [4, 6, 0, 1]);
        assert_eq!(packed.blocks, [(0, 2), (2, 4)]);
    }

    #[test]
    fn token_limits_hold_at_the_bound_and_not_past_it() {
        assert!(check_limit("ids", BATCH_TOKENS_MAX, BATCH_TOKENS_MAX).is_ok());
        let error = check_limit("ids", BATCH_TOKENS_MAX + 1, BATCH_TOKENS_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(check_limit("a sequence", SEQUENCE_TOKENS_MAX + 1, SEQUENCE_TOKENS_MAX).is_err());
    }
}
