//! The one door to renderers: a closed description of a family and its knobs.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;

use crate::family::Qwen3;
use crate::{ChatMlRenderer, Qwen3Options, Renderer, Result};

/// Which family, and its knobs. Unknown names and unknown knobs are refused where this is read from JSON.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub enum RendererConfig {
    /// Plain ChatML: see [`ChatMlRenderer`].
    Chatml {},
    /// Qwen3: reasoning, tools, calls as JSON.
    #[serde(rename = "qwen3")]
    Qwen3(Qwen3Options),
}

/// The renderer of `config` over `tokenizer`.
///
/// # Errors
/// `Incompatible` if the tokenizer lacks a special token of the family.
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
        RendererConfig::Qwen3(options) => Ok(Box::new(Qwen3::new(tokenizer, options)?)),
    }
}
