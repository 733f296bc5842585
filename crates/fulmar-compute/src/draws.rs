//! Draws of tokens from many rows of logits on a GPU. On the processor a draw is code of `fulmar-objective`, which makes the plans.

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card};

use crate::{View, cuda, kept};

/// The inputs of one draw besides its logits. By default it draws from all tokens, with the lowest word.
#[derive(Debug, Clone, Copy)]
pub struct DrawInputs<'a> {
    /// Added to logits in this order, by ids.
    pub biases: &'a [(u32, f64)],
    /// Tokens with penalties, each once, with the number of times that it was drawn.
    pub seen: &'a [(u32, u32)],
    /// Their penalties: repetition, frequency, presence.
    pub penalties: [f32; 3],
    /// Ids that are not drawn, in any order.
    pub banned: &'a [u32],
    /// The mask of tokens that are allowed: `[ceil(V / 32)]` words.
    pub allowed: Option<&'a [u32]>,
    /// At least 0.
    pub temperature: f64,
    /// Number of likeliest tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// `top_p`, `min_p`, `typical_p`, `epsilon`, `eta` and `top_h`, of which 1, 0, 1, 0, 0 and 0 keep all.
    pub cuts: [f64; 6],
    /// The random word of a draw by the inverse of cumulative sums.
    pub word: u32,
    /// The key and the stream of a draw by Gumbel noise.
    pub noise: Option<[u64; 2]>,
}

impl Default for DrawInputs<'_> {
    fn default() -> Self {
        Self {
            biases: &[],
            seen: &[],
            penalties: [1.0, 0.0, 0.0],
            banned: &[],
            allowed: None,
            temperature: 1.0,
            top_k: 0,
            cuts: [1.0, 0.0, 1.0, 0.0, 0.0, 0.0],
            word: 0,
            noise: None,
        }
    }
}

/// The number of a mask for a row that has none, as in `draw.cu`.
const NO_MASK: u32 = u32::MAX;

/// Draws of rows that follow each other, as kernels read them: the `ends` of lists are those of each row's items.
#[derive(Debug, Default)]
pub struct DrawPlan {
    pub(crate) bias_ends: Vec<u32>,
    pub(crate) bias_ids: Vec<u32>,
    pub(crate) biases: Vec<f64>,
    pub(crate) seen_ends: Vec<u32>,
    pub(crate) seen_ids: Vec<u32>,
    pub(crate) seen_counts: Vec<u32>,
    pub(crate) penalties: Vec<[f32; 3]>,
    pub(crate) banned_ends: Vec<u32>,
    pub(crate) banned_ids: Vec<u32>,
    pub(crate) mask: Vec<u32>,
    pub(crate) masks: Vec<u32>,
    pub(crate) temperature: Vec<f64>,
    pub(crate) top_k: Vec<u32>,
    pub(crate) cuts: Vec<[f64; 6]>,
    pub(crate) words: Vec<u32>,
    pub(crate) noise: Vec<[u32; 5]>,
}

impl DrawPlan {
    /// Adds the draw of the next row. Its ids must be below the vocabulary's size.
    pub fn push(&mut self, inputs: &DrawInputs<'_>) {
        let mut biases = inputs.biases.to_vec();
        biases.sort_by_key(|(id, _)| *id); // those of one id in their order
        self.bias_ids.extend(biases.iter().map(|(id, _)| *id));
        self.biases.extend(biases.iter().map(|(_, bias)| *bias));
        self.bias_ends.push(self.bias_ids.len() as u32);
        self.seen_ids.extend(inputs.seen.iter().map(|(id, _)| *id));
        self.seen_counts.extend(inputs.seen.iter().map(|(_, count)| *count));
        self.seen_ends.push(self.seen_ids.len() as u32);
        self.penalties.push(inputs.penalties);
        self.banned_ids.extend(inputs.banned);
        self.banned_ends.push(self.banned_ids.len() as u32);
        let words = inputs.allowed.map_or(0, <[u32]>::len);
        self.mask.push(self.masks.len().checked_div(words).map_or(NO_MASK, |row| row as u32));
        self.masks.extend(inputs.allowed.unwrap_or_default());
        self.temperature.push(inputs.temperature);
        self.top_k.push(u32::try_from(inputs.top_k).unwrap_or(u32::MAX));
        self.cuts.push(inputs.cuts);
        self.words.push(inputs.word);
        self.noise.push(inputs.noise.map_or([0; 5], |[key, stream]| {
            [1, key as u32, (key >> 32) as u32, stream as u32, (stream >> 32) as u32]
        }));
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.words.len()
    }

    /// Returns whether rows are drawn from as they are.
    pub(crate) fn changes_nothing(&self) -> bool {
        let lists = [&self.bias_ids, &self.seen_ids, &self.banned_ids, &self.masks];
        lists.iter().all(|list| list.is_empty())
    }
}

/// One draw of [`Draws::read`].
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// The token; 0 if no token may be drawn.
    pub id: u32,
    /// Its log-prob by the logits. A NaN, if one of them is a NaN or infinite, or all are `-inf`.
    pub log_prob: f32,
    /// Its log-prob under the distribution that it was drawn from. A NaN, if nothing may be drawn.
    pub sampled_log_prob: f32,
    /// The likeliest ids by the logits with their log-probs, the likeliest first.
    pub top_log_probs: Vec<(u32, f32)>,
}

/// Draws that are queued on a GPU, to be read by one copy.
#[derive(Debug)]
pub struct Draws {
    card: Card,
    num_rows: usize,
    num_queued: usize,
    num_top: usize,
    /// Columns of all rows: ids, log-probs by the logits and by what they were drawn from; then the likeliest ids of each row, and
    /// their log-probs.
    words: Buffer<u32>,
}

impl Draws {
    /// Makes room for the draws of `num_rows` rows, and for the `num_top` likeliest ids of each.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them; `Unavailable` for a GPU that fails, and for more than 4,096 likeliest ids; errors
    /// of the operations so far.
    pub fn new(card: Card, num_rows: usize, num_top: usize) -> Result<Self> {
        kept::take()?;
        if num_top > cuda::TOP_MAX {
            return Err(kept::lacking(card, "a draw with more than 4096 likeliest ids"));
        }
        let words = card.room(num_rows * (3 + 2 * num_top))?;
        Ok(Self { card, num_rows, num_queued: 0, num_top, words })
    }

    /// Queues the draws of the next rows, from their logits `[N, V]`. An error is kept for [`Draws::read`].
    ///
    /// # Panics
    /// If there are more rows than room, or logits of other rows than those of `plan`.
    pub fn queue(&mut self, logits_nv: View<'_, f32>, plan: &DrawPlan) {
        let (count, first) = (plan.num_rows(), self.num_queued);
        assert!(first + count <= self.num_rows, "room for all rows");
        self.num_queued += count;
        let Self { card, num_rows, num_top, .. } = *self;
        let words = self.words.view();
        let column =
            |column: usize| words.slice(column * num_rows + first..column * num_rows + first + count);
        let top = |column: usize| {
            let from = (3 + column * num_top) * num_rows + first * num_top;
            words.slice(from..from + count * num_top)
        };
        let places = cuda::DrawPlaces {
            ids: column(0),
            log_prob: column(1),
            sampled: column(2),
            num_top,
            top_ids: top(0),
            top_log_probs: top(1),
        };
        kept::run("draw_rows", || cuda::draw_rows(card, logits_nv.cuda(card)?, plan, &places));
    }

    /// Waits for all draws and returns those that were queued.
    ///
    /// # Errors
    /// Errors of the operations so far; `Unavailable` for a GPU that fails.
    pub fn read(self) -> Result<Vec<Drawn>> {
        kept::take()?;
        let Self { num_rows, num_queued, num_top, words, .. } = self;
        let words = words.read()?;
        let number = |column: usize, row: usize| f32::from_bits(words[column * num_rows + row]);
        let (top_ids, top_log_probs) = words[3 * num_rows..].split_at(num_top * num_rows);
        let top = |row: usize| {
            let place = row * num_top..(row + 1) * num_top;
            let log_probs = top_log_probs[place.clone()].iter().map(|bits| f32::from_bits(*bits));
            top_ids[place].iter().copied().zip(log_probs).collect()
        };
        Ok((0..num_queued)
            .map(|row| Drawn {
                id: words[row],
                log_prob: number(1, row),
                sampled_log_prob: number(2, row),
                top_log_probs: top(row),
            })
            .collect())
    }
}
