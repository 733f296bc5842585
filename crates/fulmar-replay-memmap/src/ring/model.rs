//! Model checking of the protocol: every interleaving of a few threads, and every value that the memory model
//! allows.

use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU64 as Modelled;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::*;

impl Word for Modelled {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

const SIZES: Sizes = Sizes { slots: 2, log: 2, capacity: 2 };
/// Number of elements in a row.
const WIDTH: usize = 2;
/// Number of attempts before a thread of the model gives up; the model is finite.
const TRIES: usize = 3;

/// The shared state of processes: the words, the rows, and for each slot a journal and a lock.
struct Shared {
    words: Vec<Modelled>,
    rows: Vec<[Modelled; WIDTH]>,
    journals: Vec<[Modelled; WIDTH]>,
    locks: Vec<Mutex<()>>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let row = |_| [Modelled::new(0), Modelled::new(0)];
        Arc::new(Self {
            words: (0..SIZES.num_words()).map(|_| Modelled::new(0)).collect(),
            rows: (0..SIZES.capacity).map(row).collect(),
            journals: (0..SIZES.slots).map(row).collect(),
            locks: (0..SIZES.slots).map(|_| Mutex::new(())).collect(),
        })
    }

    fn ring(&self) -> Ring<'_, Modelled> {
        Ring::new(&self.words, SIZES)
    }

    /// Sets every element of the next row to `value`; returns the row, if it could be taken.
    fn append(&self, slot: usize, value: u64) -> Option<usize> {
        let ring = self.ring();
        for _ in 0..TRIES {
            if let Ok(range) = ring.reserve(slot, ring.next_row(), 1) {
                let row = ring.row(range.start);
                let claimed = ring.claim(slot, row, None).unwrap();
                self.put(slot, row, value, WIDTH);
                ring.release(row, claimed);
                ring.written(slot, range.end);
                ring.note(slot, None);
                return Some(row);
            }
            thread::yield_now();
        }
        None
    }

    /// Notes a row and writes the first `width` of its elements.
    fn put(&self, slot: usize, row: usize, value: u64, width: usize) {
        self.journals[slot].iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.ring().note(slot, Some(row));
        self.rows[row][..width].iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    /// Returns the elements of a row, if it could be read.
    fn read(&self, row: usize) -> Option<u64> {
        let ring = self.ring();
        for _ in 0..TRIES {
            if let Ok(state) = ring.readable(row) {
                let read: Vec<u64> = self.rows[row].iter().map(|word| word.load(Ordering::Relaxed)).collect();
                if ring.is_still(row, state) {
                    assert!(read.iter().all(|value| *value == read[0]), "a torn row: {read:?}");
                    return Some(read[0]);
                }
            }
            thread::yield_now();
        }
        None
    }

    /// Completes the writes of a slot whose lock is free.
    fn bury(&self, slot: usize) {
        if let Ok(_lock) = self.locks[slot].try_lock() {
            self.ring().recover(slot, |row| {
                for (to, from) in self.rows[row].iter().zip(&self.journals[slot]) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
        }
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

#[test]
fn two_writers_take_different_rows_and_what_is_published_is_whole() {
    model(|| {
        let shared = Shared::new();
        (0..2).for_each(|slot| shared.ring().enter(slot));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || other.append(1, 11));
        let mine = shared.append(0, 10);
        let len = shared.ring().len();
        for row in 0..len {
            assert!(shared.read(row).is_none_or(|value| value == 10 || value == 11), "an unwritten row");
        }
        let theirs = writer.join().unwrap();
        assert!(mine.is_none() || mine != theirs, "a row that was taken twice");
        let written = [mine, theirs].into_iter().flatten().count();
        assert_eq!(shared.ring().len(), written, "a row lost");
        assert!(mine.is_none_or(|row| shared.read(row) == Some(10)));
        assert!(theirs.is_none_or(|row| shared.read(row) == Some(11)));
    });
}

#[test]
fn a_row_that_is_written_over_is_read_as_it_was_or_as_it_is() {
    model(|| {
        let shared = Shared::new();
        (0..2).for_each(|slot| shared.ring().enter(slot));
        assert_eq!((shared.append(0, 1), shared.append(0, 2)), (Some(0), Some(1)));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || other.append(1, 3));
        assert!(shared.read(0).is_none_or(|value| value == 1 || value == 3));
        assert_eq!(writer.join().unwrap(), Some(0));
        assert_eq!((shared.read(0), shared.ring().len()), (Some(3), 2));
    });
}

#[test]
fn writers_of_the_second_lap_write_beside_each_other() {
    model(|| {
        let shared = Shared::new();
        (0..2).for_each(|slot| shared.ring().enter(slot));
        (0..2).for_each(|value| assert!(shared.append(0, value).is_some()));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || other.append(1, 11));
        let mine = shared.append(0, 10);
        let theirs = writer.join().unwrap();
        assert!(mine.is_some() && theirs.is_some() && mine != theirs, "{mine:?} {theirs:?}");
        assert_eq!((shared.read(mine.unwrap()), shared.read(theirs.unwrap())), (Some(10), Some(11)));
    });
}

#[test]
fn the_row_of_a_dead_writer_is_ended_by_who_comes_first() {
    model(|| {
        let shared = Shared::new();
        (0..2).for_each(|slot| shared.ring().enter(slot));
        // Slot 0 dies during the first of two rows that it took.
        {
            let ring = shared.ring();
            assert_eq!(ring.reserve(0, 0, 2), Ok(0..2));
            ring.claim(0, 0, None).unwrap();
            shared.put(0, 0, 5, 1);
        }
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            other.bury(0);
            assert!(other.read(0).is_none_or(|value| value == 5));
        });
        shared.bury(0);
        assert!(shared.read(0).is_none_or(|value| value == 5));
        reader.join().unwrap();
        assert_eq!((shared.read(0), shared.ring().len()), (Some(5), 1), "the other row is given back");
        assert_eq!((shared.append(1, 6), shared.read(1), shared.ring().len()), (Some(1), Some(6), 2));
    });
}

#[test]
fn who_empties_while_others_write_leaves_no_row_that_was_not_written() {
    model(|| {
        let shared = Shared::new();
        (0..2).for_each(|slot| shared.ring().enter(slot));
        assert_eq!(shared.append(0, 1), Some(0));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || other.append(1, 2));
        shared.ring().clear();
        let len = shared.ring().len();
        assert!(len < 2, "{len} rows");
        let row = writer.join().unwrap();
        let len = shared.ring().len();
        assert!(len <= 1 && (len == 0 || shared.read(0) == Some(2)), "{len} rows, {row:?}");
    });
}
