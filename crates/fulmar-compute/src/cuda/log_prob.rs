//! Log-probs of ids by rows of logits, with what else is read from their distribution, and gradients.

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::LogProb;

use super::THREADS;
use crate::kept;

/// Most ids that `top_k_log_probs_rows` lists.
const TOP_MAX: usize = 4096;

/// Words of shared memory of its selection.
const SELECT_WORDS: usize = 8 * 256 + 2;

/// The columns of [`LogProb`] on a card.
struct Columns {
    log_prob: Buffer<f32>,
    entropy: Buffer<f32>,
    max: Buffer<f32>,
    log_sum: Buffer<f64>,
}

pub(crate) fn log_prob_row(card: Card, logits_v: Slice<'_, f32>, id: usize) -> Result<LogProb> {
    Ok(log_prob_rows(card, logits_v, &[id as u32])?[0])
}

pub(crate) fn log_prob_rows(card: Card, logits_nv: Slice<'_, f32>, ids_n: &[u32]) -> Result<Vec<LogProb>> {
    if ids_n.is_empty() {
        return Ok(Vec::new());
    }
    let vocab = vocab_of(logits_nv.len(), ids_n);
    let (ids, columns) = (card.upload(ids_n)?, Columns::zeros(card, ids_n.len())?);
    columns.find(card, logits_nv, &ids, vocab)?;
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
    let vocab = vocab_of(logits_nv.len(), ids_n);
    let (ids, columns, mean) = (card.upload(ids_n)?, Columns::zeros(card, count)?, card.zeros::<f64>(1)?);
    columns.find(card, logits_nv.view(), &ids, vocab)?;
    let one = Grid { blocks: (1, 1), threads: THREADS, shared_bytes: 4 * THREADS };
    card.queue("cross_entropy_mean", one, arguments![&columns.log_prob, count, &mean])?;
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
    let (vocab, k) = (logits_v.len(), k.min(logits_v.len()));
    match k {
        0 => return Ok(Vec::new()),
        1..=TOP_MAX => {}
        _ => return Err(kept::lacking(card, "top_k_log_probs of more than 4096 ids")),
    }
    let (ids, log_probs) = (card.zeros::<u32>(k)?, card.zeros::<f32>(k)?);
    let shared_bytes = (8 * (k + 1) + 4 * (1 + SELECT_WORDS)) as u32;
    let grid = Grid { blocks: (1, 1), threads: THREADS, shared_bytes };
    card.queue("top_k_log_probs_rows", grid, arguments![logits_v, vocab, k, &ids, &log_probs])?;
    Ok(ids.read()?.into_iter().zip(log_probs.read()?).collect())
}

impl Columns {
    fn zeros(card: Card, count: usize) -> Result<Self> {
        Ok(Self {
            log_prob: card.zeros(count)?,
            entropy: card.zeros(count)?,
            max: card.zeros(count)?,
            log_sum: card.zeros(count)?,
        })
    }

    fn upload(card: Card, found_n: &[LogProb]) -> Result<Self> {
        let column = |of: fn(&LogProb) -> f32| card.upload(&found_n.iter().map(of).collect::<Vec<_>>());
        Ok(Self {
            log_prob: column(|row| row.log_prob)?,
            entropy: column(|row| row.entropy)?,
            max: column(|row| row.max)?,
            log_sum: card.upload(&found_n.iter().map(|row| row.log_sum).collect::<Vec<_>>())?,
        })
    }

    fn find(&self, card: Card, logits_nv: Slice<'_, f32>, ids: &Buffer<u32>, vocab: usize) -> Result<()> {
        let Self { log_prob, entropy, max, log_sum } = self;
        let arguments = arguments![logits_nv, ids, vocab, log_prob, entropy, max, log_sum];
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
        let Self { entropy, max, log_sum, .. } = self;
        let vocab = logits_nv.len() / ids.len();
        let arguments = arguments![logits_nv, ids, vocab, entropy, max, log_sum, d_log_prob, d_entropy];
        card.queue("log_prob_backward_rows", Grid::of_rows(ids.len(), THREADS, 0), arguments)
    }

    fn read(&self) -> Result<Vec<LogProb>> {
        let (log_prob, entropy) = (self.log_prob.read()?, self.entropy.read()?);
        let (max, log_sum) = (self.max.read()?, self.log_sum.read()?);
        let row = |(((log_prob, entropy), max), log_sum)| LogProb { log_prob, entropy, max, log_sum };
        Ok(log_prob.into_iter().zip(entropy).zip(max).zip(log_sum).map(row).collect())
    }
}

fn vocab_of(len: usize, ids_n: &[u32]) -> usize {
    let vocab = len / ids_n.len();
    assert_eq!(len, vocab * ids_n.len(), "rows of one width");
    assert!(ids_n.iter().all(|id| (*id as usize) < vocab), "ids are below the vocabulary");
    vocab
}

/// Returns the grid of kernels with a block of threads a row.
fn grid(rows: usize) -> Grid {
    Grid::of_rows(rows, THREADS, 3 * 16 * 4)
}
