//! Transforms beyond the golden rows: naive versions, states, orders and refusals.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::ErrorKind;
use fulmar_core::limits::{TRANSFORM_IMAGE_SIDE_MAX, TRANSFORMS_MAX};
use fulmar_tensor::{Key, Tensor, TensorDict};
use fulmar_transform::{
    CatFrames, Compose, DensifyReward, FramePadding, MultiStep, MultiStepTransform, RandomCropTensorDict,
    Resize, SplitOptions, Transform, split_trajectories,
};
use proptest::prelude::*;
use serde_json::json;

fn compose(transforms: &serde_json::Value) -> Compose {
    Compose::from_json(&transforms.to_string()).unwrap()
}

fn kind(transforms: &serde_json::Value) -> ErrorKind {
    Compose::from_json(&transforms.to_string()).map(|_| ()).unwrap_err().kind()
}

/// Returns steps `[lanes, len]` whose observation is their number, with random rewards and ends.
fn steps(lanes: usize, len: usize, rewards: &[f64], ends: &[u8]) -> TensorDict {
    let batch = [lanes, len];
    let mut dict = TensorDict::new(&batch).unwrap();
    let numbers: Vec<i64> = (0..(lanes * len) as i64).collect();
    dict.set("obs", Tensor::from_vec(&batch, numbers.clone()).unwrap()).unwrap();
    let next = numbers.iter().map(|number| number + 1000).collect::<Vec<i64>>();
    dict.set(["next", "obs"], Tensor::from_vec(&batch, next).unwrap()).unwrap();
    dict.set(["next", "reward"], Tensor::from_slice(&batch, rewards).unwrap()).unwrap();
    let flags = |from: u8| ends.iter().map(|end| *end >= from).collect::<Vec<bool>>();
    dict.set(["next", "done"], Tensor::from_vec(&[lanes, len, 1], flags(1)).unwrap()).unwrap();
    dict.set(["next", "terminated"], Tensor::from_vec(&[lanes, len, 1], flags(2)).unwrap()).unwrap();
    dict
}

fn drawn_steps() -> impl Strategy<Value = (usize, usize, TensorDict)> {
    (1..4_usize, 1..14_usize).prop_flat_map(|(lanes, len)| {
        let rewards = prop::collection::vec(-2.0..2.0_f64, lanes * len);
        let ends =
            prop::collection::vec(prop_oneof![4 => Just(0_u8), 1 => Just(1), 1 => Just(2)], lanes * len);
        (rewards, ends).prop_map(move |(rewards, ends)| (lanes, len, steps(lanes, len, &rewards, &ends)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn multi_step_is_the_walk_to_the_end_or_n_steps_on((lanes, len, dict) in drawn_steps(), n in 1..6_usize) {
        let stepped = MultiStep::new(n, 0.5).unwrap().forward(dict.clone()).unwrap();
        let rewards = dict.tensor(["next", "reward"]).unwrap().to_vec::<f64>().unwrap();
        let done = dict.tensor(["next", "done"]).unwrap().to_vec::<bool>().unwrap();
        let terminated = dict.tensor(["next", "terminated"]).unwrap().to_vec::<bool>().unwrap();
        for at in 0..lanes * len {
            let (mut last, mut sum, mut weight) = (at, rewards[at], 0.5);
            while last + 1 < at + n && !done[last] && (last + 1) % len > 0 {
                last += 1;
                sum += weight * rewards[last];
                weight *= 0.5;
            }
            let number = |key: Key| stepped.tensor(key).unwrap().to_f32_vec()[at];
            prop_assert_eq!(number("steps_to_next_obs".into()), (last + 1 - at) as f32);
            prop_assert_eq!(number(["next", "obs"].into()), (1000 + last) as f32);
            prop_assert_eq!(number("gamma".into()), weight as f32);
            prop_assert!((f64::from(number(["next", "reward"].into())) - sum).abs() < 1e-6);
            prop_assert_eq!(number(["next", "done"].into()) == 1.0, done[last]);
            prop_assert_eq!(number(["next", "terminated"].into()) == 1.0, terminated[last]);
            prop_assert_eq!(number("nonterminal".into()) == 1.0, !done[at] && (at + 1) % len > 0);
        }
    }

    #[test]
    fn chunks_through_the_transform_and_its_flush_are_the_whole(
        (_, len, dict) in drawn_steps(), n in 1..5_usize, cuts in prop::collection::vec(0..14_usize, 0..5),
    ) {
        let mut bounds: Vec<usize> = cuts.into_iter().map(|cut| cut.min(len)).chain([0, len]).collect();
        bounds.sort_unstable();
        let mut transform = MultiStepTransform::new(MultiStep::new(n, 0.5).unwrap());
        let mut stored = Vec::new();
        for pair in bounds.windows(2) {
            let parts = dict.split_sizes(&[pair[0], pair[1] - pair[0], len - pair[1]], 1).unwrap();
            let before = transform.state().unwrap();
            stored.extend(transform.inverse(parts[1].clone()).unwrap());
            // A second one that loads the state does the same.
            let mut other = MultiStepTransform::new(MultiStep::new(n, 0.5).unwrap());
            other.load_state(&before).unwrap();
            other.inverse(parts[1].clone()).unwrap();
            prop_assert_eq!(other.state().unwrap(), transform.state().unwrap());
        }
        stored.extend(transform.flush().unwrap());
        prop_assert!(transform.state().unwrap().is_empty());
        let whole = MultiStep::new(n, 0.5).unwrap().forward(dict).unwrap();
        prop_assert_eq!(TensorDict::cat(&stored, 1).unwrap(), whole);
    }

    #[test]
    fn cat_frames_is_a_walk_back_from_every_step(
        (lanes, len, mut dict) in drawn_steps(), n in 1..5_usize, same in any::<bool>(), dim in 0..3_isize,
    ) {
        let frame = [2, 3, 2];
        let shape = [&[lanes, len], &frame[..]].concat();
        let size = 12;
        let pixels: Vec<i64> = (0..(lanes * len * size) as i64).collect();
        let next: Vec<i64> = pixels.iter().map(|pixel| -pixel - 1).collect();
        dict.set("pixels", Tensor::from_vec(&shape, pixels).unwrap()).unwrap();
        dict.set(["next", "pixels"], Tensor::from_vec(&shape, next).unwrap()).unwrap();
        let keys: [Key; 2] = ["pixels".into(), ["next", "pixels"].into()];
        let mut cat = CatFrames::new(n, dim - 3, keys.to_vec()).unwrap();
        (cat.padding, cat.padding_value) = if same { (FramePadding::Same, 0.0) } else { (FramePadding::Constant, 7.0) };
        let stacked = cat.forward(dict.clone()).unwrap();
        let done = dict.tensor(["next", "done"]).unwrap().to_vec::<bool>().unwrap();
        let flat = |key: &Key| dict.tensor(key.clone()).unwrap().reshape(&[lanes * len, 2, 3, 2]).unwrap();
        let (root, next) = (flat(&keys[0]), flat(&keys[1]));
        let padding = Tensor::from_vec(&frame, vec![7_i64; size]).unwrap();
        for at in 0..lanes * len {
            let mut first = at;
            while first % len > 0 && !done[first - 1] {
                first -= 1;
            }
            let seen: Vec<Tensor> = (first..=at).map(|at| root.select(0, at).unwrap()).collect();
            for (key, newest) in [(&keys[0], None), (&keys[1], Some(next.select(0, at).unwrap()))] {
                let mut frames = vec![if same { seen[0].clone() } else { padding.clone() }; n];
                frames.extend(seen.iter().cloned().chain(newest));
                let want = Tensor::cat(&frames[frames.len() - n..], dim as usize).unwrap();
                let got = stacked.tensor(key.clone()).unwrap().select(0, at / len).unwrap().select(0, at % len).unwrap();
                prop_assert_eq!(got, want, "{} {}", key, at);
            }
        }
    }

    #[test]
    fn trajectories_joined_again_are_the_steps((lanes, len, dict) in drawn_steps()) {
        let split = split_trajectories(&dict, &SplitOptions::default()).unwrap();
        let mask = split.tensor(["collector", "mask"]).unwrap();
        let steps = split.masked_select(mask).unwrap();
        let whole = dict.reshape(&[(lanes * len) as isize]).unwrap();
        prop_assert_eq!(steps.exclude(&["collector".into()]), whole);
        let ends = split.tensor(["next", "done"]).unwrap().to_vec::<bool>().unwrap();
        let bits = mask.to_vec::<bool>().unwrap();
        let longest = split.batch_size()[1];
        for at in (0..bits.len()).filter(|at| (at + 1) % longest > 0) {
            prop_assert!(!ends[at] || !bits[at + 1], "a trajectory continues after its end");
        }
    }

    #[test]
    fn resizing_keeps_what_is_the_same_everywhere(a in 1..40_usize, b in 1..40_usize, w in 1..40_usize, h in 1..40_usize) {
        let mut batch = TensorDict::new(&[]).unwrap();
        batch.set("pixels", Tensor::from_vec(&[2, a, b], vec![0.25_f32; 2 * a * b]).unwrap()).unwrap();
        let resized = Resize::new(w, Some(h)).unwrap().forward(batch).unwrap();
        prop_assert_eq!(resized.tensor("pixels").unwrap().shape(), [2, w, h]);
        let values = resized.tensor("pixels").unwrap().to_f32_vec();
        prop_assert!(values.iter().all(|value| (value - 0.25).abs() < 1e-6));
    }
}

#[test]
fn a_whole_division_is_the_mean_of_each_block_weighted_as_a_triangle() {
    let mut batch = TensorDict::new(&[]).unwrap();
    batch.set("pixels", Tensor::from_vec(&[1, 4], vec![0.0_f64, 8.0, 16.0, 24.0]).unwrap()).unwrap();
    let mut resize = Resize::new(1, Some(2)).unwrap();
    let half = resize.forward(batch).unwrap();
    // Centres at 1 and 3, weights 3 : 3 : 1 and their mirror.
    let got = half.tensor("pixels").unwrap().to_vec::<f64>().unwrap();
    assert!((got[0] - 40.0 / 7.0).abs() < 1e-12 && (got[1] - 128.0 / 7.0).abs() < 1e-12, "{got:?}");
}

#[test]
fn bicubic_and_nearest_exact_are_those_of_pillow() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/transform/resize.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let numbers = |value: &serde_json::Value| -> Vec<f32> { serde_json::from_value(value.clone()).unwrap() };
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let from: Vec<usize> = serde_json::from_value(row["from"].clone()).unwrap();
        let mut batch = TensorDict::new(&[]).unwrap();
        batch.set("pixels", Tensor::from_vec(&from, numbers(&row["values"])).unwrap()).unwrap();
        let resize =
            json!({ "type": "Resize", "w": row["w"], "h": row["h"], "interpolation": row["interpolation"] });
        let got = compose(&json!([resize])).forward(batch).unwrap().tensor("pixels").unwrap().to_f32_vec();
        let expected = numbers(&row["expected"]);
        assert_eq!(got.len(), expected.len(), "{line}");
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-3, "{got} for {expected}: {line}");
        }
    }
    assert_eq!(text.lines().count(), 10);
}

#[test]
fn bytes_stay_bytes_where_bicubic_overshoots() {
    let mut batch = TensorDict::new(&[]).unwrap();
    let edge = vec![0_u8, 0, 0, 255, 255, 255];
    batch.set("pixels", Tensor::from_vec(&[1, 6], edge.clone()).unwrap()).unwrap();
    let resize = json!({ "type": "Resize", "w": 1, "h": 12, "interpolation": "bicubic" });
    let bytes = compose(&json!([resize.clone()])).forward(batch).unwrap();
    let bytes = bytes.tensor("pixels").unwrap().to_vec::<u8>().unwrap();
    assert_eq!((bytes[4], bytes[7]), (0, 255), "{bytes:?}");
    let mut batch = TensorDict::new(&[]).unwrap();
    let edge = edge.into_iter().map(f32::from).collect();
    batch.set("pixels", Tensor::from_vec_f32(&[1, 6], edge).unwrap()).unwrap();
    let floats = compose(&json!([resize])).forward(batch).unwrap();
    assert!(floats.tensor("pixels").unwrap().to_f32_vec()[7] > 255.0);
}

#[test]
fn what_a_transform_lets_go_passes_through_those_before_it() {
    let mut transforms = compose(&json!([
        { "type": "RenameTransform", "inKeysInv": [["score"]], "outKeysInv": [["gamma"]] },
        { "type": "MultiStepTransform", "nSteps": 2, "gamma": 1.0 },
    ]));
    assert!(transforms.inverse(steps(1, 2, &[1.0, 2.0], &[0, 0])).unwrap().is_none());
    let held = transforms.state().unwrap();
    let rest = transforms.flush().unwrap().unwrap();
    assert_eq!(rest.tensor("score").unwrap().to_f32_vec(), [1.0, 1.0]);
    assert!(transforms.flush().unwrap().is_none());
    transforms.load_state(&held).unwrap();
    transforms.clear();
    assert!(transforms.flush().unwrap().is_none() && transforms.state().unwrap().is_empty());
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let list = json!([{ "type": "RandomCropTensorDict", "subSeqLen": 1 }, { "type": "SignTransform" }]);
    let mut transforms = compose(&list);
    let before = transforms.state().unwrap();
    let mut other = compose(&json!([{ "type": "RandomCropTensorDict", "subSeqLen": 1, "seed": 9 }]));
    let mut state = other.state().unwrap();
    state.set(["1", "held"], Tensor::from_vec(&[], vec![1_i64]).unwrap()).unwrap();
    assert_eq!(transforms.load_state(&state).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(transforms.state().unwrap(), before);
    assert_eq!(other.load_state(&state).unwrap_err().kind(), ErrorKind::Incompatible);
    other.load_state(&before).unwrap();
    assert_eq!(other.state().unwrap(), before);
}

#[test]
fn a_step_that_fails_holds_nothing_back() {
    let mut transform = MultiStepTransform::new(MultiStep::new(3, 1.0).unwrap());
    transform.inverse(steps(1, 2, &[1.0, 2.0], &[0, 0])).unwrap();
    let before = transform.state().unwrap();
    let mut bad = steps(1, 2, &[1.0, 2.0], &[0, 0]);
    bad.remove(["next", "done"]).unwrap();
    assert_eq!(transform.inverse(bad).unwrap_err().kind(), ErrorKind::UnknownName);
    assert_eq!(
        transform.inverse(steps(2, 1, &[1.0, 2.0], &[0, 0])).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
    assert_eq!(transform.state().unwrap(), before);
    let flat = TensorDict::new(&[]).unwrap();
    let mut fresh = MultiStepTransform::new(MultiStep::new(3, 1.0).unwrap());
    assert_eq!(fresh.inverse(flat).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn random_windows_lie_where_the_mask_is_true_and_come_again_from_a_seed() {
    let mut batch = TensorDict::new(&[2, 5]).unwrap();
    batch.set("id", Tensor::from_vec(&[2, 5], (0..10_i64).collect()).unwrap()).unwrap();
    let mask = [true, true, true, false, false, true, true, true, true, true].to_vec();
    batch.set("mask", Tensor::from_vec(&[2, 5], mask).unwrap()).unwrap();
    let list = json!([{ "type": "RandomCropTensorDict", "subSeqLen": 2, "maskKey": ["mask"], "seed": 3 }]);
    let ids = |crop: &mut Compose| {
        crop.forward(batch.clone()).unwrap().tensor("id").unwrap().to_vec::<i64>().unwrap()
    };
    let (mut left, mut right, mut counts) = (compose(&list), compose(&list), [0_u32; 10]);
    for draw in 0..600 {
        let got = ids(&mut left);
        assert_eq!(got, ids(&mut right));
        if draw == 300 {
            let state = left.state().unwrap();
            right = compose(&list);
            right.load_state(&state).unwrap();
        }
        counts[got[0] as usize] += 1;
        counts[got[2] as usize] += 1;
    }
    assert_eq!([counts[2], counts[3], counts[4], counts[9]], [0; 4]);
    // 300 and 150 of each are expected; five standard deviations are allowed.
    assert!(counts[..2].iter().all(|count| count.abs_diff(300) < 62), "{counts:?}");
    assert!(counts[5..9].iter().all(|count| count.abs_diff(150) < 54), "{counts:?}");
    let mut long = RandomCropTensorDict::new(6, 0).unwrap();
    assert_eq!(long.forward(batch).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn rewards_are_summed_along_the_dimension_that_is_told() {
    let dict = steps(2, 3, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0], &[0; 6]);
    let sums = |time_dim: isize| {
        let mut dense = DensifyReward { time_dim, ..DensifyReward::default() };
        dense.forward(dict.clone()).unwrap().tensor(["next", "reward"]).unwrap().to_vec::<f64>().unwrap()
    };
    assert_eq!(sums(1), [7.0, 6.0, 4.0, 56.0, 48.0, 32.0]);
    assert_eq!(sums(-1), sums(1));
    assert_eq!(sums(0), [9.0, 18.0, 36.0, 8.0, 16.0, 32.0]);
    let mut dense = DensifyReward { time_dim: 2, ..DensifyReward::default() };
    assert_eq!(dense.forward(dict).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn the_policy_version_reaches_every_filter_of_a_list() {
    let mut batch = TensorDict::new(&[2]).unwrap();
    batch.set("policy_version", Tensor::from_vec(&[2], vec![4_i64, 6]).unwrap()).unwrap();
    let mut filter = compose(&json!([{ "type": "PolicyAgeFilter", "maxPolicyLag": 1 }]));
    filter.set_policy_version(6);
    assert_eq!(filter.forward(batch.clone()).unwrap().batch_size(), [1]);
    assert_eq!(filter.inverse(batch).unwrap().unwrap().batch_size(), [1]);
}

#[test]
fn descriptions_are_closed_and_say_what_is_wrong() {
    assert_eq!(kind(&json!([{ "type": "CatFrame" }])), ErrorKind::UnknownName);
    assert_eq!(kind(&json!([{ "type": "SignTransform", "keys": [] }])), ErrorKind::UnknownName);
    assert_eq!(kind(&json!([{ "inKeys": [] }])), ErrorKind::Malformed);
    assert_eq!(kind(&json!([{ "type": "MultiStep", "nSteps": 1.5, "gamma": 1.0 }])), ErrorKind::Malformed);
    for bad in [
        json!({ "type": "MultiStep", "nSteps": 0, "gamma": 1.0 }),
        json!({ "type": "MultiStepTransform", "nSteps": 1, "gamma": 0.0 }),
        json!({ "type": "CatFrames", "n": 0, "dim": -1, "inKeys": [["obs"]] }),
        json!({ "type": "ActionChunkTransform", "chunkSize": 0 }),
        json!({ "type": "RandomCropTensorDict", "subSeqLen": 0 }),
        json!({ "type": "Reward2GoTransform", "gamma": 1.5 }),
        json!({ "type": "DensifyReward", "discount": -0.5 }),
        json!({ "type": "RewardClipping", "clampMin": 2.0 }),
        json!({ "type": "CenterCrop", "w": 0 }),
        json!({ "type": "PolicyAgeFilter", "maxPolicyLag": -1 }),
    ] {
        assert_eq!(kind(&json!([bad])), ErrorKind::OutOfRange, "{bad}");
    }
    let error =
        Compose::from_json(r#"[{"type":"SignTransform"},{"type":"CatTensors","inKeys":[],"outKey":["a"]}]"#);
    assert_eq!(error.err().unwrap().detail(), "transforms[1]: inKeys must hold at least one key: got 0");
    let uneven = json!([{ "type": "RenameTransform", "inKeys": [["a"]], "outKeys": [] }]);
    assert_eq!(kind(&uneven), ErrorKind::ShapeMismatch);
    assert_eq!(kind(&json!([{ "type": "ToTensorImage", "dtype": "i64" }])), ErrorKind::Incompatible);
}

#[test]
fn lists_and_images_have_limits() {
    let list = |len: usize| json!(vec![json!({ "type": "SignTransform" }); len]);
    assert_eq!(compose(&list(TRANSFORMS_MAX)).len(), TRANSFORMS_MAX);
    assert_eq!(kind(&list(TRANSFORMS_MAX + 1)), ErrorKind::LimitExceeded);
    assert!(Resize::new(TRANSFORM_IMAGE_SIDE_MAX, None).is_ok());
    let error = Resize::new(1, Some(TRANSFORM_IMAGE_SIDE_MAX + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    let mut many = CatFrames::new(usize::MAX, -1, vec!["obs".into()]).unwrap();
    let mut batch = TensorDict::new(&[1]).unwrap();
    batch.set("obs", Tensor::from_vec(&[1, 2], vec![1_u8, 2]).unwrap()).unwrap();
    batch.set(["next", "done"], Tensor::from_vec(&[1], vec![false]).unwrap()).unwrap();
    assert_eq!(many.forward(batch).unwrap_err().kind(), ErrorKind::LimitExceeded);
}
