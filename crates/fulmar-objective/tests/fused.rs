//! Log-probabilities and losses straight from logits and hidden states, against torch, torchrl and Liger; and the memory they take.

#[path = "objective/rows.rs"]
mod rows;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use fulmar_compute::{Compute, Panels};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    Advantage, GrpoLoss, GrpoOptions, HeadGradientsMut, KlPenalty, LinearHead, LossBatch, Normalization,
    TokenGradients, logits_loss, token_log_probs,
};
use rows::{assert_all_near, assert_near, flat, lines, number, rows};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes that all threads have allocated.
struct Counting;

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As in the trait.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As in the trait.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[test]
fn log_probs_entropies_and_their_gradients_equal_torch() {
    for row in rows("logits", |row| row["kind"] == "gather") {
        let (logits, upstream) = (narrow(flat(&row["logits"])), narrow(flat(&row["upstream_gradient"])));
        let ids: Vec<u32> = flat(&row["ids"]).iter().map(|id| *id as u32).collect();
        let temperature = number(&row["temperature"]);
        let found = token_log_probs(&logits, &ids, temperature, Compute::Cpu).unwrap();
        // The rows are in double precision, these kernels in single.
        assert_all_near("log_prob", &widen(&found.log_prob), &flat(&row["log_probs"]), 3e-6);
        assert_all_near("entropy", &widen(&found.entropy), &flat(&row["entropy"]), 3e-6);
        let zeros = vec![0.0; ids.len()];
        for (name, log_prob, entropy) in [("log_probs", &upstream, &zeros), ("entropy", &zeros, &upstream)] {
            let mut gradient = logits.clone();
            let loss = |_: &_| Ok((log_prob.clone(), Some(entropy.clone()), ()));
            logits_loss(&mut gradient, &ids, temperature, Compute::Cpu, loss).unwrap();
            let expected = flat(&row[format!("grad_logits_of_{name}").as_str()]);
            assert_all_near(name, &widen(&gradient), &expected, 3e-6);
        }
        if row["masked_categorical_mode"].is_array() {
            let vocab = logits.len() / ids.len();
            let masked = |name: &str, values: &[f32]| {
                let mask = flat(&row["mask"]);
                let kept: Vec<f64> =
                    values.iter().zip(&mask).map(|(value, bit)| f64::from(*value) * bit).collect();
                assert_all_near(name, &kept, &flat(&row[name]), 3e-6);
            };
            masked("masked_categorical_log_prob", &found.log_prob);
            masked("masked_categorical_entropy", &found.entropy);
            let modes: Vec<f64> =
                logits.chunks(vocab).map(|row| f64::from(fulmar_compute::cpu::top_k(row, 1)[0])).collect();
            let mask = flat(&row["mask"]);
            let kept: Vec<f64> = modes.iter().zip(&mask).map(|(mode, bit)| mode * bit).collect();
            assert_all_near("mode", &kept, &flat(&row["masked_categorical_mode"]), 0.0);
        }
    }
}

#[test]
fn a_grpo_loss_behind_a_linear_head_equals_liger() {
    let mut num_rows = 0;
    for row in rows("logits", |row| row["kind"] == "liger_fused_linear_grpo") {
        num_rows += 1;
        let config = &row["config"];
        let (hidden, weight) = (narrow(flat(&row["hidden"])), narrow(flat(&row["weight"])));
        let width = lines(&lines(&row["weight"])[0]).len();
        let head = LinearHead {
            weight: weight[..].into(),
            panels: None,
            bias: None,
            width,
            temperature: number(&config["temperature"]),
            precision: Default::default(),
            compute: Compute::Cpu,
        };
        let ids: Vec<u32> = flat(&row["ids"]).iter().map(|id| *id as u32).collect();
        let mask: Vec<u8> = flat(&row["mask"]).iter().map(|bit| *bit as u8).collect();
        let length = lines(&lines(&row["ids"])[0]).len() as u32;
        let offsets: Vec<u32> = (0..=lines(&row["ids"]).len() as u32).map(|s| s * length).collect();
        let (old, reference) = (narrow(flat(&row["old_log_probs"])), narrow(flat(&row["ref_log_probs"])));
        let advantage = narrow(flat(&row["advantages"]));
        let loss = GrpoLoss::new(GrpoOptions {
            normalization: match config["loss_type"].as_str().unwrap() {
                "grpo" => Normalization::SequenceMean,
                "bnpo" => Normalization::TokenMean,
                _ => Normalization::FixedLength(number(&config["max_completion_length"])),
            },
            kl_to_ref: KlPenalty { coefficient: number(&config["beta"]), ..KlPenalty::default() },
            ..GrpoOptions::default()
        })
        .unwrap();
        let log_prob = head.log_probs(&hidden, &ids).unwrap().log_prob;
        let output = loss
            .forward(&LossBatch {
                log_prob: &log_prob,
                old_log_prob: &old,
                ref_log_prob: Some(&reference),
                sampler_log_prob: None,
                entropy: None,
                advantage: Advantage::PerSequence(&advantage),
                mask: &mask,
                offsets: &offsets,
            })
            .unwrap();
        assert_near("loss", output.loss, number(&row["loss"]), 2e-6);
        let gradients = TokenGradients { log_prob: &output.grad_log_prob, entropy: None };
        let d = head.backward(&hidden, &ids, gradients).unwrap();
        assert_all_near("hidden", &widen(&d.hidden), &flat(&row["gradients"]["hidden"]), 2e-6);
        assert_all_near("weight", &widen(&d.weight), &flat(&row["gradients"]["weight"]), 2e-6);
    }
    assert_eq!(num_rows, 3);
}

#[test]
fn gradients_of_hidden_states_weights_and_bias_equal_finite_differences() {
    let (num_rows, width, vocab, temperature) = (3, 4, 6, 0.7);
    let mut rng = Rng::new(6).stream("test");
    let mut random =
        |count: usize| -> Vec<f64> { (0..count).map(|_| f64::from(rng.normal() as f32)).collect() };
    let inputs = [random(num_rows * width), random(vocab * width), random(vocab)];
    let (d_log_prob, d_entropy, ids) = ([0.5, -1.0, 2.0], [0.3, 0.0, -0.7], [1_u32, 5, 0]);
    let exact = |[hidden, weight, bias]: &[Vec<f64>; 3]| -> f64 {
        let token = |n: usize| {
            let logit = |v: usize| {
                let dot: f64 = (0..width).map(|d| hidden[n * width + d] * weight[v * width + d]).sum();
                (dot + bias[v]) / temperature
            };
            let log_sum = (0..vocab).map(|v| logit(v).exp()).sum::<f64>().ln();
            let entropy: f64 = (0..vocab).map(|v| (log_sum - logit(v)) * (logit(v) - log_sum).exp()).sum();
            d_log_prob[n] * (logit(ids[n] as usize) - log_sum) + d_entropy[n] * entropy
        };
        (0..num_rows).map(token).sum()
    };
    let [hidden, weight, bias] = inputs.clone().map(narrow);
    let head = LinearHead {
        weight: weight[..].into(),
        panels: None,
        bias: Some(bias[..].into()),
        width,
        temperature,
        precision: Default::default(),
        compute: Compute::Cpu,
    };
    let (log_prob, entropy) = (narrow(d_log_prob.to_vec()), narrow(d_entropy.to_vec()));
    let gradients = TokenGradients { log_prob: &log_prob, entropy: Some(&entropy) };
    let d = head.backward(&hidden, &ids, gradients).unwrap();
    for (which, got) in [d.hidden, d.weight, d.bias.unwrap()].iter().enumerate() {
        for (index, got) in got.iter().enumerate() {
            let moved = |step: f64| {
                let mut inputs = inputs.clone();
                inputs[which][index] += step;
                exact(&inputs)
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert_near(&format!("input {which}[{index}]"), f64::from(*got), expected, 1e-5);
        }
    }
}

#[test]
fn logits_of_all_tokens_are_never_held() {
    let (num_rows, width, vocab) = (4096, 8, 4096);
    let mut rng = Rng::new(7).stream("test");
    let mut random = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.normal() as f32).collect() };
    let (hidden, weight) = (random(num_rows * width), random(vocab * width));
    let ids: Vec<u32> = (0..num_rows as u32).collect();
    let head = LinearHead {
        weight: weight[..].into(),
        panels: None,
        bias: None,
        width,
        temperature: 1.0,
        precision: Default::default(),
        compute: Compute::Cpu,
    };
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let found = head.log_probs(&hidden, &ids).unwrap();
    let gradients = TokenGradients { log_prob: &vec![1.0; num_rows], entropy: None };
    head.backward(&hidden, &ids, gradients).unwrap();
    let taken = MOST.load(Ordering::Relaxed) - before;
    let whole = num_rows * vocab * size_of::<f32>();
    assert!(taken < whole / 4, "{taken} bytes of {whole}, with {} log-probs", found.log_prob.len());
}

#[test]
fn bad_logits_ids_and_gradients_are_refused_by_kind() {
    let kind = |logits: &[f32], ids: &[u32], temperature| {
        token_log_probs(logits, ids, temperature, Compute::Cpu).unwrap_err().kind()
    };
    assert_eq!(kind(&[], &[], 1.0), ErrorKind::Empty);
    assert_eq!(kind(&[0.0, 0.0], &[2], 1.0), ErrorKind::OutOfRange);
    assert_eq!(kind(&[0.0; 3], &[0, 0], 1.0), ErrorKind::ShapeMismatch);
    assert_eq!(kind(&[0.0], &[0], 0.0), ErrorKind::OutOfRange);
    assert_eq!(kind(&[f32::NAN, 0.0], &[1], 1.0), ErrorKind::NonFinite);
    assert_eq!(kind(&[f32::INFINITY, 0.0], &[0], 1.0), ErrorKind::NonFinite);
    assert_eq!(kind(&[f32::NEG_INFINITY; 2], &[0], 1.0), ErrorKind::NonFinite);
    let head = LinearHead {
        weight: [1.0; 4].as_slice().into(),
        panels: None,
        bias: None,
        width: 2,
        temperature: 1.0,
        precision: Default::default(),
        compute: Compute::Cpu,
    };
    let short = TokenGradients { log_prob: &[], entropy: None };
    assert_eq!(head.backward(&[0.0; 2], &[0], short).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let infinite = TokenGradients { log_prob: &[f32::INFINITY], entropy: None };
    assert_eq!(head.backward(&[0.0; 2], &[0], infinite).unwrap_err().kind(), ErrorKind::NonFinite);
    assert_eq!(head.log_probs(&[0.0; 3], &[0]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let biased = LinearHead { bias: Some([0.0].as_slice().into()), ..head };
    assert_eq!(biased.log_probs(&[0.0; 2], &[0]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let packed = |outputs| Panels::of([1.0; 4][..outputs * 2].into(), outputs, 2).unwrap();
    let (own, other) = (packed(2), packed(1));
    let same = LinearHead { panels: Some(own.view()), ..head };
    assert_eq!(same.log_probs(&[0.5, 2.0], &[0]), head.log_probs(&[0.5, 2.0], &[0]));
    let refused = LinearHead { panels: Some(other.view()), ..head }.log_probs(&[0.5, 2.0], &[0]).unwrap_err();
    assert_eq!(refused.detail(), "panels must have the shape of weight, [2, 2]: got [1, 2]");
    let none = LinearHead { width: 0, ..head };
    assert_eq!(none.log_probs(&[], &[0]).unwrap_err().kind(), ErrorKind::Empty);
}

fn gradients<'a>(
    hidden: &'a mut [f32],
    weight: Option<&'a mut [f32]>,
    bias: Option<&'a mut [f32]>,
) -> HeadGradientsMut<'a> {
    HeadGradientsMut { hidden: hidden.into(), weight: weight.map(Into::into), bias: bias.map(Into::into) }
}

#[test]
fn derivatives_go_only_where_there_is_room_for_them_and_frozen_weights_get_none() {
    let (weight, hidden) = ([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 2.0]);
    let head = LinearHead {
        weight: weight[..].into(),
        panels: None,
        bias: Some([0.0; 2].as_slice().into()),
        width: 2,
        temperature: 2.0,
        precision: Default::default(),
        compute: Compute::Cpu,
    };
    let back = |into: HeadGradientsMut<'_>| {
        // One row at a time; the loss is the sum of all logits.
        head.walk_back(&hidden, 2, into, |_, logits| {
            logits.reborrow().cpu().fill(1.0);
            Ok(())
        })
    };
    let (mut d_hidden, mut d_weight, mut d_bias) = ([9.0; 4], [1.0; 4], [1.0; 2]);
    back(gradients(&mut d_hidden, Some(&mut d_weight), Some(&mut d_bias))).unwrap();
    assert_eq!(d_hidden, [2.0, 3.0, 2.0, 3.0], "written");
    assert_eq!((d_weight, d_bias), ([2.5; 4], [2.0; 2]), "added to");
    let mut frozen = [0.0; 4];
    back(gradients(&mut frozen, None, None)).unwrap();
    assert_eq!(frozen, d_hidden);
    let kind = |into: HeadGradientsMut<'_>| back(into).unwrap_err().kind();
    assert_eq!(kind(gradients(&mut [0.0; 3], None, None)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(gradients(&mut [0.0; 4], Some(&mut [0.0; 3]), None)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(gradients(&mut [0.0; 4], None, Some(&mut [0.0; 1]))), ErrorKind::ShapeMismatch);
}
