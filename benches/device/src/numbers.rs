//! Inputs of the checks, each a function of its name, its shape and the seed of this run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytemuck::Pod;
use fulmar_core::{Result, Rng};
use fulmar_cuda::{Buffer, Card};
use half::bf16;

/// Numbers that are drawn; longer inputs repeat them.
const DRAWN: usize = 1 << 22;

/// The seed of this run of the program.
static SEED: AtomicU64 = AtomicU64::new(22);

/// Returns the seed, 22 unless an option sets another.
pub fn seed() -> u64 {
    SEED.load(Ordering::Relaxed)
}

/// Sets the seed, before any input is made.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// Set if a GPU gets the sizes of the emulated one.
static IS_SMALL: AtomicBool = AtomicBool::new(false);

/// Gives a GPU the sizes of the emulated one.
pub fn set_small() {
    IS_SMALL.store(true, Ordering::Relaxed);
}

/// Returns whether sizes are those that the emulated GPU has time for.
pub fn is_small(card: &Card) -> bool {
    card.is_emulated() || IS_SMALL.load(Ordering::Relaxed)
}

/// Returns `len` numbers between `-scale` and `scale`.
pub fn random(name: &str, len: usize, scale: f32) -> Vec<f32> {
    let mut rng = Rng::new(seed()).stream(name).fork(len as u64);
    (0..len).map(|_| (rng.uniform_f32() * 2.0 - 1.0) * scale).collect()
}

/// Many elements: those of a pattern, again and again.
pub struct Repeated<T> {
    pattern: Vec<T>,
    len: usize,
}

impl Repeated<f32> {
    /// Draws numbers between `-scale` and `scale`.
    pub fn numbers(name: &str, len: usize, scale: f32) -> Self {
        Self { pattern: random(name, len.min(DRAWN), scale), len }
    }
}

impl Repeated<bf16> {
    /// Draws numbers between -1 and 1.
    pub fn halves(name: &str, len: usize) -> Self {
        Self { pattern: random(name, len.min(DRAWN), 1.0).into_iter().map(bf16::from_f32).collect(), len }
    }

    /// Returns element number `index`.
    pub fn at(&self, index: usize) -> f64 {
        self.pattern[index % self.pattern.len()].to_f64()
    }
}

impl<T: Pod> Repeated<T> {
    /// Returns `len` elements of a pattern.
    pub const fn of(pattern: Vec<T>, len: usize) -> Self {
        Self { pattern, len }
    }

    /// Returns the elements on the GPU.
    ///
    /// # Errors
    /// Errors of the GPU's driver.
    pub fn upload(&self, card: &Card) -> Result<Buffer<T>> {
        let (from, mut to) = (card.upload(&self.pattern)?, card.poisoned::<T>(self.len)?);
        for first in (0..self.len).step_by(self.pattern.len().max(1)) {
            let count = self.pattern.len().min(self.len - first);
            card.copy(from.view().slice(0..count), to.view_mut().slice(first..first + count))?;
        }
        card.finish()?;
        Ok(to)
    }
}
