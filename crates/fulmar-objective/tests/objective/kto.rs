//! `KtoLoss` against a naive version, against finite differences, split into micro-batches, and at its edges; its golden rows are read
//! by `preference.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{KtoBatch, KtoLoss, KtoLossType, KtoOptions, LossOutput};

/// Eight answers of three tokens, the first of them the prompt's.
struct Batch {
    log_prob: Vec<f64>,
    ref_log_prob: Vec<f64>,
    desirable: Vec<u8>,
    kl_log_ratio: Vec<f64>,
}

const MASK: [u8; 24] = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1];
const OFFSETS: [u32; 9] = [0, 3, 6, 9, 12, 15, 18, 21, 24];

impl Batch {
    fn random(rng: &mut Rng) -> Self {
        let log_prob: Vec<f64> = (0..24).map(|_| -2.0 * rng.uniform_f64()).collect();
        Self {
            ref_log_prob: log_prob.iter().map(|l| l + 0.5 * rng.normal()).collect(),
            log_prob,
            desirable: (0..8).map(|_| rng.below(2).unwrap() as u8).collect(),
            kl_log_ratio: (0..8).map(|_| rng.normal()).collect(),
        }
    }

    fn view(&self) -> KtoBatch<'_, f64> {
        KtoBatch {
            log_prob: &self.log_prob,
            ref_log_prob: &self.ref_log_prob,
            desirable: &self.desirable,
            kl_log_ratio: Some(&self.kl_log_ratio),
            mask: &MASK,
            offsets: &OFFSETS,
        }
    }

    fn run(&self, options: KtoOptions) -> LossOutput<f64> {
        KtoLoss::new(options).unwrap().forward(&self.view()).unwrap()
    }

    fn naive(&self, options: &KtoOptions) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mean = self.kl_log_ratio.iter().sum::<f64>() / 8.0;
        let kl = if options.loss_type == KtoLossType::Kto { mean.max(0.0) } else { 0.0 };
        let mut loss = 0.0;
        for s in 0..8 {
            let log_ratio: f64 =
                [3 * s + 1, 3 * s + 2].map(|t| self.log_prob[t] - self.ref_log_prob[t]).iter().sum();
            loss += if self.desirable[s] == 1 {
                options.desirable_weight * (1.0 - sigmoid(options.beta * (log_ratio - kl)))
            } else {
                options.undesirable_weight * (1.0 - sigmoid(options.beta * (kl - log_ratio)))
            };
        }
        loss / 8.0
    }
}

fn random_options(rng: &mut Rng) -> KtoOptions {
    KtoOptions {
        loss_type: [KtoLossType::Kto, KtoLossType::ApoZeroUnpaired][rng.below(2).unwrap() as usize],
        beta: 0.05 + rng.uniform_f64(),
        desirable_weight: 2.0 * rng.uniform_f64(),
        undesirable_weight: 2.0 * rng.uniform_f64(),
        num_sequences: None,
        ..Default::default()
    }
}

fn assert_near(what: &str, got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance * expected.abs().max(1.0),
        "{what}: got {got}, expected {expected}"
    );
}

#[test]
fn random_batches_give_the_naive_value_and_its_slope() {
    let mut rng = Rng::new(1).stream("kto");
    for case in 0..500 {
        let (options, mut batch) = (random_options(&mut rng), Batch::random(&mut rng));
        let output = batch.run(options);
        assert_near(&format!("case {case}"), output.loss, batch.naive(&options), 1e-12);
        for t in 0..24 {
            let here = batch.log_prob[t];
            let mut at = |by: f64| {
                batch.log_prob[t] = here + by;
                batch.run(options).loss
            };
            let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
            batch.log_prob[t] = here;
            assert_near(&format!("case {case} [{t}]"), output.grad_log_prob[t], slope, 1e-8);
        }
    }
}

#[test]
fn eight_micro_batches_are_one_batch_of_eight() {
    let mut rng = Rng::new(2).stream("kto");
    let options = KtoOptions { num_sequences: Some(8.0), ..random_options(&mut rng) };
    let batch = Batch::random(&mut rng);
    let whole = batch.run(options);
    let mut loss = 0.0;
    for s in 0..8 {
        let tokens = 3 * s..3 * s + 3;
        let part = KtoBatch {
            log_prob: &batch.log_prob[tokens.clone()],
            ref_log_prob: &batch.ref_log_prob[tokens.clone()],
            desirable: &batch.desirable[s..=s],
            kl_log_ratio: Some(&batch.kl_log_ratio), // that of the whole step
            mask: &MASK[tokens.clone()],
            offsets: &[0, 3],
        };
        let output = KtoLoss::new(options).unwrap().forward(&part).unwrap();
        loss += output.loss;
        assert_eq!(output.grad_log_prob, whole.grad_log_prob[tokens]);
    }
    assert_near("loss", loss, whole.loss, 1e-12);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |options: KtoOptions| KtoLoss::new(options).unwrap_err().kind();
    for beta in [0.0, -1.0, f64::NAN] {
        assert_eq!(refused(KtoOptions { beta, ..KtoOptions::default() }), ErrorKind::OutOfRange);
    }
    for weight in [-0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(
            refused(KtoOptions { desirable_weight: weight, ..KtoOptions::default() }),
            ErrorKind::OutOfRange
        );
        assert_eq!(
            refused(KtoOptions { undesirable_weight: weight, ..KtoOptions::default() }),
            ErrorKind::OutOfRange
        );
    }
    assert_eq!(
        refused(KtoOptions { num_sequences: Some(0.0), ..KtoOptions::default() }),
        ErrorKind::OutOfRange
    );

    let batch = Batch::random(&mut Rng::new(3));
    let kind = |batch: KtoBatch<'_, f64>| KtoLoss::default().forward(&batch).unwrap_err().kind();
    assert_eq!(kind(KtoBatch { kl_log_ratio: None, ..batch.view() }), ErrorKind::Empty);
    assert_eq!(kind(KtoBatch { kl_log_ratio: Some(&[]), ..batch.view() }), ErrorKind::Empty);
    assert_eq!(kind(KtoBatch { kl_log_ratio: Some(&[f64::NAN]), ..batch.view() }), ErrorKind::NonFinite);
    assert_eq!(kind(KtoBatch { desirable: &[1], ..batch.view() }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(KtoBatch { desirable: &[2; 8], ..batch.view() }), ErrorKind::OutOfRange);
    assert_eq!(kind(KtoBatch { mask: &[0; 24], ..batch.view() }), ErrorKind::Empty);
    assert_eq!(kind(KtoBatch { ref_log_prob: &[0.0], ..batch.view() }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(KtoBatch { ref_log_prob: &[f64::INFINITY; 24], ..batch.view() }), ErrorKind::NonFinite);
}
