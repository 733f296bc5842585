//! Loses power after every operation of a disk, keeping any part of the unsynced data.

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_store::{Disk, MemoryDisk, Store};

use crate::model::{Model, Path, Step, checkpoint_name, options, reached, step_at, take};

/// Runs `num_steps` steps on a disk that loses its power after every operation, each time in `num_seeds`
/// ways. Returns the number of losses.
pub fn lose_power(path: Path, seed: u64, num_steps: u64, num_seeds: u64) -> Result<u64> {
    let disk = MemoryDisk::recording();
    lose_power_of(&disk, disk.clone(), path, seed, num_steps, num_seeds)
}

/// Runs [`lose_power`] for `disk`, which the store sees as `seen`.
pub fn lose_power_of(
    disk: &MemoryDisk,
    seen: impl Disk + 'static,
    path: Path,
    seed: u64,
    num_steps: u64,
    num_seeds: u64,
) -> Result<u64> {
    let trace = Trace::record(disk, seen, path, seed, num_steps)?;
    let mut num_losses = 0;
    for num_ops in 0..=disk.num_ops() {
        for loss in 0..num_seeds {
            let left = Rng::new(seed).fork(loss).fork(num_ops as u64).next_u64();
            let place = format!("{path:?}, seed {seed}, operation {num_ops}, loss {loss}");
            trace.check(&disk.after_power_loss(num_ops, left), num_ops).map_err(|error| error.at(place))?;
            num_losses += 1;
        }
    }
    Ok(num_losses)
}

/// The calls of a store, and the times of its answers.
struct Trace {
    /// The state after the first 0, 1, 2, ... steps.
    models: Vec<Model>,
    /// For each step, the number of disk operations when it was done.
    done: Vec<(usize, Step)>,
    /// The number of disk operations when the store was open.
    opened: usize,
}

impl Trace {
    fn record(
        disk: &MemoryDisk,
        seen: impl Disk + 'static,
        path: Path,
        seed: u64,
        num_steps: u64,
    ) -> Result<Self> {
        let mut store = Store::open(seen, &options())?;
        let mut trace = Self { models: vec![Model::default()], done: Vec::new(), opened: disk.num_ops() };
        for index in 0..num_steps {
            let mut model = trace.models[index as usize].clone();
            let step = step_at(path, seed, index, model.len());
            take(&mut store, &step, index)?;
            model.apply(&step);
            trace.models.push(model);
            trace.done.push((disk.num_ops(), step));
        }
        Ok(trace)
    }

    /// Opens the state of a crash after `num_ops` operations, compares, writes another row, crashes again and
    /// compares again.
    fn check(&self, found: &MemoryDisk, num_ops: usize) -> Result<()> {
        let num_done = self.done.iter().filter(|(ops, _)| *ops <= num_ops).count();
        let acknowledges = |(_, step): &&(usize, Step)| matches!(step, Step::Commit | Step::Checkpoint);
        let acknowledged =
            self.done[..num_done].iter().rposition(|step| acknowledges(&step)).map_or(0, |i| i + 1);
        let begun = if num_ops < self.opened { 0 } else { num_done + 1 };
        let possible = &self.models[..=begun.min(self.done.len())];

        let mut store = Store::open(found.clone(), &options())?;
        let step = reached(&store, possible, 0, acknowledged as u64)?;
        self.check_checkpoints(found, num_done)?;
        let mut model = self.models[step as usize].clone();
        let next = Step::Append(b"after the crash".to_vec());
        take(&mut store, &next, 0)?;
        store.commit()?;
        model.apply(&next);
        drop(store);
        reached(&Store::open(found.clone(), &options())?, &[model], 0, 0).map(drop)
    }

    /// Acknowledged checkpoints are complete; others are complete or not a store.
    fn check_checkpoints(&self, found: &MemoryDisk, num_done: usize) -> Result<()> {
        for (i, _) in self.done.iter().enumerate().filter(|(_, (_, step))| *step == Step::Checkpoint) {
            let folder = found.subfolder(&checkpoint_name(i as u64));
            let is_there = folder.list()?.iter().any(|(name, _)| name == "super.0");
            if is_there {
                reached(&Store::open(folder, &options())?, &self.models[i..=i], 0, 0)?;
            } else if i < num_done {
                return Err(Error::new(ErrorKind::Corrupt, format!("checkpoint {i} must exist")));
            }
        }
        Ok(())
    }
}
