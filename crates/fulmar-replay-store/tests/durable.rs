//! A storage that survives crashes, on a disk that loses power at every moment.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{ErrorKind, Rng};
use fulmar_replay::{
    ConditionalUpdate, LastingRows, Reduction, ReplayBuffer, ReplayBufferOptions, SharedReplayBuffer,
    Storage, TensorStorage, WriterOptions, check_storage,
};
use fulmar_replay_store::{DurableStorage, DurableStorageOptions};
use fulmar_store::{Disk, Durability, FsDisk, MemoryDisk};
use fulmar_tensor::{NonTensor, Ragged, Tensor, TensorDict};
use serde_json::json;

fn items(from: i64, count: usize) -> TensorDict {
    let numbers: Vec<i64> = (from..from + count as i64).collect();
    let mut items = TensorDict::new(&[count]).unwrap();
    items.set("id", Tensor::from_vec(&[count], numbers.clone()).unwrap()).unwrap();
    items
        .set(["next", "pixels"], Tensor::from_vec(&[count, 2], vec![from as u8; 2 * count]).unwrap())
        .unwrap();
    let names = numbers.iter().map(|number| json!(format!("item {number}"))).collect();
    items.set("name", NonTensor::each(&[count], names).unwrap()).unwrap();
    let rows: Vec<Tensor> = numbers
        .iter()
        .map(|number| Tensor::from_vec(&[*number as usize % 3], vec![1.5_f32; *number as usize % 3]).unwrap())
        .collect();
    items.set("tokens", Ragged::from_rows(&rows).unwrap()).unwrap();
    items
}

fn open(disk: &MemoryDisk, shape: &[usize]) -> fulmar_core::Result<DurableStorage> {
    let options = DurableStorageOptions { durability: Durability::Sync, segment_bytes: 4096 };
    DurableStorage::open(disk.clone(), shape, options)
}

fn buffer(disk: &MemoryDisk) -> fulmar_core::Result<ReplayBuffer> {
    ReplayBuffer::new(Box::new(open(disk, &[6])?), ReplayBufferOptions::default())
}

#[test]
fn it_is_a_storage() {
    check_storage(&mut open(&MemoryDisk::default(), &[5]).unwrap()).unwrap();
    check_storage(&mut open(&MemoryDisk::default(), &[2, 3]).unwrap()).unwrap();
}

#[test]
fn rows_are_those_of_a_storage_in_memory_through_writes_and_openings() {
    let (disk, mut rng) = (MemoryDisk::default(), Rng::new(7));
    let mut memory = TensorStorage::new(&[9]).unwrap();
    let mut next = 1;
    for _ in 0..40 {
        let mut durable = open(&disk, &[9]).unwrap();
        for _ in 0..rng.below(6).unwrap() {
            if rng.below(20).unwrap() == 0 {
                memory.clear();
                durable.clear();
            }
            let count = 1 + rng.below(4).unwrap() as usize;
            let rows: Vec<usize> = (0..count)
                .map(|at| rng.below((memory.len() + 1 + at).min(9) as u64).unwrap() as usize)
                .collect();
            let items = items(next, count);
            next += count as i64;
            let (ours, theirs) = (durable.set(&rows, &items), memory.set(&rows, &items));
            assert_eq!(ours.map_err(|error| error.kind()), theirs.map_err(|error| error.kind()));
        }
        durable.commit().unwrap();
        assert_eq!(durable.len(), memory.len());
        let all: Vec<usize> = (0..memory.len()).collect();
        if !all.is_empty() {
            assert_eq!(durable.get(&all).unwrap(), memory.get(&all).unwrap());
        }
    }
}

/// The content that a buffer guaranteed after a number of disk operations.
struct Promise {
    num_ops: usize,
    items: Option<TensorDict>,
    cursor: usize,
    write_count: u64,
}

#[test]
fn a_loss_of_power_at_any_moment_leaves_the_acknowledged_buffer_and_it_goes_on() {
    let disk = MemoryDisk::recording();
    let mut promises = vec![Promise { num_ops: 0, items: None, cursor: 0, write_count: 0 }];
    let mut one = buffer(&disk).unwrap();
    for write in 0..12 {
        one.extend(&items(1 + 3 * write, 1 + write as usize % 3)).unwrap();
        promises.push(Promise {
            num_ops: disk.num_ops(),
            items: Some(one.read_all_in_order(None).unwrap()),
            cursor: one.writer().cursor(),
            write_count: one.writer().write_count(),
        });
    }
    drop(one);
    let mut later = 0;
    for num_ops in 0..=disk.num_ops() {
        for seed in 0..3 {
            let found = disk.after_power_loss(num_ops, seed);
            let Ok(mut again) = buffer(&found) else {
                assert!(num_ops < promises[1].num_ops, "only a store that was being made may be no store");
                continue;
            };
            let at = promises.iter().rposition(|promise| promise.num_ops <= num_ops).unwrap();
            let is_of = |promise: &Promise| {
                (promise.cursor, promise.write_count)
                    == (again.writer().cursor(), again.writer().write_count())
            };
            // The next write may be present, whole or in part, although it was not acknowledged.
            let is_acknowledged = is_of(&promises[at]);
            assert!(is_acknowledged || promises.get(at + 1).is_some_and(is_of), "after {num_ops} operations");
            let promise = &promises[if is_acknowledged { at } else { at + 1 }];
            later += usize::from(!is_acknowledged);
            let len = promise.items.as_ref().map_or(0, |items| items.batch_size()[0]);
            assert_eq!(again.len(), len);
            if let Some(items) = &promise.items {
                let got = again.read_all_in_order(None).unwrap();
                // Rows of the pending write may be in the places that it takes.
                let next = promises.get(at + 1).and_then(|promise| promise.items.as_ref());
                for row in 0..len {
                    let got = got.index(row).unwrap();
                    let is_next = next.is_some_and(|next| got == next.index(row).unwrap());
                    assert!(
                        got == items.index(row).unwrap() || is_next,
                        "row {row} after {num_ops} operations"
                    );
                }
            }
            let rows = again.extend(&items(100, 2)).unwrap();
            assert_eq!(rows, [Some(promise.cursor), Some((promise.cursor + 1) % 6)]);
        }
    }
    println!("{} operations, {later} findings with a write that was not acknowledged", disk.num_ops());
}

#[test]
fn stores_of_other_rows_are_refused() {
    let disk = MemoryDisk::default();
    let mut one = open(&disk, &[4]).unwrap();
    let first = open(&disk, &[4]).map(|_| ());
    assert_eq!(first, Ok(()), "nothing is taken before the first item");
    one.set(&[0], &items(1, 1)).unwrap();
    assert_eq!(open(&disk, &[4]).unwrap_err().kind(), ErrorKind::Incompatible, "open elsewhere");
    let mut other = TensorDict::new(&[1]).unwrap();
    other.set("id", Tensor::from_vec(&[1], vec![1.0_f32]).unwrap()).unwrap();
    let error = one.set(&[1], &other).unwrap_err();
    assert_eq!((error.kind(), one.len()), (ErrorKind::Incompatible, 1), "{error}");
    let mut long = items(1, 1);
    long.set("name", NonTensor::each(&[1], vec![json!("x".repeat(5000))]).unwrap()).unwrap();
    assert_eq!(one.set(&[1], &long).unwrap_err().kind(), ErrorKind::LimitExceeded);
    drop(one);
    assert_eq!(open(&disk, &[5]).unwrap_err().kind(), ErrorKind::Incompatible, "another shape");
}

#[test]
fn a_buffer_in_a_folder_goes_on_after_its_process_ended() {
    let path = std::env::temp_dir().join(format!("fulmar-durable-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let open = || {
        let storage =
            DurableStorage::open(FsDisk::new(&path).unwrap(), &[4, 2], DurableStorageOptions::default())
                .unwrap();
        ReplayBuffer::new(Box::new(storage), ReplayBufferOptions::default()).unwrap()
    };
    let steps = |from: i64, time: usize| {
        let mut steps = TensorDict::new(&[2, time]).unwrap();
        let numbers = (0..2 * time as i64).map(|number| from + number).collect();
        steps.set("id", Tensor::from_vec(&[2, time], numbers).unwrap()).unwrap();
        steps
    };
    let mut memory =
        ReplayBuffer::new(Box::new(TensorStorage::new(&[4, 2]).unwrap()), ReplayBufferOptions::default())
            .unwrap();
    for (from, time) in [(0, 3), (10, 2), (20, 1), (30, 4)] {
        let mut one = open();
        assert_eq!(one.extend(&steps(from, time)).unwrap(), memory.extend(&steps(from, time)).unwrap());
        assert_eq!(one.read_all_in_order(None).unwrap(), memory.read_all_in_order(None).unwrap());
        assert_eq!(one.writer().state().unwrap(), memory.writer().state().unwrap());
    }
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_handle_to_a_buffer_over_it_goes_on_too() {
    let disk = MemoryDisk::default();
    let shared =
        || SharedReplayBuffer::new(Box::new(open(&disk, &[6]).unwrap()), Default::default()).unwrap();
    shared().extend(&items(0, 4)).unwrap();
    let again = shared();
    assert_eq!((again.len().unwrap(), again.stats().unwrap().write_count), (4, 4));
    assert_eq!(again.extend(&items(4, 3)).unwrap(), [Some(4), Some(5), Some(0)]);
}

#[test]
fn a_shape_that_is_refused_leaves_no_folder() {
    let path = std::env::temp_dir().join(format!("fulmar-durable-none-{}", std::process::id()));
    for shape in [&[0][..], &[1 << 40]] {
        let opened =
            FsDisk::new(&path).and_then(|disk| DurableStorage::open(disk, shape, Default::default()));
        assert!(opened.is_err());
        assert!(!path.exists(), "nothing was made");
    }
    let storage = DurableStorage::open(FsDisk::new(&path).unwrap(), &[4], Default::default()).unwrap();
    assert!(storage.is_empty() && !path.exists(), "nor is anything before the first item");
    std::fs::write(&path, "a file").unwrap();
    assert_eq!(FsDisk::new(&path).unwrap_err().kind(), ErrorKind::Io);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_writer_of_the_best_knows_their_ranks_again() {
    let disk = MemoryDisk::default();
    let best = || {
        let writer = WriterOptions::MaxValue { rank_key: "id".into(), reduction: Reduction::Sum };
        let options = ReplayBufferOptions { writer, ..Default::default() };
        ReplayBuffer::new(Box::new(open(&disk, &[3]).unwrap()), options).unwrap()
    };
    let mut first = best();
    first.extend(&items(1, 4)).unwrap();
    let (state, count) = (first.writer().state().unwrap(), first.writer().write_count());
    drop(first);
    let mut again = best();
    assert_eq!((again.writer().state().unwrap(), again.writer().write_count()), (state, count));
    assert_eq!(again.extend(&items(1, 1)).unwrap(), [None], "what is worse is not kept");
    assert!(again.extend(&items(9, 1)).unwrap()[0].is_some());
    drop(again);
    let writer = WriterOptions::MaxValue { rank_key: "absent".into(), reduction: Reduction::Sum };
    let options = ReplayBufferOptions { writer, ..Default::default() };
    let error = ReplayBuffer::new(Box::new(open(&disk, &[3]).unwrap()), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownName, "rows without ranks are refused: {error}");
}

#[test]
fn counts_of_rewrites_from_before_an_opening_are_stale() {
    let disk = MemoryDisk::default();
    let tracking = || {
        let writer = WriterOptions::RoundRobin { track_generations: true };
        let options = ReplayBufferOptions { writer, ..Default::default() };
        ReplayBuffer::new(Box::new(open(&disk, &[4]).unwrap()), options).unwrap()
    };
    let mut patch = TensorDict::new(&[1]).unwrap();
    patch.set("id", Tensor::from_vec(&[1], vec![70_i64]).unwrap()).unwrap();
    let updated = |buffer: &mut ReplayBuffer, row: i64, generation: i64| {
        let (rows, generations) = ([row], [generation]);
        let update = ConditionalUpdate {
            rows: &rows,
            generations: &generations,
            patch: &patch,
            versions: None,
            require_newer: false,
        };
        buffer.update_if_present(&update).unwrap().updated[0]
    };
    let mut first = tracking();
    first.extend(&items(1, 5)).unwrap();
    let before = first.generations_of(&[0, 1, 2, 3]);
    assert_eq!(before, [1, 0, 0, 0], "they begin with 0 where nothing came before");
    drop(first);
    let mut again = tracking();
    again.extend(&items(10, 1)).unwrap();
    let now = again.generations_of(&[0, 1, 2, 3]);
    for row in 0..4 {
        assert!(now[row] > before[row] && !updated(&mut again, row as i64, before[row]), "row {row}");
    }
    assert!(updated(&mut again, 2, now[2]));
    again.clear(false).unwrap();
    drop(again);
    let mut emptied = tracking();
    emptied.extend(&items(20, 1)).unwrap();
    assert!(emptied.generations_of(&[0])[0] > now[1] && !updated(&mut emptied, 0, before[1]));
    let mut wide = TensorDict::new(&[1]).unwrap();
    wide.set("new", Tensor::from_vec(&[1], vec![1_i64]).unwrap()).unwrap();
    let error = emptied.write_all(&wide, None).unwrap_err();
    assert_eq!((error.kind(), emptied.len()), (ErrorKind::Incompatible, 1), "leaves stay: {error}");
}

/// Returns a ring of 6 rows that wrapped around, in segments of 4 KiB, with its content: items from `first`
/// on.
fn full_ring(first: i64) -> (MemoryDisk, TensorDict) {
    let disk = MemoryDisk::default();
    let mut one = buffer(&disk).unwrap();
    for write in 0..40 {
        one.extend(&items(first + write, 1)).unwrap();
    }
    let held = one.storage().get(&[0, 1, 2, 3, 4, 5]).unwrap();
    drop(one);
    (disk, held)
}

fn copied(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for (name, len) in disk.list().unwrap() {
        let mut bytes = vec![0; len as usize];
        disk.read_at(&name, 0, &mut bytes).unwrap();
        copy.allocate(&name, len).unwrap();
        copy.write_at(&name, 0, &bytes).unwrap();
    }
    copy
}

/// Checks that a damaged storage has each row unchanged or reports it, and its position.
fn check_damaged(disk: &MemoryDisk, held: &TensorDict, place: &str) -> usize {
    let mut storage = open(disk, &[6]).unwrap();
    let lost = storage.damaged_rows().unwrap();
    assert_eq!(storage.len(), 6, "{place}");
    assert_eq!(storage.noted_writer(), Some((40 % 6, 40)), "{place}");
    for row in 0..6 {
        match storage.get(&[row]) {
            Ok(found) => assert_eq!(found.index(0).unwrap(), held.index(row).unwrap(), "{place}, row {row}"),
            Err(error) => {
                assert_eq!((error.kind(), lost.contains(&row)), (ErrorKind::Corrupt, true), "{place}");
            }
        }
    }
    assert_eq!(storage.stats().num_damaged_rows, lost.len() as u64, "{place}: all are counted");
    assert!(lost.is_empty() || storage.stats().num_gaps > 0, "{place}: the damage is reported");
    for row in &lost {
        storage.set(&[*row], &held.slice(*row..*row + 1).unwrap()).unwrap();
    }
    assert_eq!(storage.damaged_rows().unwrap(), [0; 0], "{place}: rows that are written again are whole");
    lost.len()
}

#[test]
fn a_flipped_bit_anywhere_gives_no_overwritten_row() {
    let (disk, held) = full_ring(1);
    let mut rng = Rng::new(11);
    let files = disk.list().unwrap();
    for _ in 0..400 {
        let (name, len) = &files[rng.below(files.len() as u64).unwrap() as usize];
        let (offset, mask) = (rng.below(*len).unwrap(), 1 << rng.below(8).unwrap());
        let damaged = copied(&disk);
        damaged.damage(name, offset, mask).unwrap();
        assert!(check_damaged(&damaged, &held, &format!("{name} at {offset}")) <= 1);
    }
}

#[test]
fn a_segment_that_is_removed_emptied_zeroed_cut_or_exchanged_takes_its_own_rows_and_is_reported() {
    let (disk, held) = full_ring(1);
    let mut num_lost = 0;
    let files = disk.list().unwrap();
    for (name, len) in files.iter().filter(|(name, _)| name.starts_with("seg-")) {
        for how in ["removed", "emptied", "zeroed", "cut", "exchanged"] {
            let damaged = copied(&disk);
            match how {
                "removed" => damaged.remove(name).unwrap(),
                "emptied" => damaged.truncate(name, 0).unwrap(),
                "zeroed" => damaged.write_at(name, 0, &vec![0; *len as usize]).unwrap(),
                "cut" => damaged.truncate(name, 200).unwrap(),
                _ => {
                    let (other, _) = full_ring(1001);
                    let mut bytes = vec![0; *len as usize];
                    other.read_at(name, 0, &mut bytes).unwrap();
                    damaged.write_at(name, 0, &bytes).unwrap();
                }
            }
            num_lost += check_damaged(&damaged, &held, &format!("{name} {how}"));
        }
    }
    // Each row is in one segment, which was damaged in five ways.
    assert_eq!(num_lost, 6 * 5);
}

#[test]
fn a_storage_that_is_dropped_notes_where_it_ends() {
    for durability in [Durability::None, Durability::Async { interval_ms: 1 << 40 }, Durability::Sync] {
        let disk = MemoryDisk::recording();
        let options = DurableStorageOptions { durability, segment_bytes: 4096 };
        let mut storage = DurableStorage::open(disk.clone(), &[4], options).unwrap();
        storage.set(&[0, 1], &items(1, 2)).unwrap();
        drop(storage);
        let left = disk.after_power_loss(disk.num_ops(), 4);
        assert_eq!(open(&left, &[4]).unwrap().len(), 2, "{durability:?}");
    }
}
