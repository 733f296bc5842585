//! The face of `fulmar-core`: what is built, the error codes, the generator.

use fulmar::core::{ErrorKind, RngState, integer_from_f64};
use fulmar::cuda::Card;
use napi::bindgen_prelude::{AsyncTask, BigUint64Array, Uint32Array};
use napi_derive::napi;
use serde_json::json;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::task::{Work, task};

/// Returns a description of this build and of the machine, as JSON.
#[napi]
pub fn describe() -> Result<String> {
    guard(|| Ok(fulmar::describe("native")))
}

/// Returns the GPUs of this machine, as JSON.
#[napi]
pub fn gpus() -> Result<String> {
    guard(|| {
        let gpus = fulmar::cuda::gpus()?.into_iter().map(|gpu| {
            let named = |(major, minor): (u32, u32)| format!("{major}.{minor}");
            let card = Card::of_open(gpu.ordinal);
            let free = card.and_then(|card| card.free_bytes().ok());
            let used = card.and_then(|card| card.used_bytes().ok());
            json!({
                "ordinal": gpu.ordinal, "name": gpu.name, "memoryBytes": gpu.memory_bytes, "freeMemoryBytes": free,
                "usedMemoryBytes": used,
                "computeCapability": named(gpu.compute_capability), "driverVersion": named(gpu.driver_version),
                "code": gpu.code(),
            })
        });
        Ok(serde_json::Value::from_iter(gpus).to_string())
    })
}

/// Returns the device of this name on this machine.
#[napi]
pub fn place_device(name: String) -> Result<String> {
    guard(|| Ok(fulmar::cuda::place(&name)?.to_string()))
}

/// Returns every code that a native error can carry.
#[napi]
pub fn error_codes() -> Result<Vec<&'static str>> {
    guard(|| Ok(ErrorKind::ALL.map(ErrorKind::code).to_vec()))
}

/// Panics on request: `fulmar doctor` and the tests use it to show that a panic does not end the process.
#[napi]
pub struct PanicProbe {}

#[napi]
impl PanicProbe {
    /// Panics if `now`.
    #[napi(constructor)]
    pub fn new(now: bool) -> Result<Self> {
        guard(|| if now { panic_here() } else { Ok(Self {}) })
    }

    /// Panics in a synchronous call.
    #[napi]
    pub fn panic(&self) -> Result<()> {
        guard(panic_here)
    }

    /// Panics on a worker thread.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn panic_later(&self) -> AsyncTask<Work<()>> {
        task(panic_here)
    }

    /// Does nothing: a probe owns nothing.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| Ok(()))
    }
}

#[expect(clippy::panic, reason = "a probe for the guards around every exported body")]
fn panic_here<T>() -> fulmar::core::Result<T> {
    panic!("a probe asked for this panic")
}

/// The generator of `fulmar_core::Rng`.
#[napi]
pub struct Rng {
    inner: Slot<fulmar::core::Rng>,
}

impl From<fulmar::core::Rng> for Rng {
    fn from(rng: fulmar::core::Rng) -> Self {
        Self { inner: Slot::new("Rng", rng) }
    }
}

#[napi]
impl Rng {
    /// Returns the stream 0 of `seed`.
    #[napi(constructor)]
    pub fn new(seed: f64) -> Result<Self> {
        guard(|| Ok(fulmar::core::Rng::new(integer_from_f64("seed", seed)?).into()))
    }

    /// Returns the generator that continues from `[key, stream, wordIndex]`.
    #[napi(factory)]
    pub fn from_state(state: BigUint64Array) -> Result<Self> {
        guard(|| Ok(fulmar::core::Rng::from_state(RngState::from_words(&state)?).into()))
    }

    /// `[key, stream, wordIndex]`.
    #[napi]
    pub fn state(&self) -> Result<BigUint64Array> {
        guard(|| self.inner.with(|rng| Ok(BigUint64Array::new(rng.state().words().to_vec()))))
    }

    /// Returns the stream called `name`.
    #[napi]
    pub fn stream(&self, name: String) -> Result<Self> {
        guard(|| self.inner.with(|rng| Ok(rng.stream(&name).into())))
    }

    /// Returns the stream number `index`.
    #[napi]
    pub fn fork(&self, index: f64) -> Result<Self> {
        guard(|| self.inner.with(|rng| Ok(rng.fork(integer_from_f64("index", index)?).into())))
    }

    /// Returns 32 uniform bits.
    #[napi]
    pub fn next_u32(&self) -> Result<u32> {
        guard(|| self.inner.with(|rng| Ok(rng.next_u32())))
    }

    /// Returns a double in `[0, 1)`.
    #[napi]
    pub fn uniform(&self) -> Result<f64> {
        guard(|| self.inner.with(|rng| Ok(rng.uniform_f64())))
    }

    /// Returns a standard normal double.
    #[napi]
    pub fn normal(&self) -> Result<f64> {
        guard(|| self.inner.with(|rng| Ok(rng.normal())))
    }

    /// Returns an integer in `[0, bound)`.
    #[napi]
    pub fn below(&self, bound: f64) -> Result<f64> {
        guard(|| self.inner.with(|rng| Ok(rng.below(integer_from_f64("bound", bound)?)? as f64)))
    }

    /// Returns the first integer in `[0, bound)` of the stream that `path` leads to.
    #[napi]
    pub fn below_at(&self, path: &[f64], bound: f64) -> Result<f64> {
        guard(|| {
            let path = path
                .iter()
                .map(|&index| integer_from_f64("index", index))
                .collect::<fulmar::core::Result<Vec<_>>>()?;
            let bound = integer_from_f64("bound", bound)?;
            self.inner.with(|rng| Ok(rng.at(&path).below(bound)? as f64))
        })
    }

    /// Returns the integers `0..count` in a random order.
    #[napi]
    pub fn permutation(&self, count: f64) -> Result<Uint32Array> {
        guard(|| self.inner.with(|rng| Ok(rng.permutation(integer_from_f64("count", count)?)?.into())))
    }

    /// Drops the generator.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}
