//! Storages: the suite of the trait, and the specific behaviour of each.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use fulmar_core::limits::{REPLAY_STORAGE_BYTES_MAX, REPLAY_WRITE_TRIES_MAX};
use fulmar_core::{Dtype, ErrorKind, Result};
use fulmar_replay::{
    CompressedListStorage, LazyStackStorage, ListStorage, PartialReads, ReplayBuffer, SharedStorage,
    SharedWrites, Storage, StorageAbilities, TensorStorage, check_storage,
};
use fulmar_tensor::{NonTensor, Ragged, Tensor, TensorDict};
use serde_json::json;

use crate::allocations::allocations;

#[test]
fn every_storage_passes_the_suite() {
    check_storage(&mut TensorStorage::new(&[5]).unwrap()).unwrap();
    check_storage(&mut TensorStorage::new(&[3, 2]).unwrap()).unwrap();
    check_storage(&mut ListStorage::new(5).unwrap()).unwrap();
    check_storage(&mut LazyStackStorage::new(5).unwrap()).unwrap();
    check_storage(&mut CompressedListStorage::new(5, 3).unwrap()).unwrap();
    check_storage(&mut SharedStorage::new(Box::new(TensorStorage::new(&[5]).unwrap()))).unwrap();
}

fn texts(values: &[&str], lens: &[usize]) -> TensorDict {
    let mut items = TensorDict::new(&[values.len()]).unwrap();
    let rows: Vec<Tensor> =
        lens.iter().map(|&len| Tensor::from_vec(&[len], vec![len as i64; len]).unwrap()).collect();
    items.set(["in", "ids"], Ragged::from_rows(&rows).unwrap()).unwrap();
    let values = values.iter().map(|text| json!(text)).collect();
    items.set("text", NonTensor::each(&[lens.len()], values).unwrap()).unwrap();
    items
}

#[test]
fn ragged_leaves_and_values_are_kept_row_by_row() {
    let mut storage = TensorStorage::new(&[3]).unwrap();
    storage.set(&[0, 1], &texts(&["a", "b"], &[2, 0])).unwrap();
    storage.set(&[2, 0], &texts(&["c", "d"], &[1, 3])).unwrap();
    assert_eq!(storage.get(&[0, 2, 1]).unwrap(), texts(&["d", "c", "b"], &[3, 1, 0]));
    let mut other = texts(&["e"], &[1]);
    other
        .set(["in", "ids"], Ragged::new(Tensor::zeros(Dtype::F32, &[1]).unwrap(), &[0_u32, 1]).unwrap())
        .unwrap();
    let error = storage.set(&[1], &other).unwrap_err();
    assert_eq!(
        (error.kind(), error.detail().starts_with("[\"in\", \"ids\"]")),
        (ErrorKind::ShapeMismatch, true)
    );
    assert_eq!(storage.get(&[0, 2, 1]).unwrap(), texts(&["d", "c", "b"], &[3, 1, 0]));
}

#[test]
fn leaves_that_are_missing_or_too_many_are_refused_by_name() {
    let item = |keys: &[&str]| {
        let mut item = TensorDict::new(&[1]).unwrap();
        for key in keys {
            item.set(*key, Tensor::zeros(Dtype::U8, &[1, 2]).unwrap()).unwrap();
        }
        item
    };
    let mut storage = TensorStorage::new(&[2]).unwrap();
    storage.set(&[0], &item(&["a", "b"])).unwrap();
    for (keys, name) in [(&["a"][..], "\"b\""), (&["a", "b", "c"], "\"c\"")] {
        let error = storage.set(&[1], &item(keys)).unwrap_err();
        assert_eq!(
            (error.kind(), error.detail().starts_with(name)),
            (ErrorKind::UnknownName, true),
            "{error}"
        );
    }
    assert_eq!(storage.len(), 1);
    assert!(TensorStorage::new(&[0]).is_err());
    assert!(
        TensorStorage::new(&[1])
            .unwrap()
            .with_bytes_max(REPLAY_STORAGE_BYTES_MAX)
            .set(&[0], &item(&[]))
            .is_ok()
    );
}

#[test]
fn a_given_dictionary_is_full_and_stays_as_it_was() {
    let mut given = TensorDict::new(&[3]).unwrap();
    given.set("id", Tensor::from_vec(&[3], vec![1_i64, 2, 3]).unwrap()).unwrap();
    let mut storage = TensorStorage::over(&given).unwrap();
    assert_eq!((storage.len(), storage.shape()), (3, &[3][..]));
    storage.set(&[0], &given.index_select(&[2]).unwrap()).unwrap();
    assert_eq!(storage.get(&[0]).unwrap().tensor("id").unwrap().to_vec::<i64>().unwrap(), [3]);
    assert_eq!(given.tensor("id").unwrap().to_vec::<i64>().unwrap(), [1, 2, 3]);
    assert_eq!(
        TensorStorage::over(&TensorDict::new(&[]).unwrap()).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
}

#[test]
fn rows_of_a_lazy_stack_share_only_what_all_have() {
    let mut storage = LazyStackStorage::new(3).unwrap();
    let mut item = TensorDict::new(&[]).unwrap();
    item.set("x", Tensor::zeros(Dtype::F32, &[2]).unwrap()).unwrap();
    item.set(["in", "text"], NonTensor::shared(json!("a"))).unwrap();
    storage.set(&[0], &item.unsqueeze(0).unwrap()).unwrap();
    item.set("y", Tensor::zeros(Dtype::F32, &[]).unwrap()).unwrap();
    item.set("x", Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
    storage.set(&[1], &item.unsqueeze(0).unwrap()).unwrap();
    let both = storage.get(&[0, 1]).unwrap();
    assert_eq!(both.ragged("x").unwrap().offsets(), [0, 2, 3]);
    assert!(both.get("y").is_none());
    assert_eq!(both.non_tensor(["in", "text"]).unwrap().to_json(), json!(["a", "a"]));
    item.set("x", Tensor::zeros(Dtype::F32, &[]).unwrap()).unwrap();
    storage.set(&[2], &item.unsqueeze(0).unwrap()).unwrap();
    assert_eq!(storage.get(&[0, 2]).unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn constant_frames_are_kept_small() {
    let mut storage = CompressedListStorage::new(8, 3).unwrap();
    let mut items = TensorDict::new(&[8]).unwrap();
    items.set("frame", Tensor::zeros(Dtype::I64, &[8, 3, 84, 84]).unwrap()).unwrap();
    items.set("half", Tensor::from_bits(Dtype::Bf16, &[8], &[0x3F80; 8]).unwrap()).unwrap();
    storage.set(&[0, 1, 2, 3, 4, 5, 6, 7], &items).unwrap();
    assert!(storage.compressed_bytes() * 100 < 8 * 3 * 84 * 84 * 8);
    assert_eq!(storage.get(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap(), items);
    assert_eq!(CompressedListStorage::new(8, 10).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn who_is_far_behind_a_shared_storage_takes_note_of_all_rows() {
    let mut mine = SharedStorage::new(Box::new(ListStorage::new(2).unwrap()));
    let item = TensorDict::new(&[1]).unwrap();
    mine.set(&[0], &item).unwrap();
    let early = mine.revision();
    mine.set(&[1], &item).unwrap();
    assert_eq!(mine.written_after(early), [1]);
    for _ in 0..400 {
        mine.set(&[0], &item).unwrap();
    }
    assert_eq!(mine.written_after(early), [0, 1]);
    assert!(mine.written_after(mine.revision()).is_empty());
}

#[test]
fn rows_are_read_into_a_batch_without_an_allocation() {
    let mut storage = TensorStorage::new(&[64]).unwrap();
    let mut items = TensorDict::new(&[64]).unwrap();
    items.set("a", Tensor::zeros(Dtype::F32, &[64, 5]).unwrap()).unwrap();
    items.set(["b", "c"], Tensor::zeros(Dtype::U8, &[64, 3, 32, 32]).unwrap()).unwrap();
    let rows: Vec<usize> = (0..64).collect();
    storage.set(&rows, &items).unwrap();
    let mut out = storage.get(&rows).unwrap();
    let before = allocations();
    for _ in 0..10 {
        storage.read_into(&rows, &mut out).unwrap();
    }
    assert_eq!(allocations(), before);
    drop(storage.get(&rows).unwrap());
    assert!(allocations() > before, "the counter counts");
}

/// A storage to which another process writes at each of the first tries.
struct Busy {
    rows: Mutex<ListStorage>,
    others: AtomicU64,
    noise: AtomicU64,
}

impl Busy {
    fn rows(&self) -> MutexGuard<'_, ListStorage> {
        self.rows.lock().unwrap()
    }
}

impl Storage for Busy {
    fn shape(&self) -> &[usize] {
        &[4]
    }

    fn len(&self) -> usize {
        self.rows().len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.rows().set(rows, items)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.rows().get(rows)
    }

    fn clear(&mut self) {
        self.rows().clear();
    }

    fn revision(&self) -> u64 {
        self.rows().revision() + self.noise.load(Relaxed)
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { shared_writes: Some(self), ..Default::default() }
    }
}

impl SharedWrites for Busy {
    fn set_if_unchanged(
        &self,
        _: u64,
        rows: &[usize],
        items: &TensorDict,
        _: Option<(usize, u64)>,
    ) -> Result<bool> {
        if self.others.load(Relaxed) > 0 {
            self.others.fetch_sub(1, Relaxed);
            self.noise.fetch_add(1, Relaxed);
            return Ok(false);
        }
        self.rows().set(rows, items).map(|()| true)
    }

    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    fn written_after(&self, _: u64) -> Vec<usize> {
        Vec::new()
    }
}

#[test]
fn a_write_begins_anew_behind_others_but_not_without_end() {
    let item = TensorDict::new(&[1]).unwrap();
    for (others, kept) in [(REPLAY_WRITE_TRIES_MAX - 1, true), (REPLAY_WRITE_TRIES_MAX, false)] {
        let rows = Mutex::new(ListStorage::new(4).unwrap());
        let busy = Busy { rows, others: AtomicU64::new(others as u64), noise: AtomicU64::new(0) };
        let mut buffer = ReplayBuffer::new(Box::new(busy), Default::default()).unwrap();
        match buffer.extend(&item) {
            Ok(rows) => assert!(kept && rows == [Some(0)]),
            Err(error) => assert!(!kept && error.kind() == ErrorKind::LimitExceeded, "{error}"),
        }
        assert_eq!((buffer.len(), buffer.writer().write_count()), (usize::from(kept), u64::from(kept)));
    }
}

#[test]
fn a_buffer_whose_storage_another_emptied_begins_anew() {
    let storage = SharedStorage::new(Box::new(ListStorage::new(4).unwrap()));
    let mut mine = ReplayBuffer::new(Box::new(storage.clone()), Default::default()).unwrap();
    let mut others = ReplayBuffer::new(Box::new(storage), Default::default()).unwrap();
    mine.extend(&TensorDict::new(&[3]).unwrap()).unwrap();
    others.clear(false).unwrap();
    assert_eq!(mine.extend(&TensorDict::new(&[1]).unwrap()).unwrap(), [Some(0)]);
}
