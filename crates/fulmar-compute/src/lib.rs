//! The door to devices. [`Compute`] says where sums run, and each operation is a method of it: `compute.matmul(...)`. One table holds
//! them all, so an operation has one name, one signature and one place where its device is chosen.
//!
//! [`dispatch!`] is that choice. What the crates above do as a whole on one device, a loss say, calls it at its entry. On a GPU there
//! is nothing yet, and no value of [`Compute`] names one: the arm for it stands in [`dispatch!`], and once `fulmar_cuda::Kernels` has
//! values the compiler lists every operation that lacks a kernel.
//!
//! Crates above this one take kernels from nowhere else. Re-exported are the types in their signatures, and as [`cpu`] what those parts
//! of an operation are made of that run on the processor.

pub use fulmar_kernel::{
    AdamwStep, AttentionSaved, AttentionShape, Floats, LogProb, MatRef, RopeTable, SgdStep, Spans,
    rope_frequencies,
};

pub mod cpu;

mod compute;
mod memory;
mod operation;
mod rows;

pub use compute::Compute;
pub use memory::Memory;
