//! Copies between the host and a GPU.

use std::hint::black_box;
use std::time::Instant;

use fulmar_core::Result;
use fulmar_cuda::Card;
use serde_json::{Value, json};

use super::{ROUNDS, TIMES, sized};

/// Returns the record of copies between the host and new memory, until they are done, by the clock of the host.
pub fn record(card: &Card, name: &str) -> Result<Value> {
    let len = sized(card, 1 << 24, 1 << 18);
    let values = vec![1.0_f32; len];
    let there = card.upload(&values)?;
    let copy = || -> Result<f64> {
        let start = Instant::now();
        if name == "upload" {
            let _copied = card.upload(&values)?;
            card.finish()?;
        } else {
            black_box(there.read()?);
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let median = |_| {
        let mut times = (0..TIMES).map(|_| copy()).collect::<Result<Vec<_>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[TIMES / 2])
    };
    let milliseconds = (0..ROUNDS).map(median).collect::<Result<Vec<_>>>()?;
    let slower = milliseconds.iter().copied().fold(0.0, f64::max);
    Ok(json!({
        "name": name,
        "shape": format!("{} MiB", len >> 18),
        "milliseconds": milliseconds,
        "gigabytes_per_second": 4.0 * len as f64 / slower / 1e6,
    }))
}
