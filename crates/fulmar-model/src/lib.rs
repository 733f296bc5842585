//! A decoder language model with forward and backward passes, batched generation and optimizers.

mod config;
mod decoder;
mod engine;
mod engine_options;
mod folder;
mod generation;
mod gguf;
mod head;
mod layer;
mod lora;
mod optimizer;
mod outputs;
mod packing;
mod padding;
mod paged;
mod panels;
mod parameters;
mod planner;
mod request;
mod rope_parameters;
mod schedule;
mod scheduler;
mod score;
mod weights;

pub use config::{DecoderConfig, ModelType, ScalarHead};
pub use decoder::{Decoder, Scores};
pub use engine::Engine;
pub use engine_options::{EngineOptions, EngineWeights, KvCacheDtype, SPECULATIVE_TOKENS_MAX, WeightChange};
pub use generation::generate;
pub use gguf::tokenizer::GgufTokenizer;
pub use lora::LoraConfig;
pub use optimizer::{
    AdamWOptions, Decay, MuonOptions, MuonScale, Optimizer, OptimizerOptions, SgdOptions, StepReport,
};
pub use outputs::{FinishReason, FlatOutputs, Generated, Outputs, SampledToken};
pub use packing::TokenBatch;
pub use padding::{PaddedTokenBatch, UnpaddedTokenBatch};
pub use parameters::Parameter;
pub use planner::{Groups, PackStrategy, StreamPacker, balance, pack};
pub use request::{Request, SamplingParams};
pub use rope_parameters::RopeParameters;
pub use schedule::{Decline, Schedule};
pub use score::TopLogProbs;
