//! Post-training reinforcement learning for language models: one crate over all of Fulmar.
//!
//! Each module is one crate of the workspace and one feature of this one.

#[cfg(feature = "chat")]
pub use fulmar_chat as chat;
pub use fulmar_compute as compute;
pub use fulmar_core as core;
pub use fulmar_cuda as cuda;
pub use fulmar_kernel as kernel;
#[cfg(feature = "model")]
pub use fulmar_model as model;
#[cfg(feature = "objective")]
pub use fulmar_objective as objective;
#[cfg(feature = "replay")]
pub use fulmar_replay as replay;
#[cfg(feature = "spec")]
pub use fulmar_spec as spec;
#[cfg(feature = "store")]
pub use fulmar_store as store;
#[cfg(feature = "ted")]
pub use fulmar_ted as ted;
#[cfg(feature = "template")]
pub use fulmar_template as template;
#[cfg(feature = "tensor")]
pub use fulmar_tensor as tensor;
#[cfg(feature = "tokenizer")]
pub use fulmar_tokenizer as tokenizer;
#[cfg(feature = "transform")]
pub use fulmar_transform as transform;

mod describe;

pub use describe::describe;
