//! Log-probs of ids by rows of logits, with what else is read from their distribution, and gradients.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::LogProb;

use super::THREADS;
use crate::kept;

/// Most ids that `top_k_log_probs_rows` lists.
pub(crate) const TOP_MAX: usize = 4096;

/// Words of shared memory of its selection.
pub(super) const SELECT_WORDS: usize = 8 * 256 + 2;

/// The columns of [`LogProb`] on a card, in one buffer, so that one wait reads them.
#[derive(Debug)]
pub(crate) struct Columns {
    /// `log_sum` in double precision, then `log_prob`, `entropy` and `max`.
    floats: Buffer<f32>,
    count: usize,
}

/// Floats of a row in [`Columns`].
const COLUMNS: usize = 5;

pub(crate) fn log_prob_row(card: Card, logits_v: Slice<'_, f32>, id: usize) -> Result<LogProb> {
    Ok(log_prob_rows(card, logits_v, &[id as u32])?[0])
}

pub(crate) fn log_prob_rows(card: Card, logits_nv: Slice<'_, f32>, ids_n: &[u32]) -> Result<Vec<LogProb>> {
    if ids_n.is_empty() {
        return Ok(Vec::new());
    }
    vocab_of(logits_nv.len(), ids_n);
    let columns = Columns::zeros(card, ids_n.len())?;
    columns.find(card, logits_nv, &card.upload(ids_n)?, 0)?;
    columns.read()
}

pub(crate) fn log_prob_backward_row(
    card: Card,
    logits_v: SliceMut<'_, f32>,
    id: usize,
    found: LogProb,
    d_log_prob: f32,
    d_entropy: f32,
) -> Result<()> {
    log_prob_backward_rows(card, logits_v, &[id as u32], &[found], &[d_log_prob], Some(&[d_entropy]))
}

pub(crate) fn log_prob_backward_rows(
    card: Card,
    logits_nv: SliceMut<'_, f32>,
    ids_n: &[u32],
    found_n: &[LogProb],
    d_log_prob_n: &[f32],
    d_entropy_n: Option<&[f32]>,
) -> Result<()> {
    let count = ids_n.len();
    assert!(found_n.len() == count && d_log_prob_n.len() == count, "one of each a row");
    assert!(d_entropy_n.is_none_or(|d_entropy| d_entropy.len() == count), "one of each a row");
    if count == 0 {
        return Ok(());
    }
    let (ids, columns) = (card.upload(ids_n)?, Columns::upload(card, found_n)?);
    let d_log_prob = card.upload(d_log_prob_n)?;
    let d_entropy = d_entropy_n.map(|d_entropy| card.upload(d_entropy)).transpose()?;
    columns.pull(card, logits_nv, &ids, &d_log_prob, d_entropy.as_ref())
}

pub(crate) fn cross_entropy(card: Card, logits_nv: SliceMut<'_, f32>, ids_n: &[u32]) -> Result<f64> {
    let count = ids_n.len();
    if count == 0 {
        return Ok(0.0);
    }
    let (ids, columns, mean) = (card.upload(ids_n)?, Columns::zeros(card, count)?, card.zeros::<f64>(1)?);
    columns.find(card, logits_nv.view(), &ids, 0)?;
    let one = Grid { blocks: (1, 1), threads: THREADS, shared_bytes: 4 * THREADS };
    card.queue("cross_entropy_mean", one, arguments![columns.column(0, 0), count, &mean])?;
    let d_log_prob = card.upload(&vec![-1.0 / count as f32; count])?;
    columns.pull(card, logits_nv, &ids, &d_log_prob, None)?;
    Ok(mean.read()?[0])
}

pub(crate) fn entropy_row(card: Card, logits_v: Slice<'_, f32>) -> Result<f32> {
    let entropy = card.zeros::<f32>(1)?;
    card.queue("entropy_rows", grid(1), arguments![logits_v, logits_v.len(), &entropy])?;
    Ok(entropy.read()?[0])
}

pub(crate) fn softmax_row(card: Card, logits_v: SliceMut<'_, f32>) -> Result<()> {
    let vocab = logits_v.len();
    card.queue("softmax_rows", grid(1), arguments![logits_v, vocab])
}

pub(crate) fn log_sum_sq_prob_row(card: Card, logits_v: Slice<'_, f32>) -> Result<f32> {
    Ok(log_sum_sq_prob_rows(card, logits_v, logits_v.len())?[0])
}

pub(crate) fn log_sum_sq_prob_rows(card: Card, logits_nv: Slice<'_, f32>, vocab: usize) -> Result<Vec<f32>> {
    let count = logits_nv.len() / vocab.max(1);
    if count == 0 {
        return Ok(Vec::new());
    }
    let log_sum_sq = card.zeros::<f32>(count)?;
    card.queue("log_sum_sq_prob_rows", grid(count), arguments![logits_nv, vocab, &log_sum_sq])?;
    log_sum_sq.read()
}

pub(crate) fn top_k_log_probs(card: Card, logits_v: Slice<'_, f32>, k: usize) -> Result<Vec<(u32, f32)>> {
    let k = k.min(logits_v.len());
    match k {
        0 => return Ok(Vec::new()),
        1..=TOP_MAX => {}
        _ => return Err(kept::lacking(card, "top_k_log_probs of more than 4096 ids")),
    }
    let (ids, log_probs) = (card.zeros::<u32>(k)?, card.zeros::<f32>(k)?);
    queue_top_k(card, logits_v, 1, k, (&ids).into(), (&log_probs).into())?;
    Ok(ids.read()?.into_iter().zip(log_probs.read()?).collect())
}

/// Lists the `k` likeliest ids of each of `rows`, 1 at least and at most [`TOP_MAX`], and their log-probs.
pub(super) fn queue_top_k(
    card: Card,
    logits_nv: Slice<'_, f32>,
    rows: usize,
    k: usize,
    ids_nk: Argument,
    log_probs_nk: Argument,
) -> Result<()> {
    let shared_bytes = (8 * (k + 1) + 4 * (1 + SELECT_WORDS)) as u32;
    let grid = Grid::of_rows(rows, THREADS, shared_bytes);
    let vocab = logits_nv.len() / rows;
    card.queue("top_k_log_probs_rows", grid, arguments![logits_nv, vocab, k, ids_nk, log_probs_nk])
}

impl Columns {
    pub(crate) fn zeros(card: Card, count: usize) -> Result<Self> {
        Ok(Self { floats: card.zeros(COLUMNS * count)?, count })
    }

    fn upload(card: Card, found_n: &[LogProb]) -> Result<Self> {
        let mut floats = Vec::with_capacity(COLUMNS * found_n.len());
        floats.extend(found_n.iter().flat_map(|row| halves_of(row.log_sum)));
        floats.extend(found_n.iter().map(|row| row.log_prob));
        floats.extend(found_n.iter().map(|row| row.entropy));
        floats.extend(found_n.iter().map(|row| row.max));
        Ok(Self { floats: card.upload(&floats)?, count: found_n.len() })
    }

    /// Returns column number `index` of those in single precision, from row `first` on.
    fn column(&self, index: usize, first: usize) -> Slice<'_, f32> {
        let column = (2 + index) * self.count;
        self.floats.view().slice(column + first..column + self.count)
    }

    /// Returns the sums of rows from `first` on.
    fn log_sum(&self, first: usize) -> Slice<'_, f32> {
        self.floats.view().slice(2 * first..2 * self.count)
    }

    /// Writes rows from `first` on, one an id.
    pub(crate) fn find(
        &self,
        card: Card,
        logits_nv: Slice<'_, f32>,
        ids: &Buffer<u32>,
        first: usize,
    ) -> Result<()> {
        assert!(first + ids.len() <= self.count, "rows of results are there");
        let [log_prob, entropy, max] = [0, 1, 2].map(|index| self.column(index, first));
        let vocab = logits_nv.len() / ids.len();
        let arguments = arguments![logits_nv, ids, vocab, log_prob, entropy, max, self.log_sum(first)];
        card.queue("log_prob_rows", grid(ids.len()), arguments)
    }

    /// Overwrites logits by their gradients.
    fn pull(
        &self,
        card: Card,
        logits_nv: SliceMut<'_, f32>,
        ids: &Buffer<u32>,
        d_log_prob: &Buffer<f32>,
        d_entropy: Option<&Buffer<f32>>,
    ) -> Result<()> {
        let (entropy, max, log_sum) = (self.column(1, 0), self.column(2, 0), self.log_sum(0));
        let vocab = logits_nv.len() / ids.len();
        let arguments = arguments![logits_nv, ids, vocab, entropy, max, log_sum, d_log_prob, d_entropy];
        card.queue("log_prob_backward_rows", Grid::of_rows(ids.len(), THREADS, 0), arguments)
    }

    /// Waits for the results.
    pub(crate) fn read(&self) -> Result<Vec<LogProb>> {
        let floats = self.floats.read()?;
        let (log_sum, columns) = floats.split_at(2 * self.count);
        let row = |at: usize| LogProb {
            log_prob: columns[at],
            entropy: columns[self.count + at],
            max: columns[2 * self.count + at],
            log_sum: of_halves([log_sum[2 * at], log_sum[2 * at + 1]]),
        };
        Ok((0..self.count).map(row).collect())
    }
}

/// Returns the bits of a number in double precision as two in single precision, the lower half first, as both the processor and
/// GPUs store them.
fn halves_of(number: f64) -> [f32; 2] {
    let bits = number.to_bits();
    [bits as u32, (bits >> 32) as u32].map(f32::from_bits)
}

fn of_halves(halves: [f32; 2]) -> f64 {
    let [low, high] = halves.map(|half| u64::from(half.to_bits()));
    f64::from_bits(high << 32 | low)
}

fn vocab_of(len: usize, ids_n: &[u32]) -> usize {
    let vocab = len / ids_n.len();
    assert_eq!(len, vocab * ids_n.len(), "rows of one width");
    assert!(ids_n.iter().all(|id| (*id as usize) < vocab), "ids are below the vocabulary");
    vocab
}

/// Returns the grid of kernels with a block of threads a row.
pub(super) fn grid(rows: usize) -> Grid {
    Grid::of_rows(rows, THREADS, 3 * 16 * 4)
}
