//! The rows of `preference.jsonl` about DPO, KTO and RLOO against what trl gave; `sft.rs`, `distillation.rs` and `bradley_terry.rs` read
//! the others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use crate::rows::{assert_all_near, assert_near, flat, lines, number, rows};
use crate::sequences::{bits, offsets_of};
use fulmar_objective::{
    Advantage, Clip, DpoLoss, DpoLossType, DpoOptions, FDivergence, GrpoLoss, GrpoOptions, KtoBatch, KtoLoss,
    KtoLossType, KtoOptions, LossBatch, LossOutput, Normalization, PreferenceBatch, RatioLevel,
};
use serde_json::Value;

const TIGHT: f64 = 1e-9;

#[test]
fn every_row_is_equal() {
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows("preference", |_| true) {
        let kind = row["kind"].as_str().unwrap();
        match kind {
            "trl_dpo" => dpo(&row),
            "trl_kto" => kto(&row),
            "trl_rloo" => rloo(&row),
            _ => {}
        }
        *tally.entry(kind.to_owned()).or_default() += 1;
    }
    println!("{tally:?}");
    let elsewhere = [
        ("trl_sft", 2),
        ("torchrl_SFTLoss", 12),
        ("torchrl_DistillationLoss", 12),
        ("trl_reward_modeling", 4),
    ];
    let here = [("trl_dpo", 21), ("trl_kto", 4), ("trl_rloo", 2), ("torchrl_reward_modeling", 1)];
    assert_eq!(
        tally,
        here.into_iter().chain(elsewhere).map(|(kind, count)| (kind.to_owned(), count)).collect()
    );
}

fn name_in<T: serde::de::DeserializeOwned>(snake: &str) -> T {
    let mut words = snake.split('_');
    let mut camel = words.next().unwrap().to_owned();
    for word in words {
        camel += &word[..1].to_uppercase();
        camel += &word[1..];
    }
    serde_json::from_value(Value::String(camel)).unwrap()
}

/// `[chosen..., rejected...]` pair by pair.
fn in_pairs(value: &Value) -> Vec<Vec<f64>> {
    let (chosen, rejected) = lines(value).split_at(lines(value).len() / 2);
    chosen.iter().zip(rejected).flat_map(|(chosen, rejected)| [flat(chosen), flat(rejected)]).collect()
}

fn assert_equal(row: &Value, output: &LossOutput<f64>, gradient: &[f64], metrics: &[(&str, &str)]) {
    // trl computes the logarithms of exo_pair's label smoothing in single precision.
    let is_exact = row["dtype"] == "float64" && row["loss_types"][0] != "exo_pair";
    let tolerance = if is_exact { TIGHT } else { 1e-6 };
    let what = format!("{} {} {}", row["kind"], row["case"], row["loss_types"]);
    assert_near(&what, output.loss, number(&row["loss"]), tolerance);
    assert_all_near(&what, &output.grad_log_prob, gradient, tolerance);
    for (ours, theirs) in metrics {
        let wanted = number(&row["metrics"][*theirs]);
        assert_near(&format!("{what} {ours}"), output.metric(ours).unwrap(), wanted, 1e-6);
    }
}

fn dpo(row: &Value) {
    let kinds = lines(&row["loss_types"]).iter().map(|kind| name_in::<DpoLossType>(kind.as_str().unwrap()));
    let alpha = number(&row["f_alpha_divergence_coef"]);
    let options = DpoOptions {
        loss_weights: kinds.zip(flat(&row["loss_weights"])).collect(),
        beta: number(&row["beta"]),
        label_smoothing: number(&row["label_smoothing"]),
        f_divergence: match row["f_divergence_type"].as_str().unwrap() {
            "alpha_divergence" => FDivergence::AlphaDivergence(alpha),
            other => name_in(other),
        },
        ld_alpha: row["ld_alpha"].as_f64(),
        use_weighting: row["use_weighting"] == true,
        discopop_tau: number(&row["discopop_tau"]),
        ..DpoOptions::default()
    };
    let (log_prob, ref_log_prob) =
        (in_pairs(&row["log_probs"]).concat(), in_pairs(&row["ref_log_probs"]).concat());
    let mask =
        in_pairs(&row["completion_mask"]).iter().flat_map(|mask| bits(&mask[1..])).collect::<Vec<u8>>();
    let log_sum_sq_prob =
        row["log_sum_sq_probs"].is_array().then(|| in_pairs(&row["log_sum_sq_probs"]).concat());
    let batch = PreferenceBatch {
        log_prob: &log_prob,
        ref_log_prob: &ref_log_prob,
        log_sum_sq_prob: log_sum_sq_prob.as_deref(),
        mask: &mask,
        offsets: &offsets_of(&row["log_probs"]),
    };
    let output = DpoLoss::new(options).unwrap().forward(&batch).unwrap();
    let metrics = [
        ("rewardChosen", "rewards/chosen"),
        ("rewardRejected", "rewards/rejected"),
        ("accuracy", "rewards/accuracies"),
        ("margin", "rewards/margins"),
        ("logProbChosen", "logps/chosen"),
        ("logProbRejected", "logps/rejected"),
    ];
    assert_equal(row, &output, &in_pairs(&row["gradient"]).concat(), &metrics);
}

fn kto(row: &Value) {
    let options = KtoOptions {
        loss_type: name_in::<KtoLossType>(row["loss_type"].as_str().unwrap()),
        beta: number(&row["beta"]),
        desirable_weight: number(&row["desirable_weight"]),
        undesirable_weight: number(&row["undesirable_weight"]),
        num_sequences: None,
        ..Default::default()
    };
    let (log_prob, ref_log_prob) = (flat(&row["log_probs"]), flat(&row["ref_log_probs"]));
    let kl_log_ratio: Option<Vec<f64>> = row["kl_log_probs"].is_array().then(|| {
        flat(&row["kl_log_probs"])
            .iter()
            .zip(flat(&row["ref_kl_log_probs"]))
            .map(|(own, other)| own - other)
            .collect()
    });
    let batch = KtoBatch {
        log_prob: &log_prob,
        ref_log_prob: &ref_log_prob,
        desirable: &bits(&flat(&row["label"])),
        kl_log_ratio: kl_log_ratio.as_deref(),
        mask: &vec![1; log_prob.len()],
        offsets: &offsets_of(&row["log_probs"]),
    };
    let output = KtoLoss::new(options).unwrap().forward(&batch).unwrap();
    let metrics = [("kl", "kl"), ("rewardChosen", "rewards/chosen"), ("rewardRejected", "rewards/rejected")];
    assert_equal(row, &output, &flat(&row["gradient"]), &metrics);
}

fn rloo(row: &Value) {
    let options = GrpoOptions {
        ratio: RatioLevel::SequenceProduct,
        normalization: Normalization::SequenceMean,
        clip_epsilon: Clip { low: number(&row["epsilon_low"]), high: number(&row["epsilon_high"]) },
        ..GrpoOptions::default()
    };
    let (log_prob, mask) = (flat(&row["log_probs"]), bits(&flat(&row["mask"])));
    let (offsets, entropy) = (offsets_of(&row["log_probs"]), flat(&row["entropies"]));
    // Upstream keeps only sums of the old log-probabilities: the first token gets the rest.
    let mut old_log_prob = log_prob.clone();
    for (bounds, wanted) in offsets.windows(2).zip(flat(&row["old_sequence_log_probs"])) {
        let trained = (bounds[0] as usize..bounds[1] as usize).filter(|&t| mask[t] == 1);
        let first = trained.clone().next().unwrap();
        old_log_prob[first] += wanted - trained.map(|t| log_prob[t]).sum::<f64>();
    }
    let advantage = flat(&row["advantages"]);
    let run = |sequences: std::ops::Range<usize>| {
        let tokens = offsets[sequences.start] as usize..offsets[sequences.end] as usize;
        let bounds: Vec<u32> = offsets[sequences.start..=sequences.end]
            .iter()
            .map(|end| end - offsets[sequences.start])
            .collect();
        let batch = LossBatch {
            log_prob: &log_prob[tokens.clone()],
            old_log_prob: &old_log_prob[tokens.clone()],
            ref_log_prob: None,
            sampler_log_prob: None,
            entropy: Some(&entropy[tokens.clone()]),
            advantage: Advantage::PerSequence(&advantage[sequences]),
            mask: &mask[tokens],
            offsets: &bounds,
        };
        GrpoLoss::new(options.clone()).unwrap().forward(&batch).unwrap()
    };
    assert_equal(row, &run(0..advantage.len()), &flat(&row["gradient"]), &[("entropy", "entropy")]);
    // Upstream counts clipped sequences, a metric of ours clipped tokens: in a sequence alone all or none are.
    let mean = |name: &str| {
        let each = (0..advantage.len()).map(|s| run(s..s + 1).metric(name).unwrap());
        each.sum::<f64>() / advantage.len() as f64
    };
    for (ours, theirs) in
        [("clipFractionLow", "clip_ratio/low_mean"), ("clipFractionHigh", "clip_ratio/high_mean")]
    {
        assert_near(ours, mean(ours), number(&row["metrics"][theirs]), 1e-6);
    }
}
