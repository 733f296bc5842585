//! The stored rows that opening a buffer reads.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use fulmar_core::limits::REPLAY_SAMPLE_ROWS_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::{
    PartialReads, ReplayBuffer, ReplayBufferOptions, SampleUnitOptions, SamplerOptions, SequenceOptions,
    SliceOptions, Storage, StorageAbilities, TensorStorage,
};
use fulmar_tensor::{Key, Tensor, TensorDict};

const ROWS: usize = 1000;

/// A storage that counts read rows, and rows read by key, and may fail to read.
struct Counted {
    rows: TensorStorage,
    whole: Arc<AtomicUsize>,
    keys: Arc<AtomicUsize>,
    fails: Option<ErrorKind>,
}

impl Storage for Counted {
    fn shape(&self) -> &[usize] {
        self.rows.shape()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.rows.set(rows, items)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.whole.fetch_add(rows.len(), Relaxed);
        match self.fails.filter(|_| rows.len() > 1) {
            Some(kind) => Err(Error::new(kind, "disk must answer")),
            None => self.rows.get(rows),
        }
    }

    fn clear(&mut self) {
        self.rows.clear();
    }

    fn revision(&self) -> u64 {
        self.rows.revision()
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { partial_reads: Some(self), ..Default::default() }
    }
}

impl PartialReads for Counted {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        self.keys.fetch_add(rows.len() * keys.len(), Relaxed);
        let items = self.rows.read_keys(rows, keys)?;
        assert!(items.get("pixels").is_none(), "what is not asked for is not read");
        Ok(items)
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        *out = self.get(rows)?;
        Ok(())
    }
}

fn stored() -> TensorStorage {
    let mut items = TensorDict::new(&[ROWS]).unwrap();
    items.set("pixels", Tensor::zeros(fulmar_core::Dtype::U8, &[ROWS, 4]).unwrap()).unwrap();
    let done = (0..ROWS).map(|row| row % 10 == 9).collect();
    items.set(["next", "done"], Tensor::from_vec(&[ROWS], done).unwrap()).unwrap();
    items.set("policy_version", Tensor::from_vec(&[ROWS], vec![0_i64; ROWS]).unwrap()).unwrap();
    TensorStorage::over(&items).unwrap()
}

/// Returns the buffer, and the numbers of rows, and rows by key, read to open it.
fn opened(options: ReplayBufferOptions) -> (ReplayBuffer, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (whole, keys) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let storage = Counted { rows: stored(), whole: whole.clone(), keys: keys.clone(), fails: None };
    (ReplayBuffer::new(Box::new(storage), options).unwrap(), whole, keys)
}

fn by(sampler: &str) -> SamplerOptions {
    serde_json::from_str(sampler).unwrap()
}

const READ_NOTHING: [&str; 4] = [
    r#"{"kind": "random"}"#,
    r#"{"kind": "withoutReplacement"}"#,
    r#"{"kind": "consuming"}"#,
    r#"{"kind": "prioritized"}"#,
];

#[test]
fn opening_a_buffer_reads_no_row_for_samplers_that_ignore_items() {
    for sampler in READ_NOTHING {
        let options = ReplayBufferOptions { sampler: by(sampler), batch_size: Some(4), ..Default::default() };
        let (mut buffer, whole, keys) = opened(options);
        assert_eq!((whole.load(Relaxed), keys.load(Relaxed)), (0, 0), "{sampler}");
        assert_eq!(buffer.len(), ROWS, "{sampler}");
        assert_eq!(buffer.sample(None).unwrap().items.batch_size(), [4]);
        assert_eq!(whole.load(Relaxed), 4, "{sampler}: only what is drawn is read");
    }
}

/// Rows without items, so many that a node for each would take 640 MB.
struct Huge {
    len: usize,
}

impl Storage for Huge {
    fn shape(&self) -> &[usize] {
        std::slice::from_ref(&self.len)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn set(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Err(Error::new(ErrorKind::Closed, "these rows cannot be written"))
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        TensorDict::new(&[rows.len()])
    }

    fn clear(&mut self) {}

    fn revision(&self) -> u64 {
        0
    }
}

#[test]
fn opening_many_rows_with_priorities_writes_no_node_until_one_changes() {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
    };
    let before = resident();
    let mut buffer = ReplayBuffer::new(
        Box::new(Huge { len: 1 << 27 }),
        ReplayBufferOptions { sampler: by(r#"{"kind": "prioritized"}"#), ..Default::default() },
    )
    .unwrap();
    let drawn = buffer.sample(Some(1000)).unwrap();
    assert!(drawn.rows.iter().any(|row| *row > 1 << 26) && drawn.rows.iter().any(|row| *row < 1 << 26));
    buffer.replace_sampler(by(r#"{"kind": "prioritized"}"#).build(&[1 << 27], 1).unwrap()).unwrap();
    assert_eq!(buffer.sample(Some(7)).unwrap().rows.len(), 7);
    // Other tests of this program run in parallel.
    assert!(resident() < before + (400 << 20), "no tree of 640 MB");
}

#[test]
fn replacing_a_sampler_reads_no_row_for_samplers_that_ignore_items() {
    for sampler in READ_NOTHING {
        let (mut buffer, whole, keys) = opened(ReplayBufferOptions::default());
        buffer.replace_sampler(by(sampler).build(&[ROWS], 1).unwrap()).unwrap();
        buffer.mark_update(&[3, 5]).unwrap();
        assert_eq!(buffer.mark_update(&[ROWS]).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!((whole.load(Relaxed), keys.load(Relaxed)), (0, 0), "{sampler}");
        assert_eq!((buffer.len(), buffer.sample(Some(7)).unwrap().rows.len()), (ROWS, 7), "{sampler}");
    }
}

#[test]
fn samplers_that_look_at_some_keys_read_those_alone() {
    let slices = SliceOptions { slice_len: Some(5), ..Default::default() };
    let trajectories = serde_json::from_str(r#"{"endKeys": [["next", "done"]]}"#).unwrap();
    let slice = SamplerOptions::Slice { slices, trajectories };
    for sampler in
        [slice, by(r#"{"kind": "stalenessAware"}"#), by(r#"{"kind": "streamingSlice", "sliceLen": 5}"#)]
    {
        let options = ReplayBufferOptions { sampler: sampler.clone(), ..Default::default() };
        let (mut buffer, whole, keys) = opened(options);
        assert_eq!((whole.load(Relaxed), keys.load(Relaxed)), (0, ROWS), "{sampler:?}");
        assert_eq!(buffer.sample(Some(5)).unwrap().items.batch_size(), [5]);
    }
    let window = SequenceOptions { length: 2, ..Default::default() };
    let unit = SampleUnitOptions::Sequence { window, done_key: Some(["next", "done"].into()) };
    let (mut buffer, whole, keys) = opened(ReplayBufferOptions { unit, ..Default::default() });
    assert_eq!((whole.load(Relaxed), keys.load(Relaxed)), (0, ROWS));
    assert_eq!(buffer.sample(Some(3)).unwrap().rows.len(), 6);
}

#[test]
fn a_sampler_that_was_told_in_parts_draws_as_one_that_was_told_at_once() {
    let slices = SliceOptions { slice_len: Some(5), ..Default::default() };
    let prioritized = SamplerOptions::PrioritizedSlice {
        slices,
        priorities: Default::default(),
        trajectories: Default::default(),
    };
    for sampler in [prioritized, SamplerOptions::Slice { slices, trajectories: Default::default() }] {
        let options = ReplayBufferOptions { sampler, seed: 3, ..Default::default() };
        let (mut told, _, _) = opened(options.clone());
        let mut wrote = ReplayBuffer::new(Box::new(TensorStorage::new(&[ROWS]).unwrap()), options).unwrap();
        wrote.extend(&stored().get(&(0..ROWS).collect::<Vec<_>>()).unwrap()).unwrap();
        assert_eq!(told.sampler().state().unwrap(), wrote.sampler().state().unwrap());
        assert_eq!(told.sample(Some(50)).unwrap().rows, wrote.sample(Some(50)).unwrap().rows);
    }
}

#[test]
fn a_state_is_not_taken_of_rows_that_cannot_be_read() {
    for kind in [ErrorKind::Io, ErrorKind::Corrupt, ErrorKind::UserCode, ErrorKind::OutOfRange] {
        let storage =
            Counted { rows: stored(), whole: Arc::default(), keys: Arc::default(), fails: Some(kind) };
        let buffer = ReplayBuffer::new(Box::new(storage), Default::default()).unwrap();
        assert_eq!(buffer.state().unwrap_err().kind(), kind);
    }
}

#[test]
fn a_batch_of_more_rows_than_a_draw_may_have_is_refused_before_one_is_read() {
    let (buffer, whole, _) = opened(ReplayBufferOptions::default());
    let error = buffer.batch_of(&vec![0; REPLAY_SAMPLE_ROWS_MAX + 1]).unwrap_err();
    assert_eq!((error.kind(), whole.load(Relaxed)), (ErrorKind::LimitExceeded, 0));
    assert_eq!(buffer.batch_of(&[0; 300]).unwrap().rows.len(), 300);
}
