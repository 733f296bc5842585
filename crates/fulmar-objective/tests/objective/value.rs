//! Returns and advantages of steps against torchrl, and against the textbook recursions.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use crate::rows::{assert_all_near, flat, lines, number, rows};
use fulmar_compute::Compute;
use fulmar_core::{ErrorKind, Result};
use fulmar_objective::{
    PerStep, Real, StepBatch, TimeAxis, ValueEstimate, VtraceOptions, generalized_advantage_estimate,
    reward2go, standardized, td_lambda_advantage_estimate, td_lambda_return_estimate, td0_advantage_estimate,
    td0_return_estimate, td1_advantage_estimate, td1_return_estimate, vtrace_advantage_estimate,
};
use proptest::prelude::*;
use serde_json::Value;

#[test]
fn every_golden_row_agrees_or_has_a_named_reason() {
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows("value", |_| true) {
        let outcome = if row["args"]["reward"]["$t"] == "float64" {
            compare::<f64>(&row, 1e-10)
        } else {
            compare::<f32>(&row, 1e-4)
        };
        *tally.entry(outcome.to_owned()).or_default() += 1;
    }
    println!("{tally:?}");
    assert_eq!(tally.values().sum::<usize>(), 247);
    assert_eq!(tally["equal"] + tally["gamma is not rounded to a single where the data are doubles"], 229);
    assert_eq!(tally["refused"], 2);
    assert_eq!(tally["the vectorised form may have a factor of 0"], 16);
}

fn compare<T: Real + PartialEq + std::fmt::Debug>(row: &Value, tolerance: f64) -> &'static str {
    let wide = |values: &[T]| values.iter().map(|value| (*value).into()).collect::<Vec<f64>>();
    let (got, wanted) = (answer::<T>(row), row.get("ok"));
    match (got, wanted) {
        (Ok(got), Some(wanted)) => {
            let wanted = wanted.as_array().map_or_else(|| vec![wanted.clone()], Clone::clone);
            assert_eq!(got.len(), wanted.len());
            let near = |tolerance: f64| {
                got.iter().zip(&wanted).all(|(got, wanted)| {
                    let mut pairs = got.iter().zip(flat(&wanted["d"]));
                    pairs.all(|(got, wanted)| {
                        ((*got).into() - wanted).abs() <= tolerance * wanted.abs().max(1.0)
                    })
                })
            };
            if near(tolerance) {
                return "equal";
            }
            for (got, wanted) in got.iter().zip(&wanted) {
                assert_all_near(row["id"].as_str().unwrap(), &wide(got), &flat(&wanted["d"]), 1e-6);
            }
            "gamma is not rounded to a single where the data are doubles"
        }
        (Err(_), None) => "refused",
        (Ok(got), None) => {
            // Torchrl takes the logarithm of gamma * lambda there; the expected answer is that of the version
            // that is not vectorised.
            let topic = row["topic"].as_str().unwrap().strip_prefix("vec_").unwrap();
            let mut plain = row.clone();
            plain["topic"] = topic.into();
            assert_eq!(answer::<T>(&plain).unwrap(), got);
            "the vectorised form may have a factor of 0"
        }
        (Err(error), Some(_)) => panic!("{}: {error}", row["id"]),
    }
}

fn answer<T: Real>(row: &Value) -> Result<Vec<Vec<T>>> {
    let args = &row["args"];
    let numbers = |name: &str| args[name]["d"].as_array().map(|_| floats::<T>(&args[name]));
    let flags = |name: &str| {
        let bits = args[name]["d"].as_array()?;
        Some(bits.iter().map(|bit| u8::from(bit == &Value::Bool(true))).collect::<Vec<_>>())
    };
    let shape: Vec<usize> =
        lines(&args["reward"]["s"]).iter().map(|len| len.as_u64().unwrap() as usize).collect();
    let axis = TimeAxis::of(&shape, args["time_dim"].as_i64().unwrap_or(-2) as isize).unwrap();
    let (reward, done, terminated) =
        (numbers("reward").unwrap(), flags("done").unwrap(), flags("terminated"));
    let next_value = numbers("next_state_value").unwrap_or_default();
    let value = numbers("state_value").unwrap_or_default();
    let (gamma, lambda) = (numbers("gamma"), numbers("lmbda"));
    let factor = |each: &'_ Option<Vec<T>>, name: &str| match each {
        Some(_) => PerStep::All(0.0),
        None => PerStep::All(args[name].as_f64().unwrap_or(0.0)),
    };
    let gamma_of = gamma.as_deref().map_or_else(|| factor(&gamma, "gamma"), PerStep::Each);
    let lambda_of = lambda.as_deref().map_or_else(|| factor(&lambda, "lmbda"), PerStep::Each);
    let steps = StepBatch {
        axis,
        reward: &reward,
        next_value: &next_value,
        done: &done,
        terminated: terminated.as_deref(),
        compute: Compute::Cpu,
    };
    let rolling = args["rolling_gamma"].as_bool().unwrap_or(true);
    let both = |estimate: ValueEstimate<T>| vec![estimate.advantage, estimate.target];
    let one = |values: Vec<T>| vec![values];
    match row["topic"].as_str().unwrap().trim_start_matches("vec_") {
        "generalized_advantage_estimate" => {
            generalized_advantage_estimate(&steps, &value, gamma_of, lambda_of).map(both)
        }
        "td0_return_estimate" => td0_return_estimate(&steps, gamma_of).map(one),
        "td0_advantage_estimate" => td0_advantage_estimate(&steps, &value, gamma_of).map(one),
        "td1_return_estimate" => td1_return_estimate(&steps, gamma_of, rolling).map(one),
        "td1_advantage_estimate" => td1_advantage_estimate(&steps, &value, gamma_of, rolling).map(one),
        "td_lambda_return_estimate" => {
            td_lambda_return_estimate(&steps, gamma_of, lambda_of, rolling).map(one)
        }
        "td_lambda_advantage_estimate" => {
            td_lambda_advantage_estimate(&steps, &value, gamma_of, lambda_of, rolling).map(one)
        }
        "vtrace_advantage_estimate" => {
            let (log_pi, log_mu) = (numbers("log_pi").unwrap(), numbers("log_mu").unwrap());
            let bound = |name: &str| args[name]["d"].as_array().map_or(1.0, |_| flat(&args[name]["d"])[0]);
            let options = VtraceOptions { rho_max: bound("rho_thresh"), c_max: bound("c_thresh") };
            vtrace_advantage_estimate(&steps, &value, [&log_pi, &log_mu], gamma_of, options).map(both)
        }
        "reward2go" => {
            reward2go(axis, &reward, &done, args["gamma"].as_f64().unwrap(), Compute::Cpu).map(one)
        }
        other => panic!("{other}"),
    }
}

fn floats<T: Real>(tensor: &Value) -> Vec<T> {
    lines(&tensor["d"]).iter().map(|value| T::narrow(number(value))).collect()
}

/// A batch in which everything but the order of the sums is drawn.
#[derive(Debug, Clone)]
struct Case {
    axis: TimeAxis,
    reward: Vec<f64>,
    value: Vec<f64>,
    next_value: Vec<f64>,
    done: Vec<u8>,
    terminated: Vec<u8>,
    gamma: Vec<f64>,
    lambda: Vec<f64>,
    log_pi: Vec<f64>,
}

impl Case {
    fn steps(&self) -> StepBatch<'_, f64> {
        StepBatch {
            axis: self.axis,
            reward: &self.reward,
            next_value: &self.next_value,
            done: &self.done,
            terminated: Some(&self.terminated),
            compute: Compute::Cpu,
        }
    }

    /// Element of each step of the sequence that `index` is the last step of.
    fn sequence(&self, block: usize, lane: usize) -> Vec<usize> {
        let TimeAxis { time, inner, .. } = self.axis;
        (0..time).map(|step| (block * time + step) * inner + lane).collect()
    }

    fn future(&self, at: usize) -> f64 {
        if self.terminated[at] == 1 { 0.0 } else { self.next_value[at] }
    }

    /// `one(steps of a trajectory from here to its end)` for every step.
    fn each(&self, one: impl Fn(&[usize]) -> f64) -> Vec<f64> {
        let mut all = vec![f64::NAN; self.reward.len()];
        for (block, lane) in
            (0..self.axis.outer).flat_map(|block| (0..self.axis.inner).map(move |lane| (block, lane)))
        {
            let steps = self.sequence(block, lane);
            for first in 0..steps.len() {
                let rest = &steps[first..];
                let end = rest.iter().position(|at| self.done[*at] == 1).unwrap_or(rest.len() - 1);
                all[rest[0]] = one(&rest[..=end]);
            }
        }
        all
    }

    fn difference(&self, at: usize, gamma: f64) -> f64 {
        self.reward[at] + gamma * self.future(at) - self.value[at]
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (0..20_usize, 0..300_usize, prop_oneof![Just(1_usize), 0..4_usize, 120..140_usize]);
    shape.prop_filter("small", |(outer, time, inner)| outer * time * inner <= 5000).prop_flat_map(
        |(outer, time, inner)| {
            let len = outer * time * inner;
            let reals = || prop::collection::vec(-3.0..3.0_f64, len);
            let unit = || prop::collection::vec(0.0..=1.0_f64, len);
            // 0 continues, 1 is truncated, 2 is terminated.
            let ends = prop::collection::vec(prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2)], len);
            let drawn = (reals(), reals(), reals(), ends, unit(), unit(), reals());
            drawn.prop_map(move |(reward, value, next_value, ends, gamma, lambda, log_pi)| Case {
                axis: TimeAxis { outer, time, inner },
                reward,
                value,
                next_value,
                done: ends.iter().map(|end| u8::from(*end > 0)).collect(),
                terminated: ends.iter().map(|end| u8::from(*end > 1)).collect(),
                gamma,
                lambda,
                log_pi,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gae_is_the_discounted_sum_of_temporal_differences(case in cases(), one in any::<bool>()) {
        let factor = |each: &[f64], at: usize| if one { 0.9 } else { each[at] };
        let want = case.each(|steps| {
            let mut weight = 1.0;
            steps.iter().map(|at| {
                let gamma = factor(&case.gamma, *at);
                let term = weight * case.difference(*at, gamma);
                weight *= gamma * factor(&case.lambda, *at);
                term
            }).sum()
        });
        let (gamma, lambda) = match one {
            true => (PerStep::All(0.9), PerStep::All(0.9)),
            false => (PerStep::Each(&case.gamma), PerStep::Each(&case.lambda)),
        };
        let got = generalized_advantage_estimate(&case.steps(), &case.value, gamma, lambda).unwrap();
        assert_all_near("advantage", &got.advantage, &want, 1e-9);
        let target: Vec<f64> = want.iter().zip(&case.value).map(|(a, v)| a + v).collect();
        assert_all_near("target", &got.target, &target, 1e-9);
    }

    #[test]
    fn td_lambda_mixes_the_returns_of_all_lengths(case in cases(), (gamma, lambda) in (0.0..=1.0, 0.0..=1.0)) {
        // The return over n steps plus the value after them; the longest gets the remaining weight.
        let long = |steps: &[usize]| {
            let rewards: f64 =
                steps.iter().enumerate().map(|(k, at)| f64::powi(gamma, k as i32) * case.reward[*at]).sum();
            rewards + f64::powi(gamma, steps.len() as i32) * case.future(steps[steps.len() - 1])
        };
        let want = case.each(|steps| {
            let short: f64 = (1..steps.len())
                .map(|n| (1.0 - lambda) * f64::powi(lambda, n as i32 - 1) * long(&steps[..n]))
                .sum();
            short + f64::powi(lambda, steps.len() as i32 - 1) * long(steps)
        });
        let got = td_lambda_return_estimate(&case.steps(), PerStep::All(gamma), PerStep::All(lambda), true);
        assert_all_near("td lambda", &got.unwrap(), &want, 1e-8);
        let got = td1_return_estimate(&case.steps(), PerStep::All(gamma), true).unwrap();
        assert_all_near("td 1", &got, &case.each(long), 1e-8);
        let got = td0_return_estimate(&case.steps(), PerStep::All(gamma)).unwrap();
        assert_all_near("td 0", &got, &case.each(|steps| long(&steps[..1])), 1e-9);
    }

    #[test]
    fn a_gamma_that_does_not_roll_discounts_all_that_follows(case in cases()) {
        let want = case.each(|steps| {
            let gamma = case.gamma[steps[0]];
            let rewards: f64 =
                steps.iter().enumerate().map(|(k, at)| gamma.powi(k as i32) * case.reward[*at]).sum();
            rewards + gamma.powi(steps.len() as i32) * case.future(steps[steps.len() - 1])
        });
        let got = td1_return_estimate(&case.steps(), PerStep::Each(&case.gamma), false).unwrap();
        assert_all_near("fixed", &got, &want, 1e-8);
    }

    #[test]
    fn vtrace_is_its_sum_over_the_trajectory(case in cases(), rho_max in 0.1..2.0, c_max in 0.1..2.0) {
        let ratio = |at: usize| libm::exp(case.log_pi[at]);
        let options = VtraceOptions { rho_max, c_max };
        let log_mu = vec![0.0; case.log_pi.len()];
        let got = vtrace_advantage_estimate(
            &case.steps(), &case.value, [&case.log_pi, &log_mu], PerStep::All(0.9), options,
        ).unwrap();
        let target = |steps: &[usize]| {
            let mut weight = 1.0;
            let sum: f64 = steps.iter().map(|at| {
                let term = weight * ratio(*at).min(rho_max) * case.difference(*at, 0.9);
                weight *= 0.9 * ratio(*at).min(c_max);
                term
            }).sum();
            sum + case.value[steps[0]]
        };
        assert_all_near("target", &got.target, &case.each(target), 1e-8);
        let advantage = case.each(|steps| {
            let next = if steps.len() == 1 { case.future(steps[0]) } else { target(&steps[1..]) };
            let at = steps[0];
            ratio(at).min(rho_max) * (case.reward[at] + 0.9 * next - case.value[at])
        });
        assert_all_near("advantage", &got.advantage, &advantage, 1e-8);
    }

    #[test]
    fn reward_to_go_is_the_discounted_sum_of_rewards(case in cases(), gamma in 0.0..=1.0) {
        let want = case.each(|steps| {
            steps.iter().enumerate().map(|(k, at)| f64::powi(gamma, k as i32) * case.reward[*at]).sum()
        });
        assert_all_near("reward2go", &reward2go(case.axis, &case.reward, &case.done, gamma, Compute::Cpu).unwrap(), &want, 1e-8);
    }
}

/// Batches that are shared between threads have the same bits as their rows one by one.
#[test]
fn a_row_has_the_same_bits_alone_and_in_any_batch() {
    let mut rng = fulmar_core::Rng::new(4).stream("steps");
    for (outer, time, inner) in [(300, 130, 1), (17, 1000, 1), (1030, 33, 1), (40, 31, 20), (3, 9, 1500)] {
        let len = outer * time * inner;
        let mut draw = || -> Vec<f32> { (0..len).map(|_| rng.normal() as f32).collect() };
        let [reward, value, next_value, log_pi, log_mu, ends] = [(); 6].map(|()| draw());
        let done: Vec<u8> = ends.iter().map(|end| u8::from(*end > 1.5)).collect();
        let terminated: Vec<u8> = ends.iter().map(|end| u8::from(*end > 2.0)).collect();
        let estimates = |outer: usize, row: std::ops::Range<usize>| {
            let steps = StepBatch {
                axis: TimeAxis { outer, time, inner },
                reward: &reward[row.clone()],
                next_value: &next_value[row.clone()],
                done: &done[row.clone()],
                terminated: Some(&terminated[row.clone()]),
                compute: Compute::Cpu,
            };
            let (gamma, lambda, value) = (PerStep::All(0.99), PerStep::All(0.95), &value[row.clone()]);
            let log_probs = [&log_pi[row.clone()], &log_mu[row]];
            let gae = generalized_advantage_estimate(&steps, value, gamma, lambda).unwrap();
            let vtrace =
                vtrace_advantage_estimate(&steps, value, log_probs, gamma, VtraceOptions::default()).unwrap();
            let lambda = td_lambda_return_estimate(&steps, gamma, lambda, true).unwrap();
            let to_go = reward2go(steps.axis, steps.reward, steps.done, 0.9, Compute::Cpu).unwrap();
            [gae.advantage, gae.target, vtrace.advantage, vtrace.target, lambda, to_go]
        };
        let together = estimates(outer, 0..len);
        for row in 0..outer {
            let range = row * time * inner..(row + 1) * time * inner;
            for (together, alone) in together.iter().zip(estimates(1, range.clone())) {
                let mut pairs = together[range.clone()].iter().zip(alone);
                assert!(
                    pairs.all(|(a, b)| a.to_bits() == b.to_bits()),
                    "row {row} of {outer} x {time} x {inner}"
                );
            }
        }
    }
}

#[test]
fn what_is_not_finite_is_named_by_its_place_in_the_whole_batch() {
    let (axis, len) = (TimeAxis { outer: 400, time: 100, inner: 1 }, 40_000);
    let (zeros, done) = (vec![0.0_f32; len], vec![1; len]);
    let mut reward = zeros.clone();
    (reward[33_300], reward[39_900]) = (f32::INFINITY, f32::NAN);
    let error = reward2go(axis, &reward, &done, 0.5, Compute::Cpu).unwrap_err();
    assert_eq!(error.to_string(), "return[33300] must be finite: got inf");
    let steps = StepBatch {
        axis,
        reward: &reward,
        next_value: &zeros,
        done: &done,
        terminated: None,
        compute: Compute::Cpu,
    };
    let half = PerStep::All(0.5);
    let error = generalized_advantage_estimate(&steps, &zeros, half, half).unwrap_err();
    assert_eq!(error.to_string(), "advantage[33300] must be finite: got inf");
}

#[test]
fn the_value_behind_a_terminated_step_is_not_read() {
    let axis = TimeAxis { outer: 1, time: 2, inner: 1 };
    let next_value = [1.0, f64::NAN];
    let steps = StepBatch {
        axis,
        reward: &[1.0, 2.0],
        next_value: &next_value,
        done: &[0, 1],
        terminated: None,
        compute: Compute::Cpu,
    };
    let half = PerStep::All(0.5);
    assert_eq!(td1_return_estimate(&steps, half, true).unwrap(), [2.0, 2.0]);
    let error = td0_return_estimate(&StepBatch { terminated: Some(&[0, 0]), ..steps }, half).unwrap_err();
    assert_eq!((error.kind(), error.detail()), (ErrorKind::NonFinite, "return[1] must be finite: got NaN"));
}

#[test]
fn standardized_advantages_have_mean_0_and_deviation_1() {
    assert!(standardized::<f32>(&[], Compute::Cpu).unwrap().is_empty());
    assert_eq!(standardized(&[5.0_f32], Compute::Cpu).unwrap(), [0.0]);
    assert_eq!(
        standardized(&[2.0_f64, 4.0], Compute::Cpu).unwrap(),
        [-1.0 / 2_f64.sqrt(), 1.0 / 2_f64.sqrt()]
    );
    assert_eq!(standardized(&[1.0_f64, f64::NAN], Compute::Cpu).unwrap_err().kind(), ErrorKind::NonFinite);
}

#[test]
fn bad_batches_are_refused_by_kind_and_name() {
    let axis = TimeAxis { outer: 1, time: 2, inner: 1 };
    let good = StepBatch {
        axis,
        reward: &[1.0_f32, 1.0],
        next_value: &[0.0, 0.0],
        done: &[0, 1],
        terminated: None,
        compute: Compute::Cpu,
    };
    let half = PerStep::All(0.5);
    let refused = |steps: StepBatch<'_, f32>, gamma: PerStep<'_, f32>| {
        let error = td0_return_estimate(&steps, gamma).unwrap_err();
        (error.kind(), error.detail().to_owned())
    };
    let shape = |detail: &str| (ErrorKind::ShapeMismatch, detail.to_owned());
    let range = |detail: &str| (ErrorKind::OutOfRange, detail.to_owned());
    assert_eq!(
        refused(StepBatch { reward: &[1.0], ..good }, half),
        shape("reward length must equal the elements of the axis = 2: got 1")
    );
    assert_eq!(
        refused(StepBatch { next_value: &[], ..good }, half),
        shape("next_value length must equal reward = 2: got 0")
    );
    assert_eq!(
        refused(StepBatch { terminated: Some(&[1]), ..good }, half),
        shape("terminated length must equal reward = 2: got 1")
    );
    assert_eq!(refused(StepBatch { done: &[0, 2], ..good }, half), range("done[1] must be 0 or 1: got 2"));
    for gamma in [-0.1, 1.5, f64::NAN] {
        assert_eq!(refused(good, PerStep::All(gamma)).0, ErrorKind::OutOfRange);
    }
    assert_eq!(refused(good, PerStep::Each(&[0.5, 2.0])), range("gamma must be a number from 0 to 1: got 2"));
    assert_eq!(refused(good, PerStep::Each(&[0.5])), shape("gamma length must equal reward = 2: got 1"));
    let error = td1_return_estimate(&good, half, false).unwrap_err();
    assert!(error.detail().starts_with("rolling_gamma must be true"), "{error}");
    let bounds = VtraceOptions { c_max: -1.0, ..VtraceOptions::default() };
    let error = vtrace_advantage_estimate(&good, &[0.0; 2], [&[0.0; 2]; 2], half, bounds).unwrap_err();
    assert_eq!(error.detail(), "c_max must be a finite number >= 0: got -1");
    for (log_probs, detail) in [
        ([[0.0, f32::NAN], [0.0; 2]], "log_pi[1] must be finite: got NaN"),
        ([[0.0; 2], [f32::NEG_INFINITY, 0.0]], "log_mu[0] must be finite: got -inf"),
    ] {
        let bounds = VtraceOptions::default();
        let error =
            vtrace_advantage_estimate(&good, &[0.0; 2], log_probs.each_ref().map(|of| &of[..]), half, bounds)
                .unwrap_err();
        assert_eq!((error.kind(), error.detail()), (ErrorKind::NonFinite, detail));
    }
    assert_eq!(TimeAxis::of(&[2, 3], -3).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(TimeAxis::of(&[2, 3], 2).unwrap_err().kind(), ErrorKind::OutOfRange);
    let endless = TimeAxis { outer: usize::MAX, time: 2, inner: 1 };
    assert_eq!(refused(StepBatch { axis: endless, ..good }, half).0, ErrorKind::LimitExceeded);
    let empty = TimeAxis { outer: 0, time: 1 << 60, inner: 1 };
    assert!(reward2go::<f32>(empty, &[], &[], 0.5, Compute::Cpu).unwrap().is_empty());
}
