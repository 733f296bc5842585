//! Fails every operation of a disk, one in each run.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_store::{Fault, FaultyDisk, MemoryDisk, Store};

use crate::model::{Model, Path, Step, options, reached, step_at, take};

/// Runs `num_steps` steps for each of their operations and each way in which it may fail. Returns the number
/// of runs.
pub fn fail_each(path: Path, seed: u64, num_steps: u64) -> Result<u64> {
    let whole = FaultyDisk::new(MemoryDisk::default(), u64::MAX, Fault::Io);
    run(path, seed, num_steps, &whole, &MemoryDisk::default())?;
    let mut num_runs = 0;
    for fails_at in 0..whole.num_ops() {
        for fault in [Fault::Io, Fault::Full, Fault::ShortWrite] {
            let memory = MemoryDisk::recording();
            let disk = FaultyDisk::new(memory.clone(), fails_at, fault);
            let place = format!("{path:?}, seed {seed}, operation {fails_at}, {fault:?}");
            run(path, seed, num_steps, &disk, &memory).map_err(|error| error.at(place))?;
            num_runs += 1;
        }
    }
    Ok(num_runs)
}

/// Takes all steps; retries a failure once, and reopens a store that refuses.
fn run(
    path: Path,
    seed: u64,
    num_steps: u64,
    disk: &FaultyDisk<MemoryDisk>,
    memory: &MemoryDisk,
) -> Result<()> {
    let open = || Store::open(disk.clone(), &options());
    let mut store = open().or_else(|_| open())?;
    let mut models = vec![Model::default()];
    let mut acknowledged = 0;
    let mut index = 0;
    while index < num_steps || acknowledged < index {
        let step = step_at(path, seed, index, models[index as usize].len());
        let mut taken = take(&mut store, &step, index);
        if taken.is_err() {
            taken = take(&mut store, &step, index);
        }
        match taken {
            Ok(()) => {
                let mut model = models[index as usize].clone();
                model.apply(&step);
                models.push(model);
                index += 1;
                acknowledged =
                    if matches!(step, Step::Commit | Step::Checkpoint) { index } else { acknowledged };
            }
            Err(error) if error.kind() == ErrorKind::Closed => {
                // The sync failed: all acknowledged data is there, with or without a loss of power.
                drop(store);
                let mut possible = models.clone();
                possible.push(models[index as usize].clone());
                possible[index as usize + 1].apply(&step);
                let lost = memory.after_power_loss(memory.num_ops(), seed + index);
                reached(&Store::open(lost, &options())?, &possible, 0, acknowledged)?;
                store = open()?;
                let step = reached(&store, &possible, 0, acknowledged)?;
                models = possible;
                models.truncate(step as usize + 1);
                index = step;
            }
            Err(error) => return Err(error),
        }
    }
    let error = Error::new(ErrorKind::Corrupt, "a store must hold all after the last commit");
    // The fault may be in a read, which is retried like all else.
    let is_held = || models[index as usize].is_held_by(&store);
    if is_held().or_else(|_| is_held())? { Ok(()) } else { Err(error) }
}
