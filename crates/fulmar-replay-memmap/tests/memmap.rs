//! A storage in files shared by processes: alone, with several writers, and after the death of one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fulmar_core::limits::REPLAY_MEMMAP_WRITERS_MAX;
use fulmar_core::{Dtype, ErrorKind, Result, Rng};
use fulmar_replay::{
    PrioritizedOptions, ReplayBuffer, ReplayBufferOptions, SamplerOptions, SharedReplayBuffer, SharedStorage,
    Storage, TensorStorage, check_storage,
};
use fulmar_replay_memmap::{LazyMemmapStorage, LazyMemmapStorageOptions};
use fulmar_tensor::{NonTensor, Ragged, Tensor, TensorDict, memmap};

/// A folder that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fulmar-memmap-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn options(&self) -> LazyMemmapStorageOptions {
        LazyMemmapStorageOptions { scratch_dir: Some(self.0.clone()), ..Default::default() }
    }

    fn open(&self, shape: &[usize]) -> Result<LazyMemmapStorage> {
        LazyMemmapStorage::new(shape, LazyMemmapStorageOptions { shared_init: true, ..self.options() })
    }

    fn buffer(&self, shape: &[usize]) -> ReplayBuffer {
        ReplayBuffer::new(Box::new(self.open(shape).unwrap()), ReplayBufferOptions::default()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WIDTH: usize = 37;

/// Rows in which every element is the row's number, in leaves of 1, 3, 4 and 8 bytes: a torn row would hold
/// two numbers.
fn items(numbers: &[i64]) -> TensorDict {
    let count = numbers.len();
    let mut items = TensorDict::new(&[count]).unwrap();
    let wide = numbers.iter().flat_map(|number| [*number; WIDTH]).collect();
    items.set(["next", "wide"], Tensor::from_vec(&[count, WIDTH], wide).unwrap()).unwrap();
    let bytes = numbers.iter().flat_map(|number| [*number as u8; 3]).collect();
    items.set("bytes", Tensor::from_vec(&[count, 3], bytes).unwrap()).unwrap();
    let half = numbers.iter().map(|number| *number as i32).collect();
    items.set("half", Tensor::from_vec(&[count], half).unwrap()).unwrap();
    items
        .set("even", Tensor::from_vec(&[count], numbers.iter().map(|n| n % 2 == 0).collect()).unwrap())
        .unwrap();
    items.set("none", Tensor::zeros(Dtype::F32, &[count, 0]).unwrap()).unwrap();
    items
}

/// Returns the numbers of rows after checking that none is torn.
fn numbers_of(rows: &TensorDict) -> Vec<i64> {
    let wide = rows.tensor(["next", "wide"]).unwrap().to_vec::<i64>().unwrap();
    let numbers: Vec<i64> = wide.chunks(WIDTH).map(|row| row[0]).collect();
    let half = rows.tensor("half").unwrap().to_vec::<i32>().unwrap();
    let bytes = rows.tensor("bytes").unwrap().to_vec::<u8>().unwrap();
    for (at, number) in numbers.iter().enumerate() {
        assert!(wide[at * WIDTH..][..WIDTH].iter().all(|element| element == number), "a torn row");
        assert!(half[at] == *number as i32 && bytes[at * 3..][..3] == [*number as u8; 3], "a torn row");
    }
    numbers
}

#[test]
fn it_is_a_storage() {
    let open = |shape: &[usize]| LazyMemmapStorage::new(shape, Default::default()).unwrap();
    check_storage(&mut open(&[5])).unwrap();
    check_storage(&mut open(&[2, 3])).unwrap();
    check_storage(&mut SharedStorage::new(Box::new(open(&[5])))).unwrap();
    let scratch = Scratch::new("suite");
    check_storage(&mut scratch.open(&[7]).unwrap()).unwrap();
}

#[test]
fn rows_are_those_of_a_storage_in_memory_through_writes_and_openings() {
    let (scratch, mut rng) = (Scratch::new("naive"), Rng::new(7));
    let mut memory = TensorStorage::new(&[9]).unwrap();
    let mut next = 1;
    for _ in 0..60 {
        let mut mapped = scratch.open(&[9]).unwrap();
        for _ in 0..rng.below(6).unwrap() {
            if rng.below(20).unwrap() == 0 {
                memory.clear();
                mapped.clear();
            }
            let count = 1 + rng.below(4).unwrap() as usize;
            let rows: Vec<usize> = (0..count)
                .map(|at| rng.below((memory.len() + 1 + at).min(10) as u64).unwrap() as usize)
                .collect();
            let items = items(&(next..next + count as i64).collect::<Vec<_>>());
            next += count as i64;
            let (ours, theirs) = (mapped.set(&rows, &items), memory.set(&rows, &items));
            assert_eq!(ours.map_err(|error| error.kind()), theirs.map_err(|error| error.kind()), "{rows:?}");
        }
        assert_eq!(mapped.len(), memory.len());
        let all: Vec<usize> = (0..memory.len()).collect();
        if !all.is_empty() {
            assert_eq!(mapped.get(&all).unwrap(), memory.get(&all).unwrap());
        }
    }
}

#[test]
fn buffers_over_it_are_those_over_memory() {
    for sampler in
        [SamplerOptions::Random, SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() }]
    {
        let options = ReplayBufferOptions { sampler, seed: 3, ..Default::default() };
        let mapped = Box::new(LazyMemmapStorage::new(&[7], Default::default()).unwrap());
        let mut ours = ReplayBuffer::new(mapped, options.clone()).unwrap();
        let mut theirs = ReplayBuffer::new(Box::new(TensorStorage::new(&[7]).unwrap()), options).unwrap();
        for step in 0..12_i64 {
            let numbers: Vec<i64> = (0..1 + step % 9).map(|at| step * 10 + at).collect();
            assert_eq!(ours.extend(&items(&numbers)).unwrap(), theirs.extend(&items(&numbers)).unwrap());
            assert_eq!(ours.sample(Some(6)).unwrap(), theirs.sample(Some(6)).unwrap());
            ours.update_priority(&[0], &[step as f32]).unwrap();
            theirs.update_priority(&[0], &[step as f32]).unwrap();
            if step == 8 {
                ours.clear(true).unwrap();
                theirs.clear(true).unwrap();
            }
            assert_eq!(ours.state().unwrap(), theirs.state().unwrap());
        }
        let state = theirs.state().unwrap();
        ours.restore(&state).unwrap();
        assert_eq!(ours.extend(&items(&[5, 6])).unwrap(), theirs.extend(&items(&[5, 6])).unwrap());
        assert_eq!(ours.read_all_in_order(None).unwrap(), theirs.read_all_in_order(None).unwrap());
    }
}

#[test]
fn the_folder_is_tensordicts() {
    let scratch = Scratch::new("format");
    let mut storage = scratch.open(&[2, 2]).unwrap();
    storage.set(&[0, 1], &items(&[1, 2])).unwrap();
    let all = memmap::load(&scratch.0).unwrap();
    assert_eq!(all.batch_size(), [2, 2]);
    assert_eq!(numbers_of(&all.flatten(0, 1).unwrap()), [1, 2, 0, 0]);
    assert!(!scratch.0.join("none.memmap").exists(), "what has no elements has no file");
}

#[test]
fn each_of_several_buffers_learns_what_the_others_wrote() {
    let scratch = Scratch::new("several");
    let priorities = SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() };
    let options = ReplayBufferOptions { sampler: priorities, ..Default::default() };
    let open = || ReplayBuffer::new(Box::new(scratch.open(&[10]).unwrap()), options.clone()).unwrap();
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.extend(&items(&[1, 2, 3])).unwrap(), [Some(0), Some(1), Some(2)]);
    assert_eq!(other.extend(&items(&[4, 5])).unwrap(), [Some(3), Some(4)]);
    assert_eq!((one.len(), other.len()), (5, 5));
    one.update_priority(&[0, 1, 2, 3, 4], &[0.0, 0.0, 0.0, 0.0, 9.0]).unwrap();
    assert!(
        numbers_of(&one.sample(Some(50)).unwrap().items).iter().filter(|number| **number == 5).count() > 40
    );
    assert!(numbers_of(&other.sample(Some(200)).unwrap().items).contains(&1), "a sampler of its own");
    assert_eq!(other.extend(&items(&[6, 7, 8, 9, 10, 11])).unwrap()[5], Some(0), "the ring is one");
    assert_eq!(one.extend(&items(&[12])).unwrap(), [Some(1)]);
    assert_eq!(one.writer().write_count(), 12);
    let late = open();
    assert_eq!(numbers_of(&late.read_all_in_order(None).unwrap()), [11, 12, 3, 4, 5, 6, 7, 8, 9, 10]);
    one.clear(false).unwrap();
    assert!(matches!(other.sample(Some(1)), Err(error) if error.kind() == ErrorKind::Empty));
    assert_eq!(other.extend(&items(&[20])).unwrap(), [Some(0)]);
    assert_eq!(numbers_of(&one.sample(Some(3)).unwrap().items), [20; 3]);
}

#[test]
fn no_row_is_torn_lost_or_doubled_while_many_hands_write_and_draw() {
    let scratch = Scratch::new("threads");
    let (hands, writes, size, capacity) = (4_i64, 120_i64, 5_i64, 4000);
    std::thread::scope(|scope| {
        for hand in 0..hands {
            let scratch = &scratch;
            scope.spawn(move || {
                let mut buffer = scratch.buffer(&[capacity]);
                for write in 0..writes {
                    let first = hand * 1_000_000 + write * size;
                    let rows = buffer.extend(&items(&(first..first + size).collect::<Vec<_>>())).unwrap();
                    let start = rows[0].unwrap();
                    assert!(
                        rows.iter().zip(start..).all(|(row, want)| *row == Some(want)),
                        "a write stays together"
                    );
                    numbers_of(&buffer.sample(Some(16)).unwrap().items);
                }
            });
        }
    });
    let mut found = numbers_of(&scratch.buffer(&[capacity]).read_all_in_order(None).unwrap());
    found.sort_unstable();
    let want: Vec<i64> =
        (0..hands).flat_map(|hand| (0..writes * size).map(move |at| hand * 1_000_000 + at)).collect();
    assert_eq!(found, want);
}

#[test]
fn a_small_ring_is_written_over_and_over_by_many_hands() {
    let scratch = Scratch::new("laps");
    let (hands, writes) = (4_i64, 150_i64);
    let last: Vec<i64> = std::thread::scope(|scope| {
        let hand = |hand: i64| {
            let scratch = &scratch;
            scope.spawn(move || {
                let storage = SharedStorage::new(Box::new(scratch.open(&[24]).unwrap()));
                let buffer = SharedReplayBuffer::over(storage, ReplayBufferOptions::default()).unwrap();
                let mut last = 0;
                for write in 0..writes {
                    let first = hand * 1_000_000 + write * 7;
                    buffer.extend(&items(&(first..first + 7).collect::<Vec<_>>())).unwrap();
                    last = first + 6;
                    let drawn = buffer.sample(Some(16)).unwrap();
                    numbers_of(&drawn.items);
                    let rows: Vec<i64> = drawn.rows.iter().map(|row| *row as i64).collect();
                    buffer.update_priority(&rows, &[1.5]).unwrap();
                }
                last
            })
        };
        let hands: Vec<_> = (0..hands).map(hand).collect();
        hands.into_iter().map(|hand| hand.join().unwrap()).collect()
    });
    let buffer = scratch.buffer(&[24]);
    let mut found = numbers_of(&buffer.read_all_in_order(None).unwrap());
    assert_eq!(found.len(), 24);
    assert!(found.iter().any(|number| last.contains(number)), "the newest item of all is there");
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 24, "none is there twice");
}

#[test]
fn leaves_that_are_not_dense_and_rows_that_take_too_much_are_refused() {
    let mut storage = LazyMemmapStorage::new(&[4], Default::default()).unwrap();
    let mut ragged = TensorDict::new(&[1]).unwrap();
    let rows = Ragged::new(Tensor::zeros(Dtype::F32, &[1]).unwrap(), &[0_u32, 1]).unwrap();
    ragged.set(["in", "ids"], rows).unwrap();
    let mut text = TensorDict::new(&[1]).unwrap();
    text.set("text", NonTensor::shared("a".into())).unwrap();
    for (items, name) in [(&ragged, "\"in\": \"ids\""), (&text, "\"text\"")] {
        let error = storage.set(&[0], items).unwrap_err();
        assert_eq!(
            (error.kind(), error.detail().starts_with(name)),
            (ErrorKind::Incompatible, true),
            "{error}"
        );
    }
    assert!(!storage.path().exists(), "nothing was made");
    let options = LazyMemmapStorageOptions { bytes_max: Some(1000), ..Default::default() };
    let mut small = LazyMemmapStorage::new(&[4], options).unwrap();
    let error = small.set(&[0], &items(&[1])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.detail().ends_with("got 4 rows of 304 bytes, 1216 together"), "{error}");
    storage.set(&[0], &items(&[1])).unwrap();
    let error = storage.set(&[1], &ragged).unwrap_err();
    assert_eq!((error.kind(), storage.len()), (ErrorKind::UnknownName, 1), "{error}");
    let mut huge = LazyMemmapStorage::new(&[1 << 30], Default::default()).unwrap();
    let mut row = TensorDict::new(&[1]).unwrap();
    row.set("x", Tensor::zeros(Dtype::U8, &[1, 1 << 7]).unwrap()).unwrap();
    let error = huge.set(&[0], &row).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "a disk that is too small is an error: {error}");
    assert!(error.detail().contains("1073741824 rows of 128 bytes"), "{error}");
    assert!(huge.is_empty() && !huge.path().join("x.memmap").exists());
}

#[test]
fn a_folder_is_taken_over_only_where_that_is_said_and_shows_no_old_row() {
    let scratch = Scratch::new("taken");
    let mut first = LazyMemmapStorage::new(&[4], scratch.options()).unwrap();
    let mut racing = LazyMemmapStorage::new(&[4], scratch.options()).unwrap();
    first.set(&[0, 1], &items(&[1, 2])).unwrap();
    for error in [
        LazyMemmapStorage::new(&[4], scratch.options()).unwrap_err(),
        racing.set(&[0], &items(&[1])).unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.detail().contains("existsOk")),
            (ErrorKind::Incompatible, true),
            "{error}"
        );
    }
    assert_eq!(scratch.open(&[5]).unwrap_err().kind(), ErrorKind::Incompatible, "another shape");
    let over = LazyMemmapStorageOptions { exists_ok: true, ..scratch.options() };
    let mut second = LazyMemmapStorage::new(&[4], over).unwrap();
    let mut other = TensorDict::new(&[1]).unwrap();
    other.set("half", Tensor::from_vec(&[1], vec![7_i32]).unwrap()).unwrap();
    other.set("bytes", Tensor::zeros(Dtype::U8, &[1, 3]).unwrap()).unwrap();
    second.set(&[0], &other).unwrap();
    assert_eq!((second.len(), second.get(&[0]).unwrap()), (1, other));
    assert_eq!(memmap::load(&scratch.0).unwrap().tensor("bytes").unwrap().to_vec::<u8>().unwrap(), [0; 12]);
    assert_eq!(first.get(&[0]).unwrap_err().kind(), ErrorKind::Closed, "the former owner gets an error");
    assert_eq!(first.set(&[0], &items(&[1])).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_folder_that_somebody_is_making_can_be_opened_and_one_of_tensordict_alone_is_not_written_to() {
    let scratch = Scratch::new("half");
    memmap::save(&scratch.0, &items(&[1])).unwrap();
    let mut storage = scratch.open(&[4]).unwrap();
    assert!(storage.is_empty(), "its board may still come");
    let error = storage.set(&[0], &items(&[1])).unwrap_err();
    assert_eq!(
        (error.kind(), error.detail().contains("existsOk")),
        (ErrorKind::Incompatible, true),
        "{error}"
    );
}

#[test]
fn folders_are_removed_as_was_said() {
    let mut temporary = LazyMemmapStorage::new(&[4], Default::default()).unwrap();
    temporary.set(&[0], &items(&[1])).unwrap();
    let path = temporary.path().to_owned();
    let clone = temporary.clone();
    drop(temporary);
    assert!(path.exists());
    drop(clone);
    assert!(!path.exists(), "a temporary folder goes with the last handle");
    let scratch = Scratch::new("cleanup");
    let mut kept = LazyMemmapStorage::new(&[4], scratch.options()).unwrap();
    kept.set(&[0], &items(&[1])).unwrap();
    drop(kept);
    assert!(scratch.0.exists(), "a folder that was given stays");
    let again = scratch.open(&[4]).unwrap();
    assert_eq!(numbers_of(&again.get(&[0]).unwrap()), [1]);
    assert_eq!((again.cleanup(), again.cleanup()), (Ok(true), Ok(false)));
    assert!(!scratch.0.exists());
    assert_eq!(again.get(&[0]).unwrap_err().kind(), ErrorKind::Closed);
    let options = LazyMemmapStorageOptions { auto_cleanup: Some(true), ..scratch.options() };
    let mut goes = LazyMemmapStorage::new(&[4], options).unwrap();
    goes.set(&[0], &items(&[1])).unwrap();
    drop(goes);
    assert!(!scratch.0.exists(), "unless that is asked for");
}

#[test]
fn files_that_are_cut_or_foreign_are_refused_by_name() {
    let scratch = Scratch::new("damaged");
    let mut first = scratch.open(&[4]).unwrap();
    first.set(&[0], &items(&[1])).unwrap();
    drop(first);
    let board = scratch.0.join("%fulmar/board");
    let whole = fs::read(&board).unwrap();
    let mut rng = Rng::new(5);
    for try_ in 0..300 {
        let mut bytes = whole.clone();
        if try_ % 2 == 0 {
            bytes.truncate(rng.below(bytes.len() as u64).unwrap() as usize);
        } else {
            bytes[rng.below(64).unwrap() as usize] ^= 1 + rng.below(255).unwrap() as u8;
        }
        // The last word of the head marks that another storage was made.
        let is_replaced = bytes.len() == whole.len() && bytes[..56] == whole[..56];
        fs::write(&board, &bytes).unwrap();
        match scratch.open(&[4]).map(|storage| storage.get(&[0]).map(|_| ())) {
            Err(error) => {
                let known = [
                    ErrorKind::Corrupt,
                    ErrorKind::Incompatible,
                    ErrorKind::LimitExceeded,
                    ErrorKind::OutOfRange,
                ];
                assert!(known.contains(&error.kind()) && error.detail().contains("board"), "{error}");
            }
            Ok(read) => assert!(is_replaced && read.is_err(), "try {try_}"),
        }
    }
    fs::write(&board, "something else, which is long enough to be a head of a board, but is none of ours")
        .unwrap();
    assert_eq!(scratch.open(&[4]).unwrap_err().kind(), ErrorKind::Corrupt);
    fs::write(&board, &whole).unwrap();
    let leaf = scratch.0.join("next/wide.memmap");
    fs::OpenOptions::new().write(true).open(&leaf).unwrap().set_len(8).unwrap();
    let error = scratch.open(&[4]).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.detail().contains("wide.memmap"), "{error}");
    fs::remove_file(&leaf).unwrap();
    assert_eq!(scratch.open(&[4]).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn so_many_write_at_once_and_one_more_does_not() {
    let scratch = Scratch::new("slots");
    let mut hands: Vec<LazyMemmapStorage> =
        (0..=REPLAY_MEMMAP_WRITERS_MAX).map(|_| scratch.open(&[100]).unwrap()).collect();
    let mut last = hands.pop().unwrap();
    for (row, hand) in hands.iter_mut().enumerate() {
        hand.set(&[row], &items(&[row as i64])).unwrap();
    }
    let row = hands.len();
    assert_eq!(last.set(&[row], &items(&[1])).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(last.len(), row, "it can read");
    hands.pop();
    last.set(&[row], &items(&[1])).unwrap();
}

/// A process of [`spawn`]: writes numbers from a first one on, prints each write that returned, and never
/// ends.
#[test]
fn child() {
    let (Ok(path), Ok(first)) = (std::env::var("FULMAR_TEST_FOLDER"), std::env::var("FULMAR_TEST_FIRST"))
    else {
        return;
    };
    let scratch = std::mem::ManuallyDrop::new(Scratch(PathBuf::from(path)));
    let mut buffer = scratch.buffer(&[512]);
    let mut next: i64 = first.parse().unwrap();
    loop {
        buffer.extend(&items(&(next..next + 3).collect::<Vec<_>>())).unwrap();
        next += 3;
        println!("written {next}");
    }
}

fn spawn(folder: &Path, first: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env("FULMAR_TEST_FOLDER", folder)
        .env("FULMAR_TEST_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads lines of returned writes until there are `count`; returns the last number.
fn wait_for(child: &mut Child, count: usize) -> i64 {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map_while(std::result::Result::ok);
    let mut written =
        lines.filter_map(|line| line.split("written ").nth(1).and_then(|number| number.parse().ok()));
    written.nth(count - 1).unwrap()
}

#[test]
fn a_process_that_is_killed_holds_nobody_up_and_tears_no_row() {
    let scratch = Scratch::new("killed");
    let mut mine = scratch.buffer(&[512]);
    for round in 0..12_i64 {
        let mut processes: Vec<Child> =
            (0..2).map(|at| spawn(&scratch.0, (round * 2 + at) * 1_000_000)).collect();
        for process in &mut processes {
            // Some die in the first lap, others later.
            wait_for(process, 1 + 29 * round as usize);
            process.kill().unwrap();
            process.wait().unwrap();
            mine.extend(&items(&[-1 - round])).unwrap();
            let batch = mine.sample(Some(64)).unwrap();
            numbers_of(&batch.items);
        }
        let mut found = numbers_of(&mine.read_all_in_order(None).unwrap());
        assert!(found.contains(&(-1 - round)));
        found.retain(|number| *number >= 0);
        let len = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), len, "no item is there twice");
    }
    assert_eq!(mine.len(), 512);
}
