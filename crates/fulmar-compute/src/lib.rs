//! The interface to devices. A [`Compute`] is the handle of one device, and each operation is a method of it:
//! `compute.matmul(...)`. One table holds all operations, so an operation has one name, one signature and one
//! place where its device is selected.
//!
//! [`dispatch!`] makes that selection for work above the table, such as a loss, which has code for the CPU alone yet. An operation
//! or such work without code for a GPU is `Unavailable` there, by its name.
//!
//! Crates above this one take kernels only from here. It re-exports the types in their signatures and, as
//! [`cpu`], the parts of operations that run on the processor.

pub use fulmar_kernel::{
    AdamwStep, AttentionShape, LogProb, MatmulPrecision, Panels, RopeTable, SgdStep, Spans, rope_frequencies,
};

pub mod cpu;

mod attention;
mod compute;
mod cuda;
mod floats;
mod kept;
mod memory;
mod operation;
mod rows;
mod view;

pub use attention::AttentionSaved;
pub use compute::Compute;
pub use floats::{Floats, MatRef, Widened};
pub use kept::{Lacking, name_around};
pub use memory::Memory;
pub use view::{View, ViewMut};
