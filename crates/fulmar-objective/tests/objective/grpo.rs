//! `GrpoLoss` against torchrl, trl and torchtitan, row by row, and the two intended differences.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::rows::{assert_all_near, assert_near, flat, lines, number, rows};
use fulmar_core::ErrorKind;
use fulmar_objective::{
    Advantage, Clip, GrpoLoss, GrpoOptions, KlEstimator, KlPenalty, LossBatch, LossOutput, Normalization,
};
use serde_json::Value;

const TIGHT: f64 = 1e-9;

/// The inputs of one row without its padding.
struct Batch {
    log_prob: Vec<f64>,
    old_log_prob: Vec<f64>,
    ref_log_prob: Option<Vec<f64>>,
    entropy: Option<Vec<f64>>,
    advantage: Vec<f64>,
    mask: Vec<u8>,
    offsets: Vec<u32>,
}

impl Batch {
    fn view(&self) -> LossBatch<'_, f64> {
        LossBatch {
            log_prob: &self.log_prob,
            old_log_prob: &self.old_log_prob,
            ref_log_prob: self.ref_log_prob.as_deref(),
            sampler_log_prob: None,
            entropy: self.entropy.as_deref(),
            advantage: Advantage::PerToken(&self.advantage),
            mask: &self.mask,
            offsets: &self.offsets,
        }
    }

    fn run(&self, options: &GrpoOptions) -> LossOutput<f64> {
        GrpoLoss::new(options.clone()).unwrap().forward(&self.view()).unwrap()
    }

    /// Returns the mean over trained tokens, written naively.
    fn trained_mean(&self, value: impl Fn(usize) -> f64) -> f64 {
        let trained: Vec<usize> = (0..self.mask.len()).filter(|&t| self.mask[t] == 1).collect();
        trained.iter().map(|&t| value(t)).sum::<f64>() / trained.len() as f64
    }
}

/// One sequence of a `[B, T]` row: its last `length` positions (rows of unequal length are padded on the left).
fn tail(value: &Value, sequence: usize, length: usize) -> Vec<f64> {
    let row = flat(&lines(value)[sequence]);
    row[row.len() - length..].to_vec()
}

fn join(value: &Value, lengths: &[usize]) -> Vec<f64> {
    lengths.iter().enumerate().flat_map(|(sequence, &length)| tail(value, sequence, length)).collect()
}

fn offsets_of(lengths: &[usize]) -> Vec<u32> {
    let mut end = 0;
    std::iter::once(0)
        .chain(lengths.iter().map(|&length| {
            end += length as u32;
            end
        }))
        .collect()
}

fn torchrl_batch(row: &Value) -> Batch {
    let cur = if row["cur_log_probs"].is_null() { &row["dist_log_probs"] } else { &row["cur_log_probs"] };
    let entropy = if row["entropies"].is_null() { &row["dist_entropy"] } else { &row["entropies"] };
    let lengths: Vec<usize> = match row["ragged_lengths"].as_array() {
        Some(lengths) => lengths.iter().map(|length| number(length) as usize).collect(),
        None => lines(cur).iter().map(|sequence| lines(sequence).len()).collect(),
    };
    let expand = |sequence: usize, length: usize| {
        let advantage = flat(&lines(&row["advantage"])[sequence]);
        if advantage.len() == 1 { vec![advantage[0]; length] } else { advantage }
    };
    let mut mask = join(&row["mask"], &lengths);
    if !row["collector_mask"].is_null() {
        mask.iter_mut().zip(flat(&row["collector_mask"])).for_each(|(bit, collected)| *bit *= collected);
    }
    Batch {
        log_prob: join(cur, &lengths),
        old_log_prob: join(&row["sample_log_probs"], &lengths),
        ref_log_prob: (!row["ref_log_probs"].is_null()).then(|| join(&row["ref_log_probs"], &lengths)),
        entropy: Some(join(entropy, &lengths)),
        advantage: lengths.iter().enumerate().flat_map(|(s, &length)| expand(s, length)).collect(),
        mask: mask.iter().map(|&bit| bit as u8).collect(),
        offsets: offsets_of(&lengths),
    }
}

fn torchrl_options(row: &Value) -> GrpoOptions {
    let config = &row["config"];
    let clip_epsilon = match &config["clip_epsilon"] {
        Value::Null => Clip::default(),
        Value::Array(pair) => Clip { low: number(&pair[0]), high: number(&pair[1]) },
        both => Clip::symmetric(number(both)),
    };
    let normalization = match (config["aggregation"].as_str(), config["reduction"].as_str()) {
        (_, Some("none")) | (Some("none"), _) => Normalization::GlobalTokens(1.0),
        (Some("prompt_mean"), _) => Normalization::SequenceMean,
        _ => Normalization::TokenMean,
    };
    let kl_mask_threshold = config["kl_mask_threshold"].as_f64();
    // Upstream never drops a token for its ratio.
    GrpoOptions {
        clip_epsilon,
        normalization,
        kl_mask_threshold,
        log_ratio_max: 700.0,
        ..GrpoOptions::default()
    }
}

/// Returns a gradient of a row without its padding.
fn gradient(row: &Value, name: &str, batch: &Batch) -> Vec<f64> {
    let lengths: Vec<usize> = batch.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).collect();
    join(&row["gradients"][name], &lengths)
}

fn total(value: &Value) -> f64 {
    flat(value).iter().sum()
}

fn is_torchrl(row: &Value) -> bool {
    row["library"] == "torchrl"
        && row["expected_error"].is_null()
        && row["upstream_bug"].is_null()
        && row["cur_log_probs"].is_array()
        && row["case"] != "all_masked"
}

#[test]
fn objective_and_gradient_equal_torchrl() {
    for row in rows("grpo", |row| is_torchrl(row) && row["dtype"] == "float64") {
        let (batch, id) = (torchrl_batch(&row), row["id"].as_str().unwrap());
        let output = batch.run(&torchrl_options(&row));
        let expected = total(&row["outputs"]["loss_objective"]);
        assert_near(&format!("{id} loss"), output.metric("policyLoss").unwrap(), expected, TIGHT);
        let expected = gradient(&row, "loss_objective", &batch);
        assert_all_near(&format!("{id} gradient"), &output.grad_log_prob, &expected, TIGHT);
    }
}

#[test]
fn the_entropy_bonus_and_its_gradient_equal_torchrl() {
    for row in rows("grpo", |row| is_torchrl(row) && row["dtype"] == "float64") {
        let (batch, id) = (torchrl_batch(&row), row["id"].as_str().unwrap());
        let entropy_coefficient = row["config"]["entropy_coeff"].as_f64().unwrap_or(0.01);
        let output = batch.run(&GrpoOptions { entropy_coefficient, ..torchrl_options(&row) });
        let expected = total(&row["outputs"]["loss_entropy"]);
        assert_near(&format!("{id} entropy"), output.metric("entropyLoss").unwrap(), expected, TIGHT);
        let expected = gradient(&row, "loss_entropy", &batch);
        assert_all_near(&format!("{id} gradient"), &output.grad_entropy.unwrap(), &expected, TIGHT);
    }
}

#[test]
fn kl_penalties_equal_torchrl_under_its_denominator_and_are_masked_means_under_ours() {
    let mut num_checked = 0;
    for row in rows("grpo", |row| is_torchrl(row) && row["dtype"] == "float64") {
        for (key, name) in [("kl_to_ref", "klToRef"), ("kl_to_inference", "klToInference")] {
            let Some(coefficient) = row["config"][format!("{key}_coeff")].as_f64() else { continue };
            let batch = torchrl_batch(&row);
            let penalty = KlPenalty { coefficient, ..KlPenalty::default() };
            // Upstream divides by every position of the padded batch.
            let num_positions = flat(&row["mask"]).len() as f64;
            let advantage = vec![0.0; batch.advantage.len()];
            let no_policy = Batch { advantage, ..torchrl_batch(&row) };
            let mut options = torchrl_options(&row);
            options.normalization = Normalization::GlobalTokens(num_positions);
            match key {
                "kl_to_ref" => options.kl_to_ref = penalty,
                _ => options.kl_to_inference = penalty,
            }
            let output = no_policy.run(&options);
            assert_near(key, output.loss, total(&row["outputs"][format!("loss_{key}")]), TIGHT);
            let expected = gradient(&row, &format!("loss_{key}"), &batch);
            assert_all_near(key, &output.grad_log_prob, &expected, TIGHT);
            let num_tokens = output.metric("numTokens").unwrap();
            let diluted = output.metric(name).unwrap() * num_tokens / num_positions;
            assert_near(name, diluted, number(&row["outputs"][key]), TIGHT);

            options.normalization = Normalization::TokenMean;
            let masked = no_policy.run(&options);
            assert_near(name, masked.loss, coefficient * masked.metric(name).unwrap(), TIGHT);
            assert_near(name, masked.loss * num_tokens, output.loss * num_positions, TIGHT);
            num_checked += 1;
        }
    }
    assert!(num_checked >= 8, "got {num_checked}");
}

#[test]
fn metrics_are_masked_means_where_torchrl_dilutes_them_with_padding() {
    for row in rows("grpo", |row| is_torchrl(row) && row["dtype"] == "float64" && row["case"] != "on_bounds")
    {
        if !row["collector_mask"].is_null() {
            continue; // upstream applies that mask to the loss alone
        }
        let (batch, id) = (torchrl_batch(&row), row["id"].as_str().unwrap());
        let output = batch.run(&torchrl_options(&row));
        let metric = |name: &str| output.metric(name).unwrap();
        let ess = number(&row["outputs"]["ESS"]);
        // NaN upstream when the threshold masks every token.
        assert_near(&format!("{id} ess"), metric("ess"), if ess.is_nan() { 0.0 } else { ess }, TIGHT);
        if row["config"]["kl_mask_threshold"].is_null() {
            let share = metric("numTokens") / flat(&row["mask"]).len() as f64;
            let (clipped, kl) = (metric("clipFraction") * share, metric("klApprox") * share);
            assert_near(&format!("{id} clip"), clipped, number(&row["outputs"]["clip_fraction"]), 1e-6);
            assert_near(&format!("{id} kl"), kl, number(&row["outputs"]["kl_approx"]), 1e-6);
            if row["case"] != "nonfinite_sample" {
                let entropy = batch.trained_mean(|t| batch.entropy.as_ref().unwrap()[t]);
                assert_near(&format!("{id} entropy"), metric("entropy"), entropy, TIGHT);
            }
        }
    }
}

#[test]
fn a_ratio_beyond_any_float_is_dropped_and_counted_unless_asked_for() {
    let row = &rows("grpo", |row| row["case"] == "extreme_ratio" && row["loss"] == "GRPOLoss")[0];
    let batch = torchrl_batch(row);
    assert!(number(&row["outputs"]["loss_objective"]) > 1e38);
    let output = batch.run(&GrpoOptions::default());
    assert_eq!(output.metric("numExtremeRatio"), Some(4.0));
    assert_eq!(output.metric("numTokens"), Some(4.0));
    assert!(output.loss.abs() < 1.0);
}

#[test]
fn the_row_that_upstream_turns_into_nan_has_a_finite_gradient() {
    let row = &rows("grpo", |row| row["case"] == "extreme_ratio_f32" && row["loss"] == "GRPOLoss")[0];
    assert!(number(&lines(&lines(&row["gradients"]["loss_objective"])[0])[0]).is_nan());
    let output = torchrl_batch(row).run(&torchrl_options(row));
    assert_near("loss", output.loss, number(&row["outputs"]["loss_objective"]), 1e-6);
    assert_all_near("gradient", &output.grad_log_prob, &[0.0, 0.0, -0.2, 0.0, 0.0, 0.2], 1e-6);
}

#[test]
fn a_per_token_advantage_keeps_its_token_where_upstream_shifts_it() {
    let row = &rows("grpo", |row| row["upstream_bug"] == true && row["loss"] == "GRPOLoss")[0];
    let batch = torchrl_batch(row);
    let output = batch.run(&torchrl_options(row));
    let surrogate = |t: usize| {
        let (ratio, advantage) = ((batch.log_prob[t] - batch.old_log_prob[t]).exp(), batch.advantage[t]);
        -(ratio * advantage).min(ratio.clamp(0.8, 1.2) * advantage)
    };
    assert_near("ours", output.loss, (0..5).map(surrogate).sum(), TIGHT);
    assert!(
        (output.loss - total(&row["outputs"]["loss_objective"])).abs() > 0.01,
        "upstream slid the values"
    );
}

#[test]
fn all_terms_go_on_to_the_logits_as_in_torchrl() {
    for row in rows("grpo", |row| row["case"] == "from_logits") {
        let batch = torchrl_batch(&row);
        let (num_tokens, num_positions) = (batch.mask.iter().sum::<u8>(), batch.mask.len());
        // Upstream divides the KL term by every position.
        let diluted = f64::from(num_tokens) / num_positions as f64;
        let coefficient = row["config"]["kl_to_ref_coeff"].as_f64().unwrap_or(0.0) * diluted;
        let kl_to_ref = KlPenalty { coefficient, ..KlPenalty::default() };
        let output =
            batch.run(&GrpoOptions { kl_to_ref, entropy_coefficient: 0.01, ..torchrl_options(&row) });
        let terms = ["loss_objective", "loss_entropy", "loss_kl_to_ref"];
        let loss = terms.iter().filter_map(|name| row["outputs"][name].as_f64()).sum();
        assert_near("loss", output.loss, loss, TIGHT);
        let rows_of =
            |value: &Value| -> Vec<Vec<f64>> { lines(value).iter().flat_map(lines).map(flat).collect() };
        let expected_tv = rows_of(&row["gradients"]["logits"]);
        let grad_entropy = output.grad_entropy.unwrap();
        for (t, mut logits) in rows_of(&row["logits"]).into_iter().enumerate() {
            softmax(&mut logits);
            let entropy = -logits.iter().map(|p| p * p.ln()).sum::<f64>();
            let token = flat(&row["tokens"])[t];
            let gradient = |(v, p): (usize, &f64)| {
                let hit = f64::from(u8::from(v as f64 == token));
                output.grad_log_prob[t] * (hit - p) - grad_entropy[t] * p * (p.ln() + entropy)
            };
            let got: Vec<f64> = logits.iter().enumerate().map(gradient).collect();
            assert_all_near("d logits", &got, &expected_tv[t], TIGHT);
        }
    }
}

#[test]
fn rows_that_torchrl_refuses_are_refused_by_kind() {
    for row in rows("grpo", |row| row["library"] == "torchrl" && row["expected_error"].is_object()) {
        let kind = match row["case"].as_str().unwrap() {
            "bad_config" => GrpoLoss::new(torchrl_options(&row)).unwrap_err().kind(),
            "missing_ref" => {
                let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
                let options = GrpoOptions { kl_to_ref, ..GrpoOptions::default() };
                let batch = Batch { ref_log_prob: None, ..torchrl_batch(&row) };
                GrpoLoss::new(options).unwrap().forward(&batch.view()).unwrap_err().kind()
            }
            _ => continue, // a rank that a ragged batch cannot have
        };
        let expected = if row["case"] == "bad_config" { ErrorKind::OutOfRange } else { ErrorKind::Empty };
        assert_eq!(kind, expected);
    }
}

fn trl_batch(row: &Value) -> Batch {
    let cur = &row["cur_log_probs"];
    let lengths: Vec<usize> = lines(cur).iter().map(|sequence| lines(sequence).len()).collect();
    let mut mask = flat(&row["mask"]);
    if !row["tool_mask"].is_null() {
        mask.iter_mut().zip(flat(&row["tool_mask"])).for_each(|(bit, tool)| *bit *= tool);
    }
    let old = if row["old_log_probs"].is_null() { cur } else { &row["old_log_probs"] };
    let advantage = flat(&row["advantages"]);
    Batch {
        log_prob: flat(cur),
        old_log_prob: flat(old),
        ref_log_prob: (!row["ref_log_probs"].is_null()).then(|| flat(&row["ref_log_probs"])),
        entropy: (!row["entropies"].is_null()).then(|| flat(&row["entropies"])),
        advantage: lengths.iter().zip(&advantage).flat_map(|(&length, &a)| vec![a; length]).collect(),
        mask: mask.iter().map(|&bit| bit as u8).collect(),
        offsets: offsets_of(&lengths),
    }
}

fn trl_options(row: &Value) -> GrpoOptions {
    let config = &row["config"];
    let low = number(&config["epsilon"]);
    let normalization = match row["loss"].as_str().unwrap() {
        "grpo" => Normalization::SequenceMean,
        "bnpo" => Normalization::TokenMean,
        "dr_grpo" => Normalization::FixedLength(number(&config["max_completion_length"])),
        _ => Normalization::GlobalTokens(number(&row["num_items_in_batch"])),
    };
    GrpoOptions {
        clip_epsilon: Clip { low, high: config["epsilon_high"].as_f64().unwrap_or(low) },
        dual_clip: config["delta"].as_f64(),
        normalization,
        kl_to_ref: KlPenalty {
            estimator: KlEstimator::K3,
            coefficient: number(&config["beta"]),
            importance_weighted: config["use_bias_correction_kl"] == true,
        },
        log_ratio_max: 700.0,
        ..GrpoOptions::default()
    }
}

#[test]
fn loss_gradient_and_metrics_equal_trl() {
    let mut num_checked = 0;
    for row in rows("grpo", |row| row["library"] == "trl" && row["expected_error"].is_null()) {
        let (batch, id) = (trl_batch(&row), row["id"].as_str().unwrap());
        let entropy_coefficient = number(&row["config"]["entropy_coef"]);
        let output = batch.run(&GrpoOptions { entropy_coefficient, ..trl_options(&row) });
        let upstream = &row["outputs"]["metrics"];
        let metric = |name: &str| output.metric(name).unwrap();
        if entropy_coefficient > 0.0 {
            // Upstream takes the token mean of the entropy whatever the loss type; here all terms share one
            // denominator.
            assert_near(
                &format!("{id} policy"),
                metric("policyLoss"),
                number(&upstream["policy_loss"]),
                TIGHT,
            );
            if row["loss"] == "bnpo" {
                assert_near(&format!("{id} loss"), output.loss, number(&row["outputs"]["loss"]), TIGHT);
                let expected = flat(&row["gradients"]["entropies"]);
                assert_all_near(id, output.grad_entropy.as_ref().unwrap(), &expected, TIGHT);
            }
        } else {
            assert_near(&format!("{id} loss"), output.loss, number(&row["outputs"]["loss"]), TIGHT);
        }
        let expected = flat(&row["gradients"]["cur_log_probs"]);
        assert_all_near(&format!("{id} gradient"), &output.grad_log_prob, &expected, TIGHT);
        assert_near(
            &format!("{id} low"),
            metric("clipFractionLow"),
            number(&upstream["clip_ratio/low_mean"]),
            1e-6,
        );
        assert_near(
            &format!("{id} high"),
            metric("clipFractionHigh"),
            number(&upstream["clip_ratio/high_mean"]),
            1e-6,
        );
        assert_near(&format!("{id} entropy"), metric("entropy"), number(&upstream["entropy"]), 1e-6);
        if let Some(kl) = upstream["kl"].as_f64() {
            assert_near(&format!("{id} kl"), metric("klToRef"), kl, 1e-6);
        }
        num_checked += 1;
    }
    assert!(num_checked >= 30, "got {num_checked}");
}

fn softmax(logits: &mut [f64]) -> f64 {
    let peak = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - peak).exp()).sum();
    logits.iter_mut().for_each(|logit| *logit = (*logit - peak).exp() / sum);
    peak + sum.ln()
}

#[test]
fn loss_and_logit_gradient_equal_torchtitan() {
    for row in rows("torchtitan", |row| row["kind"] == "loss") {
        let labels: Vec<usize> = flat(&row["labels"]).iter().map(|&label| label as usize).collect();
        let mut logits_tv: Vec<Vec<f64>> = lines(&row["logits"]).iter().map(flat).collect();
        let log_prob: Vec<f64> = logits_tv
            .iter_mut()
            .zip(&labels)
            .map(|(logits, &label)| logits[label] - softmax(logits))
            .collect();
        let config = &row["config"];
        let side = |name: &str| config[name].as_f64().or(config["clip_eps"].as_f64()).unwrap_or(0.2);
        let batch = Batch {
            old_log_prob: flat(&row["generator_logprobs"]),
            ref_log_prob: None,
            entropy: None,
            advantage: flat(&row["advantages"]),
            mask: flat(&row["loss_mask"]).iter().map(|&bit| bit as u8).collect(),
            offsets: vec![0, log_prob.len() as u32],
            log_prob,
        };
        let output = batch.run(&GrpoOptions {
            clip_epsilon: Clip { low: side("ratio_clip_low"), high: side("ratio_clip_high") },
            // No count, or a count of 0, divides by 1 upstream.
            normalization: Normalization::GlobalTokens(
                row["global_valid_tokens"].as_f64().unwrap_or(1.0).max(1.0),
            ),
            ..GrpoOptions::default()
        });
        assert_near("loss", output.loss, number(&row["value"]), 1e-5);
        for (t, probabilities) in logits_tv.iter().enumerate() {
            let got: Vec<f64> = probabilities
                .iter()
                .enumerate()
                .map(|(v, p)| output.grad_log_prob[t] * (f64::from(u8::from(v == labels[t])) - p))
                .collect();
            assert_all_near("d logits", &got, &flat(&lines(&row["grad_logits"])[t]), 1e-5);
        }
    }
}
