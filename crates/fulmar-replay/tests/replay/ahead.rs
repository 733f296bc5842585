//! Prefetched batches.

use fulmar_core::ErrorKind;
use fulmar_core::limits::REPLAY_PREFETCH_MAX;
use fulmar_replay::{
    Batch, ListStorage, PrioritizedOptions, ReplayBuffer, ReplayBufferOptions, SamplerOptions,
    SharedReplayBuffer, SharedStorage, SliceOptions, TensorStorage, TrajectoryKeys, WriterOptions,
};
use fulmar_tensor::{Key, Tensor, TensorDict};

use crate::plain_rows::PlainRows;

fn items(ids: &[i64]) -> TensorDict {
    let mut items = TensorDict::new(&[ids.len()]).unwrap();
    items.set("id", Tensor::from_slice(&[ids.len()], ids).unwrap()).unwrap();
    let episodes = ids.iter().map(|id| id / 4).collect();
    items.set("episode", Tensor::from_vec(&[ids.len()], episodes).unwrap()).unwrap();
    items
}

fn ids(batch: &Batch) -> Vec<i64> {
    batch.items.tensor("id").unwrap().to_vec().unwrap()
}

fn all_samplers() -> Vec<SamplerOptions> {
    let slices = SliceOptions { slice_len: Some(2), ..Default::default() };
    let trajectories = TrajectoryKeys { id_key: Some(Key::from("episode")), ..Default::default() };
    vec![
        SamplerOptions::Random,
        SamplerOptions::WithoutReplacement { drop_last: false, shuffle: true },
        SamplerOptions::WithoutReplacement { drop_last: true, shuffle: true },
        SamplerOptions::Consuming { max_sample_count: 50 },
        SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() },
        SamplerOptions::Slice { slices, trajectories },
    ]
}

fn buffer(sampler: SamplerOptions, prefetch: usize) -> SharedReplayBuffer {
    let writer = WriterOptions::RoundRobin { track_generations: true };
    let options =
        ReplayBufferOptions { sampler, writer, prefetch, batch_size: Some(4), seed: 9, ..Default::default() };
    let buffer = SharedReplayBuffer::new(Box::new(TensorStorage::new(&[11]).unwrap()), options).unwrap();
    buffer.extend(&items(&(0..11).collect::<Vec<_>>())).unwrap();
    buffer
}

fn next(buffer: &SharedReplayBuffer) -> (Batch, bool) {
    let pending = buffer.next_batch().unwrap();
    (pending.batch().unwrap(), pending.is_last())
}

#[test]
fn batches_are_those_that_would_be_drawn_without() {
    for sampler in all_samplers() {
        let (ahead, now) = (buffer(sampler.clone(), 3), buffer(sampler.clone(), 0));
        for _ in 0..20 {
            let (batch, is_last) = next(&ahead);
            assert_eq!(batch, now.sample(None).unwrap(), "{sampler:?}");
            assert_eq!(is_last, now.with(|buffer| Ok(buffer.ran_out())).unwrap(), "{sampler:?}");
            if is_last {
                assert_eq!(
                    ahead.stats().unwrap().prefetch_queue_size,
                    0,
                    "nothing is drawn past the end of an epoch"
                );
            } else {
                assert!((1..=3).contains(&ahead.stats().unwrap().prefetch_queue_size));
            }
        }
    }
}

#[test]
fn an_epoch_has_as_many_batches_as_without() {
    for (drop_last, want) in [(false, 6), (true, 5)] {
        let sampler = SamplerOptions::WithoutReplacement { drop_last, shuffle: true };
        let options = ReplayBufferOptions { sampler, prefetch: 3, batch_size: Some(2), ..Default::default() };
        let buffer = SharedReplayBuffer::new(Box::new(ListStorage::new(11).unwrap()), options).unwrap();
        buffer.extend(&items(&(0..11).collect::<Vec<_>>())).unwrap();
        for _ in 0..2 {
            let count = (1..).find(|_| next(&buffer).1).unwrap();
            assert_eq!(count, want);
        }
    }
}

#[test]
fn a_batch_holds_what_its_rows_held_when_they_were_drawn() {
    let buffer = buffer(SamplerOptions::Random, 2);
    let first = buffer.next_batch().unwrap();
    assert_eq!((buffer.stats().unwrap().prefetch_queue_size, first.is_ready()), (2, false));
    let state = buffer.state().unwrap();
    let waiting = [buffer.next_batch().unwrap(), buffer.next_batch().unwrap()];
    buffer.extend(&items(&[100; 11])).unwrap();
    assert!(first.is_ready() && waiting.iter().all(fulmar_replay::PendingBatch::is_ready));
    let drawn_now = buffer.sample(None).unwrap();
    assert_eq!(ids(&drawn_now), [100; 4]);
    for pending in waiting.iter().chain([&first]) {
        let batch = pending.batch().unwrap();
        assert_eq!(ids(&batch), batch.rows.iter().map(|row| *row as i64).collect::<Vec<_>>());
        assert_eq!(batch.info.tensor("index_generation").unwrap().to_vec::<i64>().unwrap(), [0; 4]);
    }
    // Another buffer of the storage empties it.
    let storage = buffer.storage().clone();
    let last = buffer.next_batch().unwrap();
    ReplayBuffer::new(Box::new(storage), ReplayBufferOptions::default()).unwrap().clear(false).unwrap();
    assert_eq!(last.batch().unwrap().items.batch_size(), [4]);
    buffer.restore(&state).unwrap();
    assert_eq!([next(&buffer).0, next(&buffer).0], waiting.map(|pending| pending.batch().unwrap()));
}

#[test]
fn clearing_drops_what_was_drawn_ahead_and_an_error_waits_for_who_asks() {
    let buffer = buffer(SamplerOptions::Random, 2);
    next(&buffer);
    buffer.clear(false).unwrap();
    assert_eq!(buffer.stats().unwrap().prefetch_queue_size, 0);
    assert_eq!(buffer.next_batch().unwrap_err().kind(), ErrorKind::Empty);
    buffer.extend(&items(&[5])).unwrap();
    assert_eq!(ids(&next(&buffer).0), [5; 4]);
}

#[test]
fn states_and_folders_keep_what_was_drawn_ahead() {
    let folder = std::env::temp_dir().join(format!("fulmar-ahead-{}", std::process::id()));
    for (nth, sampler) in all_samplers().into_iter().enumerate() {
        let (one, by_state, by_folder) =
            (buffer(sampler.clone(), 3), buffer(sampler.clone(), 3), buffer(sampler.clone(), 3));
        next(&one);
        let state = one.state().unwrap();
        by_state.restore(&state).unwrap();
        assert_eq!(by_state.state().unwrap(), state, "{sampler:?}");
        let path = folder.join(nth.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        one.dumps(&path, &PlainRows).unwrap();
        by_folder.loads(&path, &PlainRows).unwrap();
        for _ in 0..8 {
            let want = next(&one);
            assert_eq!(next(&by_state), want, "{sampler:?}");
            assert_eq!(next(&by_folder), want, "{sampler:?}");
        }
        // A folder without such batches leaves none.
        let path = folder.join(format!("{nth} without"));
        buffer(sampler, 3).dumps(&path, &PlainRows).unwrap();
        by_folder.loads(&path, &PlainRows).unwrap();
        assert_eq!(by_folder.stats().unwrap().prefetch_queue_size, 0);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_state_with_other_batches_is_refused_and_changes_nothing() {
    let one = buffer(SamplerOptions::Random, 2);
    next(&one);
    let before = one.state().unwrap();
    for name in ["rows", "is_last", "items", "info"] {
        let mut state = before.clone();
        state.ahead[0].remove(name).unwrap();
        let kind = one.restore(&state).unwrap_err().kind();
        assert!([ErrorKind::Corrupt, ErrorKind::UnknownName].contains(&kind), "{name}: {kind:?}");
    }
    let mut state = before.clone();
    state.ahead[0].set("rows", Tensor::from_vec(&[4], vec![0_i64, 1, 2, 11]).unwrap()).unwrap();
    assert_eq!(one.restore(&state).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(one.state().unwrap(), before);
    // A buffer without prefetching cannot hold prefetched batches.
    let alone = one.with(|buffer| buffer.restore(&before));
    assert_eq!(alone.unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn only_so_many_batches_of_a_known_size_are_drawn_ahead() {
    let made = |prefetch, batch_size| {
        let options = ReplayBufferOptions { prefetch, batch_size, ..Default::default() };
        SharedReplayBuffer::over(SharedStorage::new(Box::new(ListStorage::new(4).unwrap())), options)
    };
    assert!(made(REPLAY_PREFETCH_MAX, Some(1)).is_ok());
    let kind = |made: fulmar_core::Result<SharedReplayBuffer>| made.unwrap_err().kind();
    assert_eq!(kind(made(REPLAY_PREFETCH_MAX + 1, Some(1))), ErrorKind::LimitExceeded);
    assert_eq!(kind(made(1, None)), ErrorKind::OutOfRange);
}

#[test]
fn threads_that_share_a_queue_get_every_row_once() {
    let sampler = SamplerOptions::WithoutReplacement { drop_last: false, shuffle: true };
    let options = ReplayBufferOptions { sampler, prefetch: 4, batch_size: Some(3), ..Default::default() };
    let buffer = SharedReplayBuffer::new(Box::new(TensorStorage::new(&[300]).unwrap()), options).unwrap();
    buffer.extend(&items(&(0..300).collect::<Vec<_>>())).unwrap();
    let mut seen: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let buffer = buffer.clone();
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    for _ in 0..25 {
                        let pending = buffer.next_batch().unwrap();
                        buffer.copy_ahead();
                        seen.extend(ids(&pending.batch().unwrap()));
                    }
                    seen
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
}
