//! The face of `fulmar-core`: what is built, the error codes, the generator.

use fulmar::core::{ErrorKind, RngState, integer_from_f64};
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// Returns a description of this build and of the machine, as JSON.
#[wasm_bindgen]
pub fn describe() -> Result<String> {
    guard(|| Ok(fulmar::describe("wasm")))
}

/// Returns the GPUs of this machine, as JSON: none here, so always an error.
#[wasm_bindgen]
pub fn gpus() -> Result<String> {
    guard(|| fulmar::cuda::gpus().map(|_| "[]".to_owned()))
}

/// Returns the device of this name on this machine.
#[wasm_bindgen(js_name = placeDevice)]
pub fn place_device(name: &str) -> Result<String> {
    guard(|| Ok(fulmar::cuda::place(name)?.to_string()))
}

/// Returns every code that an error of the core can carry.
#[wasm_bindgen(js_name = errorCodes)]
pub fn error_codes() -> Result<Vec<String>> {
    guard(|| Ok(ErrorKind::ALL.map(|kind| kind.code().to_owned()).to_vec()))
}

/// Panics on request: `fulmar doctor` and the tests use it to show that a panic does not end the process.
#[wasm_bindgen]
pub struct PanicProbe {}

#[wasm_bindgen]
impl PanicProbe {
    /// Panics if `now`.
    #[wasm_bindgen(constructor)]
    pub fn new(now: bool) -> Result<Self> {
        guard(|| if now { panic_here() } else { Ok(Self {}) })
    }

    /// Panics.
    pub fn panic(&self) -> Result<()> {
        guard(panic_here)
    }

    /// Panics at once: there are no threads here.
    #[wasm_bindgen(js_name = panicLater)]
    pub fn panic_later(&self) -> Result<()> {
        guard(panic_here)
    }
}

#[expect(clippy::panic, reason = "a probe for what happens after a panic")]
fn panic_here<T>() -> fulmar::core::Result<T> {
    panic!("a probe asked for this panic")
}

/// The generator of `fulmar_core::Rng`.
#[wasm_bindgen]
pub struct Rng {
    inner: fulmar::core::Rng,
}

impl From<fulmar::core::Rng> for Rng {
    fn from(inner: fulmar::core::Rng) -> Self {
        Self { inner }
    }
}

#[wasm_bindgen]
impl Rng {
    /// Returns the stream 0 of `seed`.
    #[wasm_bindgen(constructor)]
    pub fn new(seed: f64) -> Result<Self> {
        guard(|| Ok(fulmar::core::Rng::new(integer_from_f64("seed", seed)?).into()))
    }

    /// Returns the generator that continues from `[key, stream, wordIndex]`.
    #[wasm_bindgen(js_name = fromState)]
    pub fn from_state(state: &[u64]) -> Result<Self> {
        guard(|| Ok(fulmar::core::Rng::from_state(RngState::from_words(state)?).into()))
    }

    /// `[key, stream, wordIndex]`.
    pub fn state(&self) -> Result<Vec<u64>> {
        guard(|| Ok(self.inner.state().words().to_vec()))
    }

    /// Returns the stream called `name`.
    pub fn stream(&self, name: &str) -> Result<Self> {
        guard(|| Ok(self.inner.stream(name).into()))
    }

    /// Returns the stream number `index`.
    pub fn fork(&self, index: f64) -> Result<Self> {
        guard(|| Ok(self.inner.fork(integer_from_f64("index", index)?).into()))
    }

    /// Returns 32 uniform bits.
    #[wasm_bindgen(js_name = nextU32)]
    pub fn next_u32(&mut self) -> Result<u32> {
        guard(|| Ok(self.inner.next_u32()))
    }

    /// Returns a double in `[0, 1)`.
    pub fn uniform(&mut self) -> Result<f64> {
        guard(|| Ok(self.inner.uniform_f64()))
    }

    /// Returns a standard normal double.
    pub fn normal(&mut self) -> Result<f64> {
        guard(|| Ok(self.inner.normal()))
    }

    /// Returns an integer in `[0, bound)`.
    pub fn below(&mut self, bound: f64) -> Result<f64> {
        guard(|| Ok(self.inner.below(integer_from_f64("bound", bound)?)? as f64))
    }

    /// Returns the first integer in `[0, bound)` of the stream that `path` leads to.
    #[wasm_bindgen(js_name = belowAt)]
    pub fn below_at(&self, path: &[f64], bound: f64) -> Result<f64> {
        guard(|| {
            let path = path
                .iter()
                .map(|&index| integer_from_f64("index", index))
                .collect::<fulmar::core::Result<Vec<_>>>()?;
            Ok(self.inner.at(&path).below(integer_from_f64("bound", bound)?)? as f64)
        })
    }

    /// Returns the integers `0..count` in a random order.
    pub fn permutation(&mut self, count: f64) -> Result<Vec<u32>> {
        guard(|| self.inner.permutation(integer_from_f64("count", count)?))
    }
}
