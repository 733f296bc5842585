//! Speculative decoding that changes no bit.
//!
//! ```text
//! draft:   the same weights in 8 bits draw k tokens after the last one, each with the noise of its draw
//! verify:  one pass of the exact weights over the last token and the drafts gives k + 1 rows of logits
//! draw:    from each row in turn, as without drafts; as long as the token is the draft, the next row is valid
//! ```
//! Kernels give a row the same bits whatever its batch, so tokens and log-probs are those of decoding one by one.
//! Drafts read the exact cache of earlier tokens and write keys and values of 8 bits to rows after it. The
//! verifying pass writes the exact ones to rows of the same tokens before it reads any. Y. Leviathan and others,
//! <https://arxiv.org/abs/2211.17192>; here a draft is compared with the draw itself, not with its probability.

use fulmar_compute::Compute;
use fulmar_core::{Result, Rng, RngState};
use fulmar_objective::{DrawContext, draw_on};

use super::{Rows, Scheduler, Sequence};
use crate::decoder::PackedDecoder;

/// Most rows of a verifying pass, drafts included. With more sequences a step is no longer limited by memory.
const VERIFIED_ROWS_MAX: usize = 16;

/// The rate of acceptance before any draft, and the number of drafts that it counts for.
const FIRST_RATE: (f64, f64) = (0.8, 3.0);

/// The number of last drafts that the rate of acceptance is over, about.
const RATE_DRAFTS: f64 = 32.0;

/// Steps without drafts before one draft is tried again.
const STEPS_BETWEEN_TRIALS: usize = 64;

/// The number of drafts that pays, from the share of drafts that were accepted.
#[derive(Debug)]
pub(super) struct Speculation {
    /// Most drafts of a sequence in a step; 0 switches speculation off.
    max: usize,
    /// The share of drafts that are accepted, of late.
    rate: f64,
    /// The number of drafts that the rate is over.
    rate_drafts: f64,
    num_steps_without: usize,
    /// Number of drafts since the engine was made.
    pub(super) num_drafted: u64,
    /// Number of them that were accepted.
    pub(super) num_accepted: u64,
}

impl Speculation {
    pub(super) fn new(max: usize) -> Self {
        let (rate, rate_drafts) = FIRST_RATE;
        Self { max, rate, rate_drafts, num_steps_without: 0, num_drafted: 0, num_accepted: 0 }
    }

    /// Returns the number of drafts for each of `num_sequences`, at most `limit`.
    fn count(&mut self, num_sequences: usize, limit: usize) -> usize {
        let rows = VERIFIED_ROWS_MAX / num_sequences.max(1);
        let most = self.max.min(limit).min(rows.saturating_sub(1));
        let count = best_count(self.rate, num_sequences, most);
        if count > 0 || most == 0 {
            return count;
        }
        self.num_steps_without = (self.num_steps_without + 1) % STEPS_BETWEEN_TRIALS;
        usize::from(self.num_steps_without == 0)
    }

    /// Counts a draft that was compared with its draw.
    pub(super) fn record(&mut self, is_accepted: bool) {
        self.num_accepted += u64::from(is_accepted);
        self.rate_drafts = RATE_DRAFTS.min(self.rate_drafts + 1.0);
        self.rate += (f64::from(u8::from(is_accepted)) - self.rate) / self.rate_drafts;
    }
}

/// Returns the number of drafts, up to `most`, with the most tokens for the time.
fn best_count(rate: f64, num_sequences: usize, most: usize) -> usize {
    // Measured on a decoder of 135 M weights: time of a pass over some rows, and of a draft's pass, in passes
    // over one row.
    let time_of = |rows: usize| 1.0 + 0.05 * (rows as f64 - 1.0);
    let draft_time = 0.35 + 0.02 * num_sequences as f64;
    let (mut best, mut tokens, mut likelihood) = ((1.0 / time_of(num_sequences), 0), 1.0, 1.0);
    for count in 1..=most {
        likelihood *= rate;
        tokens += likelihood;
        let time = time_of(num_sequences * (count + 1)) + count as f64 * draft_time;
        if tokens / time > best.0 {
            best = (tokens / time, count);
        }
    }
    best.1
}

impl Sequence {
    /// Returns whether all but its last token are in the cache, and more than one token may follow.
    fn can_speculate(&self) -> bool {
        !self.drawn.is_empty() && self.computed + 1 == self.len() && self.can_draft()
    }

    fn can_draft(&self) -> bool {
        self.drawn.len() + 1 < self.params.max_tokens
    }

    /// Adds the token that follows by these logits as a draft; returns whether another may follow it.
    fn draft(&mut self, compute: Compute, logits: &[f32]) -> bool {
        let state = self.rng.state();
        let word_index = state.word_index + self.num_drafted as u64;
        let mut rng = Rng::from_state(RngState { word_index, ..state });
        let context = DrawContext { prompt_ids: &self.prompt, output_ids: &self.drawn, allowed: None };
        // An error of a draft is one of 8 bits; the exact pass has its own.
        let Ok(draft) = draw_on(compute, logits, &self.params.draw, &context, &mut rng) else { return false };
        if self.params.stop_ids.contains(&draft.id) {
            return false;
        }
        self.drawn.push(draft.id);
        self.num_drafted += 1;
        self.can_draft()
    }

    /// Drops up to `count` of the last drafts.
    pub(super) fn drop_drafts(&mut self, count: usize) {
        let count = count.min(self.num_drafted);
        self.num_drafted -= count;
        self.drawn.truncate(self.drawn.len() - count);
    }

    /// Returns the number of drawn tokens, without drafts.
    pub(super) fn num_drawn(&self) -> usize {
        self.drawn.len() - self.num_drafted
    }

    /// Adds a drawn token, and drops all drafts unless it is the first of them; returns whether it is.
    pub(super) fn push(&mut self, id: u32) -> bool {
        if self.num_drafted > 0 && self.drawn[self.num_drawn()] == id {
            self.num_drafted -= 1;
            return true;
        }
        self.drop_drafts(self.num_drafted);
        self.drawn.push(id);
        false
    }
}

impl Scheduler {
    /// Adds drafts to the running sequences that decode, if that pays and pages are free for all of them. Leaves
    /// the cache as it was.
    pub(super) fn draft(&mut self, packed: PackedDecoder<'_>) -> Result<()> {
        let mut active: Vec<usize> =
            (0..self.running.len()).filter(|&index| self.running[index].can_speculate()).collect();
        let count = self.num_drafts(active.len());
        for _ in 0..count {
            if active.is_empty() {
                break;
            }
            active = self.draft_one(packed, &active)?;
        }
        for sequence in &mut self.running {
            sequence.trim(sequence.computed, &mut self.pool);
        }
        Ok(())
    }

    fn num_drafts(&mut self, num_active: usize) -> usize {
        let num_running = self.running.len();
        if num_active == 0 || num_running > VERIFIED_ROWS_MAX {
            return 0;
        }
        let limit = self.options.max_num_batched_tokens / num_running - 1;
        let count = self.speculation.count(num_active, limit);
        let pages = num_active * (count + 1).div_ceil(self.options.page_size);
        if pages + num_running - num_active <= self.pool.num_free() { count } else { 0 }
    }

    /// Drafts a token for each of `active`, and returns those of them that may draft another.
    fn draft_one(&mut self, packed: PackedDecoder<'_>, active: &[usize]) -> Result<Vec<usize>> {
        let (mut rows, mut of_row) = (Rows::default(), Vec::with_capacity(active.len()));
        for &index in active {
            let sequence = &mut self.running[index];
            if sequence.push_row(sequence.len() - 1, &mut self.pool, &mut rows) {
                of_row.push(index);
            }
        }
        self.run_layers(packed, &rows);
        let (running, compute) = (&mut self.running, packed.decoder.compute());
        compute.check()?;
        let (mut continuing, num_drafted) =
            (Vec::with_capacity(of_row.len()), &mut self.speculation.num_drafted);
        packed.head().for_logits(self.buffers.x.view(), &mut self.head, |row, logits| {
            let sequence = &mut running[of_row[row]];
            let before = sequence.num_drafted;
            if sequence.draft(compute, logits) {
                continuing.push(of_row[row]);
            }
            *num_drafted += (sequence.num_drafted - before) as u64;
            Ok(())
        })?;
        Ok(continuing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_drafts_are_made_the_more_are_accepted_and_the_fewer_sequences_run() {
        for num_sequences in 1..=8 {
            let most = VERIFIED_ROWS_MAX / num_sequences - 1;
            let counts =
                [0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0].map(|rate| best_count(rate, num_sequences, most));
            assert!(counts[0] == 0 && counts.is_sorted(), "{num_sequences}: {counts:?}");
        }
        assert_eq!(best_count(1.0, 1, 8), 8);
        assert_eq!((best_count(0.97, 8, 1), best_count(0.3, 8, 1)), (1, 0));
        assert!(best_count(0.8, 1, 8) >= best_count(0.8, 4, 8));
    }

    #[test]
    fn drafts_that_are_rejected_are_tried_again_rarely() {
        let mut speculation = Speculation::new(4);
        assert_eq!((speculation.count(16, 8), speculation.count(8, 8), speculation.count(1, 0)), (0, 1, 0));
        for _ in 0..8 {
            speculation.record(false);
        }
        let tried: Vec<usize> =
            (1..=3 * STEPS_BETWEEN_TRIALS).filter(|_| speculation.count(1, 8) > 0).collect();
        assert_eq!(tried, [1, 2, 3].map(|trial| trial * STEPS_BETWEEN_TRIALS));
        for _ in 0..200 {
            speculation.record(true);
        }
        assert_eq!((speculation.count(1, 8), speculation.count(4, 8)), (4, 3));
        assert_eq!(speculation.num_accepted, 200);
    }
}
