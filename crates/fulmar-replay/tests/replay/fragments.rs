//! Slices of fragmented trajectories, against golden rows and against a scan.

use std::collections::BTreeMap;

use fulmar_core::{ErrorKind, Rng};
use fulmar_replay::{Follower, FragmentedSliceSampler, Sampler, SliceBy, SliceOptions, Span, Stateful};
use fulmar_tensor::{Tensor, TensorDict};
use serde_json::json;

use crate::golden_rows::{assert_drawn, fraction, index, indices, list, numbers, topic};

fn items(ids: Vec<i64>, steps: Vec<i64>) -> TensorDict {
    let mut items = TensorDict::new(&[ids.len()]).unwrap();
    items.set("episode", Tensor::from_vec(&[ids.len()], ids).unwrap()).unwrap();
    items.set("step_count", Tensor::from_vec(&[steps.len()], steps).unwrap()).unwrap();
    items
}

fn sampler(capacity: usize, slice_len: usize, strict_length: bool) -> FragmentedSliceSampler {
    let options = SliceOptions { slice_len: Some(slice_len), strict_length, ..SliceOptions::default() };
    FragmentedSliceSampler::new(capacity, options, Default::default(), "step_count".into(), 17).unwrap()
}

/// Draws slices one by one.
fn drawn(
    sampler: &mut FragmentedSliceSampler,
    len: usize,
    slice_len: usize,
    count: usize,
) -> Vec<Vec<usize>> {
    (0..count).map(|_| sampler.sample(len, slice_len).unwrap().rows).collect()
}

#[test]
fn slices_are_those_of_the_golden_rows_as_often() {
    for row in topic("slices", "slice_fragmented", 8) {
        let what = row["id"].as_str().unwrap();
        let (capacity, slice_len) = (index(&row["capacity"]), index(&row["sampler"]["slice_len"]));
        let mut sampler = sampler(capacity, slice_len, row["sampler"]["strict_length"] == true);
        let mut written = 0;
        for write in list(&row["writes"]) {
            let of = |key: &str| numbers(&write[key]).into_iter().map(|x| x as i64).collect::<Vec<_>>();
            let ids = of("episode");
            let rows: Vec<usize> = (0..ids.len()).map(|at| (written + at) % capacity).collect();
            written += ids.len();
            sampler.extend(&rows, &items(ids, of("step_count"))).unwrap();
        }
        let len = written.min(capacity);
        if row["error"].is_object() {
            let error = sampler.sample(len, slice_len).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{what}: {error}");
            continue;
        }
        let kinds: Vec<Vec<usize>> = list(&row["slices"]).iter().map(|one| indices(&one["slots"])).collect();
        let odds: Vec<f64> = list(&row["slices"]).iter().map(|one| fraction(&one["p"])).collect();
        let place = |slice: &Vec<usize>| kinds.iter().position(|kind| kind == slice).expect(what);
        let drawn: Vec<usize> = drawn(&mut sampler, len, slice_len, 4_000).iter().map(place).collect();
        assert_drawn(what, &drawn, &odds);
    }
}

/// Finds runs by visiting every step, oldest first: each joins the last run of its trajectory if its count is
/// one more.
fn scanned(steps: &[(usize, i64, i64)]) -> Vec<Vec<usize>> {
    let mut runs: Vec<(i64, i64, Vec<usize>)> = Vec::new();
    for &(row, id, step) in steps {
        match runs.iter_mut().rev().find(|(of, ..)| *of == id).filter(|(_, last, _)| *last + 1 == step) {
            Some((_, last, rows)) => {
                *last = step;
                rows.push(row);
            }
            None => runs.push((id, step, vec![row])),
        }
    }
    runs.into_iter().map(|(.., rows)| rows).collect()
}

#[test]
fn runs_are_those_of_a_scan_whatever_was_overwritten_and_a_state_goes_on() {
    let mut rng = Rng::new(5).stream("fragments");
    let (capacity, mut sampler) = (13, sampler(13, 3, false));
    let (mut ring, mut next) = (Vec::new(), BTreeMap::new());
    for at in 0..400 {
        let id = rng.below(4).unwrap() as i64;
        let step = next.get(&id).map_or(0, |step| step + 1 + i64::from(rng.below(5).unwrap() == 0));
        next.insert(id, step);
        sampler.extend(&[at % capacity], &items(vec![id], vec![step])).unwrap();
        ring.push((at % capacity, id, step));
        let start = ring.len().saturating_sub(capacity);
        let mut expected: Vec<Vec<usize>> = scanned(&ring[start..])
            .iter()
            .flat_map(|run| run.windows(run.len().min(3)).map(<[usize]>::to_vec).collect::<Vec<_>>())
            .collect();
        expected.sort();
        let len = ring.len().min(capacity);
        let state = sampler.state().unwrap();
        let mut found = drawn(&mut sampler, len, 3, 300);
        let mut again = self::sampler(capacity, 3, false);
        again.restore(&state).unwrap();
        assert_eq!(drawn(&mut again, len, 3, 20), found[..20]);
        found.sort();
        found.dedup();
        assert!(found.iter().all(|slice| expected.contains(slice)), "{found:?} of {expected:?}");
        if at % 50 == 49 {
            assert_eq!(found, expected, "300 draws of a dozen slices leave none out");
        }
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let of = |options| FragmentedSliceSampler::new(4, options, Default::default(), "step_count".into(), 0);
    let whole = SliceOptions { slice_len: Some(2), ..SliceOptions::default() };
    for options in [
        SliceOptions { left_span: Span::Any, ..whole },
        SliceOptions { by: SliceBy::Steps, ..whole },
        SliceOptions { slice_len: None, ..whole },
        SliceOptions { pad_output: true, ..whole },
    ] {
        assert!(of(options).is_err(), "{options:?}");
    }
    let mut sampler = of(whole).unwrap();
    assert_eq!(sampler.sample(0, 2).unwrap_err().kind(), ErrorKind::Empty);
    let error = sampler.extend(&[1], &items(vec![0], vec![0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "rows go round");
    let mut uncounted = items(vec![0], vec![0]);
    uncounted.remove("step_count").unwrap();
    assert_eq!(sampler.extend(&[0], &uncounted).unwrap_err().kind(), ErrorKind::UnknownName);
    sampler.extend(&[0, 1], &items(vec![7, 7], vec![i64::MAX, i64::MIN])).unwrap();
    assert_eq!(sampler.sample(2, 2).unwrap_err().kind(), ErrorKind::OutOfRange, "counts do not go round");
    let before = sampler.state().unwrap();
    for (key, value) in [("capacity", json!(5)), ("written", json!(1)), ("steps", json!([[0, 0, 0]]))] {
        let mut state = before.clone();
        state[key] = value;
        assert!(sampler.restore(&state).is_err(), "{key}");
        assert_eq!(sampler.state().unwrap(), before);
    }
}
