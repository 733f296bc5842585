//! `fulmar-device`: checks and measures the kernels on the first GPU, with nothing needed but the driver. `on-device.sh` runs it.
//!
//! ```text
//! fulmar-device here                  what the GPU and this build are
//! fulmar-device check [OPTIONS]       every kernel's bits against those of `fulmar-kernel`
//! fulmar-device bench [OPTIONS]       times, against the bandwidth of a copy
//! fulmar-device once [OPTIONS]        one launch of each bench, for a profiler
//! fulmar-device model FOLDER          a random model with its log-probs on the GPU, for `rivals.py`
//! fulmar-device slowest FOLDER        the kernels of the slowest benches, as a pattern
//! fulmar-device report FOLDER         report.json of what the parts wrote, and a table
//! ```
//!
//! Options: `--only NAME`, a file of kernels; `--records FILE`; `--seed NUMBER` of the inputs of checks; `--sizes small`, those of the
//! emulated GPU, for tools that slow a GPU down.
//!
//! Exit status: 0 if all is well, 1 if a check fails, 2 for wrong arguments and for a build without kernels, 3 without a GPU.
//! The same program runs on the emulated GPU, if `LD_LIBRARY_PATH` names its folder.

mod bench;
mod check;
mod model;
mod numbers;
mod records;
mod report;
mod summary;

use std::path::Path;
use std::process::ExitCode;

use fulmar_core::{Error, Result};
use fulmar_cuda::Card;
use records::Records;
use report::{Report, write};
use serde_json::json;

const USAGE: &str = "usage: fulmar-device here | check | bench | once [--only NAME] [--records FILE] [--seed NUMBER] \
[--sizes small], or fulmar-device model | slowest | report FOLDER";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else { return refuse(USAGE) };
    if let ("report" | "slowest", [folder]) = (command.as_str(), rest) {
        return of_folder(command, Path::new(folder));
    }
    let run = match chosen(command, rest) {
        Ok(run) => run,
        Err(reason) => return refuse(&reason),
    };
    if let Err(error) = fulmar_cuda::gpus() {
        write(&format!("0 devices: GPU checks skipped: {error}"));
        return ExitCode::from(3);
    }
    let card = match Card::open(0) {
        Ok(card) => card,
        Err(error) => return refuse(&error.to_string()),
    };
    match run(&card) {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) => {
            write(&format!("FAILED: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A command with its options; returns whether all is well.
type Run<'a> = Box<dyn FnOnce(&Card) -> Result<bool> + 'a>;

/// Returns a command, or a sentence about what is wrong with it.
fn chosen<'a>(command: &str, arguments: &'a [String]) -> std::result::Result<Run<'a>, String> {
    let run: fn(&Card, &Options) -> Result<bool> = match (command, arguments) {
        ("model", [folder]) => {
            return Ok(Box::new(move |card| model::write(card, Path::new(folder)).map(|()| true)));
        }
        ("here", _) => here,
        ("check", _) => check,
        ("bench", _) => bench::measure,
        ("once", _) => bench::once,
        _ => return Err(USAGE.to_owned()),
    };
    let options = Options::from(arguments)?;
    Ok(Box::new(move |card| run(card, &options)))
}

fn refuse(reason: &str) -> ExitCode {
    write(reason);
    ExitCode::from(2)
}

/// Options of a command.
pub struct Options {
    /// The one file of kernels that is meant, if not all.
    pub only: Option<String>,
    /// The file of the records.
    pub records: Records,
}

impl Options {
    /// Returns the options, or a sentence about one that is wrong.
    fn from(arguments: &[String]) -> std::result::Result<Self, String> {
        let mut options = Self { only: None, records: Records::default() };
        for pair in arguments.chunks(2) {
            match [pair[0].as_str(), pair.get(1).map_or("", String::as_str)] {
                ["--only", name] if check::CHECKS.iter().any(|(known, _)| *known == name) => {
                    options.only = Some(name.to_owned());
                }
                ["--only", name] => {
                    let names: Vec<_> = check::CHECKS.iter().map(|(name, _)| *name).collect();
                    return Err(format!("--only must be one of {}: got {name:?}", names.join(", ")));
                }
                ["--seed", seed] => match seed.parse() {
                    Ok(seed) => numbers::set_seed(seed),
                    Err(_) => return Err(format!("--seed must be a whole number: got {seed:?}")),
                },
                ["--sizes", "small"] => numbers::set_small(),
                ["--records", path] if !path.is_empty() => options.records = Records::into(Path::new(path)),
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }

    /// Returns whether the kernels of file `name` are meant.
    pub fn has(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }
}

fn of_folder(command: &str, folder: &Path) -> ExitCode {
    let done = match command {
        "report" => summary::report(folder),
        _ => summary::slowest(folder),
    };
    match done {
        Ok(text) => {
            write(&text);
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&format!("{}: {error}", folder.display())),
    }
}

/// Writes what there is, a name and a value a line.
fn here(card: &Card, _: &Options) -> Result<bool> {
    let (major, minor) = card.gpu().compute_capability;
    let kernels = fulmar_cuda::fatbin().map_or(0, <[u8]>::len);
    write(&format!("device\t{}", card.gpu().name));
    write(&format!("capability\t{major}.{minor}"));
    write(&format!("memory_bytes\t{}", card.gpu().memory_bytes));
    write(&format!("fulmar_device\t{}", env!("CARGO_PKG_VERSION")));
    write(&format!("kernels_bytes\t{kernels}"));
    Ok(true)
}

/// Runs the checks; returns whether all bits are equal.
fn check(card: &Card, options: &Options) -> Result<bool> {
    let (major, minor) = card.gpu().compute_capability;
    let seed = numbers::seed();
    write(&format!("device: {}, compute capability {major}.{minor}; seed {seed}", card.gpu().name));
    let (mut passed, mut failed) = (0, 0);
    for (name, run) in check::CHECKS.iter().filter(|(name, _)| options.has(name)) {
        let mut report = Report::default();
        if let Err(error) = run(card, &mut report) {
            report.broken(name, &error);
        }
        passed += report.passed;
        failed += report.failed;
        let Report { passed, failed, failures } = report;
        options.records.add(
            &json!({ "name": name, "seed": seed, "passed": passed, "failed": failed, "failures": failures }),
        )?;
    }
    write(&format!("{passed} passed, {failed} failed"));
    Ok(failed == 0)
}

/// Returns the error for a file that cannot be written or read.
fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::new(fulmar_core::ErrorKind::Io, format!("{}: {error}", path.display()))
}
