//! The prioritised sampler against golden rows and at its limits.

use crate::allocations::allocations;
use crate::golden_rows::{assert_close, assert_drawn, index, indices, list, number, numbers, topic};
use fulmar_core::ErrorKind;
use fulmar_replay::{PrioritizedOptions, PrioritizedSampler, RoundRobinWriter, WeightedRows};
use serde_json::Value;

fn options(args: &Value) -> PrioritizedOptions {
    let within = args["max_priority_within_buffer"].as_bool().unwrap_or_default();
    let float = |name: &str| number(&args[name]) as f32;
    let eps = if args["eps"].is_null() { 1e-8 } else { float("eps") };
    PrioritizedOptions { alpha: float("alpha"), beta: float("beta"), eps, max_priority_within_buffer: within }
}

fn leaves(sampler: &PrioritizedSampler) -> Vec<f64> {
    (0..sampler.tree().capacity())
        .map(|row| f64::from(sampler.tree().leaf(row).unwrap_or_default()))
        .collect()
}

fn assert_max_priority(what: &str, sampler: &PrioritizedSampler, expected: &Value) {
    let expected = expected.as_array().map(|pair| (number(&pair[0]), index(&pair[1])));
    assert_eq!(sampler.max_priority().map(|(_, row)| row), expected.map(|(_, row)| row), "{what}");
    if let (Some((got, _)), Some((expected, _))) = (sampler.max_priority(), expected) {
        assert_close(what, &[f64::from(got)], &[expected], 1e-5, 0.0);
    }
}

#[test]
fn probabilities_and_weights_are_those_of_the_golden_rows() {
    for row in topic("samplers", "prioritized", 28) {
        let what = row["id"].as_str().unwrap();
        let (args, note) = (&row["args"], row["note"].as_str().unwrap_or_default());
        let written: Vec<usize> = (0..index(&args["written"])).collect();
        let mut sampler = PrioritizedSampler::new(index(&args["max_capacity"]), options(args), 3).unwrap();
        sampler.extend(&written).unwrap();
        if args["dtype"] == "float64" {
            continue; // Leaves have one width here, so no call can fail in this way.
        }
        if note.contains("undefined upstream") {
            let priorities: Vec<f32> = numbers(&row["priorities"]).into_iter().map(|p| p as f32).collect();
            let kind = sampler.update_priority(&written, &priorities).unwrap_err().kind();
            let negative = note.starts_with("negative");
            assert_eq!(kind, if negative { ErrorKind::OutOfRange } else { ErrorKind::NonFinite }, "{what}");
            continue;
        }
        if !row["priorities"].is_null() {
            let priorities: Vec<f32> = numbers(&row["priorities"]).into_iter().map(|p| p as f32).collect();
            sampler.update_priority(&written, &priorities).unwrap();
        }
        let expected = numbers(&row["leaves"]);
        assert_close(what, &leaves(&sampler)[..expected.len()], &expected, 1e-5, 1e-12);
        assert_close(what, &[sampler.tree().sum()], &[number(&row["p_sum"])], 1e-5, 0.0);
        assert_close(what, &[sampler.tree().min().unwrap().into()], &[number(&row["p_min"])], 1e-5, 0.0);
        assert_close(
            what,
            &[sampler.default_priority().into()],
            &[number(&row["default_priority"])],
            1e-5,
            0.0,
        );
        if !row["error"].is_null() {
            assert_eq!(sampler.sample(1).unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
            continue;
        }
        let batch = sampler.sample(40_000).unwrap();
        assert_drawn(what, &batch.rows, &numbers(&row["probabilities"]));
        let weights = numbers(&row["weights"]);
        for (&row, &weight) in batch.rows.iter().zip(&batch.weights) {
            assert_close(what, &[weight.into()], &[weights[row]], 1e-5, 1e-12);
        }
    }
}

#[test]
fn the_largest_priority_is_tracked_as_in_the_golden_rows() {
    for row in topic("samplers", "max_priority", 8) {
        let capacity = index(&row["args"]["max_capacity"]);
        let mut sampler = PrioritizedSampler::new(capacity, options(&row["args"]), 0).unwrap();
        let mut writer = RoundRobinWriter::new(capacity).unwrap();
        for op in list(&row["ops"]) {
            let what = format!("{} {op}", row["id"]);
            if op["op"] == "extend" {
                sampler.extend(&writer.extend(index(&op["n"])).unwrap()).unwrap();
            } else {
                let priorities: Vec<f32> = numbers(&op["priority"]).into_iter().map(|p| p as f32).collect();
                sampler.update_priority(&indices(&op["index"]), &priorities).unwrap();
            }
            assert_close(&what, &leaves(&sampler), &numbers(&op["leaves"]), 1e-5, 0.0);
            assert_max_priority(&what, &sampler, &op["max_priority"]);
            let default = f64::from(sampler.default_priority());
            assert_close(&what, &[default], &[number(&op["default_priority"])], 1e-5, 0.0);
        }
    }
}

/// Applies one golden operation to the sampler as a buffer would.
fn apply(sampler: &mut PrioritizedSampler, op: &Value) {
    let error = !op["error"].is_null();
    let result = match op["op"].as_str().unwrap() {
        "extend" | "add" => {
            let rows = indices(&op["ok"]);
            sampler.extend(&rows).unwrap();
            let priorities = &op["data"]["k"]["td_error"];
            if priorities.is_null() || op["kwargs"]["update_priority"] == false {
                Ok(())
            } else {
                let priorities: Vec<f32> = numbers(priorities).into_iter().map(|p| p as f32).collect();
                sampler.update_priority(&rows, &priorities)
            }
        }
        "update_priority" | "update_tensordict_priority" => {
            let leaf = |name: &str| if op[name].is_null() { &op["data"]["k"][name] } else { &op[name] };
            let priorities = if op["priority"].is_null() { leaf("td_error") } else { &op["priority"] };
            let (rows, mut priorities) = (numbers(leaf("index")), numbers(priorities));
            if priorities.len() == 1 {
                priorities = vec![priorities[0]; rows.len()];
            }
            // Rows of -1, which a max-value writer returns for refused items, stay with the caller here.
            let kept = |index: usize| rows.get(index).is_none_or(|&row| row >= 0.0);
            let priorities: Vec<f32> =
                (0..priorities.len()).filter(|&at| kept(at)).map(|at| priorities[at] as f32).collect();
            let rows: Vec<usize> = rows.iter().filter(|&&row| row >= 0.0).map(|&row| row as usize).collect();
            sampler.update_priority(&rows, &priorities)
        }
        "set_alpha" => sampler.set_alpha(number(&op["value"]) as f32),
        "state_roundtrip" => {
            let json = serde_json::to_string(&sampler.state()).unwrap();
            *sampler = PrioritizedSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
            Ok(())
        }
        "empty" => {
            sampler.clear();
            Ok(())
        }
        other => panic!("{other} is not an operation of the sampler"),
    };
    assert_eq!(result.is_err(), error, "{op}: {result:?}");
}

#[test]
fn leaves_follow_a_buffer_as_in_the_golden_rows() {
    let mut applied = 0;
    for row in topic("buffer_ops", "prioritized", 6) {
        let setup = &row["setup"];
        let capacity = index(&setup["storage"]["max_size"]);
        let mut sampler = PrioritizedSampler::new(capacity, options(&setup["sampler"]), 0).unwrap();
        for op in list(&row["ops"]) {
            let what = format!("{} {}", row["id"], op["op"]);
            apply(&mut sampler, op);
            let state = &op["state"];
            assert_close(&what, &leaves(&sampler), &numbers(&state["sum_leaves"]), 1e-5, 0.0);
            assert_max_priority(&what, &sampler, &state["max_priority"]);
            if !state["p_sum"].is_null() {
                assert_close(&what, &[sampler.tree().sum()], &[number(&state["p_sum"])], 1e-5, 0.0);
            }
            applied += 1;
        }
    }
    assert_eq!(applied, 6 * 18);
    for row in topic("buffer_ops", "prioritized_errors", 2) {
        let built = PrioritizedSampler::new(3, options(&row["setup"]["sampler"]), 0);
        assert_eq!(built.unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}

#[test]
fn two_samplers_of_one_storage_see_the_same_writes() {
    for row in topic("buffer_ops", "shared_storage", 2) {
        let capacity = index(&row["setup"]["max_size"]);
        let new = || PrioritizedSampler::new(capacity, options(&row["setup"]), 0).unwrap();
        let (mut samplers, mut writer) = ([new(), new()], RoundRobinWriter::new(capacity).unwrap());
        for op in list(&row["ops"]) {
            let rows = writer.extend(index(&op["extend_through_first"])).unwrap();
            for (sampler, expected) in samplers.iter_mut().zip(list(&op["leaves"])) {
                sampler.extend(&rows).unwrap();
                assert_eq!(leaves(sampler), numbers(expected), "{op}");
            }
        }
    }
}

#[test]
fn a_sampler_goes_on_from_its_state() {
    let mut sampler = PrioritizedSampler::new(100, PrioritizedOptions::default(), 5).unwrap();
    sampler.extend(&(0..60).collect::<Vec<_>>()).unwrap();
    sampler.update_priority(&[3, 4, 5], &[10.0, 0.0, 1e6]).unwrap();
    sampler.sample(17).unwrap();
    let json = serde_json::to_string(&sampler.state()).unwrap();
    let mut again = PrioritizedSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
    for _ in 0..3 {
        assert_eq!(again.sample(50).unwrap(), sampler.sample(50).unwrap());
    }
    assert_eq!(again.state(), sampler.state());
}

#[test]
fn a_seed_gives_the_rows_and_weights_that_it_always_gave() {
    let digests = DIGESTS.map(|(capacity, num_written, _)| {
        let mut sampler = PrioritizedSampler::new(capacity, PrioritizedOptions::default(), 11).unwrap();
        let rows: Vec<usize> = (capacity - num_written..capacity).rev().collect();
        let priorities: Vec<f32> = rows.iter().map(|row| (1 + row % 997) as f32 * 0.013).collect();
        sampler.update_priority(&rows, &priorities).unwrap();
        let mut digest = Digest(0);
        for count in [1, 2, 63, 64, 65, 200, 5_001] {
            let batch = sampler.sample(count).unwrap();
            batch.rows.iter().for_each(|&row| digest.add(row as u64));
            batch.weights.iter().for_each(|weight| digest.add(weight.to_bits().into()));
        }
        sampler.state().rng.into_iter().for_each(|word| digest.add(word));
        (capacity, num_written, digest.0)
    });
    assert_eq!(digests, DIGESTS);
}

/// Capacity, number of written rows, the last ones, and the digest of their draws. Every machine gives the same.
const DIGESTS: [(usize, usize, u64); 5] = [
    (1, 1, 3_895_761_483_860_591_868),
    (17, 9, 4_073_768_187_429_647_560),
    (1_000, 1_000, 454_958_039_645_824_414),
    (70_000, 66_000, 8_940_916_577_757_541_486),
    (600_000, 1_000, 7_898_250_536_908_180_928),
];

#[test]
fn draws_into_the_same_memory_are_the_same_and_allocate_nothing() {
    let mut sampler = PrioritizedSampler::new(5_000, PrioritizedOptions::default(), 3).unwrap();
    let priorities: Vec<f32> = (1_u16..=5_000).map(f32::from).collect();
    sampler.update_priority(&(0..5_000).collect::<Vec<_>>(), &priorities).unwrap();
    let mut other = sampler.clone();
    let mut batch = WeightedRows::default();
    sampler.sample_into(300, &mut batch).unwrap();
    assert_eq!(batch, other.sample(300).unwrap());
    for count in [300, 7, 64, 299] {
        let before = allocations();
        sampler.sample_into(count, &mut batch).unwrap();
        assert_eq!(allocations(), before);
        assert_eq!(batch, other.sample(count).unwrap());
        assert!(allocations() > before, "the counter counts");
    }
    assert_eq!(sampler.sample_into(0, &mut batch).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(batch, WeightedRows::default(), "nothing is left after an error");
}

/// A hash of numbers in their order.
struct Digest(u64);

impl Digest {
    fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[test]
fn what_the_sampler_cannot_take_is_refused() {
    for (alpha, beta, eps) in [(-0.1, 1.0, 0.0), (1.0, f32::NAN, 0.0), (1.0, 1.0, f32::INFINITY)] {
        let options = PrioritizedOptions { alpha, beta, eps, ..Default::default() };
        assert_eq!(PrioritizedSampler::new(3, options, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    let mut sampler =
        PrioritizedSampler::new(3, PrioritizedOptions { alpha: 2.0, ..Default::default() }, 0).unwrap();
    assert_eq!(sampler.sample(1).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(sampler.extend(&[3]).unwrap_err().kind(), ErrorKind::OutOfRange);
    sampler.extend(&[0, 1]).unwrap();
    let before = sampler.state();
    assert_eq!(sampler.update_priority(&[0], &[1e30]).unwrap_err().kind(), ErrorKind::NonFinite);
    assert_eq!(sampler.update_priority(&[0, 1], &[1.0]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(sampler.set_beta(-1.0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(sampler.state(), before, "errors change nothing");
    assert_eq!(sampler.set_alpha(f32::NAN).unwrap_err().kind(), ErrorKind::OutOfRange);
    let mut state = sampler.state();
    state.max_priority = Some((f32::NAN, 0));
    assert_eq!(PrioritizedSampler::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt);
}
