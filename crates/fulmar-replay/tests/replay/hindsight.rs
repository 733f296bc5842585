//! Relabelling against golden rows.

use fulmar_core::ErrorKind;
use fulmar_replay::{
    HindsightOptions, HindsightReplayBuffer, HindsightStrategy, ReplayBuffer, ReplayBufferOptions,
    RewardFunction, TensorStorage,
};
use fulmar_tensor::{Tensor, TensorDict};
use serde_json::Value;

use crate::golden_dicts::dict;
use crate::golden_rows::{index, indices, list, numbers, rows};

/// Returns 0 if the goal was achieved, else -1.
fn reward() -> RewardFunction {
    Box::new(|rows: &TensorDict| {
        let (goal, achieved) =
            (rows.tensor("desired_goal")?.clone(), rows.tensor(["next", "achieved_goal"])?.clone());
        let width = goal.shape()[1];
        let (goal, achieved) = (goal.to_vec::<f32>()?, achieved.to_vec::<f32>()?);
        let rewards =
            goal.chunks(width).zip(achieved.chunks(width)).map(|(a, b)| if a == b { 0.0 } else { -1.0 });
        Tensor::from_vec_f32(&[goal.len() / width], rewards.collect())
    })
}

fn build(row: &Value) -> Result<HindsightReplayBuffer, ErrorKind> {
    let strategy = serde_json::from_value(row["strategy"].clone()).map_err(|_| ErrorKind::UnknownName)?;
    let her_ratio = row["her_ratio"].as_f64().unwrap();
    let capacity = index(&row["capacity"]);
    let storage = Box::new(TensorStorage::new(&[capacity]).unwrap());
    let buffer = ReplayBuffer::new(storage, ReplayBufferOptions::default()).unwrap();
    let options = HindsightOptions { her_ratio, strategy, ..Default::default() };
    HindsightReplayBuffer::new(buffer, options, reward(), 3).map_err(|error| error.kind())
}

#[test]
fn batches_are_relabelled_as_in_the_golden_rows() {
    let (mut refused, mut compared, mut moved) = (0, 0, 0);
    for row in rows("her").iter().filter(|row| row["topic"] == "her") {
        let what = row["id"].as_str().unwrap();
        let failed = !row["error"].is_null();
        let Ok(mut buffer) = build(row) else {
            assert!(failed, "{what}");
            refused += 1;
            continue;
        };
        let written: Result<Vec<_>, _> =
            list(&row["writes"]).iter().map(|items| buffer.extend(&dict(items))).collect();
        let batch = written.and_then(|_| buffer.batch_of(&indices(&row["index"])));
        if failed {
            // Several lanes, or goals that are not stored.
            if batch.is_err() {
                refused += 1;
            }
            continue;
        }
        let batch = batch.unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected = dict(&row["ok"]);
        let stored = buffer.buffer().read_all_in_order(None).unwrap();
        let next = stored.tensor(["next", "achieved_goal"]).unwrap().clone();
        let root = stored.tensor("achieved_goal").unwrap().clone();
        let width = next.shape()[1];
        let (next, root) = (next.to_vec::<f32>().unwrap(), root.to_vec::<f32>().unwrap());
        let goals = |items: &TensorDict| items.tensor("desired_goal").unwrap().to_vec::<f32>().unwrap();
        let (got, theirs) = (goals(&batch.items), goals(&expected));
        let relabelled = (batch.rows.len() as f64 * row["her_ratio"].as_f64().unwrap()) as usize;
        let draws = if row["u_draws"].is_null() { Vec::new() } else { numbers(&row["u_draws"]) };
        for (at, &place) in batch.rows.iter().enumerate() {
            let (mine, other) = (&got[at * width..][..width], &theirs[at * width..][..width]);
            if at >= relabelled {
                assert_eq!(mine, other, "{what} row {at} keeps its goal");
                continue;
            }
            let (episode, before) = buffer.episode_of(place).unwrap();
            let source =
                (0..stored.batch_size()[0]).find(|row| &next[row * width..][..width] == mine).unwrap();
            let capacity = index(&row["capacity"]);
            let step = (source + capacity - episode.start) % capacity;
            match row["strategy"].as_str().unwrap() {
                "future" => assert!((before..episode.len).contains(&step), "{what} row {at}: {step}"),
                "final" => assert_eq!(step, episode.len - 1, "{what} row {at}"),
                "episode" => assert!(step < episode.len, "{what} row {at}: {step}"),
                _ => {}
            }
            // Upstream uses the observation before the step that ours leads to, for the same draw, if both
            // have the same episode.
            let strategy: HindsightStrategy = serde_json::from_value(row["strategy"].clone()).unwrap();
            let plain = row["note"].is_null()
                && list(&row["writes"]).len() == 1
                && stored.batch_size()[0] < index(&row["capacity"]);
            if let (true, Some(step)) =
                (plain, draws.get(at).and_then(|draw| strategy.source(before, episode.len, *draw)))
            {
                let source = (episode.start + step) % index(&row["capacity"]);
                assert_eq!(&root[source * width..][..width], other, "{what} row {at}");
                moved += 1;
            }
        }
        let rewards = batch.items.tensor(["next", "reward"]).unwrap().to_vec::<f32>().unwrap();
        for at in 0..relabelled {
            let row = batch.rows[at];
            let achieved = next[row * width..][..width] == got[at * width..][..width];
            assert_eq!(rewards[at], if achieved { 0.0 } else { -1.0 }, "{what} row {at}");
        }
        compared += 1;
    }
    println!(
        "her: {compared} batches compared, {refused} refused, {moved} goals traced to the source that was drawn"
    );
    assert!(compared >= 24 && refused >= 3 && moved > 30, "{compared} {refused} {moved}");
}

#[test]
fn the_last_row_of_an_episode_has_achieved_its_final_goal() {
    let row = rows("her").into_iter().find(|row| row["note"] == "achieved 0..9, next 1..10").unwrap();
    let mut buffer = build(&row).unwrap();
    buffer.extend(&dict(&row["writes"][0])).unwrap();
    let batch = buffer.batch_of(&[9]).unwrap();
    assert_eq!(batch.items.tensor("desired_goal").unwrap().to_f32_vec()[0], 10.0);
    assert_eq!(batch.items.tensor(["next", "reward"]).unwrap().to_f32_vec(), [0.0]);
}

#[test]
fn a_full_ring_can_be_sampled_after_writes_of_any_length() {
    let row = rows("her").into_iter().find(|row| row["topic"] == "her_cache").unwrap();
    let items = |count: usize| {
        let mut items = TensorDict::new(&[count]).unwrap();
        for key in ["achieved_goal", "desired_goal"] {
            items.set(key, Tensor::from_vec_f32(&[count, 1], vec![0.0; count]).unwrap()).unwrap();
        }
        items
            .set(["next", "achieved_goal"], Tensor::from_vec_f32(&[count, 1], vec![1.0; count]).unwrap())
            .unwrap();
        items.set(["next", "reward"], Tensor::from_vec_f32(&[count, 1], vec![0.0; count]).unwrap()).unwrap();
        items.set(["next", "done"], Tensor::from_vec(&[count, 1], vec![false; count]).unwrap()).unwrap();
        items
    };
    let capacity = index(&row["capacity"]);
    let buffer =
        ReplayBuffer::new(Box::new(TensorStorage::new(&[capacity]).unwrap()), Default::default()).unwrap();
    let mut buffer = HindsightReplayBuffer::new(buffer, HindsightOptions::default(), reward(), 3).unwrap();
    for op in list(&row["ops"]) {
        buffer.extend(&items(index(&op["extend"]))).unwrap();
        assert_eq!(buffer.sample(Some(3)).unwrap().rows.len(), 3);
    }
}
