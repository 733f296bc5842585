//! One buffer and many threads.

use fulmar_core::ErrorKind;
use fulmar_replay::{
    PrioritizedOptions, ReplayBufferOptions, SamplerOptions, SharedReplayBuffer, TensorStorage,
};
use fulmar_tensor::{Tensor, TensorDict};

/// Rows in which every element is the row's number: a torn row would hold two.
fn items(numbers: &[i64]) -> TensorDict {
    let count = numbers.len();
    let mut items = TensorDict::new(&[count]).unwrap();
    let wide = numbers.iter().flat_map(|number| [*number; 97]).collect();
    items.set(["next", "wide"], Tensor::from_vec(&[count, 97], wide).unwrap()).unwrap();
    items
        .set("sum", Tensor::from_vec(&[count], numbers.iter().map(|number| number * 97).collect()).unwrap())
        .unwrap();
    items
}

#[test]
fn no_row_is_torn_while_threads_write_and_draw() {
    for sampler in
        [SamplerOptions::Random, SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() }]
    {
        let options = ReplayBufferOptions { sampler, ..Default::default() };
        let buffer = SharedReplayBuffer::new(Box::new(TensorStorage::new(&[64]).unwrap()), options).unwrap();
        buffer.extend(&items(&[0])).unwrap();
        std::thread::scope(|scope| {
            for writer in 1..4_i64 {
                let buffer = buffer.clone();
                scope.spawn(move || {
                    for step in 0..300 {
                        let numbers: Vec<i64> =
                            (0..7).map(|at| writer * 1_000_000 + step * 10 + at).collect();
                        buffer.extend(&items(&numbers)).unwrap();
                        if step % 100 == 99 && writer == 1 {
                            buffer.clear(true).unwrap();
                        }
                    }
                });
            }
            for _ in 0..3 {
                let buffer = buffer.clone();
                scope.spawn(move || {
                    for _ in 0..300 {
                        let batch = match buffer.sample(Some(16)) {
                            Ok(batch) => batch,
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
                                continue;
                            }
                        };
                        let wide = batch.items.tensor(["next", "wide"]).unwrap().to_vec::<i64>().unwrap();
                        let sums = batch.items.tensor("sum").unwrap().to_vec::<i64>().unwrap();
                        for (row, sum) in wide.chunks(97).zip(sums) {
                            assert_eq!(row.iter().sum::<i64>(), sum);
                            assert!(row.iter().all(|number| *number == row[0]));
                        }
                        let rows: Vec<i64> = batch.rows.iter().map(|row| *row as i64).collect();
                        buffer.update_priority(&rows, &[1.5]).unwrap();
                    }
                });
            }
        });
        assert_eq!(buffer.stats().unwrap().write_count, 1 + 3 * 300 * 7);
        // The thread that emptied it may have been the last.
        buffer.extend(&items(&[7])).unwrap();
        assert!(buffer.len().unwrap() <= 64 && !buffer.is_empty().unwrap());
        let state = buffer.state().unwrap();
        buffer.with(|buffer| buffer.restore(&state)).unwrap();
        assert_eq!(buffer.state().unwrap(), state);
    }
}
