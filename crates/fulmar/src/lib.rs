//! Post-training reinforcement learning for language models: one crate over all of Fulmar.
//!
//! Each module is one crate of the workspace and one feature of this one; `replay` is four crates.
//!
//! ```
//! use fulmar::model::{AdamWOptions, Decoder, DecoderConfig, Optimizer, Request, SamplingParams, TokenBatch, generate};
//!
//! let config = DecoderConfig::from_json(r#"{
//!     "model_type": "qwen2", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 16,
//!     "num_hidden_layers": 1, "num_attention_heads": 2
//! }"#)?;
//! let mut decoder = Decoder::new(config, 42)?;
//! let drawn = generate(&decoder, &[Request { prompt_ids: &[1, 2], seed: 7 }], &SamplingParams::default())?;
//! let ids = [&[1, 2][..], &drawn[0].ids].concat();
//! let mask: Vec<u8> = (0..ids.len()).map(|place| u8::from(place >= 2)).collect();
//! let batch = TokenBatch { ids: &ids, offsets: &[0, ids.len() as u32], mask: &mask, ..Default::default() };
//! let scores = decoder.forward(&batch)?;
//! assert_eq!(scores.log_prob[2..], drawn[0].log_prob); // the sampler's bits are the trainer's
//! let gradient: Vec<f32> = mask.iter().map(|trained| -f32::from(*trained)).collect();
//! decoder.backward(&gradient, None)?;
//! Optimizer::new(&decoder, AdamWOptions::default())?.step(&mut decoder, Some(1e-2), Some(1.0))?;
//! assert!(decoder.score(&batch)?.log_prob.iter().sum::<f32>() > scores.log_prob.iter().sum::<f32>());
//! # Ok::<(), fulmar::core::Error>(())
//! ```
//!
//! The examples of this crate train a decoder with GRPO, score rollouts and keep a buffer on disk.

#[cfg(feature = "chat")]
pub use fulmar_chat as chat;
pub use fulmar_compute as compute;
pub use fulmar_core as core;
pub use fulmar_cuda as cuda;
#[cfg(feature = "dataset")]
pub use fulmar_dataset as dataset;
pub use fulmar_kernel as kernel;
#[cfg(feature = "model")]
pub use fulmar_model as model;
#[cfg(feature = "objective")]
pub use fulmar_objective as objective;
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
#[cfg(feature = "tree")]
pub use fulmar_tree as tree;

/// Replay buffers, with their rows in memory, in files or on a server, and with the formats of checkpoints.
#[cfg(feature = "replay")]
pub mod replay {
    pub use fulmar_replay::*;
    pub use fulmar_replay_files::*;
    #[cfg(not(target_family = "wasm"))]
    pub use fulmar_replay_memmap::*;
    pub use fulmar_replay_store::*;
}

mod describe;

pub use describe::describe;
