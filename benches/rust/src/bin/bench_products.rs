//! Compared with benches/rival/trl/products.py: products of rows by a weight, and what this machine can do at most.
//!
//!     bench_products FOLDER INPUTS OUTPUTS COPIES
//!
//! benches/ts/products.ts writes `rows.f32` and `weight.f32` into FOLDER. Each line `KIND ROWS REPEATS` of standard input is answered
//! with one line of JSON: `us`, the mean time of a product, and `values`, some of the last one's results. The products take turns with
//! COPIES of the weight, so that none is in a cache. The kind `peak` answers with `flops`, multiplies and adds of a second, and `read`
//! with `bytes`, those that a second reads.

use std::fs;
use std::hint::black_box;
use std::io::BufRead;
use std::sync::Barrier;
use std::time::Instant;

use fulmar::core::Result;
use fulmar::kernel::{Floats, MatRef, MatmulPrecision, Panels, matmul, num_threads};
use fulmar::tensor::bf16;
use fulmar_bench::{broken, say};
use serde_json::{Value, json};

/// One of so many results is reported.
const STRIDE: usize = 97;

/// Fused multiply-adds of each lane in a measurement of the peak, and bytes that a thread reads in one of the memory.
const STEPS: usize = 4_000_000;
const BYTES: usize = 256 << 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, sizes @ ..] = arguments.as_slice() else { return Err(broken("no folder")) };
    let sizes: Vec<usize> = sizes.iter().map(|size| size.parse().map_err(broken)).collect::<Result<_>>()?;
    let [inputs, outputs, copies] = sizes[..] else { return Err(broken("not three sizes")) };
    let mut products = Products::read(folder, inputs, outputs, copies)?;
    let memory: Vec<Vec<u64>> = (0..num_threads()).map(|at| vec![at as u64 + 1; BYTES / 8]).collect();
    say(&json!({ "threads": num_threads() }))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(broken)?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["peak", ..] => say(&peak())?,
            ["read", ..] => say(&bandwidth(&memory))?,
            [kind, rows, repeats] => {
                let (rows, repeats) = (rows.parse().map_err(broken)?, repeats.parse().map_err(broken)?);
                let us = products.run(kind, rows, repeats)?;
                let values: Vec<f32> = products.out.iter().step_by(STRIDE).copied().collect();
                say(&json!({ "us": us, "values": values }))?;
            }
            _ => return Err(broken(&line)),
        }
    }
    Ok(())
}

struct Products {
    inputs: usize,
    outputs: usize,
    copies: usize,
    rows: Vec<f32>,
    weight: Vec<f32>,
    /// The copies for products of the last kind, and that kind.
    packed: Vec<Panels>,
    kind: String,
    next: usize,
    out: Vec<f32>,
}

impl Products {
    fn read(folder: &str, inputs: usize, outputs: usize, copies: usize) -> Result<Self> {
        let floats = |name: &str| -> Result<Vec<f32>> {
            let bytes = fs::read(format!("{folder}/{name}")).map_err(broken)?;
            Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        let (rows, weight) = (floats("rows.f32")?, floats("weight.f32")?);
        Ok(Self {
            inputs,
            outputs,
            copies,
            rows,
            weight,
            packed: Vec::new(),
            kind: String::new(),
            next: 0,
            out: Vec::new(),
        })
    }

    /// Returns the mean microseconds of a product of that many rows.
    fn run(&mut self, kind: &str, rows: usize, repeats: u32) -> Result<f64> {
        self.pack(kind)?;
        self.out.resize(rows * self.outputs, 0.0);
        let (x, out) = (MatRef::new(&self.rows[..rows * self.inputs], rows, self.inputs), &mut self.out);
        let (packed, next) = (&self.packed, &mut self.next);
        let start = Instant::now();
        for _ in 0..repeats {
            *next = (*next + 1) % packed.len();
            matmul(out, x, packed[*next].transposed(), false);
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(repeats))
    }

    fn pack(&mut self, kind: &str) -> Result<()> {
        if self.kind == kind {
            return Ok(());
        }
        self.packed.clear();
        let halves: Vec<bf16> = self.weight.iter().map(|number| bf16::from_f32(*number)).collect();
        let (weight, precision): (Floats<'_>, _) = match kind {
            "f32" => (self.weight.as_slice().into(), MatmulPrecision::F32),
            "bf16" => (halves.as_slice().into(), MatmulPrecision::F32),
            "rounded" => (halves.as_slice().into(), MatmulPrecision::Bf16),
            _ => return Err(broken(kind)),
        };
        for _ in 0..self.copies {
            let mut panels = Panels::default();
            panels.pack_for(precision, weight, self.outputs, self.inputs).map_err(broken)?;
            self.packed.push(panels);
        }
        kind.clone_into(&mut self.kind);
        Ok(())
    }
}

/// Measures the f32 operations of a second of fused multiply-adds on all threads; none for a processor without them.
fn peak() -> Value {
    let Some(lanes) = lanes() else { return json!({ "flops": null, "cpuMs": 0 }) };
    let seconds = on_all_threads(|_| {
        black_box(multiply_add(STEPS));
    });
    let flops = 2.0 * (STEPS * lanes * SUMS * num_threads()) as f64 / seconds;
    json!({ "flops": flops, "cpuMs": seconds * 1e3 * num_threads() as f64 })
}

/// Measures the bytes of a second that all threads read from memory.
fn bandwidth(memory: &[Vec<u64>]) -> Value {
    let seconds = on_all_threads(|thread| {
        let sums = memory[thread].as_chunks::<8>().0.iter().fold([0_u64; 8], |mut sums, chunk| {
            sums.iter_mut().zip(chunk).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
            sums
        });
        black_box(sums);
    });
    json!({ "bytes": (BYTES * num_threads()) as f64 / seconds, "cpuMs": seconds * 1e3 * num_threads() as f64 })
}

/// Runs `work` on each thread at once; returns the seconds until all have done it.
fn on_all_threads(work: impl Fn(usize) + Sync) -> f64 {
    let (barrier, work) = (Barrier::new(num_threads() + 1), &work);
    std::thread::scope(|scope| {
        for thread in 0..num_threads() {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                work(thread);
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        start.elapsed().as_secs_f64()
    })
}

/// Independent sums: enough to hide the latency of two units.
const SUMS: usize = 12;

#[cfg(target_arch = "x86_64")]
mod fused {
    use std::arch::x86_64::{
        _mm256_add_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_add_ps, _mm512_cvtss_f32,
        _mm512_fmadd_ps, _mm512_set1_ps,
    };

    use super::SUMS;

    /// Returns the lanes of a sum, if this processor fuses multiply-adds.
    pub fn lanes() -> Option<usize> {
        match (is_x86_feature_detected!("avx512f"), is_x86_feature_detected!("avx2")) {
            (true, _) => Some(16),
            (false, true) if is_x86_feature_detected!("fma") => Some(8),
            _ => None,
        }
    }

    pub fn multiply_add(steps: usize) -> f32 {
        if lanes() == Some(16) {
            // SAFETY: the processor has AVX-512.
            unsafe { by_16(steps) }
        } else {
            // SAFETY: `lanes` found AVX2 and fused multiply-adds before this was called.
            unsafe { by_8(steps) }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn by_16(steps: usize) -> f32 {
        let (mut sums, factor) = ([_mm512_set1_ps(0.5); SUMS], _mm512_set1_ps(0.999));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, factor);
            }
        }
        _mm512_cvtss_f32(sums.into_iter().fold(_mm512_set1_ps(0.0), |all, sum| _mm512_add_ps(all, sum)))
    }

    #[target_feature(enable = "avx2,fma")]
    fn by_8(steps: usize) -> f32 {
        let (mut sums, factor) = ([_mm256_set1_ps(0.5); SUMS], _mm256_set1_ps(0.999));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, factor);
            }
        }
        _mm256_cvtss_f32(sums.into_iter().fold(_mm256_set1_ps(0.0), |all, sum| _mm256_add_ps(all, sum)))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod fused {
    /// The peak is measured on x86-64 alone.
    pub fn lanes() -> Option<usize> {
        None
    }

    pub fn multiply_add(_: usize) -> f32 {
        0.0
    }
}

use fused::{lanes, multiply_add};
