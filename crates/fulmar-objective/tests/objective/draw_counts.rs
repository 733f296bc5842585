//! Counts of many draws against their distribution.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::Rng;
use fulmar_objective::{DrawMethod, DrawOptions, draw, draw_rng};

use super::draw::distribution;

/// Upper 0.1 % points of chi-square, by Wilson and Hilferty's approximation.
fn chi_square_limit(degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    degrees * (1.0 - spread + 3.09 * spread.sqrt()).powi(3)
}

#[test]
fn draws_follow_the_distribution() {
    let mut rng = Rng::new(8).stream("test");
    let logits: Vec<f32> = (0..24).map(|_| 1.5 * rng.normal() as f32).collect();
    for options in [
        DrawOptions::default(),
        DrawOptions { temperature: 0.7, ..DrawOptions::default() },
        DrawOptions { temperature: 1.8, top_k: Some(7), ..DrawOptions::default() },
        DrawOptions { top_p: 0.8, ..DrawOptions::default() },
        DrawOptions { temperature: 1.2, top_k: Some(10), top_p: 0.9, ..DrawOptions::default() },
        DrawOptions { min_p: 0.1, ..DrawOptions::default() },
        DrawOptions { typical_p: 0.7, ..DrawOptions::default() },
        DrawOptions { logit_bias: vec![(3, 2.0)], banned_ids: vec![5, 6], ..DrawOptions::default() },
    ] {
        for draw_method in [DrawMethod::Inverse, DrawMethod::GumbelMax] {
            check_draws(&logits, &DrawOptions { draw_method, ..options.clone() });
        }
    }
}

/// Compares the counts of many draws with the distribution.
fn check_draws(logits: &[f32], options: &DrawOptions) {
    let probabilities = distribution(logits, options);
    let (num_draws, mut counts) = (60_000, vec![0.0; logits.len()]);
    for index in 0..num_draws {
        counts[draw(logits, options, &mut draw_rng(11, index)).unwrap().id as usize] += 1.0;
    }
    let (mut chi_square, mut degrees) = (0.0, -1.0);
    for (count, probability) in counts.iter().zip(&probabilities) {
        if *probability == 0.0 {
            assert_eq!(*count, 0.0, "a cut token is never drawn");
            continue;
        }
        let expected = probability * num_draws as f64;
        chi_square += (count - expected).powi(2) / expected;
        degrees += 1.0;
    }
    assert!(chi_square < chi_square_limit(degrees), "{options:?}: {chi_square} with {degrees} degrees");
}

#[test]
fn draws_by_gumbel_noise_follow_a_distribution_of_many_ids() {
    let mut rng = Rng::new(12).stream("test");
    let gumbel = DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() };
    let logits: Vec<f32> = (0..301).map(|_| 0.5 * rng.normal() as f32).collect();
    check_draws(&logits, &gumbel);
    check_draws(&logits, &DrawOptions { top_p: 0.95, ..gumbel.clone() });
    // Two draws of one request, and one draw of two requests, are independent.
    let logits = [0.0; 4];
    let id = |seed, index| draw(&logits, &gumbel, &mut draw_rng(seed, index)).unwrap().id as usize;
    for pair in [|index| (index, 2 * index, index, 2 * index + 1), |index| (index, 0, index + 1_000_000, 0)] {
        let mut counts = [0.0; 16];
        for index in 0..40_000 {
            let (seed, draw_index, other, other_index) = pair(index);
            counts[4 * id(seed, draw_index) + id(other, other_index)] += 1.0;
        }
        let chi_square: f64 = counts.iter().map(|count: &f64| (count - 2500.0).powi(2) / 2500.0).sum();
        assert!(chi_square < chi_square_limit(15.0), "{chi_square}");
    }
}

#[test]
fn nearly_equal_distributions_nearly_always_draw_the_same_by_gumbel_noise() {
    let mut rng = Rng::new(13).stream("test");
    let mut equal = [0; 2];
    for index in 0..2000 {
        let logits: Vec<f32> = (0..500).map(|_| 2.0 * rng.normal() as f32).collect();
        let near: Vec<f32> = logits.iter().map(|logit| logit + 0.03 * rng.normal() as f32).collect();
        for (count, draw_method) in equal.iter_mut().zip([DrawMethod::GumbelMax, DrawMethod::Inverse]) {
            let options = DrawOptions { draw_method, ..DrawOptions::default() };
            let id = |logits: &[f32]| draw(logits, &options, &mut draw_rng(3, index)).unwrap().id;
            *count += usize::from(id(&logits) == id(&near));
        }
    }
    assert!(equal[0] > 1930 && equal[1] < equal[0], "{equal:?} of 2000");
}
