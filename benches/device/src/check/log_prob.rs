//! Log-probs, entropies, gradients and probabilities of rows of logits: every bit of `fulmar-kernel`'s.

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, Grid, arguments};
use fulmar_kernel::{LogProb, cross_entropy, log_prob_backward_rows, log_prob_rows};

use super::with_large;
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 256;
const CLUSTER: u32 = 8;
/// Logits of a block of sums.
const BLOCK: usize = 4096;
/// Floats of shared memory that a block of 4,096 logits takes.
const STRIDE: usize = BLOCK + 16;

/// Rows, vocabulary, and the largest logit: one below and above a lane, a block, a round of 16 blocks and a cluster's part.
const SHAPES: [(usize, usize, f32); 19] = [
    (2, 1, 1.0),
    (3, 5, 4.0),
    (5, 6, 4.0),
    (2, 15, 4.0),
    (5, 16, 4.0),
    (5, 17, 90.0),
    (1, 97, 4.0),
    (2, 4_095, 8.0),
    (5, 4_096, 8.0),
    (3, 4_097, 8.0),
    (2, 4_098, 8.0),
    (5, 4_100, 30.0),
    (2, 32_768, 12.0),
    (1, 32_769, 12.0),
    (1, 65_535, 12.0),
    (1, 65_536, 12.0),
    (2, 65_537, 40.0),
    (1, 151_936, 12.0),
    (1, 262_144, 90.0),
];

/// The same for a GPU alone: many rows, and a large vocabulary.
const LARGE: [(usize, usize, f32); 2] = [(8_192, 1_000, 8.0), (64, 151_936, 12.0)];

/// Numbers of one kind that a row gets at its places: first, middle and last.
const ODD: [(&str, f32); 4] =
    [("finite", 0.0), ("-inf", f32::NEG_INFINITY), ("NaN", f32::NAN), ("inf", f32::INFINITY)];

/// Compares the kernels at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (rows, vocab, scale) in with_large(card, &SHAPES, &LARGE) {
        let odd_kinds = if vocab > 5_000 { 2 } else { ODD.len() };
        for (kind, odd) in &ODD[..odd_kinds] {
            let mut logits = random("logits", rows * vocab, scale);
            if odd.abs() > 0.0 || odd.is_nan() {
                for row in logits.chunks_exact_mut(vocab) {
                    for place in [0, vocab / 2, vocab - 1] {
                        row[place] = *odd;
                    }
                }
            }
            compare(card, report, &format!("{rows} x {vocab}, {kind}"), logits, rows)?;
        }
    }
    // Each block has a larger maximum than the last one, so that sums are rescaled.
    let rising = |(at, logit): (usize, &f32)| logit + (at % 20_000 / BLOCK) as f32 * 0.31;
    let logits = random("rising", 40_000, 1.0).iter().enumerate().map(rising).collect();
    compare(card, report, "2 x 20000, rising", logits, 2)?;
    compare(card, report, "2 x 33, -inf alone", vec![f32::NEG_INFINITY; 66], 2)?;
    ties(card, report)?;
    means(card, report)
}

/// The likeliest of rows with many equal logits, with zeros of both signs, and with NaNs.
fn ties(card: &Card, report: &mut Report) -> Result<()> {
    let coarse: Vec<f32> = random("coarse", 3 * 4_100, 3.0).iter().map(|logit| logit.round()).collect();
    for k in [1, 10, 100, 1_000, 4_096] {
        likeliest(card, report, "3 x 4100, coarse", (&coarse, 4_100), k)?;
    }
    let mut odd = vec![-0.0; 300];
    (0..300).step_by(7).for_each(|place| odd[place] = 0.0);
    (0..300).step_by(11).for_each(|place| odd[place] = f32::NAN);
    (0..300).step_by(13).for_each(|place| odd[place] = f32::NEG_INFINITY);
    for k in [1, 100, 250, 299, 300] {
        likeliest(card, report, "1 x 300, zeros and NaNs", (&odd, 300), k)?;
    }
    likeliest(card, report, "2 x 200, NaNs alone", (&[f32::NAN; 400], 200), 3)
}

/// Means of any number of log-probs: one below and above a block of threads.
fn means(card: &Card, report: &mut Report) -> Result<()> {
    for rows in [0, 1, 2, 255, 256, 257, 511, 513, 5_000] {
        let log_probs: Vec<f32> =
            random("means", rows, 20.0).iter().map(|log_prob| -log_prob.abs()).collect();
        let (from, mean) = (card.upload(&log_probs)?, card.poisoned::<f64>(1)?);
        card.launch("cross_entropy_mean", mean_grid(), arguments![&from, rows, &mean])?;
        let total = log_probs.iter().fold(0.0, |total, log_prob| total - f64::from(*log_prob));
        let wanted = if rows == 0 { 0.0 } else { total / rows as f64 };
        report.same("cross_entropy_mean", &rows.to_string(), &mean.read()?, &[wanted]);
    }
    Ok(())
}

const fn mean_grid() -> Grid {
    Grid { blocks: (1, 1), threads: THREADS, shared_bytes: 4 * THREADS }
}

/// Returns the shape of a launch of `top_k_log_probs_rows`.
pub fn top_k_grid(rows: usize, k: usize) -> Grid {
    const SELECT_WORDS: usize = 8 * 256 + 2;
    let shared_bytes = (8 * (k + 1) + 4 * (1 + SELECT_WORDS)) as u32;
    Grid { blocks: (rows as u32, 1), threads: THREADS, shared_bytes }
}

/// Returns the shape of a launch of kernels with a block of threads a row.
pub fn rows_grid(rows: usize) -> Grid {
    Grid { blocks: (rows as u32, 1), threads: THREADS, shared_bytes: 3 * 16 * 4 }
}

/// Returns the shape of a launch of `log_prob_and_backward_rows`.
pub fn together_grid(rows: usize, vocab: usize) -> Grid {
    let blocks_each = vocab.div_ceil(BLOCK).div_ceil(CLUSTER as usize);
    let shared_bytes = 4 * (blocks_each * STRIDE + 3 * 14 + 3 * 14 * CLUSTER as usize) as u32;
    Grid { blocks: (rows as u32 * CLUSTER, 1), threads: THREADS, shared_bytes }
}

struct Inputs {
    logits: Vec<f32>,
    ids: Vec<u32>,
    d_log_prob: Vec<f32>,
    d_entropy: Vec<f32>,
    vocab: usize,
}

fn compare(card: &Card, report: &mut Report, shape: &str, logits: Vec<f32>, rows: usize) -> Result<()> {
    let vocab = logits.len() / rows;
    let places = [0, vocab - 1, 1, vocab / 2, vocab - vocab.min(2)].map(|place| place.min(vocab - 1));
    let inputs = Inputs {
        ids: (0..rows).map(|row| places[row % places.len()] as u32).collect(),
        d_log_prob: random("d_log_prob", rows, 1.0),
        d_entropy: random("d_entropy", rows, 0.1),
        vocab,
        logits,
    };
    let wanted = log_prob_rows(&inputs.logits, &inputs.ids);
    let mut gradient = inputs.logits.clone();
    log_prob_backward_rows(&mut gradient, &inputs.ids, &wanted, &inputs.d_log_prob, Some(&inputs.d_entropy));
    apart(card, report, shape, &inputs, &wanted, &gradient)?;
    if card.gpu().compute_capability.0 >= 9 {
        together(card, report, shape, &inputs, &wanted, &gradient)?;
    }
    let mut gradient = inputs.logits.clone();
    log_prob_backward_rows(&mut gradient, &inputs.ids, &wanted, &inputs.d_log_prob, None);
    without_entropy(card, report, shape, &inputs, &wanted, &gradient)?;
    probabilities(card, report, shape, &inputs)?;
    entropies(card, report, shape, &inputs, &wanted)?;
    mean_loss(card, report, shape, &inputs)?;
    [1, 20].iter().try_for_each(|k| likeliest(card, report, shape, (&inputs.logits, vocab), vocab.min(*k)))
}

fn entropies(
    card: &Card,
    report: &mut Report,
    shape: &str,
    inputs: &Inputs,
    wanted: &[LogProb],
) -> Result<()> {
    let rows = inputs.ids.len();
    let (logits, entropy) = (card.upload(&inputs.logits)?, card.poisoned::<f32>(rows)?);
    card.launch("entropy_rows", rows_grid(rows), arguments![&logits, inputs.vocab, &entropy])?;
    let wanted: Vec<f32> = wanted.iter().map(|row| row.entropy).collect();
    report.same("entropy_rows", shape, &entropy.read()?, &wanted);
    Ok(())
}

/// The cross-entropy and its gradient by `cross_entropy_mean` and either kernel of gradients.
fn mean_loss(card: &Card, report: &mut Report, shape: &str, inputs: &Inputs) -> Result<()> {
    let (rows, vocab) = (inputs.ids.len(), inputs.vocab);
    let mut gradient = inputs.logits.clone();
    let wanted = cross_entropy(&mut gradient, &inputs.ids);
    let ids = card.upload(&inputs.ids)?;
    let d_log_prob = card.upload(&vec![-1.0 / rows as f32; rows])?;
    let found = Found::new(card, rows)?;
    let Found { log_prob, entropy, max, log_sum } = &found;
    let compare = |report: &mut Report, name: &str, logits: &Buffer<f32>| {
        let mean = card.poisoned::<f64>(1)?;
        card.launch("cross_entropy_mean", mean_grid(), arguments![log_prob, rows, &mean])?;
        report.same(&format!("{name}, mean"), shape, &mean.read()?, &[wanted]);
        report.same(&format!("{name}, gradient"), shape, &logits.read()?, &gradient);
        Ok::<_, fulmar_core::Error>(())
    };
    let logits = card.upload(&inputs.logits)?;
    let arguments = arguments![&logits, &ids, vocab, log_prob, entropy, max, log_sum];
    card.launch("log_prob_rows", rows_grid(rows), arguments)?;
    let arguments =
        arguments![&logits, &ids, vocab, entropy, max, log_sum, &d_log_prob, None::<&Buffer<f32>>];
    card.launch("log_prob_backward_rows", rows_grid(rows), arguments)?;
    compare(report, "cross_entropy", &logits)?;
    if card.gpu().compute_capability.0 >= 9 {
        let logits = card.upload(&inputs.logits)?;
        let arguments = arguments![
            &logits,
            &ids,
            vocab,
            &d_log_prob,
            None::<&Buffer<f32>>,
            log_prob,
            entropy,
            max,
            log_sum
        ];
        card.launch("log_prob_and_backward_rows", together_grid(rows, vocab), arguments)?;
        compare(report, "cross_entropy at once", &logits)?;
    }
    Ok(())
}

/// `top_k_log_probs_rows` on rows of `vocab` logits.
fn likeliest(
    card: &Card,
    report: &mut Report,
    shape: &str,
    (logits, vocab): (&[f32], usize),
    k: usize,
) -> Result<()> {
    let rows = logits.len() / vocab;
    let from = card.upload(logits)?;
    let (ids, log_probs) = (card.poisoned::<u32>(rows * k)?, card.poisoned::<f32>(rows * k)?);
    card.launch("top_k_log_probs_rows", top_k_grid(rows, k), arguments![&from, vocab, k, &ids, &log_probs])?;
    let of_row = |row| fulmar_kernel::top_k_log_probs(row, k);
    let (wanted_ids, wanted): (Vec<u32>, Vec<f32>) = logits.chunks_exact(vocab).flat_map(of_row).unzip();
    let shape = format!("{shape}, the {k} likeliest");
    report.same("top_k_log_probs_rows, ids", &shape, &ids.read()?, &wanted_ids);
    report.same("top_k_log_probs_rows", &shape, &log_probs.read()?, &wanted);
    Ok(())
}

/// `softmax_rows` and `log_sum_sq_prob_rows`.
fn probabilities(card: &Card, report: &mut Report, shape: &str, inputs: &Inputs) -> Result<()> {
    let (rows, vocab) = (inputs.ids.len(), inputs.vocab);
    let logits = card.upload(&inputs.logits)?;
    let log_sum_sq = card.poisoned::<f32>(rows)?;
    card.launch("log_sum_sq_prob_rows", rows_grid(rows), arguments![&logits, vocab, &log_sum_sq])?;
    let wanted = fulmar_kernel::log_sum_sq_prob_rows(&inputs.logits, vocab);
    report.same("log_sum_sq_prob_rows", shape, &log_sum_sq.read()?, &wanted);
    card.launch("softmax_rows", rows_grid(rows), arguments![&logits, vocab])?;
    let mut softmax = inputs.logits.clone();
    softmax.chunks_exact_mut(vocab).for_each(fulmar_kernel::softmax_row);
    report.same("softmax_rows", shape, &logits.read()?, &softmax);
    Ok(())
}

/// `log_prob_rows`, then `log_prob_backward_rows` on what it wrote.
fn apart(
    card: &Card,
    report: &mut Report,
    shape: &str,
    inputs: &Inputs,
    wanted: &[LogProb],
    gradient: &[f32],
) -> Result<()> {
    let rows = inputs.ids.len();
    let (logits, ids) = (card.upload(&inputs.logits)?, card.upload(&inputs.ids)?);
    let (d_log_prob, d_entropy) = (card.upload(&inputs.d_log_prob)?, card.upload(&inputs.d_entropy)?);
    let found = Found::new(card, rows)?;
    let grid = rows_grid(rows);
    let Found { log_prob, entropy, max, log_sum } = &found;
    let arguments = arguments![&logits, &ids, inputs.vocab, log_prob, entropy, max, log_sum];
    card.launch("log_prob_rows", grid, arguments)?;
    found.compare(report, "log_prob_rows", shape, wanted)?;
    let grid = Grid { shared_bytes: 0, ..grid };
    let arguments = arguments![&logits, &ids, inputs.vocab, entropy, max, log_sum, &d_log_prob, &d_entropy];
    card.launch("log_prob_backward_rows", grid, arguments)?;
    report.same("log_prob_backward_rows", shape, &logits.read()?, gradient);
    Ok(())
}

fn together(
    card: &Card,
    report: &mut Report,
    shape: &str,
    inputs: &Inputs,
    wanted: &[LogProb],
    gradient: &[f32],
) -> Result<()> {
    let rows = inputs.ids.len();
    let (logits, ids) = (card.upload(&inputs.logits)?, card.upload(&inputs.ids)?);
    let (d_log_prob, d_entropy) = (card.upload(&inputs.d_log_prob)?, card.upload(&inputs.d_entropy)?);
    let found = Found::new(card, rows)?;
    let grid = together_grid(rows, inputs.vocab);
    let Found { log_prob, entropy, max, log_sum } = &found;
    let arguments =
        arguments![&logits, &ids, inputs.vocab, &d_log_prob, &d_entropy, log_prob, entropy, max, log_sum];
    card.launch("log_prob_and_backward_rows", grid, arguments)?;
    found.compare(report, "log_prob_and_backward_rows", shape, wanted)?;
    report.same("log_prob_and_backward_rows, gradient", shape, &logits.read()?, gradient);
    Ok(())
}

/// `log_prob_backward_rows` with a null pointer for the gradients of the entropies.
fn without_entropy(
    card: &Card,
    report: &mut Report,
    shape: &str,
    inputs: &Inputs,
    found: &[LogProb],
    gradient: &[f32],
) -> Result<()> {
    let (logits, ids) = (card.upload(&inputs.logits)?, card.upload(&inputs.ids)?);
    let entropy = card.upload(&found.iter().map(|row| row.entropy).collect::<Vec<_>>())?;
    let max = card.upload(&found.iter().map(|row| row.max).collect::<Vec<_>>())?;
    let log_sum = card.upload(&found.iter().map(|row| row.log_sum).collect::<Vec<_>>())?;
    let d_log_prob = card.upload(&inputs.d_log_prob)?;
    let grid = Grid { blocks: (inputs.ids.len() as u32, 1), threads: THREADS, shared_bytes: 0 };
    let arguments =
        arguments![&logits, &ids, inputs.vocab, &entropy, &max, &log_sum, &d_log_prob, None::<&Buffer<f32>>];
    card.launch("log_prob_backward_rows", grid, arguments)?;
    report.same("log_prob_backward_rows, no entropy", shape, &logits.read()?, gradient);
    Ok(())
}

/// The columns of [`LogProb`].
struct Found {
    log_prob: Buffer<f32>,
    entropy: Buffer<f32>,
    max: Buffer<f32>,
    log_sum: Buffer<f64>,
}

impl Found {
    fn new(card: &Card, rows: usize) -> Result<Self> {
        Ok(Self {
            log_prob: card.poisoned(rows)?,
            entropy: card.poisoned(rows)?,
            max: card.poisoned(rows)?,
            log_sum: card.poisoned(rows)?,
        })
    }

    fn compare(&self, report: &mut Report, name: &str, shape: &str, wanted: &[LogProb]) -> Result<()> {
        let column = |of: fn(&LogProb) -> f32| wanted.iter().map(of).collect::<Vec<_>>();
        let log_sums: Vec<f64> = wanted.iter().map(|row| row.log_sum).collect();
        let named = |column: &str| format!("{name}, {column}");
        report.same(&named("log_prob"), shape, &self.log_prob.read()?, &column(|row| row.log_prob));
        report.same(&named("entropy"), shape, &self.entropy.read()?, &column(|row| row.entropy));
        report.same(&named("max"), shape, &self.max.read()?, &column(|row| row.max));
        report.same(&named("log_sum"), shape, &self.log_sum.read()?, &log_sums);
        Ok(())
    }
}
