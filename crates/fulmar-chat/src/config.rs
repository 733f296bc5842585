//! The one door to renderers: a closed description of a family and its knobs.

mod model;

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;

use crate::family::{DeepSeek, Glm45, GptOss, KimiK2, Llama3, MinimaxM2, Qwen3, Qwen25, Qwen35};
use crate::{
    ChatMlRenderer, DeepseekR1Options, DeepseekV3Options, Glm45Options, GptOssOptions, Llama3Options,
    MinimaxM2Options, OpaqueOptions, OpaqueRenderer, Qwen3Options, Qwen35Options, Qwen36Options, Renderer,
    Result,
};

/// Which family, and its knobs. Unknown names and unknown knobs are refused where this is read from JSON.
///
/// What is left of an assistant's message after `parse(render(x))`:
///
/// | family | content with blanks around it | reasoning | content beside a call | several calls | ids of calls |
/// |---|---|---|---|---|---|
/// | `chatml` | kept | lost | refused | refused | refused |
/// | `qwen2_5` | trimmed | lost | kept | kept | lost |
/// | `qwen3` | trimmed | trimmed | kept | kept | lost |
/// | `qwen3_5` | trimmed | trimmed | kept | kept | lost |
/// | `qwen3_6` | trimmed | trimmed | kept | kept | lost |
/// | `llama3` | trimmed | lost | lost | refused | lost |
/// | `deepseek_v3` | trimmed | lost | kept | kept | lost |
/// | `deepseek_r1` | trimmed | lost | without the call | kept | lost |
/// | `glm4_5` | trimmed | trimmed | kept | kept | lost |
/// | `gpt_oss` | trimmed | trimmed | as reasoning | refused | lost |
/// | `kimi_k2` | trimmed | lost | kept | kept | kept |
/// | `minimax_m2` | trimmed | trimmed | kept | kept | lost |
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub enum RendererConfig {
    /// Plain ChatML: see [`ChatMlRenderer`].
    Chatml {},
    /// Qwen2.5: tools, calls as JSON.
    #[serde(rename = "qwen2_5")]
    Qwen25 {},
    /// Qwen3: reasoning, tools, calls as JSON.
    #[serde(rename = "qwen3")]
    Qwen3(Qwen3Options),
    /// Qwen3.5: reasoning that the prompt opens, calls as XML-like tags.
    #[serde(rename = "qwen3_5")]
    Qwen35(Qwen35Options),
    /// Qwen3.6: as Qwen3.5, with reasoning that may stay.
    #[serde(rename = "qwen3_6")]
    Qwen36(Qwen36Options),
    /// Llama 3, 3.1 and 3.2: one call a turn, as JSON.
    #[serde(rename = "llama3")]
    Llama3(Llama3Options),
    /// GLM-4.5: role markers that open a turn, calls as tagged arguments.
    #[serde(rename = "glm4_5")]
    Glm45(Glm45Options),
    /// GPT-OSS: harmony's channels.
    GptOss(GptOssOptions),
    /// Kimi K2: calls whose ids name their tools.
    #[serde(rename = "kimi_k2")]
    KimiK2 {},
    /// MiniMax M2: reasoning that the prompt opens, calls as XML.
    #[serde(rename = "minimax_m2")]
    MinimaxM2(MinimaxM2Options),
    /// DeepSeek V3.
    DeepseekV3(DeepseekV3Options),
    /// DeepSeek R1.
    DeepseekR1(DeepseekR1Options),
    /// The family of a model: see [`RendererConfig::of_model`].
    Auto {
        /// The model's name, as its hub writes it.
        model: String,
    },
    /// Any chat template: see [`OpaqueRenderer`].
    Opaque(OpaqueOptions),
}

impl RendererConfig {
    /// The configuration with the family of its model in the place of the model.
    pub(crate) fn resolved(&self) -> Self {
        match self {
            Self::Auto { model } => Self::of_model(model),
            known => known.clone(),
        }
    }
}

/// The renderer of `config` over `tokenizer`.
///
/// # Errors
/// `Incompatible` if the tokenizer lacks a special token of the family, or for knobs that contradict each other; what
/// [`OpaqueRenderer::new`] says.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fulmar_chat::{Message, RenderOptions, RendererConfig, create_renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer = create_renderer(tokenizer, &RendererConfig::Chatml {})?;
/// let rendered = renderer.render(&[Message::new("user", "Hi")?], &RenderOptions::default())?;
/// assert_eq!(rendered.ids.len(), "user\nHi".len() + 3);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn create_renderer(tokenizer: Arc<dyn Tokenizer>, config: &RendererConfig) -> Result<Box<dyn Renderer>> {
    match config {
        RendererConfig::Chatml {} => Ok(Box::new(ChatMlRenderer::new(tokenizer)?)),
        RendererConfig::Qwen25 {} => Ok(Box::new(Qwen25::new(tokenizer)?)),
        RendererConfig::Qwen35(options) => Ok(Box::new(Qwen35::new(tokenizer, options)?)),
        RendererConfig::Qwen36(options) => Ok(Box::new(Qwen35::new_3_6(tokenizer, options)?)),
        RendererConfig::Llama3(options) => Ok(Box::new(Llama3::new(tokenizer, options)?)),
        RendererConfig::Glm45(options) => Ok(Box::new(Glm45::new(tokenizer, options)?)),
        RendererConfig::GptOss(options) => Ok(Box::new(GptOss::new(tokenizer, options)?)),
        RendererConfig::KimiK2 {} => Ok(Box::new(KimiK2::new(tokenizer)?)),
        RendererConfig::MinimaxM2(options) => Ok(Box::new(MinimaxM2::new(tokenizer, options)?)),
        RendererConfig::DeepseekV3(options) => Ok(Box::new(DeepSeek::v3(tokenizer, options)?)),
        RendererConfig::DeepseekR1(options) => Ok(Box::new(DeepSeek::r1(tokenizer, options)?)),
        RendererConfig::Auto { .. } => create_renderer(tokenizer, &config.resolved()),
        RendererConfig::Opaque(options) => Ok(Box::new(OpaqueRenderer::new(tokenizer, options)?)),
        RendererConfig::Qwen3(options) => Ok(Box::new(Qwen3::new(tokenizer, options)?)),
    }
}
