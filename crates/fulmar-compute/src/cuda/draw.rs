//! Draws of tokens from rows of logits.

use bytemuck::NoUninit;
use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, arguments};

use super::log_prob::{SELECT_WORDS, grid as grid_of_sums, queue_top_k};
use crate::DrawPlan;

const THREADS: u32 = 1024;

/// Threads of `draw_noise_rows`.
const NOISE_THREADS: u32 = 256;

/// Numbers of a row that are summed together.
const BLOCK: usize = 4096;

/// Memory for the results of rows, as words.
#[derive(Clone, Copy)]
pub(crate) struct DrawPlaces<'a> {
    pub ids: Slice<'a, u32>,
    pub log_prob: Slice<'a, u32>,
    pub sampled: Slice<'a, u32>,
    pub num_top: usize,
    pub top_ids: Slice<'a, u32>,
    pub top_log_probs: Slice<'a, u32>,
}

pub(crate) fn draw_rows(
    card: Card,
    logits_nv: Slice<'_, f32>,
    plan: &DrawPlan,
    places: &DrawPlaces<'_>,
) -> Result<()> {
    let rows = plan.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let vocab = logits_nv.len() / rows;
    assert!(vocab > 0 && logits_nv.len() == rows * vocab, "rows of one width");
    let inputs = Inputs::upload(card, plan)?;
    if plan.changes_nothing() {
        queue_draws(card, logits_nv, rows, &inputs, places)?;
    } else {
        let scores = card.room::<f32>(rows * vocab)?;
        queue_scores(card, logits_nv, rows, &inputs, &scores)?;
        queue_draws(card, scores.view(), rows, &inputs, places)?;
    }
    queue_log_probs(card, logits_nv, rows, places)?;
    let DrawPlaces { num_top, top_ids, top_log_probs, .. } = *places;
    if num_top == 0 {
        return Ok(());
    }
    queue_top_k(card, logits_nv, rows, num_top, top_ids.into(), top_log_probs.into())
}

fn queue_scores(
    card: Card,
    logits_nv: Slice<'_, f32>,
    rows: usize,
    inputs: &Inputs,
    scores: &Buffer<f32>,
) -> Result<()> {
    let [
        bias_ends,
        bias_ids,
        biases,
        seen_ends,
        seen_ids,
        counts,
        penalties,
        banned_ends,
        banned_ids,
        mask,
        masks,
    ] = inputs.of_scores;
    let vocab = logits_nv.len() / rows;
    let arguments = arguments![
        logits_nv,
        vocab,
        bias_ends,
        bias_ids,
        biases,
        seen_ends,
        seen_ids,
        counts,
        penalties,
        banned_ends,
        banned_ids,
        mask,
        masks,
        scores
    ];
    card.queue("score_rows", Grid::of_rows(rows, THREADS, 0), arguments)
}

fn queue_draws(
    card: Card,
    scores_nv: Slice<'_, f32>,
    rows: usize,
    inputs: &Inputs,
    places: &DrawPlaces<'_>,
) -> Result<()> {
    let len = scores_nv.len();
    let (list, others, weights) = (card.room::<u32>(len)?, card.room::<u32>(len)?, card.room::<f32>(len)?);
    let kept = card.room::<[u64; 3]>(rows)?;
    let [temperature, top_k, cuts, words, noise] = inputs.of_draws;
    let (vocab, DrawPlaces { ids, sampled, .. }) = (len / rows, *places);
    let arguments = arguments![
        scores_nv,
        vocab,
        temperature,
        top_k,
        cuts,
        words,
        &list,
        &others,
        &weights,
        &kept,
        ids,
        sampled
    ];
    let blocks = vocab.div_ceil(BLOCK);
    let shared_bytes = 8 * (19 + blocks) + 4 * (blocks + BLOCK) + 4 * (4 + SELECT_WORDS);
    card.queue("draw_rows", Grid::of_rows(rows, THREADS, shared_bytes as u32), arguments)?;
    if !inputs.has_noise {
        return Ok(());
    }
    let arguments = arguments![scores_nv, vocab, temperature, noise, &list, &weights, &kept, ids, sampled];
    card.queue("draw_noise_rows", Grid::of_rows(rows, NOISE_THREADS, NOISE_THREADS * 12), arguments)
}

fn queue_log_probs(
    card: Card,
    logits_nv: Slice<'_, f32>,
    rows: usize,
    places: &DrawPlaces<'_>,
) -> Result<()> {
    let (entropy, max, log_sum) = (card.room::<f32>(rows)?, card.room::<f32>(rows)?, card.room::<f64>(rows)?);
    let (vocab, DrawPlaces { ids, log_prob, .. }) = (logits_nv.len() / rows, *places);
    let arguments = arguments![logits_nv, ids, vocab, log_prob, &entropy, &max, &log_sum];
    card.queue("log_prob_rows", grid_of_sums(rows), arguments)
}

/// A plan on a card, in the order of the parameters of its two kernels.
struct Inputs {
    of_scores: [Argument; 11],
    of_draws: [Argument; 5],
    /// True if a row draws by noise.
    has_noise: bool,
    /// The memory of these addresses.
    _bytes: Buffer<u8>,
}

impl Inputs {
    /// Copies all arrays at once, side by side.
    fn upload(card: Card, plan: &DrawPlan) -> Result<Self> {
        let mut arrays = Arrays::default();
        let of_scores = [
            arrays.push(&plan.bias_ends),
            arrays.push(&plan.bias_ids),
            arrays.push(&plan.biases),
            arrays.push(&plan.seen_ends),
            arrays.push(&plan.seen_ids),
            arrays.push(&plan.seen_counts),
            arrays.push(&plan.penalties),
            arrays.push(&plan.banned_ends),
            arrays.push(&plan.banned_ids),
            arrays.push(&plan.mask),
            arrays.push(&plan.masks),
        ];
        let of_draws = [
            arrays.push(&plan.temperature),
            arrays.push(&plan.top_k),
            arrays.push(&plan.cuts),
            arrays.push(&plan.words),
            arrays.push(&plan.noise),
        ];
        let bytes = card.upload(&arrays.bytes)?;
        let at = |first: usize| bytes.from(first);
        let has_noise = plan.noise.iter().any(|words| words[0] == 1);
        Ok(Self { of_scores: of_scores.map(at), of_draws: of_draws.map(at), has_noise, _bytes: bytes })
    }
}

/// Arrays side by side, each aligned for elements of 8 bytes.
#[derive(Default)]
struct Arrays {
    bytes: Vec<u8>,
}

impl Arrays {
    /// Adds an array and returns its first byte.
    fn push<T: NoUninit>(&mut self, values: &[T]) -> usize {
        let first = self.bytes.len();
        self.bytes.extend_from_slice(bytemuck::cast_slice(values));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        first
    }
}
