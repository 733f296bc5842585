//! The same changes to a store and to a list, to compare the data after a crash with the acknowledged data.

use std::collections::VecDeque;

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_store::{Durability, Store, StoreOptions};

/// The tortured ways to write, each separately.
pub const PATHS: [Path; 5] = [Path::Append, Path::GroupCommit, Path::Update, Path::Mark, Path::Checkpoint];

/// Number of rows in the ring: few, so that it wraps often.
const CAPACITY: u64 = 12;
/// Maximum number of steps before a store commits, with any path.
pub const COMMIT_STEPS_MAX: u64 = 9;

/// A way to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// A commit after each row.
    Append,
    /// A commit after several rows; sometimes all rows are cleared.
    GroupCommit,
    /// Mostly replaced rows, so that old segments must be compacted.
    Update,
    /// Mostly marks (priorities).
    Mark,
    /// Sometimes a checkpoint.
    Checkpoint,
}

impl Path {
    /// Returns the path called `name`.
    #[cfg(unix)]
    pub fn parse(name: &str) -> Result<Self> {
        let found = PATHS.into_iter().find(|path| format!("{path:?}") == name);
        found.ok_or_else(|| {
            Error::new(ErrorKind::UnknownName, format!("path must be one of {PATHS:?}: got {name:?}"))
        })
    }

    fn commit_steps(self) -> u64 {
        if self == Self::Append { 2 } else { COMMIT_STEPS_MAX }
    }
}

/// One change, or a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Append(Vec<u8>),
    Update(u64, Vec<u8>),
    Mark(u64, u64),
    Clear,
    Commit,
    Checkpoint,
}

/// Returns step number `index` of a run over a ring of `len` rows: a pure function of its arguments.
pub fn step_at(path: Path, seed: u64, index: u64, len: u64) -> Step {
    let mut rng = Rng::new(seed).fork(index);
    if index % path.commit_steps() == path.commit_steps() - 1 {
        let is_checkpoint = path == Path::Checkpoint && rng.next_u32().is_multiple_of(4);
        return if is_checkpoint { Step::Checkpoint } else { Step::Commit };
    }
    let choice = rng.next_u32() % 10;
    let slot = u64::from(rng.next_u32()) % len.max(1);
    match path {
        _ if len == 0 => Step::Append(bytes(&mut rng)),
        Path::Update if choice < 8 => Step::Update(slot, bytes(&mut rng)),
        Path::Mark if choice < 7 => Step::Mark(slot, rng.next_u64()),
        Path::GroupCommit if choice == 0 && rng.next_u32().is_multiple_of(8) => Step::Clear,
        Path::Checkpoint if choice < 3 => Step::Update(slot, bytes(&mut rng)),
        _ => Step::Append(bytes(&mut rng)),
    }
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    // Some longer than a sector, some empty.
    let len = if rng.next_u32().is_multiple_of(6) { rng.next_u32() % 1500 } else { rng.next_u32() % 90 };
    (0..len).map(|_| rng.next_u32() as u8).collect()
}

/// A ring as a plain list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    rows: VecDeque<(Vec<u8>, u64)>,
    /// Rows appended since the last clear.
    num_appended: u64,
    /// Rows appended ever.
    end_seq: u64,
}

impl Model {
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Append(record) => {
                if self.rows.len() as u64 == CAPACITY {
                    self.rows.pop_front();
                }
                self.rows.push_back((record.clone(), 0));
                self.num_appended += 1;
                self.end_seq += 1;
            }
            Step::Update(slot, record) => self.row_mut(*slot, |row| row.0.clone_from(record)),
            Step::Mark(slot, mark) => self.row_mut(*slot, |row| row.1 = *mark),
            Step::Clear => {
                self.rows.clear();
                self.num_appended = 0;
            }
            Step::Commit | Step::Checkpoint => {}
        }
    }

    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn first(&self) -> u64 {
        self.num_appended - self.len()
    }

    fn row_mut(&mut self, slot: u64, change: impl FnOnce(&mut (Vec<u8>, u64))) {
        let first = self.first();
        let position = (0..self.len()).find(|i| (first + i) % CAPACITY == slot);
        if let Some(row) = position.and_then(|i| self.rows.get_mut(i as usize)) {
            change(row);
        }
    }

    /// Returns the rows with their slots and marks, the oldest first.
    pub fn slots(&self) -> impl Iterator<Item = (u64, &Vec<u8>, u64)> {
        let first = self.first();
        self.rows.iter().enumerate().map(move |(i, row)| ((first + i as u64) % CAPACITY, &row.0, row.1))
    }

    /// Returns whether `store` holds the same rows with the same marks in the same slots.
    pub fn is_held_by(&self, store: &Store) -> Result<bool> {
        if (store.len(), store.end_seq()) != (self.len(), self.end_seq) {
            return Ok(false);
        }
        for (slot, record, mark) in self.slots() {
            if store.read(slot)? != *record || store.mark(slot)? != mark {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Applies `step` to a store; a checkpoint is named after `index`.
pub fn take(store: &mut Store, step: &Step, index: u64) -> Result<()> {
    match step {
        Step::Append(record) => store.append(&[record]).map(drop),
        Step::Update(slot, record) => store.update(*slot, record),
        Step::Mark(slot, mark) => store.set_marks(&[*slot], &[*mark]),
        Step::Clear => store.clear(),
        Step::Commit => store.commit().map(drop),
        Step::Checkpoint => store.checkpoint(&checkpoint_name(index)).map(drop),
    }
}

pub fn checkpoint_name(index: u64) -> String {
    format!("step-{index}")
}

/// Small segments, so that there are many.
pub fn options() -> StoreOptions {
    StoreOptions { segment_bytes: 4096, durability: Durability::Sync, ..StoreOptions::new(CAPACITY) }
}

/// Checks that a store equals the state after some step from `acknowledged` on, before the next commit.
/// Returns the number of that step and its model; `models[i]` is the state after `first + i` steps.
pub fn reached(store: &Store, models: &[Model], first: u64, acknowledged: u64) -> Result<u64> {
    for (i, model) in models.iter().enumerate().skip((acknowledged - first) as usize) {
        if model.is_held_by(store)? {
            let stats = store.stats();
            if (stats.num_gaps, stats.num_damaged_rows) == (0, 0) {
                return Ok(first + i as u64);
            }
            let detail = format!("a crash alone must not pass for damage: got {stats:?}");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
    }
    let detail = format!("a store must hold what was acknowledged at step {acknowledged}: got {store:?}");
    Err(Error::new(ErrorKind::Corrupt, detail))
}
