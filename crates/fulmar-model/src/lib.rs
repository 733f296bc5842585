//! A decoder language model: forward and backward side by side, batched generation, optimiser.

mod config;
mod decoder;
mod decoding;
mod folder;
mod generation;
mod gguf;
mod head;
mod layer;
mod lora;
mod optimizer;
mod packing;
mod parameters;
mod rope_parameters;

pub use config::{DecoderConfig, ModelType};
pub use decoder::{Decoder, Scores};
pub use generation::{FinishReason, FlatGenerated, Generated, Generation, GenerationOptions, Request};
pub use gguf::tokenizer::gguf_tokenizer_json;
pub use lora::LoraConfig;
pub use optimizer::{AdamW, AdamWOptions, StepReport};
pub use packing::TokenBatch;
pub use parameters::Parameter;
pub use rope_parameters::RopeParameters;
