//! Specs: the shape, dtype and values that an observation, an action or a reward may have.
//!
//! A [`TensorSpec`] checks a value and explains errors, projects it to the nearest valid one, draws and
//! enumerates values, and converts plain JSON to values and back. Every operation that reshapes a value has a
//! counterpart that reshapes its spec, masks and bounds included.

mod choice;
mod composite;
mod dictionary;
mod discrete;
mod encode;
mod enumerate;
mod explain;
mod json;
mod lazy;
mod leaf;
mod non_tensor;
mod number;
mod operation;
mod shape;
mod spec;
mod stacked;
mod step;
mod structure;

pub use choice::Choice;
pub use composite::Composite;
pub use explain::{Place, Violation};
pub use fulmar_core::Result;
pub use lazy::{check_no_exclusive_keys, consolidate_spec, contains_lazy_spec, make_composite_from_td};
pub use leaf::Leaf;
pub use non_tensor::NonTensorSpec;
pub use operation::Operation;
pub use shape::Shape;
pub use spec::TensorSpec;
pub use stacked::Stacked;
pub use structure::At;
