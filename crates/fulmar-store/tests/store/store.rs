//! Guarantees and refusals of a store.

use fulmar_core::{ErrorKind, Rng};
use fulmar_store::{Disk, Durability, Fault, FaultyDisk, MemoryDisk, Store, StoreOptions};

fn options(capacity: u64) -> StoreOptions {
    StoreOptions { segment_bytes: 4096, ..StoreOptions::new(capacity) }
}

fn kind<T>(result: fulmar_core::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_second_open_is_refused_until_the_first_ends() {
    let disk = MemoryDisk::default();
    let first = Store::open(disk.clone(), &options(2)).unwrap();
    assert_eq!(kind(Store::open(disk.clone(), &options(2))), Some(ErrorKind::Incompatible));
    drop(first);
    assert!(Store::open(disk, &options(2)).is_ok());
}

#[cfg(unix)]
#[test]
fn a_second_open_of_a_folder_is_refused_and_a_full_disk_tells_its_figures() {
    use fulmar_store::FsDisk;
    let folder = std::env::temp_dir().join(format!("fulmar-store-{}", std::process::id()));
    let mut store = Store::open(FsDisk::new(&folder).unwrap(), &options(2)).unwrap();
    let error = Store::open(FsDisk::new(&folder).unwrap(), &options(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().contains(&format!("held by process {}", std::process::id())), "{error}");
    let error = FsDisk::new(&folder).unwrap().allocate("huge", 1 << 60).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.detail().contains("1152921504606846976 bytes: got "), "{error}");
    assert!(!error.detail().contains("got 0 free"), "{error}");
    assert!(FsDisk::new(&folder).unwrap().free_bytes() > Some(0));
    store.append(&[b"row"]).unwrap();
    store.checkpoint("copy").unwrap();
    drop(store);
    let copy = Store::open(FsDisk::new(folder.join("copy")).unwrap(), &options(2)).unwrap();
    assert_eq!(copy.read(0).unwrap(), b"row");
    drop(copy);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_store_keeps_its_capacity_and_schema() {
    let disk = MemoryDisk::default();
    let made = StoreOptions { schema: "what it means".to_owned(), ..options(5) };
    assert_eq!(Store::describe(&disk).unwrap(), None);
    drop(Store::open(disk.clone(), &made).unwrap());
    assert_eq!(Store::describe(&disk).unwrap(), Some(made.clone()));
    let other = StoreOptions { capacity: 6, ..made.clone() };
    assert_eq!(kind(Store::open(disk.clone(), &other)), Some(ErrorKind::Incompatible));
    let other = StoreOptions { schema: "another".to_owned(), ..made.clone() };
    assert_eq!(kind(Store::open(disk.clone(), &other)), Some(ErrorKind::Incompatible));
    assert_eq!(Store::open(disk, &made).unwrap().schema(), "what it means");
}

#[test]
fn a_store_counts_how_often_it_was_opened() {
    let disk = MemoryDisk::default();
    let openings = (1..=3).map(|_| Store::open(disk.clone(), &options(2)).unwrap().num_openings());
    assert_eq!(openings.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn rows_are_acknowledged_as_the_mode_says() {
    let found = |durability, ticks: &[u64]| {
        let disk = MemoryDisk::recording();
        let mut store = Store::open(disk.clone(), &StoreOptions { durability, ..options(8) }).unwrap();
        store.append(&[b"one"]).unwrap();
        let committed = store.commit().unwrap();
        let ticked = ticks.iter().map(|now| store.tick(*now).unwrap()).collect::<Vec<_>>();
        // Of unsynced data nothing survives.
        let lost = (0..64).map(|seed| disk.after_power_loss(disk.num_ops(), seed));
        let kept = lost.map(|lost| Store::open(lost, &options(8)).unwrap().len()).min().unwrap();
        (committed, ticked, kept)
    };
    assert_eq!(found(Durability::None, &[0, 9]), (1, vec![1, 1], 0));
    assert_eq!(found(Durability::Sync, &[]), (1, vec![], 1));
    assert_eq!(found(Durability::Async { interval_ms: 5 }, &[100, 104]), (0, vec![0, 0], 0));
    assert_eq!(found(Durability::Async { interval_ms: 5 }, &[100, 104, 105]), (0, vec![0, 0, 1], 1));
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let mut store = Store::open(MemoryDisk::default(), &options(2)).unwrap();
    let longest = vec![7; store.record_bytes_max()];
    let longer = vec![7; store.record_bytes_max() + 1];
    assert_eq!(kind(store.append(&[b"a", &longer])), Some(ErrorKind::LimitExceeded));
    assert_eq!(kind(store.append(&[b"a", b"b", b"c"])), Some(ErrorKind::OutOfRange));
    assert_eq!((store.len(), store.end_seq()), (0, 0));
    assert_eq!(store.append(&[b"a", &longest]).unwrap(), 0..2);
    store.commit().unwrap();
    assert_eq!(store.read(1).unwrap(), longest);
    assert_eq!(kind(store.update(2, b"x")), Some(ErrorKind::OutOfRange));
    assert_eq!(kind(store.update(0, &longer)), Some(ErrorKind::LimitExceeded));
    assert_eq!(kind(store.set_marks(&[0, 2], &[1, 1])), Some(ErrorKind::OutOfRange));
    assert_eq!(kind(store.set_marks(&[0], &[])), Some(ErrorKind::ShapeMismatch));
    assert_eq!((kind(store.read(2)), store.mark(0)), (Some(ErrorKind::OutOfRange), Ok(0)));
}

#[test]
fn rows_are_read_before_they_are_written_and_marks_end_with_their_rows() {
    let mut store = Store::open(MemoryDisk::default(), &options(2)).unwrap();
    store.append(&[b"a", b"b"]).unwrap();
    store.set_marks(&[0, 1], &[5, 6]).unwrap();
    store.update(1, b"B").unwrap();
    assert_eq!((store.read(1).unwrap(), store.mark(1)), (b"B".to_vec(), Ok(6)));
    store.append(&[b"c"]).unwrap();
    assert_eq!((store.read(0).unwrap(), store.mark(0), store.cursor()), (b"c".to_vec(), Ok(0), 1));
    store.clear().unwrap();
    assert!(store.is_empty() && store.cursor() == 0 && store.end_seq() == 3);
    assert_eq!(store.commit(), Ok(3));
}

#[test]
fn a_store_writes_nothing_after_a_failed_sync_and_still_reads() {
    let probe = FaultyDisk::new(MemoryDisk::default(), u64::MAX, Fault::Io);
    let mut store = Store::open(probe.clone(), &options(4)).unwrap();
    store.append(&[b"a"]).unwrap();
    store.commit().unwrap();
    // The table copy is written after the sync.
    let sync = probe.num_ops() - 2;
    let disk = FaultyDisk::new(MemoryDisk::default(), sync, Fault::Io);
    let mut store = Store::open(disk.clone(), &options(4)).unwrap();
    store.append(&[b"a"]).unwrap();
    assert_eq!(kind(store.commit()), Some(ErrorKind::Io));
    assert_eq!(kind(store.commit()), Some(ErrorKind::Closed));
    assert_eq!(kind(store.append(&[b"b"])), Some(ErrorKind::Closed));
    assert_eq!(kind(store.clear()), Some(ErrorKind::Closed));
    assert_eq!((store.read(0).unwrap(), store.acknowledged_seq()), (b"a".to_vec(), 0));
    drop(store);
    assert_eq!(Store::open(disk, &options(4)).unwrap().read(0).unwrap(), b"a");
}

#[test]
fn replaced_rows_and_marks_do_not_make_the_log_grow_and_the_newest_stay() {
    let disk = MemoryDisk::default();
    let mut store = Store::open(disk.clone(), &options(64)).unwrap();
    let mut rows: Vec<Vec<u8>> = (0..64).map(|i| vec![i; 40]).collect();
    store.append(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    let mut marks = vec![9; 64];
    store.set_marks(&(0..64).collect::<Vec<_>>(), &marks).unwrap();
    let check = |store: &Store, rows: &[Vec<u8>], marks: &[u64]| {
        for (seq, (row, mark)) in (0..64).zip(rows.iter().zip(marks)) {
            assert_eq!((store.read(seq).as_ref(), store.mark(seq)), (Ok(row), Ok(*mark)), "row {seq}");
        }
    };
    let mut rng = Rng::new(3);
    for i in 0..6000_u64 {
        let slot = rng.below(32).unwrap();
        store.update(slot, &i.to_le_bytes()).unwrap();
        rows[slot as usize] = i.to_le_bytes().to_vec();
        if i % 3 == 0 {
            store.set_marks(&[slot], &[i]).unwrap();
            marks[slot as usize] = i;
        }
        if i % 16 == 0 {
            store.commit().unwrap();
            check(&store, &rows, &marks);
        }
    }
    let stats = store.stats();
    assert!(stats.num_moved > 0, "rows must have moved: got {stats:?}");
    assert!(stats.log_bytes <= 2 * (64 * 72) + 8 * 4096, "the log must stay short: got {stats:?}");
    store.commit().unwrap();
    drop(store);
    check(&Store::open(disk, &options(64)).unwrap(), &rows, &marks);
}

#[test]
fn a_checkpoint_shares_what_is_full_and_stays_as_it_was() {
    let disk = MemoryDisk::default();
    let mut store = Store::open(disk.clone(), &options(100)).unwrap();
    for i in 0..50_u8 {
        store.append(&[&[i; 300]]).unwrap();
    }
    // Leftovers of an earlier attempt are removed, foreign files stay.
    disk.allocate("a/seg-000000", 3).unwrap();
    disk.allocate("a/notes", 5).unwrap();
    let cost = store.checkpoint("a").unwrap();
    assert!(disk.subfolder("a").list().unwrap().contains(&("notes".to_owned(), 5)));
    assert!(cost.num_linked >= 3 && cost.copied_bytes <= 4096 && cost.end_seq == 50, "{cost:?}");
    assert_eq!(kind(store.checkpoint("a")), Some(ErrorKind::Incompatible));
    for name in ["", "a/b", "..", ".a", "a b"] {
        assert_eq!(kind(store.checkpoint(name)), Some(ErrorKind::Malformed));
    }
    for i in 0..100 {
        store.update(i % 50, b"changed").unwrap();
    }
    store.clear().unwrap();
    store.commit().unwrap();
    let mut copy = Store::open(disk.subfolder("a"), &options(100)).unwrap();
    for i in 0..50_u8 {
        assert_eq!(copy.read(u64::from(i)).unwrap(), [i; 300]);
    }
    copy.append(&[b"on its own"]).unwrap();
    copy.commit().unwrap();
    assert_eq!((copy.len(), store.len()), (51, 0));
}

#[test]
fn folders_that_hold_something_else_are_refused() {
    let with = |files: &[(&str, Vec<u8>)]| {
        let disk = MemoryDisk::default();
        for (name, bytes) in files {
            disk.allocate(name, bytes.len() as u64).unwrap();
            disk.write_at(name, 0, bytes).unwrap();
        }
        Store::open(disk, &options(2)).map(|store| store.len())
    };
    // A store refuses a folder with files that it does not name itself, also where a name comes close to its own.
    for name in ["notes.txt", "seg-1", "seg-+00001", "seg-4294967295", "table-1", "table-4294967295"] {
        assert_eq!(with(&[(name, b"hello".to_vec())]), Ok(0), "{name}");
    }
    assert_eq!(kind(with(&[("super.0", b"FULMARST".to_vec())])), Some(ErrorKind::Corrupt));
    assert_eq!(kind(with(&[("super.0", vec![1; 4096])])), Some(ErrorKind::Corrupt));
    assert_eq!(kind(with(&[("super.1", vec![0; 4096])])), Some(ErrorKind::Corrupt));
    assert_eq!(kind(with(&[("seg-000000", vec![0; 4096])])), Some(ErrorKind::Corrupt));
}

#[test]
fn a_superblock_of_another_store_is_passed_over_and_two_are_refused() {
    let made = |value: &[u8]| {
        let disk = MemoryDisk::default();
        let mut store = Store::open(disk.clone(), &options(4)).unwrap();
        store.append(&[value]).unwrap();
        store.close().unwrap();
        disk
    };
    let with_blocks_of_another = |names: &[&str]| {
        let (disk, other) = (made(b"own"), made(b"other"));
        for name in names {
            let mut bytes = vec![0; 4096];
            other.read_at(name, 0, &mut bytes).unwrap();
            disk.write_at(name, 0, &bytes).unwrap();
        }
        Store::open(disk, &options(4)).and_then(|store| store.read(0))
    };
    assert_eq!(with_blocks_of_another(&["super.0"]), Ok(b"own".to_vec()));
    assert_eq!(with_blocks_of_another(&["super.1"]), Ok(b"own".to_vec()));
    assert_eq!(kind(with_blocks_of_another(&["super.0", "super.1"])), Some(ErrorKind::Corrupt));
}

#[test]
fn segments_of_random_bytes_never_panic() {
    for seed in 0..300 {
        let disk = MemoryDisk::default();
        let mut store = Store::open(disk.clone(), &options(16)).unwrap();
        for i in 0..20_u8 {
            store.append(&[&[i; 200]]).unwrap();
            store.commit().unwrap();
        }
        store.close().unwrap();
        let mut rng = Rng::new(seed);
        for (name, len) in disk.list().unwrap() {
            if name.starts_with("seg-") && !rng.next_u32().is_multiple_of(3) {
                let bytes: Vec<u8> = (0..len).map(|_| rng.next_u32() as u8).collect();
                disk.write_at(&name, 0, &bytes).unwrap();
            }
        }
        let mut store = Store::open(disk.clone(), &options(16)).unwrap();
        let damaged = (0..store.len()).filter(|slot| store.read(*slot).is_err()).count() as u64;
        assert_eq!((store.len(), store.stats().num_damaged_rows), (16, damaged));
        for i in 0..16_u8 {
            store.append(&[&[i; 7]]).unwrap();
        }
        store.commit().unwrap();
        drop(store);
        let store = Store::open(disk, &options(16)).unwrap();
        assert_eq!(store.stats().num_damaged_rows, 0, "a lap later nothing is missing");
        assert!((0..16).all(|slot| store.read(slot).is_ok()));
    }
}

#[test]
fn a_bit_that_flips_under_an_open_store_is_noticed_when_its_record_is_read() {
    let disk = MemoryDisk::default();
    let mut store = Store::open(disk.clone(), &options(2)).unwrap();
    store.append(&[b"one", b"two"]).unwrap();
    store.commit().unwrap();
    // Two groups that begin the log and its epoch; a header and two entries; then the records.
    let record = 64 + 64 + 2 * 16;
    for bit in 0..8 * 3 {
        disk.damage("seg-000000", record + bit / 8, 1 << (bit % 8)).unwrap();
        let error = store.read(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.detail().contains("seg-000000"), "the file is named: {error}");
        assert_eq!(store.read(1).unwrap(), b"two");
        assert_eq!(store.damaged_slots().unwrap(), [0]);
        disk.damage("seg-000000", record + bit / 8, 1 << (bit % 8)).unwrap();
    }
    assert_eq!((store.read(0).unwrap(), store.damaged_slots().unwrap()), (b"one".to_vec(), vec![]));
}

#[test]
fn a_header_or_table_that_is_damaged_loses_no_row_and_is_reported() {
    let disk = MemoryDisk::default();
    let mut store = Store::open(disk.clone(), &options(2)).unwrap();
    store.append(&[b"one", b"two"]).unwrap();
    store.set_marks(&[0], &[7]).unwrap();
    store.update(1, b"TWO").unwrap();
    store.commit().unwrap();
    drop(store);
    let mut num_opened = 0;
    for offset in 0..512 {
        disk.damage("seg-000000", offset, 1).unwrap();
        let copy = copied(&disk).unwrap();
        disk.damage("seg-000000", offset, 1).unwrap();
        let store = Store::open(copy, &options(2)).unwrap();
        let lost = store.damaged_slots().unwrap();
        assert_eq!(store.stats().num_damaged_rows, lost.len() as u64, "offset {offset}");
        assert!(lost.is_empty() || store.stats().num_gaps == 1, "offset {offset}");
        // A superseded record loses nothing.
        let expected = [Ok(b"one".to_vec()), Ok(b"TWO".to_vec())];
        for slot in 0..2 {
            if !lost.contains(&slot) {
                assert_eq!(store.read(slot), expected[slot as usize], "offset {offset}");
            }
        }
        assert_eq!((store.mark(0), store.mark(1)), (Ok(7), Ok(0)), "offset {offset}");
        num_opened += usize::from(lost.is_empty());
    }
    assert_eq!(num_opened, 512 - 3 - 3, "only the bytes of the two newest records are in one place alone");
}

#[test]
fn a_power_failure_after_a_close_takes_no_copy_that_damage_needs() {
    let disk = MemoryDisk::recording();
    let mut store = Store::open(disk.clone(), &options(2)).unwrap();
    for row in [b"one", b"two"] {
        store.append(&[row]).unwrap();
        store.commit().unwrap();
    }
    store.close().unwrap();
    let lost_after_damage = |disk: MemoryDisk, offset| {
        disk.damage("seg-000000", offset, 1).unwrap();
        Store::open(disk, &options(2)).unwrap().damaged_slots().unwrap()
    };
    for offset in (0..512).step_by(4) {
        let lost = lost_after_damage(copied(&disk).unwrap(), offset);
        for seed in 0..8 {
            let left = disk.after_power_loss(disk.num_ops(), seed);
            assert_eq!(lost_after_damage(left, offset), lost, "offset {offset}, seed {seed}");
        }
    }
}

fn copied(disk: &MemoryDisk) -> fulmar_core::Result<MemoryDisk> {
    let copy = MemoryDisk::default();
    for (name, len) in disk.list()? {
        let mut bytes = vec![0; len as usize];
        disk.read_at(&name, 0, &mut bytes)?;
        copy.allocate(&name, len)?;
        copy.write_at(&name, 0, &bytes)?;
    }
    Ok(copy)
}

#[test]
fn a_checkpoint_that_is_opened_never_loses_its_only_superblock() {
    for num_rows in 1..6_u8 {
        let disk = MemoryDisk::recording();
        let mut store = Store::open(disk.clone(), &options(8)).unwrap();
        for number in 0..num_rows {
            store.append(&[&[number; 1500]]).unwrap();
            store.commit().unwrap();
        }
        store.checkpoint("copy").unwrap();
        let made = disk.num_ops();
        drop(Store::open(disk.subfolder("copy"), &options(8)).unwrap());
        for num_ops in made..=disk.num_ops() {
            for seed in 0..8 {
                let left = disk.after_power_loss(num_ops, seed).subfolder("copy");
                let copy = Store::open(left, &options(8)).unwrap();
                assert_eq!(copy.len(), u64::from(num_rows), "after {num_ops} operations");
            }
        }
    }
}

#[test]
fn a_file_that_memory_cannot_hold_is_out_of_memory_and_leaves_the_disk_as_it_was() {
    let disk = MemoryDisk::default();
    disk.allocate("small", 4).unwrap();
    let error = disk.allocate("small", u64::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    disk.write_at("small", 0, &[7; 4]).unwrap();
}
