//! The same inputs give the same bits here, in the addon and in WebAssembly: `ts/test/objective` holds the same numbers.

use fulmar_objective::{
    Advantage, Clip, DpoLoss, DpoLossType, DpoOptions, DrawContext, DrawOptions, GrpoLoss, GrpoOptions,
    KlEstimator, KlPenalty, LossBatch, Normalization, PreferenceBatch, draw, draw_probabilities, draw_rng,
};

/// FNV-1a over bytes.
fn bits_of(bytes: impl Iterator<Item = u8>) -> String {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:x}", bytes.fold(0xcbf2_9ce4_8422_2325, fold))
}

fn logits() -> Vec<f32> {
    (0..30).map(|id| (id * 7 % 11) as f32 / 4.0 - (id * 5 % 3) as f32).collect()
}

#[test]
fn a_loss_and_its_gradients_have_these_bits() {
    let log_prob: Vec<f32> = (0..40).map(|t| -((t * 37 % 101) as f32) / 32.0).collect();
    let shifted = |factor: usize, modulus: usize, centre: f32| {
        let shift = |(t, &value): (usize, &f32)| value + ((t * factor % modulus) as f32 - centre) / 16.0;
        log_prob.iter().enumerate().map(shift).collect::<Vec<f32>>()
    };
    let (old_log_prob, ref_log_prob) = (shifted(7, 11, 5.0), shifted(5, 13, 6.0));
    let entropy: Vec<f32> = (0..40).map(|t| (t % 9) as f32 / 8.0).collect();
    let mask: Vec<u8> = (0..40).map(|t| u8::from(t % 4 != 0)).collect();
    let options = GrpoOptions {
        clip_epsilon: Clip { low: 0.1, high: 0.3 },
        dual_clip: Some(1.5),
        normalization: Normalization::SequenceMean,
        kl_to_ref: KlPenalty { coefficient: 0.1, ..KlPenalty::default() },
        kl_to_inference: KlPenalty { estimator: KlEstimator::K2, coefficient: 0.2, ..KlPenalty::default() },
        entropy_coefficient: 0.01,
        ..GrpoOptions::default()
    };
    let batch = LossBatch {
        log_prob: &log_prob,
        old_log_prob: &old_log_prob,
        ref_log_prob: Some(&ref_log_prob),
        sampler_log_prob: None,
        entropy: Some(&entropy),
        advantage: Advantage::PerSequence(&[-0.625, -0.125, 0.375, 0.875]),
        mask: &mask,
        offsets: &[0, 13, 13, 30, 40],
    };
    let output = GrpoLoss::new(options).unwrap().forward(&batch).unwrap();
    let gradients = output.grad_log_prob.into_iter().chain(output.grad_entropy.unwrap());
    let bytes = output.loss.to_le_bytes().into_iter().chain(gradients.flat_map(f32::to_le_bytes));
    assert_eq!(bits_of(bytes), "467d729fbeb018c4");
}

#[test]
fn a_mix_of_losses_of_pairs_has_these_bits() {
    let fraction = |step: usize| (0..40).map(|t| -((t * step % 101) as f32) / 32.0).collect::<Vec<f32>>();
    let mask: Vec<u8> = (0..40).map(|t| u8::from(t % 5 != 0)).collect();
    let weights = [
        (DpoLossType::Sigmoid, 1.0),
        (DpoLossType::Robust, 0.5),
        (DpoLossType::BcoPair, 0.25),
        (DpoLossType::Discopop, 0.125),
        (DpoLossType::Aot, 0.75),
        (DpoLossType::Sft, 0.1),
    ];
    let options = DpoOptions {
        loss_weights: weights.into(),
        label_smoothing: 0.1,
        discopop_tau: 0.5,
        ..DpoOptions::default()
    };
    let batch = PreferenceBatch {
        log_prob: &fraction(37),
        ref_log_prob: &fraction(29),
        log_sum_sq_prob: None,
        mask: &mask,
        offsets: &[0, 8, 13, 31, 40],
    };
    let output = DpoLoss::new(options).unwrap().forward(&batch).unwrap();
    let gradient = output.grad_log_prob.into_iter().flat_map(f32::to_le_bytes);
    assert_eq!(bits_of(output.loss.to_le_bytes().into_iter().chain(gradient)), "58a751de61b4074b");
}

#[test]
fn a_distribution_and_its_draws_have_these_bits() {
    let options = DrawOptions { temperature: 0.8, top_k: Some(20), top_p: 0.9, ..DrawOptions::default() };
    let probabilities = draw_probabilities(&logits(), &options, &DrawContext::default()).unwrap();
    assert_eq!(bits_of(probabilities.into_iter().flat_map(f64::to_le_bytes)), "11d17623735a05d4");
    let options = DrawOptions { top_p: 0.9, ..DrawOptions::default() };
    let draws = (0..200).flat_map(|index| {
        let token = draw(&logits(), &options, &mut draw_rng((1 << 53) - 1, index)).unwrap();
        [token.id as f32, token.log_prob, token.sampled_log_prob]
    });
    assert_eq!(bits_of(draws.flat_map(f32::to_le_bytes)), "ec3289ac81a8c88b");
}
