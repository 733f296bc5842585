//! The durable store compared with a plain file: the same bytes in the same pieces, each made durable before the next.
//!
//! `bench_store FOLDER`. Each line of standard input is a request, each answer one line of JSON: `store PIECE` and
//! `raw PIECE` write 16,384 records of 4 KB in groups of PIECE, each followed by a commit or by `fdatasync`, and tell the
//! microseconds a record and those that each commit took; `check PIECE` opens the store again and compares every record.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fulmar::core::Result;
use fulmar::store::{FsDisk, Store, StoreOptions};
use fulmar_bench::{broken, say};
use serde_json::json;

const RECORD_BYTES: usize = 4096;
/// Records of one pass.
const RECORDS: usize = 16_384;
/// The ring holds four passes: space is given back as it is in a long run.
const CAPACITY: u64 = 65_536;

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_default());
    say(&json!({ "ready": true }))?;
    let mut open: Option<(usize, Store)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(broken)?;
        let (request, piece) = line.split_once(' ').ok_or_else(|| broken("a request without a size"))?;
        let piece: usize = piece.parse().map_err(broken)?;
        let place = folder.join(format!("store-{piece}"));
        match request {
            "raw" => {
                let times = write_raw(&folder.join("raw"), &bytes(piece))?;
                answer(&times)?;
            }
            "store" => {
                let (_, store) = match open.take() {
                    Some(same) if same.0 == piece => open.insert(same),
                    _ => open.insert((piece, open_store(&place)?)),
                };
                answer(&write_store(store, &bytes(piece))?)?;
            }
            "check" => {
                if let Some((_, store)) = open.take() {
                    store.close()?;
                }
                say(&json!({ "wrong": count_wrong(&open_store(&place)?, &bytes(piece))?, "of": RECORDS }))?;
            }
            other => return Err(broken(format!("no request {other}"))),
        }
    }
    Ok(())
}

/// Seconds of a pass, and milliseconds of each commit.
struct Times {
    seconds: f64,
    commits_ms: Vec<f64>,
}

fn answer(times: &Times) -> Result<()> {
    say(&json!({ "us": times.seconds * 1e6 / RECORDS as f64, "commitsMs": times.commits_ms }))
}

fn open_store(folder: &Path) -> Result<Store> {
    Store::open(FsDisk::new(folder)?, &StoreOptions::new(CAPACITY))
}

/// A group of records, no two alike.
fn bytes(piece: usize) -> Vec<u8> {
    (0..piece * RECORD_BYTES).map(|i| ((i * 31) >> 3) as u8 ^ (i / RECORD_BYTES) as u8).collect()
}

fn write_store(store: &mut Store, bytes: &[u8]) -> Result<Times> {
    let records: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
    timed(RECORDS / records.len(), || {
        store.append(&records)?;
        let before = Instant::now();
        store.commit()?;
        Ok(before)
    })
}

/// Into a new file: the space of the last pass is given back, as the ring gives back that of its oldest rows.
fn write_raw(path: &Path, bytes: &[u8]) -> Result<Times> {
    let mut file = File::create(path)?;
    timed(RECORDS * RECORD_BYTES / bytes.len(), || {
        file.write_all(bytes)?;
        let before = Instant::now();
        file.sync_data()?;
        Ok(before)
    })
}

/// Writes groups; each tells when its commit began.
fn timed(groups: usize, mut write: impl FnMut() -> Result<Instant>) -> Result<Times> {
    let mut commits_ms = Vec::with_capacity(groups);
    let start = Instant::now();
    for _ in 0..groups {
        commits_ms.push(write()?.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Times { seconds: start.elapsed().as_secs_f64(), commits_ms })
}

/// Returns the number of records of the last pass that differ from those written.
fn count_wrong(store: &Store, bytes: &[u8]) -> Result<usize> {
    let records: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
    let (mut wrong, mut got) = (0, Vec::new());
    for back in 1..=RECORDS as u64 {
        let seq = store.end_seq() - back;
        store.read_into(seq % CAPACITY, &mut got)?;
        wrong += usize::from(got != records[seq as usize % records.len()]);
    }
    Ok(wrong)
}
