//! `DpoLoss` written naively: one formula after the other, in exponentials and logarithms, without gradients.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::Rng;
use fulmar_objective::{DpoLossType, DpoOptions, FDivergence, PreferenceBatch};

pub struct Batch {
    pub log_prob: Vec<f64>,
    pub ref_log_prob: Vec<f64>,
    pub log_sum_sq_prob: Vec<f64>,
    pub mask: Vec<u8>,
    pub offsets: Vec<u32>,
}

impl Batch {
    /// Pairs of sequences of 2 to 7 tokens, the first of them the prompt's, others now and then a tool's.
    pub fn random(rng: &mut Rng, num_pairs: usize) -> Self {
        let (mut offsets, mut mask) = (vec![0], Vec::new());
        for _ in 0..2 * num_pairs {
            let length = 2 + rng.below(6).unwrap() as usize;
            mask.push(0);
            mask.extend((2..length).map(|_| u8::from(rng.below(4).unwrap() > 0)));
            mask.push(1);
            offsets.push(mask.len() as u32);
        }
        let log_prob: Vec<f64> = mask.iter().map(|_| -2.0 * rng.uniform_f64()).collect();
        let ref_log_prob = log_prob.iter().map(|l| l + 0.5 * rng.normal()).collect();
        let log_sum_sq_prob = log_prob.iter().map(|l| 0.5 * l - 0.2 * rng.uniform_f64()).collect();
        Self { log_prob, ref_log_prob, log_sum_sq_prob, mask, offsets }
    }

    pub fn view(&self) -> PreferenceBatch<'_, f64> {
        PreferenceBatch {
            log_prob: &self.log_prob,
            ref_log_prob: &self.ref_log_prob,
            log_sum_sq_prob: Some(&self.log_sum_sq_prob),
            mask: &self.mask,
            offsets: &self.offsets,
        }
    }

    /// Returns the batch of these sequences.
    fn of(&self, sequences: &[usize]) -> Self {
        let tokens: Vec<Vec<usize>> = sequences
            .iter()
            .map(|&s| (self.offsets[s] as usize..self.offsets[s + 1] as usize).collect())
            .collect();
        let mut offsets = vec![0];
        for sequence in &tokens {
            offsets.push(offsets[offsets.len() - 1] + sequence.len() as u32);
        }
        let part = |values: &[f64]| tokens.iter().flatten().map(|&t| values[t]).collect();
        Self {
            log_prob: part(&self.log_prob),
            ref_log_prob: part(&self.ref_log_prob),
            log_sum_sq_prob: part(&self.log_sum_sq_prob),
            mask: tokens.iter().flatten().map(|&t| self.mask[t]).collect(),
            offsets,
        }
    }

    pub fn pair(&self, pair: usize) -> Self {
        self.of(&[2 * pair, 2 * pair + 1])
    }

    /// Returns the same chosen answers with the rejected ones of other pairs.
    pub fn with_rejected_of(&self, pairs: &[usize]) -> Self {
        let sequences: Vec<usize> =
            pairs.iter().enumerate().flat_map(|(chosen, rejected)| [2 * chosen, 2 * rejected + 1]).collect();
        self.of(&sequences)
    }

    /// Returns the trained tokens of a sequence.
    fn trained(&self, sequence: usize) -> Vec<usize> {
        let all = self.offsets[sequence] as usize..self.offsets[sequence + 1] as usize;
        all.filter(|&t| self.mask[t] == 1).collect()
    }

    fn num_pairs(&self) -> usize {
        (self.offsets.len() - 1) / 2
    }

    pub fn num_chosen_tokens(&self) -> f64 {
        (0..self.num_pairs()).map(|p| self.trained(2 * p).len()).sum::<usize>() as f64
    }
}

fn log_sigmoid(x: f64) -> f64 {
    -(1.0 + (-x).exp()).ln()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn score(divergence: FDivergence, log_ratio: f64) -> f64 {
    let t = log_ratio.exp();
    match divergence {
        FDivergence::ReverseKl => t.ln(),
        FDivergence::ForwardKl => 1.0 - 1.0 / t,
        FDivergence::JsDivergence => (2.0 * t / (1.0 + t)).ln(),
        FDivergence::AlphaDivergence(alpha) => (t.powf(alpha - 1.0) - 1.0) / (alpha - 1.0),
    }
}

/// Returns the sum of a sequence's values, tokens beyond the length of the shorter of the two times `ld_alpha`.
fn total(batch: &Batch, values: &[f64], sequence: usize, options: &DpoOptions) -> f64 {
    let (own, other) = (batch.trained(sequence), batch.trained(sequence ^ 1));
    let mut sum = 0.0;
    for (place, t) in own.iter().enumerate() {
        let weight = if place < other.len() { 1.0 } else { options.ld_alpha.unwrap_or(1.0) };
        sum += weight * values[*t];
    }
    sum
}

/// Returns the likelihood weight of a sequence under the policy.
fn likelihood(batch: &Batch, sequence: usize) -> f64 {
    let trained = batch.trained(sequence);
    let aligned = trained.iter().map(|&t| batch.log_prob[t] - batch.log_sum_sq_prob[t]).sum::<f64>();
    (aligned / trained.len() as f64).exp()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

pub fn naive_loss(batch: &Batch, options: &DpoOptions) -> f64 {
    let num_pairs = batch.num_pairs();
    let of = |values: &[f64], side: usize| -> Vec<f64> {
        (0..num_pairs).map(|p| total(batch, values, 2 * p + side, options)).collect()
    };
    let [chosen, rejected] = [0, 1].map(|side| of(&batch.log_prob, side));
    let [ref_chosen, ref_rejected] = [0, 1].map(|side| of(&batch.ref_log_prob, side));
    let minus =
        |left: &[f64], right: &[f64]| left.iter().zip(right).map(|(l, r)| l - r).collect::<Vec<f64>>();
    let (c, r) = (minus(&chosen, &ref_chosen), minus(&rejected, &ref_rejected));
    let (d, d_ref) = (sorted(minus(&chosen, &rejected)), sorted(minus(&ref_chosen, &ref_rejected)));
    let (c_sorted, r_sorted) = (sorted(c.clone()), sorted(r.clone()));
    let mut loss = 0.0;
    for p in 0..num_pairs {
        let weight =
            if options.use_weighting { likelihood(batch, 2 * p) * likelihood(batch, 2 * p + 1) } else { 1.0 };
        let transported = [d[p] - d_ref[p], c_sorted[p] - r_sorted[p]];
        for (&kind, &share) in &options.loss_weights {
            loss += share * weight * value(batch, options, kind, p, (c[p], r[p]), transported);
        }
    }
    loss
}

/// Returns the term of pair `p` in the mean over pairs.
fn value(
    batch: &Batch,
    options: &DpoOptions,
    kind: DpoLossType,
    p: usize,
    (c, r): (f64, f64),
    [paired, unpaired]: [f64; 2],
) -> f64 {
    let (beta, e) = (options.beta, options.label_smoothing);
    let (s_c, s_r) = (score(options.f_divergence, c), score(options.f_divergence, r));
    let (len_c, len_r) = (batch.trained(2 * p).len() as f64, batch.trained(2 * p + 1).len() as f64);
    let x = beta * (s_c - s_r);
    let smoothed = |y: f64| -(1.0 - e) * log_sigmoid(y) - e * log_sigmoid(-y);
    let of_pair = match kind {
        DpoLossType::Sigmoid => -log_sigmoid(x),
        DpoLossType::SigmoidNorm => -log_sigmoid(beta * (s_c / len_c - s_r / len_r)),
        DpoLossType::Hinge => (1.0 - x).max(0.0),
        DpoLossType::Ipo => (s_c / len_c - s_r / len_r - 1.0 / (2.0 * beta)).powi(2),
        DpoLossType::ExoPair => {
            let q = sigmoid(x);
            q * (q / (1.0 - e)).ln() + (1.0 - q) * ((1.0 - q) / e).ln()
        }
        DpoLossType::NcaPair => {
            -log_sigmoid(beta * c) - 0.5 * log_sigmoid(-beta * c) - 0.5 * log_sigmoid(-beta * r)
        }
        DpoLossType::Robust => (-(1.0 - e) * log_sigmoid(x) + e * log_sigmoid(-x)) / (1.0 - 2.0 * e),
        DpoLossType::BcoPair => -log_sigmoid(beta * c) - log_sigmoid(-beta * r),
        DpoLossType::SppoHard => (c - 0.5 / beta).powi(2) + (r + 0.5 / beta).powi(2),
        DpoLossType::Aot => smoothed(beta * paired),
        DpoLossType::AotUnpaired => smoothed(beta * unpaired),
        DpoLossType::ApoZero => 1.0 - sigmoid(beta * c) + sigmoid(beta * r),
        DpoLossType::ApoDown => sigmoid(beta * c) + 1.0 - sigmoid(beta * (c - r)),
        DpoLossType::Discopop => {
            let mix = sigmoid(x / options.discopop_tau);
            -log_sigmoid(x) * (1.0 - mix) + (-x).exp() * mix
        }
        DpoLossType::Sft => {
            let chosen = batch.trained(2 * p);
            return -chosen.iter().map(|&t| batch.log_prob[t]).sum::<f64>() / batch.num_chosen_tokens();
        }
    };
    of_pair / batch.num_pairs() as f64
}
