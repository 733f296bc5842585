//! Comparisons: bits of a card against bits of the processor, counted and written as they are made.

use std::fmt::Debug;
use std::io::Write;

use half::bf16;

/// Differing elements that a failed comparison shows.
const SHOWN_MAX: usize = 5;

/// Failed comparisons of a file that a report keeps.
const FAILURES_MAX: usize = 20;

/// The comparisons of the kernels of one file.
#[derive(Default)]
pub struct Report {
    pub passed: usize,
    pub failed: usize,
    /// Texts of those that failed.
    pub failures: Vec<String>,
}

/// A number that is compared by its bits. Every NaN equals every other: processors and GPUs make different ones.
pub trait Bits: Copy + Debug {
    fn bits(self) -> u64;
}

impl Bits for f32 {
    fn bits(self) -> u64 {
        if self.is_nan() { u64::MAX } else { u64::from(self.to_bits()) }
    }
}

impl Bits for f64 {
    fn bits(self) -> u64 {
        if self.is_nan() { u64::MAX } else { self.to_bits() }
    }
}

impl Bits for bf16 {
    fn bits(self) -> u64 {
        if self.is_nan() { u64::MAX } else { u64::from(self.to_bits()) }
    }
}

impl Bits for u16 {
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Bits for u8 {
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Bits for u32 {
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Bits for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Report {
    /// Counts a comparison; of one that fails it writes the first differing elements.
    pub fn same<T: Bits>(&mut self, name: &str, shape: &str, got: &[T], wanted: &[T]) {
        let differ = |index: &usize| got[*index].bits() != wanted[*index].bits();
        let differing: Vec<usize> = (0..got.len().min(wanted.len())).filter(differ).collect();
        if differing.is_empty() && got.len() == wanted.len() {
            self.passed += 1;
            return;
        }
        let mut text = format!("{name} {shape}: {} of {} differ", differing.len(), wanted.len());
        for index in differing.into_iter().take(SHOWN_MAX) {
            text += &format!("\n  [{index}]: got {:?}, wanted {:?}", got[index], wanted[index]);
        }
        self.fail(text);
    }

    /// Counts a comparison by the relative error in the L2 norm, which must be at most `limit`.
    pub fn near(&mut self, name: &str, shape: &str, got: &[f32], wanted: &[f64], limit: f64) {
        let square =
            |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>();
        let error = square(&mut got.iter().zip(wanted).map(|(got, wanted)| f64::from(*got) - wanted));
        let relative = (error / square(&mut wanted.iter().copied()).max(f64::MIN_POSITIVE)).sqrt();
        // A NaN is not near.
        if got.len() == wanted.len() && relative <= limit {
            self.passed += 1;
        } else {
            self.fail(format!("{name} {shape}: relative error {relative:e}, at most {limit:e} is allowed"));
        }
    }

    /// Counts what could not be compared.
    pub fn broken(&mut self, name: &str, error: &fulmar_core::Error) {
        self.fail(format!("{name}: {error}"));
    }

    fn fail(&mut self, text: String) {
        self.failed += 1;
        write(&format!("FAILED {text}"));
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(text);
        }
    }
}

/// Writes a line; a reader that has gone changes nothing.
pub fn write(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
