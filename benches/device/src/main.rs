//! `fulmar-device check [--only NAME]`: runs every kernel on the first GPU and compares its bits with those of `fulmar-kernel`.
//!
//! Exit status: 0 if all are equal, 1 if some are not, 2 for wrong arguments, 3 without a GPU. The same program runs on the
//! emulated GPU, if `LD_LIBRARY_PATH` names its folder.

mod card;
mod check;
mod numbers;
mod report;

use std::process::ExitCode;

use card::Card;
use report::{Report, write};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let only = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => None,
        ["check", "--only", name] if check::CHECKS.iter().any(|(known, _)| *known == name) => Some(name),
        _ => {
            let names: Vec<_> = check::CHECKS.iter().map(|(name, _)| *name).collect();
            write(&format!("usage: fulmar-device check [--only NAME], NAME one of {}", names.join(", ")));
            return ExitCode::from(2);
        }
    };
    let card = match Card::open() {
        Ok(card) => card,
        Err(error) => {
            write(&format!("0 devices: GPU checks skipped: {error}"));
            return ExitCode::from(3);
        }
    };
    let (major, minor) = card.capability;
    write(&format!("device: {}, compute capability {major}.{minor}", card.name));
    let mut report = Report::default();
    for (name, run) in check::CHECKS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        if let Err(error) = run(&card, &mut report) {
            report.broken(name, &error);
        }
    }
    write(&format!("{} passed, {} failed", report.passed, report.failed));
    ExitCode::from(u8::from(report.failed > 0))
}
