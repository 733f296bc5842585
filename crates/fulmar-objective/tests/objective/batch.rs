//! Invalid batches: every refusal names the argument and its value.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{Error, ErrorKind};
use fulmar_objective::{
    Advantage, GrpoLoss, GrpoOptions, KlPenalty, LossBatch, Normalization, SftBatch, SftLoss, SftOptions,
    SftReduction,
};

fn valid() -> LossBatch<'static> {
    LossBatch {
        log_prob: &[-1.0, -2.0, -3.0],
        old_log_prob: &[-1.0, -2.0, -3.0],
        ref_log_prob: None,
        sampler_log_prob: None,
        entropy: None,
        advantage: Advantage::PerSequence(&[1.0, -1.0]),
        mask: &[0, 1, 1],
        offsets: &[0, 2, 3],
    }
}

fn refusal(batch: &LossBatch<'_>) -> (ErrorKind, String) {
    parts(&GrpoLoss::default().forward(batch).unwrap_err())
}

fn parts(error: &Error) -> (ErrorKind, String) {
    (error.kind(), error.to_string())
}

#[test]
fn every_wrong_length_is_named_with_both_lengths() {
    let cases = [
        (
            LossBatch { old_log_prob: &[-1.0], ..valid() },
            "old_log_prob length must equal log_prob = 3: got 1",
        ),
        (
            LossBatch { ref_log_prob: Some(&[]), ..valid() },
            "ref_log_prob length must equal log_prob = 3: got 0",
        ),
        (LossBatch { entropy: Some(&[0.0; 4]), ..valid() }, "entropy length must equal log_prob = 3: got 4"),
        (LossBatch { mask: &[1, 1], ..valid() }, "mask length must equal log_prob = 3: got 2"),
        (
            LossBatch { advantage: Advantage::PerSequence(&[1.0]), ..valid() },
            "advantage length must equal number of sequences = 2: got 1",
        ),
        (
            LossBatch { advantage: Advantage::PerToken(&[1.0]), ..valid() },
            "advantage length must equal log_prob = 3: got 1",
        ),
        (
            LossBatch { offsets: &[0, 2, 4], ..valid() },
            "last offset must equal the number of tokens = 3: got 4",
        ),
    ];
    for (batch, message) in cases {
        assert_eq!(refusal(&batch), (ErrorKind::ShapeMismatch, message.to_owned()));
    }
}

#[test]
fn offsets_and_masks_of_the_wrong_form_are_refused() {
    let cases = [
        (LossBatch { offsets: &[1, 2, 3], ..valid() }, ErrorKind::OutOfRange, "offsets[0] must be 0: got 1"),
        (
            LossBatch { offsets: &[0, 5, 3], ..valid() },
            ErrorKind::OutOfRange,
            "offsets[2] must be >= offsets[1] = 5: got 3",
        ),
        (LossBatch { mask: &[0, 1, 2], ..valid() }, ErrorKind::OutOfRange, "mask[2] must be 0 or 1: got 2"),
        (
            LossBatch { offsets: &[], ..valid() },
            ErrorKind::Empty,
            "offsets must hold at least one bound: got []",
        ),
        (
            LossBatch { mask: &[0; 3], ..valid() },
            ErrorKind::Empty,
            "mask must train at least one token: got 0 of 3",
        ),
    ];
    for (batch, kind, message) in cases {
        assert_eq!(refusal(&batch), (kind, message.to_owned()));
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_where_trained_and_ignored_where_not() {
    let nan = f32::NAN;
    let cases = [
        (LossBatch { log_prob: &[-1.0, nan, -3.0], ..valid() }, "log_prob[1] must be finite: got NaN"),
        (
            LossBatch { advantage: Advantage::PerSequence(&[1.0, f32::INFINITY]), ..valid() },
            "advantage[1] must be finite: got inf",
        ),
        (
            LossBatch { advantage: Advantage::PerToken(&[nan, nan, 0.0]), ..valid() },
            "advantage[1] must be finite: got NaN",
        ),
        (
            LossBatch { ref_log_prob: Some(&[0.0, 0.0, f32::NEG_INFINITY]), ..valid() },
            "ref_log_prob[2] must be finite: got -inf",
        ),
        (LossBatch { entropy: Some(&[nan, 0.5, nan]), ..valid() }, "entropy[2] must be finite: got NaN"),
    ];
    for (batch, message) in cases {
        assert_eq!(refusal(&batch), (ErrorKind::NonFinite, message.to_owned()));
    }
    let masked = LossBatch {
        log_prob: &[nan, -2.0, -3.0],
        old_log_prob: &[f32::INFINITY, -2.0, -3.0],
        ref_log_prob: Some(&[nan, -2.0, -3.0]),
        entropy: Some(&[nan, 0.5, 0.5]),
        advantage: Advantage::PerToken(&[nan, 1.0, 1.0]),
        ..valid()
    };
    let output = GrpoLoss::default().forward(&masked).unwrap();
    assert_eq!((output.loss, output.grad_log_prob), (-1.0, vec![0.0, -0.5, -0.5]));
    assert_eq!(output.metrics.iter().find(|metric| metric.name == "numNonFinite").unwrap().value, 0.0);
}

#[test]
fn an_old_log_prob_that_is_not_finite_leaves_the_mask_and_is_counted() {
    let batch = LossBatch { old_log_prob: &[-1.0, f32::NAN, -3.0], ..valid() };
    let output = GrpoLoss::default().forward(&batch).unwrap();
    assert_eq!((output.metric("numNonFinite"), output.metric("numTokens")), (Some(1.0), Some(1.0)));
    assert_eq!((output.loss, &output.grad_log_prob), (1.0, &vec![0.0, 0.0, 1.0]));
    let batch = LossBatch { old_log_prob: &[0.0, f32::NAN, f32::NEG_INFINITY], ..valid() };
    let output = GrpoLoss::default().forward(&batch).unwrap();
    assert_eq!((output.loss, &output.grad_log_prob), (0.0, &vec![0.0; 3]));
    assert!(output.metrics.iter().all(|metric| metric.value.is_finite()), "nothing left is not NaN");
}

#[test]
fn options_outside_their_range_are_refused_by_name() {
    let default = GrpoOptions::default;
    let penalty = KlPenalty { coefficient: -1.0, ..KlPenalty::default() };
    let clip = |low, high| fulmar_objective::Clip { low, high };
    let cases = [
        (
            GrpoOptions { clip_epsilon: clip(1.0, 0.2), ..default() },
            "clipEpsilon low must be in [0, 1): got 1",
        ),
        (
            GrpoOptions { clip_epsilon: clip(0.2, f64::NAN), ..default() },
            "clipEpsilon high must be a finite number >= 0: got NaN",
        ),
        (
            GrpoOptions { dual_clip: Some(1.2), ..default() },
            "dualClip must be finite and above 1 + clipEpsilon high: got 1.2",
        ),
        (GrpoOptions { kl_mask_threshold: Some(0.0), ..default() }, "klMaskThreshold must be > 0: got 0"),
        (GrpoOptions { log_ratio_max: 701.0, ..default() }, "logRatioMax must be in (0, 700]: got 701"),
        (
            GrpoOptions { entropy_coefficient: -0.1, ..default() },
            "entropyCoefficient must be a finite number >= 0: got -0.1",
        ),
        (
            GrpoOptions { kl_to_ref: penalty, ..default() },
            "klToRef.coefficient must be a finite number >= 0: got -1",
        ),
        (
            GrpoOptions { normalization: Normalization::FixedLength(0.0), ..default() },
            "normalization count must be a finite number >= 1: got 0",
        ),
    ];
    for (options, message) in cases {
        assert_eq!(parts(&GrpoLoss::new(options).unwrap_err()), (ErrorKind::OutOfRange, message.to_owned()));
    }
    assert!(GrpoLoss::new(GrpoOptions { log_ratio_max: 700.0, ..default() }).is_ok());
    assert_eq!(GrpoLoss::new(default()).unwrap(), GrpoLoss::default());
}

#[test]
fn a_term_without_its_input_is_refused() {
    let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
    for options in [
        GrpoOptions { kl_to_ref, ..GrpoOptions::default() },
        GrpoOptions { entropy_coefficient: 0.1, ..GrpoOptions::default() },
    ] {
        assert_eq!(GrpoLoss::new(options).unwrap().forward(&valid()).unwrap_err().kind(), ErrorKind::Empty);
    }
    let loss = SftLoss::new(SftOptions { kl_to_ref, ..SftOptions::default() }).unwrap();
    let batch = SftBatch { log_prob: &[-1.0], ref_log_prob: None, mask: &[1], offsets: &[0, 1] };
    assert_eq!(loss.forward::<f32>(&batch).unwrap_err().kind(), ErrorKind::Empty);
}

#[test]
fn a_gradient_that_overflows_single_precision_is_refused() {
    let options = GrpoOptions { log_ratio_max: 700.0, ..GrpoOptions::default() };
    let batch = LossBatch { old_log_prob: &[0.0, -200.0, -3.0], ..valid() };
    let batch = LossBatch { advantage: Advantage::PerSequence(&[-1.0, 1.0]), ..batch };
    let error = GrpoLoss::new(options).unwrap().forward(&batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NonFinite, "{error}");
}

#[test]
fn json_options_use_camel_case_and_refuse_unknown_keys() {
    let parse = |text: &str| serde_json::from_str::<GrpoOptions>(text);
    assert_eq!(parse("{}").unwrap(), GrpoOptions::default());
    let options = parse(
        r#"{"clipEpsilon": [0.2, 0.28], "dualClip": 3, "normalization": {"fixedLength": 512},
            "klToRef": {"estimator": "k2", "coefficient": 0.1, "importanceWeighted": true}, "entropyCoefficient": 0.5}"#,
    )
    .unwrap();
    assert_eq!(options.clip_epsilon, fulmar_objective::Clip { low: 0.2, high: 0.28 });
    assert_eq!(options.normalization, Normalization::FixedLength(512.0));
    assert_eq!((options.dual_clip, options.kl_to_ref.coefficient), (Some(3.0), 0.1));
    assert_eq!(parse(r#"{"clipEpsilon": 1}"#).unwrap().clip_epsilon, fulmar_objective::Clip::symmetric(1.0));
    for wrong in
        [r#"{"clipEpsilon": [0.2]}"#, r#"{"clipEpsilon": [0.1, 0.2, 0.3]}"#, r#"{"clipEpsilon": "0.2"}"#]
    {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    let unknown = parse(r#"{"clipEpsilonn": 0.2}"#).unwrap_err().to_string();
    assert!(unknown.contains("clipEpsilonn") && unknown.contains("clipEpsilon`"), "{unknown}");
    let sft: SftOptions = serde_json::from_str(r#"{"reduction": {"globalTokens": 8}}"#).unwrap();
    assert_eq!((sft.reduction, sft.normalize_by_seq_length), (SftReduction::GlobalTokens(8.0), true));
}
