//! The entry point to renderers: a closed description of a family and its options.

mod chosen;
mod model;
mod template;

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;

use crate::family::{DeepSeek, Glm45, GptOss, KimiK2, Llama3, MinimaxM2, Qwen3, Qwen25, Qwen35};
pub(crate) use chosen::parser_of;
use chosen::{Named, chosen};

use crate::{
    ChatMlRenderer, DeepseekR1Options, DeepseekV3Options, Glm45Options, GptOssOptions, Llama3Options,
    MinimaxM2Options, OpaqueOptions, OpaqueRenderer, Qwen3Options, Qwen35Options, Qwen36Options, Renderer,
    Result,
};

/// A family with its options. Unknown names and options are refused when this is read from JSON.
///
/// Parts of an assistant's message after `parse(render(x))`:
///
/// | family | content with blanks around it | reasoning | content with a call | several calls | ids of calls |
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
    /// The family that renders like the tokenizer's template, or the family of a model: see
    /// [`create_renderer`].
    Auto {
        /// The model's name on its hub. By default the template alone decides.
        #[serde(default)]
        model: Option<String>,
    },
    /// Any chat template: see [`OpaqueRenderer`].
    Opaque(OpaqueOptions),
}

impl RendererConfig {
    /// Returns the stable name: `chatml`, `qwen2_5`, ...
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Chatml {} => "chatml",
            Self::Qwen25 {} => "qwen2_5",
            Self::Qwen3(_) => "qwen3",
            Self::Qwen35(_) => "qwen3_5",
            Self::Qwen36(_) => "qwen3_6",
            Self::Llama3(_) => "llama3",
            Self::Glm45(_) => "glm4_5",
            Self::GptOss(_) => "gpt_oss",
            Self::KimiK2 {} => "kimi_k2",
            Self::MinimaxM2(_) => "minimax_m2",
            Self::DeepseekV3(_) => "deepseek_v3",
            Self::DeepseekR1(_) => "deepseek_r1",
            Self::Auto { .. } => "auto",
            Self::Opaque(_) => "opaque",
        }
    }
}

/// Returns the renderer of `config` over `tokenizer`. [`Renderer::facts`] contains its name and the reason
/// for the choice.
///
/// `auto` selects the family of a model by its exact name. Otherwise the tokenizer's template decides: it
/// selects the family that renders the same text for conversations that exercise all its parts, or else
/// [`OpaqueRenderer`].
///
/// # Errors
/// `Incompatible` if the tokenizer lacks a special token of the family, for options that contradict each
/// other, and for `auto` if there is neither a known name nor a template, or the two are of different
/// families; `UnknownName` for a model whose name differs from a known one only in case; the errors of
/// [`OpaqueRenderer::new`].
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
    let (config, reason) = chosen(&tokenizer, config)?;
    let inner: Box<dyn Renderer> = match &config {
        RendererConfig::Opaque(options) => Box::new(OpaqueRenderer::new(tokenizer, options)?),
        _ => family(tokenizer, &config)?,
    };
    Ok(Box::new(Named { inner, name: config.name(), reason }))
}

/// Returns the renderer of a family.
fn family(tokenizer: Arc<dyn Tokenizer>, config: &RendererConfig) -> Result<Box<dyn Renderer>> {
    Ok(match config {
        RendererConfig::Chatml {} => Box::new(ChatMlRenderer::new(tokenizer)?),
        RendererConfig::Qwen25 {} => Box::new(Qwen25::new(tokenizer)?),
        RendererConfig::Qwen3(options) => Box::new(Qwen3::new(tokenizer, options)?),
        RendererConfig::Qwen35(options) => Box::new(Qwen35::new(tokenizer, options)?),
        RendererConfig::Qwen36(options) => Box::new(Qwen35::new_3_6(tokenizer, options)?),
        RendererConfig::Llama3(options) => Box::new(Llama3::new(tokenizer, options)?),
        RendererConfig::Glm45(options) => Box::new(Glm45::new(tokenizer, options)?),
        RendererConfig::GptOss(options) => Box::new(GptOss::new(tokenizer, options)?),
        RendererConfig::KimiK2 {} => Box::new(KimiK2::new(tokenizer)?),
        RendererConfig::MinimaxM2(options) => Box::new(MinimaxM2::new(tokenizer, options)?),
        RendererConfig::DeepseekV3(options) => Box::new(DeepSeek::v3(tokenizer, options)?),
        RendererConfig::DeepseekR1(options) => Box::new(DeepSeek::r1(tokenizer, options)?),
        RendererConfig::Auto { .. } | RendererConfig::Opaque(_) => {
            let detail = format!("name must be that of a family here: got {:?}", config.name());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
    })
}
