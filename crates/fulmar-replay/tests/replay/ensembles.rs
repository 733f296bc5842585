//! Ensembles against golden rows, and mixtures of offline and online data.

use fulmar_core::ErrorKind;
use fulmar_replay::{
    EnsembleOptions, OfflineToOnline, ReplayBufferEnsemble, ReplayBufferOptions, Routing, SamplerEnsemble,
    SamplerOptions, SharedReplayBuffer, SharedStorage, StorageEnsemble, TensorStorage, WriterEnsemble,
    WriterOptions,
};
use fulmar_tensor::{Tensor, TensorDict};
use serde_json::Value;

use crate::golden_dicts::{assert_dict, dict, items_of_index, key};
use crate::golden_rows::{assert_drawn, index, list, numbers, rows};

fn buffer(capacity: usize, values: &[i64]) -> SharedReplayBuffer {
    let buffer =
        SharedReplayBuffer::new(Box::new(TensorStorage::new(&[capacity]).unwrap()), Default::default())
            .unwrap();
    if !values.is_empty() {
        let mut items = TensorDict::new(&[values.len()]).unwrap();
        items.set("x", Tensor::from_slice(&[values.len()], values).unwrap()).unwrap();
        buffer.extend(&items).unwrap();
    }
    buffer
}

fn ensemble(setup: &Value) -> ReplayBufferEnsemble {
    let child = |child: &Value| {
        let values: Vec<i64> = list(&child["x"]).iter().map(|value| value.as_i64().unwrap()).collect();
        buffer(index(&child["max_size"]), &values)
    };
    let routing = match (key(&setup["routing_key"]), setup["routing_dim"].as_i64()) {
        (Some(key), _) => Some(Routing::Key(key)),
        (None, dim) => dim.map(|dim| Routing::Dim(dim as isize)),
    };
    let options = EnsembleOptions {
        p: setup["p"].as_array().map(|_| numbers(&setup["p"])),
        sample_from_all: setup["sample_from_all"] == true,
        num_buffer_sampled: setup["num_buffer_sampled"].as_u64().map(|count| count as usize),
        routing,
        ..Default::default()
    };
    ReplayBufferEnsemble::new(list(&setup["children"]).iter().map(child).collect(), options).unwrap()
}

#[test]
fn ensembles_draw_and_read_as_in_the_golden_rows() {
    let (mut compared, mut other) = (0, 0);
    for row in rows("buffer_ops").iter().filter(|row| row["topic"] == "ensemble") {
        if row["setup"]["children"].is_null() {
            other += 1;
            continue;
        }
        let mut ensemble = ensemble(&row["setup"]);
        for op in list(&row["ops"]) {
            let what = format!("{} {} {}", row["id"], op["op"], op["arg"]);
            let failed = !op["error"].is_null();
            match op["op"].as_str().unwrap() {
                "len" => assert_eq!(ensemble.buffers().len(), index(&op["ok"]), "{what}"),
                "sample_shape" => {
                    let batch = ensemble.sample(Some(index(&op["arg"])));
                    assert_eq!(batch.is_err(), failed, "{what}");
                    if let Ok(batch) = batch {
                        let expected: Vec<usize> = list(&op["ok"]).iter().map(index).collect();
                        assert_eq!(batch.items.batch_size(), expected, "{what}");
                    }
                }
                "sample_ids" => {
                    let batch = ensemble.sample(Some(index(&op["arg"]))).unwrap();
                    let each = batch.items.batch_size()[1];
                    let ids: Vec<usize> = batch.buffer_ids.iter().flat_map(|id| vec![*id; each]).collect();
                    let expected: Vec<usize> = list(&op["ok"]).iter().map(index).collect();
                    assert_eq!(ids, expected, "{what}");
                }
                "extend" | "add" => {
                    let item = TensorDict::new(&[]).unwrap();
                    assert!(failed && ensemble.add(&item).is_err(), "{what}");
                }
                "get" => {
                    let pair = op["arg"]["$tuple"].as_array();
                    let first = pair.map_or(&op["arg"], |pair| &pair[0]);
                    let rest =
                        pair.map_or_else(|| vec![fulmar_tensor::Index::ALL], |pair| items_of_index(&pair[1]));
                    let got = match first.as_u64() {
                        Some(id) => {
                            let none = || fulmar_core::Error::new(ErrorKind::OutOfRange, "no such buffer");
                            let one = ensemble.buffers().get(id as usize).ok_or_else(none);
                            one.and_then(|buffer| buffer.with(|buffer| buffer.at(&rest)))
                        }
                        None => ensemble.at(&rest),
                    };
                    assert_eq!(got.is_err(), failed, "{what}");
                    if let Ok(got) = got {
                        assert_dict(&what, &got, dict(&op["ok"]));
                    }
                }
                other => panic!("{what}: {other}"),
            }
            compared += 1;
        }
    }
    println!("ensemble: {compared} operations compared, {other} rows of another setup");
    assert!(compared >= 30 && other == 1, "{compared} {other}");
}

#[test]
fn items_are_routed_as_in_the_golden_rows() {
    let mut compared = 0;
    for row in rows("buffer_ops").iter().filter(|row| row["topic"] == "ensemble_routed") {
        let mut ensemble = ensemble(&row["setup"]);
        for (at, op) in list(&row["ops"]).iter().enumerate() {
            let what = format!("{} op {at}", row["id"]);
            let items = dict(&op["data"]);
            let taken = if op["op"] == "add" {
                ensemble.add(&items).map(|one| vec![one])
            } else {
                ensemble.extend(&items)
            };
            assert_eq!(taken.is_err(), !op["error"].is_null(), "{what}: {taken:?}");
            if let Ok(taken) = taken {
                let ids: Vec<f64> = taken.iter().map(|(id, _)| *id as f64).collect();
                let places: Vec<f64> = taken.iter().map(|(_, row)| row.unwrap() as f64).collect();
                assert_eq!(ids, numbers(&op["ok"]["k"]["buffer_ids"]), "{what}");
                assert_eq!(places, numbers(&op["ok"]["k"]["index"]), "{what}");
            }
            for (buffer, member) in ensemble.buffers().iter().zip(list(&op["members"])) {
                assert_eq!(buffer.len().unwrap(), index(&member["len"]), "{what}");
                assert_eq!(
                    buffer.with(|buffer| Ok(buffer.writer().cursor())).unwrap(),
                    index(&member["cursor"]),
                    "{what}"
                );
                assert_eq!(
                    buffer.stats().unwrap().write_count,
                    member["write_count"].as_u64().unwrap(),
                    "{what}"
                );
                if !member["contents"].is_null() {
                    assert_dict(
                        &what,
                        &buffer.with(|buffer| buffer.read_all_in_order(None)).unwrap(),
                        dict(&member["contents"]),
                    );
                }
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 30);
}

#[test]
fn a_buffer_without_mass_is_never_drawn() {
    let options = EnsembleOptions { p: Some(vec![0.0, 0.9, 0.1, 0.0]), ..Default::default() };
    let buffers = (0..4).map(|id| buffer(4, &[id, id])).collect();
    let mut ensemble = ReplayBufferEnsemble::new(buffers, options).unwrap();
    let ids: Vec<usize> = (0..2_000).flat_map(|_| ensemble.sample(Some(4)).unwrap().buffer_ids).collect();
    assert_drawn("buffers", &ids, &[0.0, 0.9, 0.1, 0.0]);
    for options in [
        EnsembleOptions { p: Some(vec![1.0]), ..Default::default() },
        EnsembleOptions { p: Some(vec![0.0; 4]), ..Default::default() },
        EnsembleOptions { num_buffer_sampled: Some(0), ..Default::default() },
        EnsembleOptions { p: Some(vec![1.0; 4]), sample_from_all: true, ..Default::default() },
    ] {
        let buffers = (0..4).map(|id| buffer(4, &[id])).collect();
        assert!(ReplayBufferEnsemble::new(buffers, options.clone()).is_err(), "{options:?}");
    }
}

#[test]
fn the_offline_part_is_exact_and_shrinks() {
    let mut both = OfflineToOnline::new(buffer(4, &[1, 1]), buffer(4, &[]), 0.3).unwrap();
    assert_eq!(both.sample(10).unwrap().1, 10);
    let source = buffer(4, &[2, 3, 4]);
    both.online().with(|online| source.with(|source| online.prefill(source, None, 2))).unwrap();
    let (items, offline) = both.sample(10).unwrap();
    let values = items.tensor("x").unwrap().to_vec::<i64>().unwrap();
    assert_eq!((offline, values.iter().filter(|value| **value == 1).count()), (3, 3));
    both.anneal(5, 10).unwrap();
    assert_eq!((both.offline_fraction(), both.sample(10).unwrap().1), (0.15, 2));
    both.anneal(20, 10).unwrap();
    assert_eq!(both.sample(10).unwrap().1, 0);
    assert_eq!(both.anneal(0, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    for fraction in [0.0, 1.0, f64::NAN] {
        assert!(OfflineToOnline::new(buffer(1, &[]), buffer(1, &[]), fraction).is_err());
    }
    assert_eq!(
        buffer(1, &[])
            .with(|online| buffer(2, &[1]).with(|source| online.prefill(source, Some(2), 1)))
            .unwrap_err()
            .kind(),
        ErrorKind::OutOfRange
    );
}

#[test]
fn an_ensemble_of_parts_draws_as_one_of_the_buffers_that_have_them() {
    let storage = |values: &[i64]| {
        let mut items = TensorDict::new(&[values.len()]).unwrap();
        items.set("x", Tensor::from_slice(&[values.len()], values).unwrap()).unwrap();
        SharedStorage::new(Box::new(TensorStorage::over(&items).unwrap()))
    };
    let storages = [storage(&[1, 2, 3]), storage(&[10, 20]), storage(&[100])];
    let samplers = vec![
        SamplerOptions::Random,
        SamplerOptions::WithoutReplacement { drop_last: false, shuffle: true },
        SamplerOptions::Random,
    ];
    let writers = WriterEnsemble {
        writers: vec![WriterOptions::default(), WriterOptions::default(), WriterOptions::Immutable],
    };
    let options = EnsembleOptions { seed: 5, routing: Some(Routing::Key("to".into())), ..Default::default() };
    let p = Some(vec![0.2, 0.0, 0.8]);
    let parts = SamplerEnsemble { samplers: samplers.clone(), p: p.clone(), ..Default::default() };
    let ensemble = StorageEnsemble::new(storages.to_vec()).unwrap();
    let of =
        |samplers, options| ReplayBufferEnsemble::of_parts(&ensemble, samplers, writers.clone(), options);
    let mut ours = of(parts.clone(), options.clone()).unwrap();
    let buffers = storages.iter().zip(samplers).zip(5..).map(|((storage, sampler), seed)| {
        SharedReplayBuffer::over(storage.clone(), ReplayBufferOptions { sampler, seed, ..Default::default() })
            .unwrap()
    });
    let mut wanted =
        ReplayBufferEnsemble::new(buffers.collect(), EnsembleOptions { p, ..options.clone() }).unwrap();
    for _ in 0..20 {
        assert_eq!(ours.sample(Some(6)).unwrap(), wanted.sample(Some(6)).unwrap());
    }
    let read = ensemble.get(&[(2, &[0, 0]), (0, &[2])]).unwrap();
    let values = |at: usize| (read[at].0, read[at].1.tensor("x").unwrap().to_vec::<i64>().unwrap());
    assert_eq!((values(0), values(1)), ((2, vec![100, 100]), (0, vec![3])));
    let kinds = [
        ensemble.get(&[(3, &[0])]).unwrap_err().kind(),
        ensemble.get(&[(1, &[2])]).unwrap_err().kind(),
        StorageEnsemble::new(Vec::new()).unwrap_err().kind(),
        of(SamplerEnsemble::default(), options.clone()).unwrap_err().kind(),
        of(parts, EnsembleOptions { sample_from_all: true, ..options }).unwrap_err().kind(),
    ];
    let (range, shape) = (ErrorKind::OutOfRange, ErrorKind::ShapeMismatch);
    assert_eq!(kinds, [range, range, ErrorKind::Empty, shape, ErrorKind::Incompatible]);
    let mut item = TensorDict::new(&[1]).unwrap();
    item.set("x", Tensor::from_slice(&[1], &[7_i64]).unwrap()).unwrap();
    item.set("to", Tensor::from_slice(&[1], &[2_i64]).unwrap()).unwrap();
    assert_eq!(ours.extend(&item).unwrap_err().kind(), ErrorKind::Incompatible, "its writer takes none");
}
