//! Trajectories and slices against golden rows and against a scan.

use std::collections::BTreeMap;

use fulmar_core::ErrorKind;
use fulmar_replay::{
    PrioritizedOptions, PrioritizedSliceSampler, SliceOptions, SliceSampler, SliceSamplerWithoutReplacement,
    Slices, Span, Trajectory, TrajectoryIndex, WithoutReplacementOptions, ends_of_ids, find_trajectories,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::golden_rows::{
    assert_close, assert_drawn, assert_unread, fraction, index, indices, list, number, numbers, topic,
};

#[test]
fn golden_rows_of_kinds_not_built_yet_are_counted() {
    let read = [
        "find_start_stop_traj",
        "slice_distribution",
        "slice_sample_error",
        "slice_ctor",
        "slice_without_replacement",
        "prioritized_slice",
        "sequence_unit",
        "slice_distribution_nd",
        "slice_flags",
        "streaming_slice",
        "slice_fragmented",
    ];
    assert_unread("slices", &read, &[]);
}

fn flags(value: &Value) -> Vec<bool> {
    let flag = |one: &Value| one.as_bool().unwrap_or_else(|| one.as_u64() == Some(1));
    list(if value.is_array() { value } else { &value["d"] }).iter().map(flag).collect()
}

fn ids(value: &Value) -> Vec<i64> {
    numbers(value).into_iter().map(|id| id as i64).collect()
}

/// Returns the newest step: a number, the last of a tensor, or the last of a range; `Err` if it has none.
fn newest(cursor: &Value) -> Result<Option<usize>, ()> {
    if let Some(range) = cursor["$range"].as_array() {
        let (start, end) = (index(&range[0]), index(&range[1]));
        return if end > start { Ok(Some(end - 1)) } else { Err(()) };
    }
    if cursor.is_null() {
        return Ok(None);
    }
    indices(cursor).last().map(|&last| Some(last)).ok_or(())
}

#[test]
fn a_scan_finds_the_trajectories_of_the_golden_rows() {
    let (mut found_all, mut refused, mut theirs) = (0, 0, 0);
    for row in topic("slices", "find_start_stop_traj", 68) {
        let what = row["id"].as_str().unwrap();
        let args = &row["args"];
        let (end, id) = (&args["end"], &args["trajectory"]);
        let newest = newest(&args["cursor"]);
        if end.is_null() == id.is_null() || end["s"] == serde_json::json!([]) || newest.is_err() {
            // Both or neither, no dimension, no newest step: none of these can be expressed here.
            assert!(!row["error"].is_null(), "{what}");
            theirs += 1;
            continue;
        }
        let is_full = args["at_capacity"] == true;
        let shape = indices(if end.is_null() { &id["s"] } else { &end["s"] });
        let num_lanes = shape[1..].iter().product();
        let ends = if end.is_null() { ends_of_ids(&ids(id), num_lanes, is_full) } else { Ok(flags(end)) };
        let found = ends.and_then(|ends| find_trajectories(&ends, num_lanes, is_full, newest.unwrap()));
        if !row["error"].is_null() {
            let kind = found.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Empty | ErrorKind::OutOfRange), "{what}: {kind:?}");
            refused += 1;
            continue;
        }
        let mut got = Vec::new();
        for Trajectory { lane, start, stop, len } in found.unwrap() {
            let (mut rest, mut place) = (lane, Vec::new());
            for &extent in shape[1..].iter().rev() {
                place.insert(0, rest % extent);
                rest /= extent;
            }
            got.push(([vec![start], place.clone()].concat(), [vec![stop], place].concat(), len));
        }
        let column = |at: usize| indices(&row["ok"]["$dict"][at][1]);
        let (starts, stops, lens) = (column(0), column(1), column(2));
        let (starts, stops) = (starts.chunks(shape.len()), stops.chunks(shape.len()));
        let mut expected: Vec<_> = starts
            .zip(stops)
            .zip(lens)
            .map(|((start, stop), len)| (start.to_vec(), stop.to_vec(), len))
            .collect();
        // Lanes of several dimensions are counted with the first one fastest upstream, with the last one
        // here.
        got.sort();
        expected.sort();
        assert_eq!(got, expected, "{what}");
        found_all += 1;
    }
    println!("trajectories found in {found_all} rows, {refused} refused, {theirs} that cannot be expressed");
    assert_eq!((found_all + refused + theirs, theirs), (68, 5));
}

/// Fills the sampler with the trajectories of `row`: flags or ids of the rows of its storage, from the
/// oldest.
fn fill(row: &Value, sampler: &mut SliceSampler) {
    let (given, storage) = (&row["sampler"], &row["storage"]);
    let len = index(&storage["len"]);
    let cursor = storage["cursor"].as_u64().unwrap_or_default() as usize;
    let is_full = len == index(&storage["capacity"]);
    // Steps before the oldest, so that the steps get the rows of the golden storage.
    let before = if is_full { cursor } else { 0 };
    let aged = |row: usize| if is_full { (cursor + row) % len } else { row };
    let by_id = given["end_key"].is_null() && given["end_keys"].is_null() && given["ends"].is_null();
    if by_id {
        let id =
            ids(if given["trajectories"].is_null() { &storage["episode"] } else { &given["trajectories"] });
        sampler.extend_ids(&vec![-1; before]);
        sampler.extend_ids(&(0..len).map(|row| id[aged(row)]).collect::<Vec<_>>());
        return;
    }
    let mut end = vec![false; len];
    let keys = match &given["end_keys"] {
        Value::Null => vec![&given["end_key"]],
        keys => list(keys).iter().map(|key| &key["$tuple"]).collect(),
    };
    if given["ends"].is_null() {
        for key in keys {
            let name = list(key).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(".");
            for (end, flag) in end.iter_mut().zip(flags(&storage[name])) {
                *end |= flag;
            }
        }
    } else {
        end = flags(&given["ends"]);
    }
    sampler.extend(&vec![true; before]);
    sampler.extend(&(0..len).map(|row| end[aged(row)]).collect::<Vec<_>>());
}

fn span(value: &Value) -> Span {
    match value {
        Value::Bool(true) => Span::Any,
        Value::Number(steps) if steps.as_u64() > Some(0) => Span::UpTo(index(value)),
        _ => Span::None,
    }
}

fn options(given: &Value) -> SliceOptions {
    let spans = given["span"]["$tuple"].as_array().map_or([&given["span"]; 2], |pair| [&pair[0], &pair[1]]);
    SliceOptions {
        num_slices: given["num_slices"].as_u64().map(|number| number as usize),
        slice_len: given["slice_len"].as_u64().map(|number| number as usize),
        strict_length: given["strict_length"] != false,
        pad_output: given["pad_output"] == true,
        left_span: span(spans[0]),
        right_span: span(spans[1]),
        ..Default::default()
    }
}

/// Returns the possible slices, by enumeration of all trajectories and first steps, with their probabilities.
fn enumerate(sampler: &SliceSampler, options: &SliceOptions, slice_len: usize) -> BTreeMap<Vec<usize>, f64> {
    let long = |one: &Trajectory| !options.strict_length || one.len >= slice_len;
    let all: Vec<Trajectory> = sampler.index().trajectories().filter(long).collect();
    let mut slices = BTreeMap::new();
    for one in &all {
        let seq = slice_len.min(one.len) as i64;
        let cut = |span| match span {
            Span::None => 0,
            Span::UpTo(steps) => (steps as i64).min(seq - 1),
            Span::Any => seq - 1,
        };
        let firsts = -cut(options.left_span)..=one.len as i64 - seq + cut(options.right_span);
        let share = 1.0 / all.len() as f64 / firsts.clone().count() as f64;
        for first in firsts {
            let steps = first.max(0)..(first + seq).min(one.len as i64);
            let mut rows: Vec<usize> =
                steps.map(|step| (one.start + step as usize) % sampler.index().capacity()).collect();
            if options.pad_output {
                rows.resize(slice_len, rows[rows.len() - 1]);
            }
            *slices.entry(rows).or_insert(0.0) += share;
        }
    }
    slices
}

fn cut_up(batch: &Slices) -> Vec<Vec<usize>> {
    let mut start = 0;
    let slice = |&len: &usize| {
        start += len;
        batch.rows[start - len..start].to_vec()
    };
    batch.lens.iter().map(slice).collect()
}

#[test]
fn slices_are_drawn_as_in_the_golden_rows() {
    let mut judged: BTreeMap<&str, usize> = BTreeMap::new();
    for row in topic("slices", "slice_distribution", 248) {
        let what = row["id"].as_str().unwrap();
        let note = row["note"].as_str().unwrap_or_default();
        if note.starts_with("missing") {
            *judged.entry("keys of a storage, which are not known here").or_default() += 1;
            continue;
        }
        let slice_len = index(&row["slice_len"]);
        let options = options(&row["sampler"]);
        let mut sampler = SliceSampler::new(index(&row["storage"]["capacity"]), options, 17).unwrap();
        fill(&row, &mut sampler);
        if row["boundaries"].is_object() {
            let mut got: Vec<[usize; 3]> =
                sampler.index().trajectories().map(|one| [one.stop, one.start, one.len]).collect();
            got.sort_unstable();
            let column =
                |name: &str| list(&row["boundaries"][name]).iter().flat_map(indices).collect::<Vec<_>>();
            let (stops, starts, lens) = (column("stop"), column("start"), column("length"));
            let expected: Vec<[usize; 3]> =
                (0..stops.len()).map(|at| [stops[at], starts[at], lens[at]]).collect();
            assert_eq!(got, expected, "{what}");
        }
        let batch = slice_len * options.num_slices.unwrap_or(1);
        let expected = enumerate(&sampler, &options, slice_len);
        if !row["error"].is_null() && options.left_span == Span::None && options.right_span == Span::None {
            assert_eq!(sampler.sample(batch).unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
            *judged.entry("refused").or_default() += 1;
            continue;
        }
        let mut golden: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        for slice in list(&row["slices"]) {
            *golden.entry(indices(&slice["slots"])).or_default() += fraction(&slice["p"]);
        }
        let same = golden.len() == expected.len()
            && golden.iter().all(|(slots, p)| expected.get(slots).is_some_and(|own| (own - p).abs() < 1e-9));
        // Upstream a span on the right gives slices without steps, or leaves one more than requested, and
        // fails with a trajectory that is shorter than the span.
        assert!(
            same || options.right_span != Span::None || (note == "span" && !row["error"].is_null()),
            "{what}"
        );
        *judged.entry(if same { "as golden" } else { "spans that differ on purpose" }).or_default() += 1;
        let outcomes: Vec<&Vec<usize>> = expected.keys().collect();
        let mut drawn = Vec::new();
        for _ in 0..1_000 {
            let slices = sampler.sample(batch).unwrap();
            for slice in cut_up(&slices) {
                drawn.push(outcomes.binary_search(&&slice).unwrap_or_else(|_| panic!("{what}: {slice:?}")));
            }
        }
        assert_drawn(what, &drawn, &expected.values().copied().collect::<Vec<_>>());
    }
    println!("slice distributions: {judged:?}");
    assert!(judged["as golden"] >= 190 && judged["refused"] == 2, "{judged:?}");
}

#[test]
fn samplers_are_refused_as_in_the_golden_rows() {
    let (mut refused, mut keys) = (0, 0);
    for row in topic("slices", "slice_ctor", 19) {
        let given = &row["sampler"];
        let about_keys = ["ends", "trajectories", "end_key", "end_keys", "traj_key", "fragmented"];
        if row["error"].is_null() || about_keys.iter().any(|key| !given[*key].is_null()) {
            keys += 1; // Keys, static ends and fragments are not options of this sampler.
            continue;
        }
        let built = SliceSampler::new(10, options(given), 0);
        assert_eq!(built.unwrap_err().kind(), ErrorKind::OutOfRange, "{}", row["id"]);
        refused += 1;
    }
    println!("slice samplers refused: {refused}, about keys: {keys}");
    assert_eq!(refused, 3);
    for row in topic("slices", "slice_sample_error", 8) {
        let built = SliceSampler::new(20, options(&row["sampler"]), 0);
        let drawn = built.and_then(|mut sampler| {
            for write in list(&row["writes"]) {
                sampler.extend_ids(&vec![write["episode"].as_i64().unwrap(); index(&write["len"])]);
            }
            sampler.sample(index(&row["batch_size"]))
        });
        let kind = drawn.unwrap_err().kind();
        let expected = if list(&row["writes"]).is_empty() { ErrorKind::Empty } else { ErrorKind::OutOfRange };
        assert_eq!(kind, expected, "{}", row["id"]);
    }
}

#[test]
fn padding_repeats_the_last_row_and_is_masked() {
    let given =
        SliceOptions { slice_len: Some(4), strict_length: false, pad_output: true, ..Default::default() };
    let mut sampler = SliceSampler::new(8, given, 0).unwrap();
    sampler.extend(&[false, false, true]);
    let batch = sampler.sample(8).unwrap();
    assert_eq!(batch.rows, [0, 1, 2, 2, 0, 1, 2, 2]);
    assert_eq!(batch.mask, [true, true, true, false, true, true, true, false]);
    assert_eq!(batch.truncated, [false, false, true, false, false, false, true, false]);
    assert_eq!(batch.lens, [4, 4]);
}

proptest! {
    #[test]
    fn what_is_kept_while_writing_is_what_a_scan_finds(
        capacity in 1..25_usize,
        writes in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.25), 1..12), 1..15),
        min_len in 1..6_usize,
    ) {
        let mut index = TrajectoryIndex::new(capacity).unwrap();
        let mut ring = vec![false; capacity];
        let mut written = 0;
        for (at, write) in writes.iter().enumerate() {
            index.extend(write);
            for &end in write {
                ring[written % capacity] = end;
                written += 1;
            }
            let len = written.min(capacity);
            let mut scanned = find_trajectories(&ring[..len], 1, len == capacity, Some((written - 1) % capacity)).unwrap();
            let mut kept: Vec<Trajectory> = index.trajectories().collect();
            scanned.sort_by_key(|one| one.stop);
            kept.sort_by_key(|one| one.stop);
            prop_assert_eq!(&kept, &scanned);
            // The list of long ones is kept between writes, and recomputed when another length is requested.
            let min_len = if at < writes.len() / 2 { min_len } else { min_len + 1 };
            let num_long = index.num_long(min_len);
            let mut long: Vec<Trajectory> = (0..num_long).map(|place| index.long(place).unwrap()).collect();
            long.sort_by_key(|one| one.stop);
            scanned.retain(|one| one.len >= min_len);
            prop_assert_eq!(&long, &scanned);
            prop_assert_eq!(index.long(num_long), None);
            let json = serde_json::to_string(&index.state()).unwrap();
            index = TrajectoryIndex::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
        }
    }

    #[test]
    fn runs_of_ids_are_trajectories(
        capacity in 1..25_usize,
        writes in prop::collection::vec(prop::collection::vec(0..3_i64, 1..12), 1..10),
    ) {
        let mut index = TrajectoryIndex::new(capacity).unwrap();
        let mut all: Vec<i64> = Vec::new();
        for write in &writes {
            index.extend_ids(write);
            all.extend(write);
            let oldest = all.len().saturating_sub(capacity);
            let mut lens: Vec<usize> = Vec::new();
            for step in oldest..all.len() {
                match lens.last_mut() {
                    Some(len) if step > oldest && all[step] == all[step - 1] => *len += 1,
                    _ => lens.push(1),
                }
            }
            prop_assert_eq!(index.trajectories().map(|one| one.len).collect::<Vec<_>>(), lens);
        }
    }

    #[test]
    fn no_slice_leaves_its_trajectory(
        capacity in 2..40_usize,
        writes in prop::collection::vec(1..9_usize, 1..30),
        slice_len in 1..5_usize,
        seed in any::<u64>(),
    ) {
        let given = SliceOptions { slice_len: Some(slice_len), left_span: Span::Any, right_span: Span::Any, ..Default::default() };
        let mut sampler = SliceSampler::new(capacity, given, seed).unwrap();
        let mut steps = vec![(0, 0); capacity];
        let mut written = 0;
        for (episode, &len) in writes.iter().enumerate() {
            for step in 0..len {
                sampler.extend(&[step + 1 == len]);
                steps[written % capacity] = (episode, step);
                written += 1;
            }
            let Ok(batch) = sampler.sample(slice_len * 20) else { continue };
            for slice in cut_up(&batch) {
                prop_assert!(!slice.is_empty() && slice.len() <= slice_len);
                for pair in slice.windows(2) {
                    let ((before, first), (after, second)) = (steps[pair[0]], steps[pair[1]]);
                    prop_assert_eq!((before, first + 1), (after, second));
                }
            }
        }
    }
}

#[test]
fn a_slice_sampler_goes_on_from_its_state() {
    let given = SliceOptions { num_slices: Some(4), ..Default::default() };
    let mut sampler = SliceSampler::new(30, given, 3).unwrap();
    for len in [4, 9, 2, 7, 12, 5] {
        sampler.extend(&(1..=len).map(|step| step == len).collect::<Vec<_>>());
        sampler.sample(8).unwrap();
    }
    let json = serde_json::to_string(&sampler.state()).unwrap();
    let mut again = SliceSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
    for _ in 0..5 {
        sampler.extend(&[false, true, false]);
        again.extend(&[false, true, false]);
        assert_eq!(again.sample(8).unwrap(), sampler.sample(8).unwrap());
    }
}

#[test]
fn a_trajectory_state_that_contradicts_itself_is_refused() {
    let mut index = TrajectoryIndex::new(4).unwrap();
    index.extend(&[false, true, false]);
    let state = index.state();
    let mut broken = vec![state.clone(); 5];
    broken[0].ends = vec![2];
    broken[1].ends = vec![2, 2, 3];
    broken[2].long = vec![0];
    broken[3].long = vec![0, 0];
    broken[4].min_len = 0;
    for state in broken {
        assert_eq!(TrajectoryIndex::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt, "{state:?}");
    }
    assert_eq!(find_trajectories(&[], 1, false, None).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(find_trajectories(&[true], 2, false, None).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(find_trajectories(&[true], 1, true, Some(1)).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn every_trajectory_gives_one_slice_an_epoch_as_in_the_golden_rows() {
    let mut short_ones = 0;
    for row in topic("slices", "slice_without_replacement", 14) {
        let (given, storage) = (&row["sampler"], &row["storage"]);
        let capacity = index(&storage["capacity"]);
        let epochs = WithoutReplacementOptions {
            drop_last: given["drop_last"] == true,
            shuffle: given["shuffle"] != false,
        };
        let mut sampler = SliceSamplerWithoutReplacement::new(capacity, options(given), epochs, 5).unwrap();
        let mut episode_of = vec![-1; capacity];
        let mut written = 0;
        let mut write =
            |sampler: &mut SliceSamplerWithoutReplacement, episode: &mut Vec<i64>, one: &Value| {
                let id = one["episode"].as_i64().unwrap();
                for _ in 0..index(&one["len"]) {
                    episode[written % capacity] = id;
                    written += 1;
                }
                sampler.extend_ids(&vec![id; index(&one["len"])]);
            };
        for one in list(&row["writes"]) {
            write(&mut sampler, &mut episode_of, one);
        }
        let slice_len = index(&given["slice_len"]);
        let mut seen = Vec::new();
        for call in list(&row["calls"]) {
            let what = format!("{} {call}", row["id"]);
            if call["extend"].is_object() {
                write(&mut sampler, &mut episode_of, &call["extend"]);
                seen.clear();
                if given["strict_length"] == true {
                    // Upstream a trajectory that is too short keeps its place in an epoch and gives nothing;
                    // here it has none.
                    short_ones += 1;
                    break;
                }
                continue;
            }
            let drawn = sampler.sample(slice_len * index(&row["num_slices_per_call"]));
            if !call["error"].is_null() {
                assert_eq!(drawn.unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
                continue;
            }
            let drawn = drawn.unwrap();
            assert_eq!(drawn.lens.len(), list(&call["trajectories"]).len(), "{what}");
            assert_eq!(Value::from(sampler.ran_out()), call["ran_out"], "{what}");
            let trajectories: Vec<Trajectory> = sampler.index().trajectories().collect();
            for slice in cut_up(&drawn) {
                let step = |one: &Trajectory| (slice[0] + capacity - one.start) % capacity;
                let whose = trajectories.iter().position(|one| step(one) + slice.len() <= one.len).unwrap();
                assert!(!seen.contains(&whose), "{what}: trajectory {whose} comes again");
                seen.push(whose);
            }
            if sampler.ran_out() {
                // Trajectories with one slice each form the epoch: the rows do not depend on their order.
                if seen.len() == drawn.lens.len() && given["drop_last"] != true {
                    assert_eq!(drawn.rows.len(), index(&call["rows"]), "{what}");
                }
                seen.clear();
            }
            let json = serde_json::to_string(&sampler.state()).unwrap();
            sampler =
                SliceSamplerWithoutReplacement::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
        }
    }
    assert_eq!(short_ones, 1);
}

#[test]
fn slices_are_drawn_by_priority_as_in_the_golden_rows() {
    let (mut spans, mut drawn_rows) = (0, 0);
    for row in topic("slices", "prioritized_slice", 19) {
        let what = row["id"].as_str().unwrap();
        let (given, storage) = (&row["sampler"], &row["storage"]);
        let priorities = PrioritizedOptions {
            alpha: number(&given["alpha"]) as f32,
            beta: number(&given["beta"]) as f32,
            ..Default::default()
        };
        let capacity = index(&storage["capacity"]);
        let built = PrioritizedSliceSampler::new(capacity, options(given), priorities, 6);
        if given["span"].is_object() {
            // Upstream a slice cut off by its trajectory is shifted; here each begins at the drawn row.
            assert_eq!(built.unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
            spans += 1;
            continue;
        }
        let mut sampler = built.unwrap();
        let len = index(&storage["len"]);
        let cursor = if len == capacity { index(&storage["cursor"]) } else { 0 };
        let end = flags(&storage["next.done"]);
        sampler.extend(&vec![true; cursor]).unwrap();
        sampler.extend(&(0..len).map(|at| end[(cursor + at) % len]).collect::<Vec<_>>()).unwrap();
        if !row["priorities"].is_null() {
            let values: Vec<f32> =
                numbers(&row["priorities"]).into_iter().map(|value| value as f32).collect();
            sampler.update_priority(&(0..len).collect::<Vec<_>>(), &values).unwrap();
        }
        let slice_len = index(&row["slice_len"]);
        let count = slice_len * given["num_slices"].as_u64().unwrap_or(3) as usize;
        if !row["error"].is_null() {
            // Upstream slices of one step fail for lack of a start; here every row is one.
            assert_eq!(sampler.sample(count).is_ok(), slice_len == 1, "{what}");
            continue;
        }
        let golden: Vec<&Value> = list(&row["slices"]).iter().collect();
        let slots: Vec<Vec<usize>> = golden.iter().map(|slice| indices(&slice["slots"])).collect();
        let mut drawn = Vec::new();
        for _ in 0..3_000 {
            let batch = sampler.sample(count).unwrap();
            let mut at = 0;
            for slice in cut_up(&batch.slices) {
                let outcome = slots.iter().position(|slots| *slots == slice);
                let outcome = outcome.unwrap_or_else(|| panic!("{what}: {slice:?}"));
                let weights: Vec<f64> =
                    batch.weights[at..at + slice.len()].iter().map(|&w| f64::from(w)).collect();
                assert_close(
                    what,
                    &weights,
                    &vec![number(&golden[outcome]["weight"]); slice.len()],
                    1e-5,
                    0.0,
                );
                at += slice.len();
                drawn.push(outcome);
            }
        }
        assert_drawn(what, &drawn, &golden.iter().map(|slice| number(&slice["p"])).collect::<Vec<_>>());
        drawn_rows += 1;
    }
    assert_eq!((drawn_rows, spans), (13, 4));
}

proptest! {
    #[test]
    fn starts_that_are_kept_while_writing_are_those_found_anew(
        capacity in 1..25_usize,
        writes in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.25), 1..12), 1..12),
        slice_len in 1..6_usize,
        strict_length in any::<bool>(),
    ) {
        let given = SliceOptions { slice_len: Some(slice_len), strict_length, ..Default::default() };
        let mut sampler = PrioritizedSliceSampler::new(capacity, given, PrioritizedOptions::default(), 1).unwrap();
        for (at, write) in writes.iter().enumerate() {
            sampler.extend(write).unwrap();
            sampler.update_priority(&[at % capacity], &[at as f32 + 0.5]).unwrap();
            let json = serde_json::to_string(&sampler.state()).unwrap();
            // Restoring a state recomputes the starts.
            let mut again = PrioritizedSliceSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
            let (kept, anew) = (sampler.sample(40 * slice_len), again.sample(40 * slice_len));
            prop_assert_eq!(&kept, &anew);
            let Ok(drawn) = kept else {
                prop_assert!(strict_length && sampler.index().trajectories().all(|one| one.len < slice_len));
                continue;
            };
            for slice in cut_up(&drawn.slices) {
                let (whose, before) = sampler.index().at(slice[0]).unwrap();
                prop_assert!(before + slice.len() <= whose.len);
                prop_assert!(slice.len() == slice_len || (!strict_length && before == 0 && slice.len() == whose.len));
                prop_assert!(slice.windows(2).all(|pair| (pair[0] + 1) % capacity == pair[1]));
            }
        }
    }
}
