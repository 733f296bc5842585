//! Sums of squared probabilities against double precision, and the loss that weighs pairs by them, from
//! logits to their gradient.

use fulmar_compute::Compute;
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    DpoLoss, DpoOptions, LOGITS_CHUNK, LinearHead, PreferenceBatch, logits_loss, token_log_probs,
    token_log_probs_and_squares,
};

fn random(seed: u64, len: usize, scale: f64) -> Vec<f32> {
    let mut rng = Rng::new(seed).stream("squares");
    (0..len).map(|_| (scale * rng.normal()) as f32).collect()
}

/// Returns `(ln p[id], ln sum_v p[v]^2)` of a row.
fn exact(row: &[f64], id: usize) -> (f64, f64) {
    let max = row.iter().fold(f64::NEG_INFINITY, |max, x| max.max(*x));
    let log_sum = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    (row[id] - log_sum, row.iter().map(|x| (2.0 * (x - log_sum)).exp()).sum::<f64>().ln())
}

#[test]
fn squares_of_logits_and_heads_are_those_of_double_precision_at_any_temperature() {
    for (seed, num_rows, vocab, width) in [(1, 1, 1, 1), (2, 5, 33, 4), (3, 40, 60_000, 2)] {
        let (weight, bias) = (random(seed, vocab * width, 1.0), random(seed + 10, vocab, 1.0));
        let hidden = random(seed + 20, num_rows * width, 2.0);
        let ids: Vec<u32> = (0..num_rows).map(|row| (row * 7 % vocab) as u32).collect();
        let logits: Vec<f32> = hidden
            .chunks(width)
            .flat_map(|h| {
                let row = weight.chunks(width).zip(&bias);
                row.map(|(w, b)| w.iter().zip(h).map(|(w, h)| w * h).sum::<f32>() + b).collect::<Vec<_>>()
            })
            .collect();
        assert!(vocab < 100 || logits.len() > LOGITS_CHUNK, "more than a chunk");
        for temperature in [1.0, 0.5] {
            let (found, squares) =
                token_log_probs_and_squares(&logits, &ids, temperature, Compute::Cpu).unwrap();
            assert_eq!(found, token_log_probs(&logits, &ids, temperature, Compute::Cpu).unwrap());
            let head = LinearHead {
                weight: weight.as_slice().into(),
                panels: None,
                bias: Some(bias.as_slice().into()),
                width,
                temperature,
                precision: Default::default(),
                compute: Compute::Cpu,
            };
            let (of_head, squares_of_head) = head.log_probs_and_squares(&hidden, &ids).unwrap();
            assert_eq!(of_head, head.log_probs(&hidden, &ids).unwrap());
            for (row, logits) in logits.chunks(vocab).enumerate() {
                let scaled: Vec<f64> = logits.iter().map(|x| f64::from(*x) / temperature).collect();
                let (_, wanted) = exact(&scaled, 0);
                for got in [squares[row], squares_of_head[row]] {
                    assert!((f64::from(got) - wanted).abs() < 1e-5 * wanted.abs().max(1.0), "{got} {wanted}");
                }
            }
        }
    }
}

#[test]
fn the_gradient_of_weighted_pairs_by_their_logits_equals_finite_differences_with_the_weights_held() {
    let (vocab, num_tokens) = (7, 4);
    let mut logits = random(5, num_tokens * vocab, 1.0);
    let (ids, mask, offsets) = ([3_u32, 0, 6, 2], [1_u8; 4], [0_u32, 2, 4]);
    let ref_log_prob = [-1.0_f32, -2.0, -1.5, -0.5];
    let loss = DpoLoss::new(DpoOptions { use_weighting: true, ..DpoOptions::default() }).unwrap();
    let widened: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    let scores = |logits: &[f64]| -> Vec<(f64, f64)> {
        logits.chunks(vocab).zip(ids).map(|(row, id)| exact(row, id as usize)).collect()
    };
    // exp of the means of ln p - ln sum p^2 of both answers.
    let held: f64 = scores(&widened)
        .chunks(2)
        .map(|answer| answer.iter().map(|(log_prob, squares)| log_prob - squares).sum::<f64>() / 2.0)
        .sum::<f64>()
        .exp();
    assert!((held - 1.0).abs() > 0.1, "the weight must matter: {held}");
    let naive = |logits: &[f64]| {
        let log_ratio = |tokens: std::ops::Range<usize>| {
            let scores = scores(logits);
            tokens.map(|t| scores[t].0 - f64::from(ref_log_prob[t])).sum::<f64>()
        };
        held * (1.0 + (-0.1 * (log_ratio(0..2) - log_ratio(2..4))).exp()).ln()
    };
    let (_, squares) = token_log_probs_and_squares(&logits, &ids, 1.0, Compute::Cpu).unwrap();
    let value = logits_loss(&mut logits, &ids, 1.0, Compute::Cpu, |found| {
        let output = loss.forward(&PreferenceBatch {
            log_prob: &found.log_prob,
            ref_log_prob: &ref_log_prob,
            log_sum_sq_prob: Some(&squares),
            mask: &mask,
            offsets: &offsets,
        })?;
        Ok((output.grad_log_prob, None, output.loss))
    })
    .unwrap();
    assert!((value - naive(&widened)).abs() < 1e-5, "{value} {}", naive(&widened));
    for (at, gradient) in logits.iter().enumerate() {
        let moved = |step: f64| {
            let mut logits = widened.clone();
            logits[at] += step;
            naive(&logits)
        };
        let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((f64::from(*gradient) - wanted).abs() < 1e-6, "logits[{at}]: {gradient} {wanted}");
    }
}

#[test]
fn rows_that_are_no_distribution_are_refused_as_without_squares() {
    let kind = |logits: &[f32], ids: &[u32]| {
        token_log_probs_and_squares(logits, ids, 1.0, Compute::Cpu).unwrap_err().kind()
    };
    assert_eq!(kind(&[0.0, f32::NAN], &[0]), ErrorKind::NonFinite);
    assert_eq!(kind(&[f32::NEG_INFINITY; 2], &[0]), ErrorKind::NonFinite);
    assert_eq!(kind(&[0.0, 0.0], &[2]), ErrorKind::OutOfRange);
    assert_eq!(kind(&[], &[]), ErrorKind::Empty);
}
