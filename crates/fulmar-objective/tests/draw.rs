//! Token drawing: the distribution against transformers and vLLM, the draws against the distribution.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod rows;

use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{Draw, DrawOptions, draw, draw_probabilities, draw_rng};
use rows::{assert_all_near, flat, lines, rows};
use serde_json::Value;

fn options_of(config: &Value) -> DrawOptions {
    DrawOptions {
        temperature: config["temperature"].as_f64().unwrap_or(1.0),
        top_k: config["top_k"].as_u64().filter(|&top_k| top_k > 0).map(|top_k| top_k as usize),
        top_p: config["top_p"].as_f64().unwrap_or(1.0),
    }
}

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

#[test]
fn kept_tokens_and_probabilities_equal_transformers_and_vllm() {
    let mut num_checked = 0;
    for row in rows("sampling", |row| row["expected_error"].is_null()) {
        let config = if row["config"].is_object() { &row["config"] } else { &row };
        let options = options_of(config);
        let got = draw_probabilities(&narrow(flat(&row["logits"])), &options).unwrap();
        let kept: Vec<f64> = (0..got.len()).filter(|&id| got[id] > 0.0).map(|id| id as f64).collect();
        // On tied logits vLLM keeps its pick of them, transformers all: ours is the rule of transformers.
        assert_eq!(kept, flat(&row["kept"]), "{}", row["config"]);
        assert_all_near("probabilities", &got, &flat(&row["probs"]), 1e-5);
        num_checked += lines(&row["kept"]).len().min(1);
    }
    assert!(num_checked >= 15, "got {num_checked}");
}

#[test]
fn a_row_that_transformers_refuses_is_out_of_range() {
    for row in rows("sampling", |row| row["expected_error"].is_object()) {
        let logits = narrow(flat(&row["logits"]));
        let error = draw(&logits, &options_of(&row["config"]), &mut Rng::new(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
    }
}

/// Temperature, then a full sort for top-k and top-p: the slow, obvious version in double precision.
fn naive_probabilities(logits: &[f32], options: &DrawOptions) -> Vec<f64> {
    let score: Vec<f64> = logits.iter().map(|logit| f64::from(logit / options.temperature as f32)).collect();
    let mut order: Vec<usize> = (0..score.len()).collect();
    order.sort_by(|&a, &b| score[b].total_cmp(&score[a]).then(a.cmp(&b)));
    let threshold = options.top_k.map_or(f64::MIN, |top_k| score[order[top_k.min(order.len()) - 1]]);
    let mut weight = vec![0.0; score.len()];
    for &id in order.iter().filter(|&&id| score[id] >= threshold) {
        weight[id] = (score[id] - score[order[0]]).exp();
    }
    let total: f64 = weight.iter().sum();
    let mut mass = 0.0;
    for &id in &order {
        if mass >= options.top_p * total {
            weight[id] = 0.0;
        }
        mass += weight[id];
    }
    let total: f64 = weight.iter().sum();
    weight.iter().map(|weight| weight / total).collect()
}

#[test]
fn the_distribution_equals_a_full_sort() {
    let mut rng = Rng::new(4).stream("test");
    for case in 0..2_000 {
        let vocab = 1 + rng.below(90).unwrap() as usize;
        let scale = [0.1, 1.0, 6.0][case % 3];
        // Every other case has logits on a coarse grid, so that many tie.
        let logit = |rng: &mut Rng| match case % 2 {
            0 => (scale * rng.normal()) as f32,
            _ => (rng.below(4).unwrap() as f32) * scale as f32,
        };
        let logits: Vec<f32> = (0..vocab).map(|_| logit(&mut rng)).collect();
        let options = DrawOptions {
            temperature: 0.2 + 2.0 * rng.uniform_f64(),
            top_k: (rng.below(2).unwrap() == 1).then(|| 1 + rng.below(100).unwrap() as usize),
            top_p: 1.0 - if rng.below(2).unwrap() == 1 { 0.999 * rng.uniform_f64() } else { 0.0 },
        };
        let got = draw_probabilities(&logits, &options).unwrap();
        let naive = naive_probabilities(&logits, &options);
        assert_all_near(&format!("case {case} {options:?}"), &got, &naive, 2e-6);
    }
}

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
        DrawOptions { temperature: 1.2, top_k: Some(10), top_p: 0.9 },
    ] {
        let probabilities = draw_probabilities(&logits, &options).unwrap();
        let (num_draws, mut counts) = (60_000, vec![0.0; logits.len()]);
        for index in 0..num_draws {
            counts[draw(&logits, &options, &mut draw_rng(11, index)).unwrap().id as usize] += 1.0;
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
}

#[test]
fn both_log_probs_are_those_of_their_distributions() {
    let mut rng = Rng::new(9).stream("test");
    for index in 0..500 {
        let logits: Vec<f32> = (0..50).map(|_| 2.0 * rng.normal() as f32).collect();
        let options = DrawOptions { temperature: 0.8, top_k: Some(20), top_p: 0.95 };
        let Draw { id, log_prob, sampled_log_prob } =
            draw(&logits, &options, &mut draw_rng(1, index)).unwrap();
        let sampled = draw_probabilities(&logits, &options).unwrap()[id as usize].ln();
        assert!((f64::from(sampled_log_prob) - sampled).abs() < 1e-6, "{sampled_log_prob} against {sampled}");
        assert_eq!(log_prob, fulmar_kernel::log_prob_row(&logits, id as usize).log_prob);
        let plain = draw(&logits, &DrawOptions::default(), &mut draw_rng(1, index)).unwrap();
        assert_eq!(plain.log_prob, plain.sampled_log_prob, "the two distributions are one");
    }
}

#[test]
fn every_draw_takes_one_word_and_can_be_replayed_alone() {
    let logits = [0.3, -0.2, 1.0, 0.0];
    let mut stream = draw_rng(5, 0);
    for index in 0..40 {
        let options = match index % 4 {
            0 => DrawOptions { temperature: 0.0, ..DrawOptions::default() },
            1 => DrawOptions { top_k: Some(2), ..DrawOptions::default() },
            2 => DrawOptions { top_p: 0.6, ..DrawOptions::default() },
            _ => DrawOptions::default(),
        };
        assert_eq!(stream.state().word_index, index);
        let along = draw(&logits, &options, &mut stream).unwrap();
        assert_eq!(draw(&logits, &options, &mut draw_rng(5, index)).unwrap(), along);
    }
}

#[test]
fn temperature_zero_takes_the_likeliest_and_of_equals_the_lower_id() {
    let greedy = DrawOptions { temperature: 0.0, ..DrawOptions::default() };
    for (logits, id) in
        [(&[0.0, 2.0, 2.0][..], 1), (&[-0.0, 0.0], 0), (&[f32::MIN, f32::MAX], 1), (&[7.0], 0)]
    {
        let token = draw(logits, &greedy, &mut Rng::new(0)).unwrap();
        assert_eq!((token.id, token.sampled_log_prob), (id, 0.0));
    }
    let tied = DrawOptions { top_p: 1e-9, ..DrawOptions::default() };
    assert_eq!(draw_probabilities(&[1.0, 3.0, 3.0, 3.0], &tied).unwrap(), [0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn extreme_options_go_to_their_limits() {
    let logits = [f32::MAX, f32::MIN, 1.0, 0.0];
    let peaked = [1.0, 0.0, 0.0, 0.0];
    let temperature = |temperature| DrawOptions { temperature, ..DrawOptions::default() };
    for (options, expected) in [
        (temperature(1e-40), peaked),
        (temperature(1e-300), peaked),
        (temperature(1e300), [0.25; 4]),
        (DrawOptions { top_k: Some(usize::MAX), top_p: 1e-300, ..DrawOptions::default() }, peaked),
    ] {
        assert_eq!(draw_probabilities(&logits, &options).unwrap(), expected, "{options:?}");
        assert!(draw(&logits, &options, &mut Rng::new(3)).unwrap().sampled_log_prob.is_finite());
    }
}

#[test]
fn bad_logits_and_options_are_refused_and_cost_no_word() {
    let mut rng = Rng::new(1);
    let mut kind = |logits: &[f32], options: &DrawOptions| {
        let error = draw(logits, options, &mut rng).unwrap_err();
        assert_eq!(rng.state().word_index, 0);
        (error.kind(), error.to_string())
    };
    let default = DrawOptions::default;
    assert_eq!(kind(&[], &default()).0, ErrorKind::Empty);
    assert_eq!(
        kind(&[0.0, f32::NAN], &default()),
        (ErrorKind::NonFinite, "logits[1] must be finite: got NaN".to_owned())
    );
    assert_eq!(kind(&[f32::INFINITY], &default()).0, ErrorKind::NonFinite);
    assert_eq!(kind(&[f32::NEG_INFINITY], &default()).0, ErrorKind::NonFinite);
    for options in [
        DrawOptions { temperature: -1.0, ..default() },
        DrawOptions { temperature: f64::NAN, ..default() },
        DrawOptions { top_k: Some(0), ..default() },
        DrawOptions { top_p: 0.0, ..default() },
        DrawOptions { top_p: 1.1, ..default() },
    ] {
        assert_eq!(kind(&[0.0], &options).0, ErrorKind::OutOfRange, "{options:?}");
    }
}
