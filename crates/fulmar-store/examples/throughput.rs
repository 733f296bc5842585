//! Acknowledged records a second compared with the disk: the same bytes written to a plain file in the same
//! pieces, each followed by `fdatasync`. The two alternate.
//!
//! `cargo run --release -p fulmar-store --example throughput -- <folder>`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fulmar_core::Result;
use fulmar_store::{FsDisk, Store, StoreOptions};

const RECORD_BYTES: usize = 4096;
const ROUNDS: usize = 9;
/// Records in a round.
const RECORDS: usize = 16_384;
const CAPACITY: u64 = 65_536;

fn main() -> Result<()> {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("fulmar-throughput-{}", std::process::id()));
    for per_commit in [32, 64, 128, 256, 512] {
        measure(&folder, per_commit)?;
    }
    Ok(fs::remove_dir_all(folder)?)
}

fn measure(folder: &Path, per_commit: usize) -> Result<()> {
    let mut store =
        Store::open(FsDisk::new(folder.join(format!("{per_commit}")))?, &StoreOptions::new(CAPACITY))?;
    let raw_path = folder.join("raw");
    let piece: Vec<u8> = (0..per_commit * RECORD_BYTES).map(|i| ((i * 31) >> 3) as u8).collect();
    let records: Vec<&[u8]> = piece.chunks(RECORD_BYTES).collect();
    let (mut rates, mut raw_rates, mut ratios, mut waits_ms) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        // The space of the last round is freed, as the ring frees that of its oldest rows.
        let mut raw = File::create(&raw_path)?;
        for _ in 0..RECORDS / per_commit {
            raw.write_all(&piece)?;
            raw.sync_data()?;
        }
        let raw_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for _ in 0..RECORDS / per_commit {
            store.append(&records)?;
            let before = Instant::now();
            store.commit()?;
            waits_ms.push(before.elapsed().as_secs_f64() * 1e3);
        }
        let seconds = start.elapsed().as_secs_f64();
        rates.push(RECORDS as f64 / seconds);
        raw_rates.push(RECORDS as f64 / raw_seconds);
        ratios.push(raw_seconds / seconds);
    }
    fs::remove_file(raw_path)?;
    println!(
        "{per_commit:4} records a commit: {:7.0} acknowledged/s, raw {:7.0}/s, share {:.2} (10th percentile {:.2}), commit {:.2} ms (99th percentile {:.2})",
        quantile(&mut rates, 0.5),
        quantile(&mut raw_rates, 0.5),
        quantile(&mut ratios, 0.5),
        quantile(&mut ratios, 0.1),
        quantile(&mut waits_ms, 0.5),
        quantile(&mut waits_ms, 0.99),
    );
    Ok(())
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}
