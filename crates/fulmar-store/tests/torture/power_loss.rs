//! Loses power after every operation of a disk, keeping any of what was not synced.

use fulmar_core::{Result, Rng};
use fulmar_store::{MemoryDisk, Store};

use crate::model::{Model, Path, Step, options, reached, step_at, take};

/// Runs `num_steps` steps on a disk that loses its power after every one of its operations, each time in `num_seeds` ways. Gives
/// the number of losses.
pub fn lose_power(path: Path, seed: u64, num_steps: u64, num_seeds: u64) -> Result<u64> {
    let disk = MemoryDisk::recording();
    let mut store = Store::open(disk.clone(), &options())?;
    let mut models = vec![Model::default()];
    // How many operations the disk had seen when each step was done, and which steps acknowledge.
    let mut done = vec![(disk.num_ops(), true)];
    for index in 0..num_steps {
        let mut model = models[index as usize].clone();
        let step = step_at(path, seed, index, model.len());
        take(&mut store, &step, index)?;
        model.apply(&step);
        models.push(model);
        done.push((disk.num_ops(), matches!(step, Step::Commit | Step::Checkpoint)));
    }
    let mut num_losses = 0;
    for num_ops in 0..=disk.num_ops() {
        let is_done = |step: &(usize, &(usize, bool))| step.1.0 <= num_ops;
        let acknowledged =
            done.iter().enumerate().filter(|step| is_done(step) && step.1.1).map(|(i, _)| i).max();
        let last = done
            .iter()
            .enumerate()
            .filter(is_done)
            .map(|(i, _)| i + 1)
            .max()
            .unwrap_or(0)
            .min(models.len() - 1);
        for loss in 0..num_seeds {
            let place = format!("{path:?}, seed {seed}, operation {num_ops}, loss {loss}");
            let found =
                disk.after_power_loss(num_ops, Rng::new(seed).fork(loss).fork(num_ops as u64).next_u64());
            check_found(&found, &models[..=last], acknowledged.unwrap_or(0) as u64)
                .map_err(|error| error.at(place))?;
            num_losses += 1;
        }
    }
    Ok(num_losses)
}

/// Opens what a crash left, compares, writes one row more, crashes again and compares again.
fn check_found(found: &MemoryDisk, models: &[Model], acknowledged: u64) -> Result<()> {
    let mut store = Store::open(found.clone(), &options())?;
    let step = reached(&store, models, 0, acknowledged)?;
    let mut model = models[step as usize].clone();
    let next = Step::Append(b"after the crash".to_vec());
    take(&mut store, &next, 0)?;
    store.commit()?;
    model.apply(&next);
    drop(store);
    reached(&Store::open(found.clone(), &options())?, &[model], 0, 0).map(drop)
}
