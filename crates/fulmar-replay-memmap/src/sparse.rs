//! A storage of 100 GB without disk usage: sparse files, and a board in which every row is written.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use fulmar_core::{Dtype, Result};
use fulmar_replay::{
    LastingRows, PartialReads, ReplayBuffer, ReplayBufferOptions, SamplerOptions, Storage, StorageAbilities,
};
use fulmar_store::FsDisk;
use fulmar_tensor::{Key, Tensor, TensorDict};

use crate::folder::{About, Folder, OURS, make_board};
use crate::schema::Schema;
use crate::{LazyMemmapStorage, LazyMemmapStorageOptions};

const ROW_BYTES: usize = 56_448;
const ROWS: usize = 100_000_000_000 / ROW_BYTES + 1;

/// Makes the folder: a row has two stacks of frames, a reward and a flag.
fn make(path: &std::path::Path) {
    let mut row = TensorDict::new(&[1]).unwrap();
    row.set("pixels", Tensor::zeros(Dtype::U8, &[1, ROW_BYTES - 5]).unwrap()).unwrap();
    row.set("reward", Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
    row.set(["next", "done"], Tensor::zeros(Dtype::Bool, &[1]).unwrap()).unwrap();
    let about = About { shape: vec![ROWS], rows: Schema::of(&row).unwrap() };
    let ours = FsDisk::new(path.join(OURS)).unwrap();
    for leaf in about.rows.leaves().unwrap() {
        let file = path.join(fulmar_tensor::memmap::leaf_path(&leaf.key));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::File::create(file).unwrap().set_len((leaf.row_bytes * ROWS) as u64).unwrap();
    }
    make_board(path, &ours, &about, ROWS).unwrap();
    Folder::join(path, &[ROWS]).unwrap().ring().fill();
}

/// Counts the rows that are read.
struct Counted(LazyMemmapStorage, Arc<AtomicUsize>);

impl Storage for Counted {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.0.set(rows, items)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.1.fetch_add(rows.len(), Relaxed);
        self.0.get(rows)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn revision(&self) -> u64 {
        self.0.revision()
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { partial_reads: Some(self), lasting_rows: Some(self), shared_writes: None }
    }
}

impl PartialReads for Counted {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        self.1.fetch_add(rows.len(), Relaxed);
        self.0.read_keys(rows, keys)
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        self.0.read_into(rows, out)
    }
}

impl LastingRows for Counted {
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        self.0.note_writer(cursor, write_count)
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        self.0.noted_writer()
    }

    fn first_generation(&self) -> i64 {
        self.0.first_generation()
    }
}

#[test]
fn a_buffer_of_100_gb_opens_without_a_look_at_a_row() {
    let path = std::env::temp_dir().join(format!("fulmar-sparse-{}", std::process::id()));
    make(&path);
    for sampler in [SamplerOptions::Random, SamplerOptions::Prioritized { priorities: Default::default() }] {
        let options = LazyMemmapStorageOptions {
            scratch_dir: Some(path.clone()),
            shared_init: true,
            ..Default::default()
        };
        let read = Arc::<AtomicUsize>::default();
        let storage = Counted(LazyMemmapStorage::new(&[ROWS], options).unwrap(), read.clone());
        let options = ReplayBufferOptions { sampler, ..Default::default() };
        let mut buffer = ReplayBuffer::new(Box::new(storage), options).unwrap();
        assert_eq!((buffer.len(), read.load(Relaxed)), (ROWS, 0));
        let batch = buffer.sample(Some(3)).unwrap();
        assert_eq!(batch.items.tensor("pixels").unwrap().shape(), [3, ROW_BYTES - 5]);
        assert_eq!(read.load(Relaxed), 3);
        let part = buffer.storage().read_keys(&batch.rows, &["reward".into(), "next".into()]).unwrap();
        assert!(part.get("pixels").is_none() && part.tensor(["next", "done"]).is_ok());
        assert_eq!(part.tensor("reward").unwrap(), batch.items.tensor("reward").unwrap());
    }
    std::fs::remove_dir_all(path).unwrap();
}
