//! Any ring survives every form, unwritten steps are not exported, and damaged forms are typed errors.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::ErrorKind;
use fulmar_ted::{
    Ring, TedKeys, flat_to_ted, hdf5_combine, hdf5_split, nested_to_ted, read_hdf5, ted_to_flat,
    ted_to_nested, write_hdf5,
};
use fulmar_tensor::{Key, NonTensor, Tensor, TensorDict};
use proptest::prelude::*;
use serde_json::json;

const GARBAGE: i64 = -77;

/// Returns a ring written step by step: `ends` has for each written step of each lane whether it ends a
/// trajectory.
fn ring_of(capacity: usize, lanes: usize, ends: &[bool]) -> (TensorDict, Ring) {
    let written = ends.len() / lanes;
    let count = capacity * lanes;
    let (mut observation, mut following) = (vec![GARBAGE; count], vec![GARBAGE; count]);
    let mut over = vec![true; count];
    let mut clock = vec![0_i64; lanes];
    for step in 0..written {
        for lane in 0..lanes {
            let at = step % capacity * lanes + lane;
            let now = clock[lane] + 1000 * lane as i64;
            (observation[at], following[at], over[at]) = (now, now + 1, ends[step * lanes + lane]);
            clock[lane] += if over[at] { 10 } else { 1 };
        }
    }
    let shape = if lanes == 1 { vec![capacity] } else { vec![capacity, lanes] };
    let tensor = |values: Vec<i64>| Tensor::from_vec(&shape, values).unwrap();
    let mut steps = TensorDict::new(&shape).unwrap();
    steps.set(["agent", "observation"], tensor(observation.clone())).unwrap();
    steps.set("action", tensor(observation)).unwrap();
    steps.set("done", Tensor::from_vec(&shape, vec![false; count]).unwrap()).unwrap();
    steps.set(["next", "agent", "observation"], tensor(following)).unwrap();
    steps.set(["next", "done"], Tensor::from_vec(&shape, over).unwrap()).unwrap();
    (steps, Ring { cursor: written % capacity, is_full: written >= capacity })
}

/// Returns the written steps, zeros elsewhere.
fn blanked(steps: &TensorDict, ring: Ring) -> TensorDict {
    let written = ring.written(steps.batch_size()[0]).unwrap();
    let mut blank = steps.apply(&|tensor| Tensor::zeros(tensor.dtype(), tensor.shape())).unwrap();
    blank
        .set_at(&[fulmar_tensor::Index::from(0..written as i64)], &steps.slice(0..written).unwrap())
        .unwrap();
    blank
}

proptest! {
    #[test]
    fn rings_come_back_from_every_form_without_what_was_never_written(
        capacity in 1_usize..9,
        lanes in 1_usize..4,
        ends in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let ends: Vec<bool> = ends.iter().cycle().take(ends.len() * lanes).copied().collect();
        let (steps, ring) = ring_of(capacity, lanes, &ends);
        let want = (blanked(&steps, ring), ring);
        let keys = TedKeys::default();
        let flat = ted_to_flat(&steps, ring, &keys).unwrap();
        prop_assert_eq!(&flat_to_ted(&flat, &keys).unwrap(), &want);
        let nested = ted_to_nested(&steps, ring, &keys).unwrap();
        prop_assert_eq!(&nested_to_ted(&nested, &keys).unwrap(), &want);
        let split = read_hdf5(&write_hdf5(&hdf5_split(&nested, &keys).unwrap()).unwrap()).unwrap();
        prop_assert_eq!(&nested_to_ted(&hdf5_combine(&split, &keys).unwrap(), &keys).unwrap(), &want);
        for key in [Key::from("action"), Key::from(["agent", "observation"])] {
            let values = flat.tensor(key).unwrap().to_vec::<i64>().unwrap();
            prop_assert!(!values.contains(&GARBAGE));
        }
    }
}

/// Returns the flat form as upstream writes it: its whole memory, with a next observation at every end,
/// written or not.
fn upstream(steps: &TensorDict, ring: Ring, lanes: usize, over: &[bool]) -> TensorDict {
    let capacity = steps.batch_size()[0];
    let values = |key: Key| steps.tensor(key).unwrap().to_vec::<i64>().unwrap();
    let (root, next) =
        (values(["agent", "observation"].into()), values(["next", "agent", "observation"].into()));
    let (mut observations, mut actions, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for lane in 0..lanes {
        for time in 0..capacity {
            let at = time * lanes + lane;
            observations.push(root[at]);
            actions.push(root[at]);
            done.push(over[at]);
            if over[at] || time + 1 == ring.cursor {
                observations.push(next[at]);
            }
        }
    }
    let mut flat = TensorDict::new(&[]).unwrap();
    let shape: Vec<usize> = steps.batch_size().to_vec();
    for (key, value) in
        [("is_full", json!(false)), ("shift", json!(ring.cursor)), ("_storage_shape", json!(shape))]
    {
        flat.set(key, NonTensor::shared(value)).unwrap();
    }
    let count = observations.len();
    flat.set(["agent", "observation"], Tensor::from_vec(&[count], observations).unwrap()).unwrap();
    flat.set("action", Tensor::from_vec(&[actions.len()], actions).unwrap()).unwrap();
    flat.set("done", Tensor::from_vec(&[done.len()], done).unwrap()).unwrap();
    flat
}

proptest! {
    #[test]
    fn of_a_ring_that_upstream_did_not_fill_the_first_rows_are_kept_whatever_its_memory_held(
        lanes in 1_usize..4,
        ends in prop::collection::vec(any::<bool>(), 1..6),
        stray in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let written = ends.len();
        let capacity = written + stray.len();
        let ends: Vec<bool> = ends.iter().cycle().take(written * lanes).copied().collect();
        let (steps, ring) = ring_of(capacity, lanes, &ends);
        let mut over = vec![false; capacity * lanes];
        over[..ends.len()].copy_from_slice(&ends);
        for (at, over) in over.iter_mut().enumerate().skip(ends.len()) {
            *over = stray[(at * 7) % stray.len()];
        }
        let flat = upstream(&steps, ring, lanes, &over);
        prop_assert_eq!(flat_to_ted(&flat, &TedKeys::default()).unwrap(), (blanked(&steps, ring), ring));
    }
}

fn kind<T>(result: fulmar_ted::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_ring_that_cannot_be_is_refused() {
    let (steps, _) = ring_of(4, 1, &[false; 4]);
    let keys = TedKeys::default();
    let flat = |cursor, is_full| kind(ted_to_flat(&steps, Ring { cursor, is_full }, &keys));
    assert_eq!(flat(4, true), None);
    assert_eq!(flat(5, true), Some(ErrorKind::OutOfRange));
    assert_eq!(flat(0, false), Some(ErrorKind::Empty));
    let scalar = TensorDict::new(&[]).unwrap();
    assert_eq!(
        kind(ted_to_flat(&scalar, Ring { cursor: 1, is_full: false }, &keys)),
        Some(ErrorKind::UnknownName)
    );
}

#[test]
fn entries_that_a_form_would_lose_are_refused() {
    let keys = TedKeys::default();
    let refused = |spoil: &dyn Fn(&mut TensorDict)| {
        let (mut steps, ring) = ring_of(3, 1, &[false, true, false]);
        spoil(&mut steps);
        kind(ted_to_flat(&steps, ring, &keys))
    };
    let rows = || Tensor::from_vec(&[3], vec![1_i64, 2, 3]).unwrap();
    assert_eq!(refused(&|_| ()), None);
    assert_eq!(refused(&|steps| steps.set(["next", "extra"], rows()).unwrap()), Some(ErrorKind::UnknownName));
    assert_eq!(
        refused(&|steps| steps.set("task", NonTensor::shared("a".into())).unwrap()),
        Some(ErrorKind::Incompatible)
    );
    assert_eq!(refused(&|steps| steps.set(["next", "done"], rows()).unwrap()), Some(ErrorKind::Incompatible));
    assert_eq!(
        refused(&|steps| {
            steps
                .set(["next", "agent", "observation"], Tensor::from_vec(&[3], vec![1.0_f32; 3]).unwrap())
                .unwrap();
        }),
        Some(ErrorKind::ShapeMismatch)
    );
    assert_eq!(refused(&|steps| steps.set(["next", "agent", "observation"], rows()).unwrap()), None);
    let other = Tensor::from_vec(&[3], vec![9_i64, 9, 9]).unwrap();
    assert_eq!(
        refused(&|steps| steps.set(["next", "agent", "observation"], other.clone()).unwrap()),
        Some(ErrorKind::Incompatible)
    );
}

#[test]
fn the_ring_is_said_where_the_keys_want_it() {
    let (steps, ring) = ring_of(3, 1, &[false, true, false, false]);
    let keys = TedKeys { shift: ["meta", "at"].into(), is_full: "whole".into(), ..TedKeys::default() };
    let flat = ted_to_flat(&steps, ring, &keys).unwrap();
    assert_eq!(flat.non_tensor(["meta", "at"]).unwrap().to_json(), json!(1));
    assert!(flat.get("shift").is_none() && flat.get("is_full").is_none());
    assert_eq!(flat_to_ted(&flat, &keys).unwrap(), (steps.clone(), ring));
    assert_eq!(kind(flat_to_ted(&flat, &TedKeys::default())), Some(ErrorKind::UnknownName));
    let nested = ted_to_nested(&steps, ring, &keys).unwrap();
    let split = hdf5_split(&nested, &keys).unwrap();
    assert_eq!(split.tensor(["meta", "at"]).unwrap().to_vec::<i64>().unwrap(), [1]);
    assert_eq!(nested_to_ted(&hdf5_combine(&split, &keys).unwrap(), &keys).unwrap(), (steps, ring));
}

#[test]
fn an_entry_that_the_ring_would_hide_is_refused() {
    for name in ["shift", "is_full", "_storage_shape"] {
        let (mut steps, ring) = ring_of(3, 1, &[false, true, false]);
        steps.set(name, Tensor::from_vec(&[3], vec![1_i64, 2, 3]).unwrap()).unwrap();
        let keys = TedKeys::default();
        assert_eq!(kind(ted_to_flat(&steps, ring, &keys)), Some(ErrorKind::Incompatible), "{name}");
        assert_eq!(kind(ted_to_nested(&steps, ring, &keys)), Some(ErrorKind::Incompatible), "{name}");
    }
}

#[test]
fn damaged_forms_are_typed_errors() {
    let keys = TedKeys::default();
    let damaged = |spoil: &dyn Fn(&mut TensorDict)| {
        let (steps, ring) = ring_of(3, 1, &[false, true, false]);
        let mut flat = ted_to_flat(&steps, ring, &keys).unwrap();
        spoil(&mut flat);
        kind(flat_to_ted(&flat, &keys))
    };
    let say = |key: &'static str, value: serde_json::Value| {
        damaged(&move |flat: &mut TensorDict| flat.set(key, NonTensor::shared(value.clone())).unwrap())
    };
    assert_eq!(say("shift", json!(3)), None);
    assert_eq!(say("shift", json!(4)), Some(ErrorKind::OutOfRange));
    assert_eq!(say("shift", json!(-1)), Some(ErrorKind::Malformed));
    assert_eq!(say("is_full", json!("yes")), Some(ErrorKind::Malformed));
    assert_eq!(say("_storage_shape", json!(3)), None);
    assert_eq!(say("_storage_shape", json!([])), Some(ErrorKind::Malformed));
    assert_eq!(say("_storage_shape", json!([4])), Some(ErrorKind::ShapeMismatch));
    assert_eq!(say("_storage_shape", json!([1_u64 << 40, 1_u64 << 40])), Some(ErrorKind::LimitExceeded));
    let gone = |key: &'static str| damaged(&move |flat: &mut TensorDict| drop(flat.remove(key).unwrap()));
    assert_eq!(gone("done"), Some(ErrorKind::UnknownName));
    assert_eq!(gone("shift"), Some(ErrorKind::UnknownName));
    let short = || Tensor::from_vec(&[2], vec![1_i64, 2]).unwrap();
    assert_eq!(damaged(&|flat| flat.set("action", short()).unwrap()), Some(ErrorKind::ShapeMismatch));

    let (steps, ring) = ring_of(3, 1, &[false, true, false]);
    let nested = ted_to_nested(&steps, ring, &keys).unwrap();
    assert_eq!(kind(flat_to_ted(&nested, &keys)), Some(ErrorKind::Incompatible));
    let mut split = hdf5_split(&nested, &keys).unwrap();
    split.remove(["traj_1", "action"]).unwrap();
    assert_eq!(kind(hdf5_combine(&split, &keys)), Some(ErrorKind::UnknownName));
}

#[test]
fn an_hdf5_file_that_is_none_or_says_too_much_is_a_typed_error() {
    let mut dict = TensorDict::new(&[]).unwrap();
    dict.set(["group", "data"], Tensor::from_vec(&[3], vec![1_i64, 2, 3]).unwrap()).unwrap();
    let bytes = write_hdf5(&dict).unwrap();
    assert_eq!(read_hdf5(&bytes).unwrap(), dict);
    assert_eq!(kind(read_hdf5(&bytes[..bytes.len() / 2])), Some(ErrorKind::Corrupt));
    assert_eq!(kind(read_hdf5(b"no HDF5")), Some(ErrorKind::Corrupt));
    let mut half = TensorDict::new(&[]).unwrap();
    half.set("h", Tensor::from_bits(fulmar_core::Dtype::Bf16, &[1], &[0]).unwrap()).unwrap();
    assert_eq!(kind(write_hdf5(&half)), Some(ErrorKind::Incompatible));
    let mut slash = TensorDict::new(&[]).unwrap();
    slash.set("a/b", Tensor::from_vec(&[1], vec![1_i64]).unwrap()).unwrap();
    assert_eq!(kind(write_hdf5(&slash)), Some(ErrorKind::Malformed));
    // 31 groups and their data are as deep as a dictionary may be.
    let deep = |groups: usize| {
        let path: Vec<_> = (0..groups).map(|_| "g".to_owned()).chain(["data".to_owned()]).collect();
        let mut builder = TensorDict::new(&[]).unwrap();
        builder.set(path, Tensor::from_vec(&[1], vec![1_i64]).unwrap()).map(|()| builder)
    };
    let deepest = deep(31).unwrap();
    assert_eq!(read_hdf5(&write_hdf5(&deepest).unwrap()).unwrap(), deepest);
    assert_eq!(kind(deep(32)), Some(ErrorKind::LimitExceeded));
}
