//! Conversations to exact tokens and back: histories, renderers, and the token ledger.
//!
//! [`Message`]s come in as the dictionaries of chat APIs. A [`Renderer`] converts them to ids and reports the
//! origin of each id. Sampled tokens are never encoded again: [`Renderer::bridge`] appends to them, and the
//! [`Ledger`] stores them with their log-probabilities and the weights that sampled them.

mod apply_chat_template;
mod check;
mod completion;
mod config;
mod content;
mod conversation;
mod conversations;
mod family;
mod from_text;
mod history;
mod ledger;
mod mask;
mod message;
mod message_view;
mod opaque;
mod python_json;
mod rendered;
mod rendered_texts;
mod renderer;
mod script;
mod tool_call;
mod tools;
mod training_sample;

pub use apply_chat_template::{ChatTemplateOptions, EncodedChats, Side, TemplatedChat, apply_chat_template};
pub use check::check_renderer;
pub use config::{RendererConfig, create_renderer};
pub use content::{ContentBase, ContentKind};
pub use conversation::{Conversation, Sampled};
pub use conversations::{Answers, Conversations};
pub use family::{
    ChatMlRenderer, DeepseekR1Options, DeepseekV3Options, Glm45Options, GptOssOptions, Llama3Options,
    MinimaxM2Options, Qwen3Options, Qwen35Options, Qwen36Options,
};
pub use from_text::{TextFormat, from_text};
pub use fulmar_core::Result;
pub use history::{History, HistorySpec, PADDING_ROLE};
pub use ledger::{
    Attribution, Branch, BranchReason, Fork, Ledger, RecordedTurn, SampleRef, Samples, Segment, Turn,
    TurnColumns, TurnOptions, VersionRange, Versions,
};
pub use mask::{MaskOptions, MaskPreset, MaskedTurns, RenderedColumns, Straddling, TokenMasks, token_masks};
pub use message::Message;
pub use opaque::{OpaqueOptions, OpaqueRenderer};
pub use rendered::{
    Rendered, attribute_text_segments, extract_message_tool_names, reject_assistant_in_extension,
    trim_to_turn_close,
};
pub use rendered_texts::{RenderedTexts, render_texts};
pub use renderer::{
    Bridge, BridgeRefusal, Extension, Origin, ParseOptions, Parsed, ParsedToolCall, PrefixStability,
    RenderOptions, Renderer, RendererFacts, ThinkingRetention, ToolCallStatus,
};
pub use tools::Tools;
pub use training_sample::{
    RenderedTrainingSample, TrainingSampleOptions, TrajectoryStep, build_training_sample,
    build_trajectory_step,
};
