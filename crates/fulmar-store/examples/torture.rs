//! Tortures stores for any duration and prints statistics; ends with the first violation.
//!
//! `cargo run --release -p fulmar-store --example torture -- --kills 2000 --traces 200 --steps 300 --damages 20000`: kills, traces
//! and damages for each of the five ways to write. A trace of `--steps` steps loses its power after each operation, twice; each of
//! its operations fails in three ways.

#![expect(clippy::print_stdout, reason = "an example prints")]

#[path = "../tests/torture/damage.rs"]
mod damage;
#[path = "../tests/torture/faults.rs"]
mod faults;
#[cfg(unix)]
#[path = "../tests/torture/kill.rs"]
mod kill;
#[path = "../tests/torture/model.rs"]
mod model;
#[path = "../tests/torture/power_loss.rs"]
mod power_loss;

use fulmar_core::{Error, ErrorKind, Result};
use model::{PATHS, Path};

fn main() -> Result<()> {
    #[cfg(unix)]
    if let Ok(arguments) = std::env::var(kill::CHILD) {
        return kill::child(&arguments);
    }
    let counts = Counts::from_arguments(std::env::args().skip(1))?;
    for path in PATHS {
        torture(path, &counts)?;
    }
    println!("no violation");
    Ok(())
}

/// The amount of each torture.
struct Counts {
    kills: u64,
    traces: u64,
    steps: u64,
    damages: u64,
}

impl Counts {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut counts = Self { kills: 2000, traces: 200, steps: 300, damages: 20_000 };
        while let Some(name) = arguments.next() {
            let count = match name.as_str() {
                "--kills" => &mut counts.kills,
                "--traces" => &mut counts.traces,
                "--steps" => &mut counts.steps,
                "--damages" => &mut counts.damages,
                _ => {
                    let detail =
                        format!("an argument must be --kills, --traces, --steps or --damages: got {name:?}");
                    return Err(Error::new(ErrorKind::UnknownName, detail));
                }
            };
            let number = arguments.next().and_then(|text| text.parse().ok());
            *count = number.ok_or_else(|| {
                Error::new(ErrorKind::Malformed, format!("{name} must be followed by a number"))
            })?;
        }
        Ok(counts)
    }
}

fn torture(path: Path, counts: &Counts) -> Result<()> {
    kill(path, counts)?;
    let mut num_losses = 0;
    for seed in 0..counts.traces {
        num_losses += power_loss::lose_power(path, seed, counts.steps, 2)?;
    }
    println!("{path:?}: {} traces, {num_losses} losses of power", counts.traces);
    let num_faults = faults::fail_each(path, 1, counts.steps)?;
    println!("{path:?}: {num_faults} faults of the disk");
    let damaged = damage::damage_files(path, 1, counts.damages)?;
    println!(
        "{path:?}: {} damages, {} rows read and right, {} refused and named, {} stores refused",
        counts.damages, damaged.num_read, damaged.num_refused, damaged.num_unopened
    );
    Ok(())
}

#[cfg(unix)]
fn kill(path: Path, counts: &Counts) -> Result<()> {
    let program = std::env::current_exe()?;
    let killed = kill::kill_cycles(&|| std::process::Command::new(&program), path, 1, counts.kills)?;
    println!(
        "{path:?}: {} kills, {} steps acknowledged, {} checkpoints compared",
        killed.num_kills, killed.num_acknowledged, killed.num_checkpoints
    );
    Ok(())
}

#[cfg(not(unix))]
fn kill(path: Path, counts: &Counts) -> Result<()> {
    println!("{path:?}: {} kills left out: only Unix has the signal", counts.kills);
    Ok(())
}
