//! Streamed slices against a naive twin.

use fulmar_core::Rng;
use fulmar_replay::{Follower, Sampler, StreamingSliceSampler};
use fulmar_tensor::{Tensor, TensorDict};

fn items(ends: &[bool]) -> TensorDict {
    let mut items = TensorDict::new(&[ends.len()]).unwrap();
    items.set(["next", "done"], Tensor::from_vec(&[ends.len()], ends.to_vec()).unwrap()).unwrap();
    items
}

#[test]
fn a_write_around_the_ring_over_pending_steps_gives_the_slice_that_is_whole() {
    let mut sampler = StreamingSliceSampler::new(4, 3, Default::default()).unwrap();
    sampler.extend(&[0, 1], &items(&[false; 2])).unwrap();
    sampler.extend(&[2, 3, 0, 1, 2, 3], &items(&[false; 6])).unwrap();
    assert_eq!(sampler.num_live(4), 3);
    assert_eq!(sampler.sample(4, 3).unwrap().rows, [0, 1, 2]);
}

/// A ring of steps by their number since the beginning, split again after each write.
struct Naive {
    capacity: u64,
    slice_len: usize,
    /// Steps that are in no slice yet, each with whether it ends its trajectory.
    loose: Vec<(u64, bool)>,
    num_written: u64,
    queued: Vec<Vec<u64>>,
}

impl Naive {
    fn extend(&mut self, ends: &[bool]) {
        for end in ends {
            self.loose.push((self.num_written, *end));
            self.num_written += 1;
        }
        let oldest = self.num_written.saturating_sub(self.capacity);
        self.loose.retain(|(step, _)| *step >= oldest);
        let mut slice = Vec::new();
        for (step, end) in std::mem::take(&mut self.loose) {
            slice.push((step, end));
            if slice.len() == self.slice_len {
                self.queued.push(slice.drain(..).map(|(step, _)| step).collect());
            }
            if end {
                slice.clear();
            }
        }
        self.loose = slice;
        self.queued.retain(|slice| slice[0] >= oldest);
    }
}

#[test]
fn slices_of_any_writes_are_those_of_a_naive_twin() {
    let mut rng = Rng::new(5);
    for _ in 0..300 {
        let capacity = rng.below(7).unwrap() + 2;
        let slice_len = (rng.below(capacity).unwrap() + 1) as usize;
        let mut sampler =
            StreamingSliceSampler::new(capacity as usize, slice_len, Default::default()).unwrap();
        let mut naive = Naive { capacity, slice_len, loose: Vec::new(), num_written: 0, queued: Vec::new() };
        for _ in 0..12 {
            let count = rng.below(2 * capacity).unwrap() + 1;
            let ends: Vec<bool> = (0..count).map(|_| rng.below(4).unwrap() == 0).collect();
            let rows: Vec<usize> =
                (naive.num_written..).take(ends.len()).map(|step| (step % capacity) as usize).collect();
            sampler.extend(&rows, &items(&ends)).unwrap();
            naive.extend(&ends);
            assert_eq!(sampler.num_live(0), naive.queued.len() * slice_len);
        }
        if naive.queued.is_empty() {
            continue;
        }
        let rows: Vec<usize> = naive.queued.iter().flatten().map(|step| (step % capacity) as usize).collect();
        assert_eq!(sampler.sample(capacity as usize, rows.len()).unwrap().rows, rows);
    }
}
