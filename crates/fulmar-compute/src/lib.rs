//! The door to devices. [`Compute`] says where sums run, and each operation is a method of it: `compute.matmul(...)`. One table holds
//! them all, so an operation has one name, one signature and one place where its device is chosen.
//!
//! [`dispatch!`] is that choice. What the crates above do as a whole on one device, a loss say, calls it at its entry. On a GPU there
//! is nothing yet, and no value of [`Compute`] names one: the arm for it stands in [`dispatch!`], and once `fulmar_cuda::Kernels` has
//! values the compiler lists every operation that lacks a kernel.
//!
//! Crates above this one take kernels from nowhere else. Re-exported are the types in their signatures, and what is no operation over
//! memory: functions of one number, hints, threads, tables.

// One number, or a hint to the processor.
pub use fulmar_kernel::{exp, power, prefetch};
// A body of Rust that is compiled for vector units: what an operation on the CPU is written in.
pub use fulmar_kernel::lanes;
// How the processor's threads share work.
pub use fulmar_kernel::{active_lanes, for_each_part, num_threads, together};
// Numbers and lists that are worked out once, and that operations read.
pub use fulmar_kernel::{
    AdamwStep, AttentionSaved, AttentionShape, LogProb, MatRef, RopeTable, SgdStep, SoftmaxRow, Spans,
    rope_frequencies,
};

mod compute;
mod memory;
mod operation;
mod rows;

pub use compute::Compute;
pub use memory::Memory;
