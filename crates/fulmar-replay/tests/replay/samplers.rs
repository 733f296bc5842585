//! The plain samplers against golden rows and at their limits.

use crate::golden_rows::{assert_drawn, assert_unread, index, indices, list, numbers, topic};
use fulmar_core::ErrorKind;
use fulmar_core::limits::REPLAY_SAMPLE_ROWS_MAX;
use fulmar_replay::{
    ConsumingSampler, RandomSampler, RoundRobinWriter, SamplerWithoutReplacement, WithoutReplacementOptions,
};
use serde_json::Value;

#[test]
fn golden_rows_of_kinds_not_built_yet_are_counted() {
    let read = [
        "prioritized",
        "max_priority",
        "random",
        "without_replacement",
        "iterate_without_replacement",
        "consuming",
        "prompt_group",
        "prompt_group_errors",
        "prompt_group_literal",
        "staleness",
        "scheduler",
        "random_nd",
    ];
    assert_unread("samplers", &read, &[("replacement_false", 4)]);
}

#[test]
fn random_rows_are_uniform_as_in_the_golden_rows() {
    for row in topic("samplers", "random", 3) {
        let num_rows = index(&row["args"]["written"]);
        let drawn = RandomSampler::new(5).sample(num_rows, 20_000).unwrap();
        assert_drawn(row["id"].as_str().unwrap(), &drawn, &numbers(&row["probabilities"]));
    }
}

#[test]
fn rows_of_lanes_are_uniform_as_in_the_golden_rows() {
    for row in topic("samplers", "random_nd", 2) {
        let args = &row["args"];
        let (lanes, written) = (index(&args["lanes"]), index(&args["written"]));
        let storage = fulmar_replay::TensorStorage::new(&[index(&args["time_capacity"]), lanes]).unwrap();
        let options = fulmar_replay::ReplayBufferOptions { seed: 5, ..Default::default() };
        let mut buffer = fulmar_replay::ReplayBuffer::new(Box::new(storage), options).unwrap();
        buffer.extend(&fulmar_tensor::TensorDict::new(&[lanes, written]).unwrap()).unwrap();
        let drawn = buffer.sample(Some(20_000)).unwrap().rows;
        assert_drawn(row["id"].as_str().unwrap(), &drawn, &numbers(&row["probabilities_flat_time_major"]));
    }
}

fn without_replacement(args: &Value) -> SamplerWithoutReplacement {
    let options =
        WithoutReplacementOptions { drop_last: args["drop_last"] == true, shuffle: args["shuffle"] != false };
    SamplerWithoutReplacement::new(options, 9)
}

#[test]
fn epochs_are_cut_as_in_the_golden_rows() {
    for row in topic("samplers", "without_replacement", 18) {
        let args = &row["args"];
        let mut sampler = without_replacement(args);
        let mut writer = RoundRobinWriter::new(index(&args["capacity"])).unwrap();
        writer.extend(index(&args["written"])).unwrap();
        for (position, call) in list(&row["calls"]).iter().enumerate() {
            let what = format!("{} {position} {call}", row["id"]);
            if call["op"] == "extend" {
                writer.extend(index(&call["n"])).unwrap();
                assert_eq!(writer.len(), index(&call["len"]), "{what}");
                continue;
            }
            let drawn = sampler.sample(writer.len(), index(&call["batch_size"]));
            if !call["error"].is_null() {
                assert_eq!(drawn.unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
                continue;
            }
            let drawn = drawn.unwrap();
            assert_eq!(drawn.len(), index(&call["size"]), "{what}");
            assert_eq!(Value::from(sampler.ran_out()), call["ran_out"], "{what}");
            assert_eq!(sampler.num_left(), index(&call["left_in_list"]), "{what}");
            if call["index"].is_array() {
                assert_eq!(drawn, indices(&call["index"]), "{what}");
            }
            let json = serde_json::to_string(&sampler.state()).unwrap();
            sampler = SamplerWithoutReplacement::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
        }
    }
}

#[test]
fn whole_epochs_are_those_of_the_golden_rows() {
    for row in topic("samplers", "iterate_without_replacement", 16) {
        let args = &row["args"];
        let mut sampler = without_replacement(args);
        for (sizes, distinct) in list(&row["batches"]).iter().zip(indices(&row["distinct"])) {
            let (mut drawn, mut got) = (Vec::new(), Vec::new());
            while got.is_empty() || !sampler.ran_out() {
                let batch = sampler.sample(index(&args["written"]), index(&args["batch_size"])).unwrap();
                got.push(batch.len());
                drawn.extend(batch);
            }
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!((got, drawn.len()), (indices(sizes), distinct), "{}", row["id"]);
        }
    }
}

#[test]
fn an_epoch_reaches_every_order_equally_often() {
    let mut sampler = SamplerWithoutReplacement::new(WithoutReplacementOptions::default(), 4);
    let orders: Vec<usize> = (0..12_000)
        .map(|_| sampler.sample(4, 4).unwrap().into_iter().fold(0, |code, row| code * 4 + row))
        .collect();
    let distinct: std::collections::BTreeSet<usize> = orders.iter().copied().collect();
    let probabilities: Vec<f64> =
        (0..256).map(|code| f64::from(u8::from(distinct.contains(&code)))).collect();
    assert_eq!(distinct.len(), 24);
    assert_drawn("orders", &orders, &probabilities);
}

#[test]
fn rows_are_consumed_as_in_the_golden_rows() {
    for row in topic("samplers", "consuming", 16) {
        let args = &row["args"];
        let max_sample_count = args["max_sample_count"].as_u64();
        if args["capacity"].is_null() {
            // Counts that are not positive integers: the type allows only 0.
            if max_sample_count == Some(0) {
                assert_eq!(ConsumingSampler::new(0, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
            }
            continue;
        }
        let mut sampler = ConsumingSampler::new(max_sample_count.unwrap() as u32, 3).unwrap();
        let mut writer = RoundRobinWriter::new(index(&args["capacity"])).unwrap();
        sampler.extend(&writer.extend(index(&args["written"])).unwrap()).unwrap();
        // After a draw, the free rows are random; their number is not, until some are named.
        let (mut drew, mut named) = (false, false);
        for op in list(&row["ops"]) {
            let what = format!("{} {op}", row["id"]);
            match op["op"].as_str().unwrap() {
                "sample" => {
                    let drawn = sampler.sample(index(&op["batch_size"]));
                    if op["error"].is_null() {
                        let mut drawn = drawn.unwrap();
                        assert_eq!(drawn.len(), index(&op["size"]), "{what}");
                        drawn.sort_unstable();
                        drawn.dedup();
                        assert_eq!(drawn.len(), index(&op["size"]), "{what}: rows are distinct");
                    } else {
                        assert_eq!(drawn.unwrap_err().kind(), ErrorKind::Empty, "{what}");
                    }
                    drew = true;
                }
                "consume_slots" => {
                    sampler.consume(&indices(&op["slots"])).unwrap();
                    named |= drew;
                }
                "extend" => {
                    let rows = writer.extend_reusing(sampler.freed(), index(&op["n"])).unwrap();
                    sampler.extend(&rows).unwrap();
                    assert!(drew || rows == indices(&op["index"]), "{what}: got {rows:?}");
                    assert_eq!(writer.cursor(), index(&op["cursor"]), "{what}");
                }
                other => panic!("{other} is no operation of the sampler"),
            }
            assert!(named || sampler.num_live() == index(&op["len"]), "{what}: got {}", sampler.num_live());
            if let (false, Some(expected)) = (named, op["counts_histogram"].as_array()) {
                let mut counts = sampler.counts().to_vec();
                counts.sort_unstable();
                let expected: Vec<u32> =
                    expected.iter().map(|count| count.as_u64().unwrap() as u32).collect();
                assert_eq!(counts, expected, "{what}");
                assert_eq!(Value::from(sampler.ran_out()), op["ran_out"], "{what}");
            }
            let json = serde_json::to_string(&sampler.state()).unwrap();
            sampler = ConsumingSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_buffer_that_consumes_writes_the_golden_rows() {
    for row in topic("buffer_ops", "consuming", 3) {
        let setup = &row["setup"];
        let mut sampler = ConsumingSampler::new(1, 8).unwrap();
        let mut writer = RoundRobinWriter::new(index(&setup["storage"]["max_size"])).unwrap();
        let mut passed = false;
        for op in list(&row["ops"]) {
            let what = format!("{} {}", row["id"], op["op"]);
            match op["op"].as_str().unwrap() {
                "extend" => {
                    let rows = writer.extend_reusing(sampler.freed(), numbers(&op["ok"]).len()).unwrap();
                    sampler.extend(&rows).unwrap();
                }
                "sample_size" => {
                    let drawn = sampler.sample(index(&op["batch_size"]));
                    assert_eq!(drawn.is_err(), !op["error"].is_null(), "{what}");
                }
                _ => (),
            }
            let state = &op["state"];
            assert_eq!(sampler.num_live(), index(&state["len"]), "{what}");
            // Where the ring passes over reused rows, its end depends on the draw.
            passed |=
                op["op"] == "extend" && writer.write_count() > 8 && sampler.num_live() == writer.capacity();
            assert!(passed || writer.cursor() == index(&state["cursor"]), "{what}");
            assert_eq!(writer.write_count(), state["write_count"].as_u64().unwrap(), "{what}");
        }
    }
}

#[test]
fn consumed_rows_are_drawn_uniformly() {
    let mut firsts = Vec::new();
    for seed in 0..2_000 {
        let mut sampler = ConsumingSampler::new(1, seed).unwrap();
        sampler.extend(&[0, 1, 2, 3, 4, 5]).unwrap();
        sampler.consume(&[2]).unwrap();
        firsts.extend(sampler.sample(2).unwrap());
    }
    assert_drawn("first two of five", &firsts, &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn samplers_go_on_from_their_states() {
    let mut random = RandomSampler::new(1);
    random.sample(10, 3).unwrap();
    let mut again = RandomSampler::from_state(&random.state()).unwrap();
    assert_eq!(again.sample(10, 20).unwrap(), random.sample(10, 20).unwrap());
    let mut epochs = SamplerWithoutReplacement::new(WithoutReplacementOptions::default(), 1);
    epochs.sample(10, 3).unwrap();
    let mut again = SamplerWithoutReplacement::from_state(&epochs.state()).unwrap();
    for _ in 0..6 {
        assert_eq!(again.sample(10, 4).unwrap(), epochs.sample(10, 4).unwrap());
    }
    let mut consuming = ConsumingSampler::new(2, 1).unwrap();
    consuming.extend(&(0..10).collect::<Vec<_>>()).unwrap();
    consuming.sample(7).unwrap();
    let mut again = ConsumingSampler::from_state(&consuming.state()).unwrap();
    for _ in 0..3 {
        assert_eq!(again.sample(4).unwrap(), consuming.sample(4).unwrap());
    }
}

#[test]
fn what_a_sampler_cannot_draw_is_refused() {
    let mut random = RandomSampler::new(1);
    assert_eq!(random.sample(0, 1).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(random.sample(1, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(random.sample(1, REPLAY_SAMPLE_ROWS_MAX + 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(random.sample(1, REPLAY_SAMPLE_ROWS_MAX).unwrap().len(), REPLAY_SAMPLE_ROWS_MAX);
    let mut epochs = without_replacement(&serde_json::json!({ "drop_last": true }));
    assert_eq!(epochs.sample(3, 4).unwrap_err().kind(), ErrorKind::OutOfRange);
    let mut state = epochs.state();
    state.taken = 1;
    assert_eq!(SamplerWithoutReplacement::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut consuming = ConsumingSampler::new(1, 1).unwrap();
    assert_eq!(consuming.extend(&[1]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(consuming.consume(&[0]).unwrap_err().kind(), ErrorKind::OutOfRange);
    consuming.extend(&[0, 1]).unwrap();
    for (live, freed) in [(vec![0], vec![]), (vec![0, 1], vec![1]), (vec![0, 2], vec![]), (vec![0], vec![1])]
    {
        let mut state = consuming.state();
        (state.live, state.freed) = (live, freed);
        assert_eq!(ConsumingSampler::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
