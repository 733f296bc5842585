//! Token drawing: the distribution against transformers, vLLM and a full sort, and the rules of single draws.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::rows::{assert_all_near, flat, lines, rows};
use fulmar_compute::Compute;
use fulmar_core::limits::VOCAB_SIZE_MAX;
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    Draw, DrawContext, DrawMethod, DrawOptions, draw, draw_in, draw_probabilities, draw_rng, token_mask,
};
use serde_json::Value;

fn options_of(config: &Value) -> DrawOptions {
    let or = |name: &str, otherwise: f64| config[name].as_f64().unwrap_or(otherwise);
    DrawOptions {
        temperature: or("temperature", 1.0),
        top_k: config["top_k"].as_u64().filter(|&top_k| top_k > 0).map(|top_k| top_k as usize),
        top_p: or("top_p", 1.0),
        min_p: or("min_p", 0.0),
        typical_p: or("typical_p", 1.0),
        repetition_penalty: or("repetition_penalty", 1.0),
        presence_penalty: or("presence_penalty", 0.0),
        frequency_penalty: or("frequency_penalty", 0.0),
        epsilon_cutoff: or("epsilon_cutoff", 0.0),
        eta_cutoff: or("eta_cutoff", 0.0),
        top_h: config["top_h"].as_f64(),
        no_repeat_ngram_size: or("no_repeat_ngram_size", 0.0) as usize,
        sequence_bias: serde_json::from_value(config["sequence_bias"].clone()).unwrap_or_default(),
        bad_words_ids: serde_json::from_value(config["bad_words_ids"].clone()).unwrap_or_default(),
        ..DrawOptions::default()
    }
}

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

fn ids_of(row: &Value, name: &str) -> Vec<u32> {
    let ids = if row[name].is_array() { lines(&row[name]) } else { &[] };
    ids.iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

pub(super) fn distribution(logits: &[f32], options: &DrawOptions) -> Vec<f64> {
    draw_probabilities(logits, options, &DrawContext::default()).unwrap()
}

#[test]
fn kept_tokens_and_probabilities_equal_transformers_and_vllm() {
    let mut num_checked = [0; 3];
    for row in rows("sampling", |row| row["expected_error"].is_null()) {
        let kinds = ["transformers", "vllm_penalties", "vllm_topk_topp"];
        num_checked[kinds.iter().position(|kind| row["kind"] == *kind).unwrap()] += 1;
        let config = if row["config"].is_object() { &row["config"] } else { &row };
        let prompt_ids = [ids_of(&row, "input_ids"), ids_of(&row, "prompt_ids")].concat();
        let output_ids = ids_of(&row, "output_ids");
        let context = DrawContext { prompt_ids: &prompt_ids, output_ids: &output_ids, allowed: None };
        let logits = narrow(flat(&row["logits"]));
        let got = draw_probabilities(&logits, &options_of(config), &context).unwrap();
        assert_all_near("probabilities", &got, &flat(&row["probs"]), 1e-5);
        if row["kept"].is_array() {
            let kept: Vec<f64> = (0..got.len()).filter(|&id| got[id] > 0.0).map(|id| id as f64).collect();
            // On tied logits vLLM keeps its choice of them, transformers all; Fulmar follows transformers.
            assert_eq!(kept, flat(&row["kept"]), "{}", row["config"]);
        }
    }
    assert_eq!(num_checked, [12, 10, 10]);
}

#[test]
fn ngrams_sequences_and_cuts_by_entropy_equal_transformers() {
    let mut num_checked = 0;
    for row in rows("drawing", |_| true) {
        let logits = narrow(flat(&row["logits"]));
        let ids = ids_of(&row, "input_ids");
        // The tokens are the same wherever the prompt ends; these rows have the repetition penalty only.
        for end in [0, ids.len() / 2, ids.len()] {
            let (prompt_ids, output_ids) = ids.split_at(end);
            let context = DrawContext { prompt_ids, output_ids, allowed: None };
            let options = options_of(&row["config"]);
            let got = draw_probabilities(&logits, &options, &context).unwrap();
            assert_all_near(&format!("{} {}", row["case"], row["config"]), &got, &flat(&row["probs"]), 1e-5);
            let kept: Vec<f64> = (0..got.len()).filter(|&id| got[id] > 0.0).map(|id| id as f64).collect();
            assert_eq!(kept, flat(&row["kept"]), "{} {}", row["case"], row["config"]);
        }
        num_checked += 1;
    }
    assert_eq!(num_checked, 58);
}

#[test]
fn a_row_that_transformers_refuses_is_out_of_range() {
    for row in rows("sampling", |row| row["expected_error"].is_object()) {
        let logits = narrow(flat(&row["logits"]));
        let error = draw(&logits, &options_of(&row["config"]), &mut Rng::new(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
    }
}

/// Computes every step of the module's list with full sorts in double precision: the slow, obvious version.
fn naive_probabilities(logits: &[f32], options: &DrawOptions, context: &DrawContext<'_>) -> Vec<f64> {
    let seen = |ids: &[u32], id: usize| ids.iter().filter(|&&seen| seen as usize == id).count() as f64;
    let mut score: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    for (id, bias) in &options.logit_bias {
        score[*id as usize] += bias;
    }
    let tokens = [context.prompt_ids, context.output_ids].concat();
    let completed_by = |ids: &[u32], id: usize| {
        let (last, before) = ids.split_last().unwrap();
        *last as usize == id && tokens.ends_with(before)
    };
    for (id, score) in score.iter_mut().enumerate() {
        let biases = options.sequence_bias.iter().filter(|(ids, _)| completed_by(ids, id));
        *score += biases.map(|(_, bias)| bias).sum::<f64>();
    }
    // Every n-gram so far, and those that each token would complete.
    let ngrams: Vec<&[u32]> = match options.no_repeat_ngram_size {
        0 => vec![],
        size => tokens.windows(size).collect(),
    };
    let repeats = |id: usize| {
        let next = [&tokens[..], &[id as u32]].concat();
        let size = options.no_repeat_ngram_size;
        next.len() > size && ngrams.contains(&&next[next.len() - size..])
    };
    for (id, score) in score.iter_mut().enumerate() {
        let num_drawn = seen(context.output_ids, id);
        if num_drawn + seen(context.prompt_ids, id) > 0.0 {
            *score *= options.repetition_penalty.powf(if *score < 0.0 { 1.0 } else { -1.0 });
        }
        *score -= options.frequency_penalty * num_drawn + options.presence_penalty * num_drawn.min(1.0);
        let allowed = context.allowed.is_none_or(|words| words[id / 32] >> (id % 32) & 1 == 1);
        let is_bad = options.bad_words_ids.iter().any(|ids| completed_by(ids, id)) || repeats(id);
        if !allowed || is_bad || options.banned_ids.contains(&(id as u32)) {
            *score = f64::NEG_INFINITY;
        }
        *score = f64::from((*score / options.temperature) as f32);
    }
    let mut order: Vec<usize> = (0..score.len()).collect();
    order.sort_by(|&a, &b| score[b].total_cmp(&score[a]).then(a.cmp(&b)));
    if let Some(top_h) = options.top_h {
        cut_by_entropy(&mut score, &order, top_h);
        order.sort_by(|&a, &b| score[b].total_cmp(&score[a]).then(a.cmp(&b)));
    }
    let threshold = options.top_k.map_or(f64::MIN, |top_k| score[order[top_k.min(order.len()) - 1]]);
    let mut weight: Vec<f64> =
        score.iter().map(|z| if *z >= threshold { (z - score[order[0]]).exp() } else { 0.0 }).collect();
    cut_behind(&mut weight, &order, options.top_p, |_, _| false);
    weight.iter_mut().for_each(|weight| *weight *= f64::from(u8::from(*weight >= options.min_p)));
    let total: f64 = weight.iter().sum();
    let surprise: Vec<f64> = weight.iter().map(|weight| -(weight / total).ln()).collect();
    let terms = weight.iter().zip(&surprise).filter(|(weight, _)| **weight > 0.0);
    let entropy: f64 = terms.map(|(weight, surprise)| weight / total * surprise).sum();
    let distance: Vec<f64> = surprise.iter().map(|surprise| (surprise - entropy).abs()).collect();
    order.sort_by(|&a, &b| distance[a].total_cmp(&distance[b]).then(a.cmp(&b)));
    cut_behind(&mut weight, &order, options.typical_p, |a, b| (distance[a] - distance[b]).abs() < 1e-9);
    cut_unlikely(&mut weight, options.epsilon_cutoff);
    let eta = options.eta_cutoff;
    let eta = eta.min(eta.sqrt() * (-entropy_of(&weight)).exp());
    cut_unlikely(&mut weight, eta);
    let total: f64 = weight.iter().sum();
    weight.iter().map(|weight| weight / total).collect()
}

fn entropy_of(weight: &[f64]) -> f64 {
    let total: f64 = weight.iter().sum();
    let p = weight.iter().map(|weight| weight / total).filter(|p| *p > 0.0);
    p.map(|p| -p * p.ln()).sum()
}

/// Keeps the first of `order` and the next ones, 100 in all at most, while their terms of the entropy do not
/// exceed its share.
fn cut_by_entropy(score: &mut [f64], order: &[usize], top_h: f64) {
    let (first, rest) = order.split_at(order.len().min(100));
    let weight: Vec<f64> = first.iter().map(|&id| (score[id] - score[order[0]]).exp()).collect();
    let (total, share) = (weight.iter().sum::<f64>(), top_h * entropy_of(&weight));
    let mut sum = 0.0;
    for (place, &id) in first.iter().enumerate() {
        let p = weight[place] / total;
        sum += if p > 0.0 { -p * p.ln() } else { 0.0 };
        if place > 0 && sum > share * (1.0 + 1e-9) {
            score[id] = f64::NEG_INFINITY;
        }
    }
    rest.iter().for_each(|&id| score[id] = f64::NEG_INFINITY);
}

/// Keeps the likeliest token, and those with at least this probability.
fn cut_unlikely(weight: &mut [f64], least: f64) {
    let total: f64 = weight.iter().sum();
    let largest = weight.iter().copied().fold(0.0, f64::max);
    weight
        .iter_mut()
        .filter(|weight| **weight / total < least && **weight < largest)
        .for_each(|weight| *weight = 0.0);
}

/// Cuts all tokens after the position in `order` at which the mass is reached, except ties with the last one
/// before it.
fn cut_behind(weight: &mut [f64], order: &[usize], mass: f64, ties: impl Fn(usize, usize) -> bool) {
    let (target, mut sum, mut last) = (mass * weight.iter().sum::<f64>(), 0.0, order[0]);
    for &id in order {
        // The whole mass keeps everything, however its sum is rounded.
        if mass < 1.0 && sum >= target && !ties(id, last) {
            weight[id] = 0.0;
        } else if sum < target {
            last = id;
        }
        sum += weight[id];
    }
}

#[test]
fn the_distribution_equals_a_full_sort() {
    let (mut rng, mut num_empty) = (Rng::new(4).stream("test"), 0);
    for case in 0..4_000 {
        let vocab = 1 + rng.below(if case % 5 == 0 { 900 } else { 90 }).unwrap() as usize;
        let scale = [0.1, 1.0, 6.0][case % 3];
        // Every other case has logits on a coarse grid, so that many tie.
        let logit = |rng: &mut Rng| match case % 2 {
            0 => (scale * rng.normal()) as f32,
            _ => (rng.below(4).unwrap() as f32) * scale as f32,
        };
        let logits: Vec<f32> = (0..vocab).map(|_| logit(&mut rng)).collect();
        let mut often = |share: u64| rng.below(4).unwrap() < share;
        let uses = [often(2), often(2), often(1), often(1), often(1), often(1)];
        let mut ids = |count: usize| -> Vec<u32> {
            (0..count).map(|_| rng.below(vocab as u64).unwrap() as u32).collect()
        };
        let (prompt_ids, output_ids, bias_ids, banned_ids) = (ids(6), ids(6), ids(2), ids(1));
        // Sequences of one token, of two that the tokens so far may begin and of three that they do.
        let sequences = [ids(1), [output_ids[5], ids(1)[0]].into(), [&output_ids[4..], &ids(1)].concat()];
        let let_through: Vec<u32> = ids(vocab).into_iter().filter(|id| *id != banned_ids[0]).collect();
        let options = DrawOptions {
            temperature: 0.2 + 2.0 * rng.uniform_f64(),
            top_k: uses[0].then(|| 1 + rng.below(100).unwrap() as usize),
            top_p: 1.0 - if uses[1] { 0.999 * rng.uniform_f64() } else { 0.0 },
            min_p: if uses[2] { 0.3 * rng.uniform_f64() } else { 0.0 },
            // Grids make pairs of tokens equally far from the entropy on both sides, where rounding decides.
            typical_p: 1.0 - if uses[3] && case % 2 == 0 { 0.9 * rng.uniform_f64() } else { 0.0 },
            repetition_penalty: if uses[4] { 1.3 } else { 1.0 },
            presence_penalty: if uses[4] { 0.25 } else { 0.0 },
            frequency_penalty: if uses[5] { -0.5 } else { 0.0 },
            logit_bias: bias_ids.iter().map(|id| (*id, 0.5)).filter(|_| uses[5]).collect(),
            banned_ids: banned_ids.into_iter().filter(|_| uses[5] && vocab > 1).collect(),
            ..Default::default()
        };
        let more = |rng: &mut Rng| DrawOptions {
            epsilon_cutoff: if uses[2] { 0.1 * rng.uniform_f64() } else { 0.0 },
            eta_cutoff: if uses[3] { 0.3 * rng.uniform_f64() } else { 0.0 },
            top_h: uses[4].then(|| 1.0 - 0.999 * rng.uniform_f64()),
            no_repeat_ngram_size: if uses[5] { 1 + case % 2 } else { 0 },
            sequence_bias: sequences.iter().map(|ids| (ids.clone(), rng.normal())).collect(),
            bad_words_ids: sequences.iter().filter(|_| uses[0] && vocab > 9).cloned().collect(),
            ..options.clone()
        };
        let options = if case % 3 == 1 { more(&mut rng) } else { options };
        let mask = token_mask(vocab, &let_through).unwrap();
        let allowed = Some(&*mask).filter(|_| uses[2] && !let_through.is_empty());
        let context = DrawContext { prompt_ids: &prompt_ids, output_ids: &output_ids, allowed };
        let naive = naive_probabilities(&logits, &options, &context);
        match draw_probabilities(&logits, &options, &context) {
            Ok(got) => assert_all_near(&format!("case {case} {options:?}"), &got, &naive, 3e-6),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Empty, "case {case}: {error}");
                assert!(naive[0].is_nan(), "case {case}: nothing can be drawn");
                num_empty += 1;
            }
        }
    }
    assert!(num_empty < 200, "{num_empty}");
}

#[test]
fn a_logit_of_minus_infinity_is_never_drawn_whatever_biases_and_penalties_say() {
    let logits = [0.5, f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, -0.3];
    let finite = [0.5, 1.0, -0.3];
    let context = DrawContext { prompt_ids: &[1, 0], output_ids: &[3, 3], allowed: None };
    for options in [
        DrawOptions::default(),
        DrawOptions {
            logit_bias: vec![(1, 1e30)],
            sequence_bias: vec![(vec![3, 3], 5.0)],
            ..DrawOptions::default()
        },
        DrawOptions { presence_penalty: -1e30, frequency_penalty: -9.0, ..DrawOptions::default() },
        DrawOptions { repetition_penalty: 1e-30, ..DrawOptions::default() },
        DrawOptions {
            top_k: Some(4),
            min_p: 1e-9,
            typical_p: 0.99,
            temperature: 1e6,
            ..DrawOptions::default()
        },
        DrawOptions { temperature: 0.0, ..DrawOptions::default() },
    ] {
        let got = draw_probabilities(&logits, &options, &context).unwrap();
        assert_eq!((got[1], got[3]), (0.0, 0.0), "{options:?}");
        for index in 0..40 {
            let token = draw_in(&logits, &options, &context, &mut draw_rng(3, index)).unwrap();
            assert!(logits[token.id as usize].is_finite() && token.log_prob.is_finite(), "{options:?}");
            assert_eq!(token.log_prob, Compute::Cpu.log_prob_row(&logits, token.id as usize).log_prob);
        }
    }
    // The others are unchanged.
    let got = distribution(&logits, &DrawOptions::default());
    let wanted = distribution(&finite, &DrawOptions::default());
    assert_all_near("others", &[got[0], got[2], got[4]], &wanted, 1e-12);
    let none = draw(&[f32::NEG_INFINITY; 3], &DrawOptions::default(), &mut Rng::new(0)).unwrap_err();
    assert_eq!(
        (none.kind(), none.detail()),
        (ErrorKind::NonFinite, "logits must hold a finite number: got -inf for every token")
    );
}

#[test]
fn cuts_by_probability_keep_the_likeliest_token() {
    let (logits, default) = ([1.0, 0.0, 0.5, 1.0], DrawOptions::default);
    let peaked = [0.5, 0.0, 0.0, 0.5];
    for options in [
        DrawOptions { epsilon_cutoff: 0.9, ..default() },
        DrawOptions { eta_cutoff: 0.999, temperature: 0.1, ..default() },
        DrawOptions { epsilon_cutoff: 0.9, top_p: 0.99, min_p: 0.1, ..default() },
    ] {
        assert_all_near(&format!("{options:?}"), &distribution(&logits, &options), &peaked, 1e-4);
    }
    assert_eq!(distribution(&logits, &DrawOptions { top_h: Some(1e-9), ..default() }), [1.0, 0.0, 0.0, 0.0]);
    let whole = distribution(&logits, &DrawOptions { top_h: Some(1.0), ..default() });
    assert_all_near("all of the entropy", &whole, &distribution(&logits, &default()), 1e-7);
    let many = distribution(&[0.0; 300], &DrawOptions { top_h: Some(1.0), ..default() });
    assert_eq!(many.iter().filter(|p| **p > 0.0).count(), 100, "at most 100 stay");
}

#[test]
fn sequences_are_those_that_prompt_and_output_end_with() {
    let logits = [0.0; 4];
    let banned = |prompt_ids: &[u32], output_ids: &[u32], options: &DrawOptions| -> Vec<usize> {
        let context = DrawContext { prompt_ids, output_ids, allowed: None };
        let got = draw_probabilities(&logits, options, &context).unwrap();
        (0..4).filter(|&id| got[id] == 0.0).collect()
    };
    let bad = DrawOptions { bad_words_ids: vec![vec![1, 2, 3], vec![0]], ..DrawOptions::default() };
    assert_eq!(banned(&[], &[], &bad), [0]);
    assert_eq!(banned(&[2], &[], &bad), [0], "longer than what there is");
    assert_eq!(banned(&[1], &[2], &bad), [0, 3], "across the end of the prompt");
    assert_eq!(banned(&[1, 2], &[0], &bad), [0]);
    let ngrams = DrawOptions { no_repeat_ngram_size: 2, ..DrawOptions::default() };
    assert_eq!(banned(&[1, 2, 1, 3], &[1], &ngrams), [2, 3]);
    assert_eq!(banned(&[1], &[], &ngrams), [0; 0]);
    let once = DrawOptions { no_repeat_ngram_size: 1, ..DrawOptions::default() };
    assert_eq!(banned(&[2], &[0], &once), [0, 2]);
    let context = DrawContext { prompt_ids: &[0, 1], output_ids: &[2, 3], allowed: None };
    let refused = |options: DrawOptions| {
        let error = draw_probabilities(&logits, &options, &context).unwrap_err();
        (error.kind(), error.to_string())
    };
    assert_eq!(refused(once.clone()).0, ErrorKind::Empty, "all were drawn");
    let default = DrawOptions::default;
    assert_eq!(
        refused(DrawOptions { bad_words_ids: vec![vec![0], vec![]], ..default() }),
        (ErrorKind::Empty, "badWordsIds[1] must hold at least one id: got []".to_owned())
    );
    assert_eq!(refused(DrawOptions { sequence_bias: vec![(vec![], 1.0)], ..default() }).0, ErrorKind::Empty);
    assert_eq!(
        refused(DrawOptions { bad_words_ids: vec![vec![0, 4]], ..default() }),
        (ErrorKind::OutOfRange, "badWordsIds[0][1] must be below the vocabulary's size 4: got 4".to_owned())
    );
    for options in [
        DrawOptions { sequence_bias: vec![(vec![4], 1.0)], ..default() },
        DrawOptions { sequence_bias: vec![(vec![1], f64::NAN)], ..default() },
        DrawOptions { epsilon_cutoff: 1.0, ..default() },
        DrawOptions { eta_cutoff: -0.1, ..default() },
        DrawOptions { top_h: Some(0.0), ..default() },
        DrawOptions { top_h: Some(1.5), ..default() },
    ] {
        assert_eq!(refused(options.clone()).0, ErrorKind::OutOfRange, "{options:?}");
    }
}

#[test]
fn large_vocabularies_flat_and_peaked_equal_a_full_sort() {
    let mut rng = Rng::new(5).stream("test");
    for (scale, step) in [(0.0, 0.0), (0.01, 0.0), (2.5, 0.0), (30.0, 0.0), (2.5, 0.5)] {
        // On a coarse grid thousands tie where a cut ends.
        let rounded = |logit: f64| if step > 0.0 { (logit / step).round() * step } else { logit };
        let logits: Vec<f32> = (0..20_000).map(|_| rounded(scale * rng.normal()) as f32 + 0.0).collect();
        let default = DrawOptions::default;
        for options in [
            DrawOptions { top_p: 0.9, ..default() },
            DrawOptions { top_k: Some(50), top_p: 0.9, ..default() },
            DrawOptions { top_p: 0.5, min_p: 0.05, temperature: 1.7, ..default() },
            DrawOptions { top_p: 1e-6, ..default() },
            DrawOptions { top_p: 1.0 - 1e-9, ..default() },
            DrawOptions { top_p: 0.9, temperature: 8.0, banned_ids: (0..5000).collect(), ..default() },
            DrawOptions { typical_p: 0.8, ..default() },
        ] {
            let got = distribution(&logits, &options);
            let naive = naive_probabilities(&logits, &options, &DrawContext::default());
            let num_kept = naive.iter().filter(|probability| **probability > 0.0).count();
            let distance: f64 = got.iter().zip(&naive).map(|(got, naive)| (got - naive).abs()).sum();
            // Among thousands of tokens, rounding of the mass may move the end of a cut by one.
            let slack = if num_kept > 1000 { 2.5 / num_kept as f64 } else { 0.0 };
            assert!(distance < slack + 1e-5, "{scale} {options:?}: {distance} of {num_kept}");
        }
    }
}

#[test]
fn penalties_and_masks_change_the_draw_and_not_what_a_loss_sees() {
    let mut rng = Rng::new(10).stream("test");
    let logits: Vec<f32> = (0..70).map(|_| 2.0 * rng.normal() as f32).collect();
    let allowed = token_mask(70, &[3, 40, 69]).unwrap();
    let context = DrawContext { prompt_ids: &[3], output_ids: &[40, 40], allowed: Some(&allowed) };
    let options = DrawOptions { frequency_penalty: 0.5, repetition_penalty: 1.5, ..DrawOptions::default() };
    let probabilities = draw_probabilities(&logits, &options, &context).unwrap();
    for index in 0..300 {
        let token = draw_in(&logits, &options, &context, &mut draw_rng(2, index)).unwrap();
        assert!([3, 40, 69].contains(&token.id));
        assert_eq!(token.log_prob, Compute::Cpu.log_prob_row(&logits, token.id as usize).log_prob);
        let sampled = probabilities[token.id as usize].ln();
        assert!((f64::from(token.sampled_log_prob) - sampled).abs() < 1e-6);
    }
}

#[test]
fn contexts_are_checked_and_must_leave_a_token() {
    let default = DrawOptions::default();
    let refuse = |options: &DrawOptions, context: DrawContext<'_>| {
        let mut rng = Rng::new(1);
        let error = draw_in(&[0.0; 33], options, &context, &mut rng).unwrap_err();
        assert_eq!(rng.state().word_index, 0);
        (error.kind(), error.to_string())
    };
    let none = DrawContext::default();
    assert_eq!(
        refuse(&default, DrawContext { prompt_ids: &[0, 33], ..none }),
        (ErrorKind::OutOfRange, "promptIds[1] must be below the vocabulary's size 33: got 33".to_owned())
    );
    assert_eq!(refuse(&default, DrawContext { output_ids: &[40], ..none }).0, ErrorKind::OutOfRange);
    assert_eq!(refuse(&default, DrawContext { allowed: Some(&[1]), ..none }).0, ErrorKind::ShapeMismatch);
    // Bits past the vocabulary name no token.
    assert_eq!(refuse(&default, DrawContext { allowed: Some(&[0, 2]), ..none }).0, ErrorKind::Empty);
    let banned = DrawOptions { banned_ids: (0..33).collect(), ..default };
    assert_eq!(refuse(&banned, none).0, ErrorKind::Empty);
    assert_eq!(token_mask(32, &[32]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert!(token_mask(VOCAB_SIZE_MAX, &[]).is_ok());
    assert_eq!(token_mask(VOCAB_SIZE_MAX + 1, &[]).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn both_log_probs_are_those_of_their_distributions() {
    let mut rng = Rng::new(9).stream("test");
    for index in 0..500 {
        let logits: Vec<f32> = (0..50).map(|_| 2.0 * rng.normal() as f32).collect();
        let draw_method = if index % 2 == 0 { DrawMethod::Inverse } else { DrawMethod::GumbelMax };
        let options = DrawOptions {
            temperature: 0.8,
            top_k: Some(20),
            top_p: 0.95,
            draw_method,
            ..DrawOptions::default()
        };
        let Draw { id, log_prob, sampled_log_prob } =
            draw(&logits, &options, &mut draw_rng(1, index)).unwrap();
        let sampled = distribution(&logits, &options)[id as usize].ln();
        assert!((f64::from(sampled_log_prob) - sampled).abs() < 1e-6, "{sampled_log_prob} against {sampled}");
        assert_eq!(log_prob, Compute::Cpu.log_prob_row(&logits, id as usize).log_prob);
        let plain = DrawOptions { draw_method, ..DrawOptions::default() };
        let plain = draw(&logits, &plain, &mut draw_rng(1, index)).unwrap();
        assert_eq!(plain.log_prob, plain.sampled_log_prob, "the two distributions are one");
    }
}

#[test]
fn every_draw_takes_one_word_and_can_be_replayed_alone() {
    let logits = [0.3, -0.2, 1.0, 0.0];
    let mut stream = draw_rng(5, 0);
    for index in 0..40 {
        let options = match index % 5 {
            0 => DrawOptions { temperature: 0.0, ..DrawOptions::default() },
            1 => DrawOptions { top_k: Some(2), ..DrawOptions::default() },
            2 => DrawOptions { top_p: 0.6, ..DrawOptions::default() },
            3 => DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() },
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
    assert_eq!(distribution(&[1.0, 3.0, 3.0, 3.0], &tied), [0.0, 1.0, 0.0, 0.0]);
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
        assert_eq!(distribution(&logits, &options), expected, "{options:?}");
        for draw_method in [DrawMethod::Inverse, DrawMethod::GumbelMax] {
            let options = DrawOptions { draw_method, ..options.clone() };
            let drawn = draw(&logits, &options, &mut Rng::new(3)).unwrap();
            assert!(drawn.sampled_log_prob.is_finite() && expected[drawn.id as usize] > 0.0, "{drawn:?}");
        }
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
        DrawOptions { min_p: -0.1, ..default() },
        DrawOptions { min_p: 1.1, ..default() },
        DrawOptions { typical_p: 0.0, ..default() },
        DrawOptions { repetition_penalty: 0.0, ..default() },
        DrawOptions { presence_penalty: f64::INFINITY, ..default() },
        DrawOptions { frequency_penalty: f64::NAN, ..default() },
        DrawOptions { logit_bias: vec![(0, f64::NAN)], ..default() },
        DrawOptions { logit_bias: vec![(1, 0.0)], ..default() },
        DrawOptions { banned_ids: vec![1], ..default() },
        DrawOptions { temperature: -1.0, ..default() },
        DrawOptions { temperature: f64::NAN, ..default() },
        DrawOptions { top_k: Some(0), ..default() },
        DrawOptions { top_p: 0.0, ..default() },
        DrawOptions { top_p: 1.1, ..default() },
    ] {
        assert_eq!(kind(&[0.0], &options).0, ErrorKind::OutOfRange, "{options:?}");
    }
}
