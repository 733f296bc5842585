//! The interface to devices. A [`Compute`] is the handle of one device, and each operation is a method of it:
//! `compute.matmul(...)`. One table holds all operations, so an operation has one name, one signature and one
//! place where its device is selected.
//!
//! [`dispatch!`] makes that selection. Crates above call it at the entry of work that runs on one device as a
//! whole, such as a loss. There is no GPU code yet, and [`Compute`] has no value for a GPU: [`dispatch!`]
//! holds the arm for it, and once `fulmar_cuda::Kernels` has values, the compiler lists every operation that
//! lacks a kernel.
//!
//! Crates above this one take kernels only from here. It re-exports the types in their signatures and, as
//! [`cpu`], the parts of operations that run on the processor.

pub use fulmar_kernel::{
    AdamwStep, AttentionSaved, AttentionShape, Floats, LogProb, MatRef, MatmulPrecision, Panels, RopeTable,
    SgdStep, Spans, rope_frequencies,
};

pub mod cpu;

mod compute;
mod memory;
mod operation;
mod rows;

pub use compute::Compute;
pub use memory::Memory;
