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
    AdamwStep, AttentionShape, LogProb, MatmulPrecision, Panels, PanelsView, SgdStep, newton_schulz_floats,
    rope_frequencies,
};

pub mod cpu;

mod attention;
mod compute;
mod cuda;
mod draws;
mod floats;
mod kept;
mod log_probs;
mod memory;
mod operation;
mod placed;
mod plan;
mod rope;
mod rows;
mod spans;
mod step_rows;
mod view;

pub use attention::AttentionSaved;
pub use compute::Compute;
pub use draws::{DrawInputs, DrawPlan, Drawn, Draws};
pub use floats::{FloatMemory, Floats, FloatsMut, MatRef};
pub use fulmar_cuda::{Graph, GraphPool};
pub use kept::{Lacking, name_around};
pub use log_probs::LogProbs;
pub use memory::Memory;
pub use operation::EachProduct;
pub use placed::Placed;
pub use plan::{Numbers, RowNumbers};
pub use rope::RopeTable;
pub use spans::Spans;
pub use step_rows::{StepBlock, StepRoom, StepRows};
pub use view::{View, ViewMut};
