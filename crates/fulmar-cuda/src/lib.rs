//! Interface to NVIDIA GPUs: lists them, or reports what the machine lacks.
//!
//! [`gpus`] asks the driver at run time, so one build runs with and without a GPU. Builds without the feature
//! `driver`, and WebAssembly, have the same interface and return an error. [`fatbin`] returns the compiled
//! kernels, and a [`Card`] is a GPU that runs them.

#[cfg(not(all(feature = "driver", not(target_family = "wasm"))))]
mod absent;
mod buffer;
mod card;
#[cfg(all(feature = "driver", not(target_family = "wasm")))]
mod context;
#[cfg(all(feature = "driver", not(target_family = "wasm")))]
mod driver;
mod fatbin;
mod graph_pool;
mod launch;
#[cfg(all(feature = "driver", not(target_family = "wasm")))]
mod pinned;
mod place;
#[cfg(all(feature = "driver", not(target_family = "wasm")))]
mod ring;

#[cfg(not(all(feature = "driver", not(target_family = "wasm"))))]
use absent as platform;
#[cfg(all(feature = "driver", not(target_family = "wasm")))]
use context as platform;

#[cfg(not(all(feature = "driver", not(target_family = "wasm"))))]
pub use absent::gpus;
pub use buffer::{Buffer, Slice, SliceMut};
pub use card::{Card, Graph};
#[cfg(all(feature = "driver", not(target_family = "wasm")))]
pub use driver::gpus;
pub use fatbin::fatbin;
pub use graph_pool::GraphPool;
pub use launch::{Argument, Grid};
pub use place::place;

/// A GPU that the driver shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The number that CUDA gives it.
    pub ordinal: u32,
    /// Name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Size of its memory in bytes.
    pub memory_bytes: u64,
    /// Compute capability: major and minor version.
    pub compute_capability: (u32, u32),
    /// The CUDA version that its driver runs: major and minor.
    pub driver_version: (u32, u32),
}

impl Gpu {
    /// Returns the part of the compiled kernels that runs on this GPU: machine code, `sm_80` or `sm_90a`, or `compute_90`, which the
    /// driver compiles at its first use. `None` for a compute capability below 8.0.
    ///
    /// # Examples
    /// ```
    /// use fulmar_cuda::Gpu;
    /// let of = |compute_capability| {
    ///     Gpu { ordinal: 0, name: String::new(), memory_bytes: 0, compute_capability, driver_version: (13, 0) }.code()
    /// };
    /// assert_eq!([of((7, 5)), of((8, 9))], [None, Some("sm_80")]);
    /// assert_eq!([of((9, 0)), of((12, 0))], [Some("sm_90a"), Some("compute_90")]);
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match self.compute_capability {
            (..8, _) => None,
            (8, _) => Some("sm_80"),
            (9, 0) => Some("sm_90a"),
            _ => Some("compute_90"),
        }
    }
}
