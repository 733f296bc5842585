//! The tokens of one conversation as it grows, turn by turn.

use std::sync::Arc;

use serde_json::Value;

use crate::{Bridge, Message, ParseOptions, Parsed, RenderOptions, Rendered, Renderer, Result};

/// A prompt that grows by the completions of a policy and the messages that follow them, in one buffer.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fulmar_chat::{Bridge, Conversation, Message, Renderer, RendererConfig, create_renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer: Arc<dyn Renderer> = create_renderer(tokenizer.clone(), &RendererConfig::Chatml {})?.into();
/// let completion = [tokenizer.encode("2")?.ids, renderer.stop_ids()[..1].to_vec()].concat();
/// let mut conversation = Conversation::new(renderer, Vec::new());
/// let num_prompt = conversation.start(&[Message::new("user", "1+1?")?])?.ids.len();
/// let (parsed, bridge) = conversation.turn(&completion, &[Message::new("user", "2+2?")?])?;
/// let Bridge::Extended(extension) = bridge else { unreachable!("nothing to refuse here") };
/// assert_eq!(parsed.content, "2");
/// assert_eq!(conversation.ids().len(), num_prompt + completion.len() + extension.rendered.ids.len());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct Conversation {
    renderer: Arc<dyn Renderer>,
    tools: Vec<Value>,
    ids: Vec<u32>,
}

impl Conversation {
    /// Returns a conversation without tokens, whose messages may call `tools`.
    #[must_use]
    pub const fn new(renderer: Arc<dyn Renderer>, tools: Vec<Value>) -> Self {
        Self { renderer, tools, ids: Vec::new() }
    }

    /// Returns the tokens of the prompt.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Replaces the prompt by that of `messages`, with a generation prompt.
    ///
    /// # Errors
    /// The errors of [`Renderer::render`]; then the prompt is unchanged.
    pub fn start(&mut self, messages: &[Message]) -> Result<Rendered> {
        let options = RenderOptions { add_generation_prompt: true, tools: self.tools.clone() };
        let rendered = self.renderer.render(messages, &options)?;
        self.ids.clone_from(&rendered.ids);
        Ok(rendered)
    }

    /// Parses a completion of the prompt.
    ///
    /// # Errors
    /// The errors of [`Renderer::parse`].
    pub fn parse(&self, completion: &[u32]) -> Result<Parsed> {
        let options = ParseOptions { prompt_ids: Some(self.ids.clone()), tools: self.tools.clone() };
        self.renderer.parse(completion, &options)
    }

    /// Appends what [`Renderer::bridge`] keeps of a completion, and what it adds. The prompt is unchanged by a
    /// refusal.
    ///
    /// # Errors
    /// The errors of [`Renderer::bridge`]; then the prompt is unchanged.
    pub fn extend(&mut self, completion: &[u32], messages: &[Message]) -> Result<Bridge> {
        let bridge = self.renderer.bridge(&self.ids, completion, messages, &self.tools)?;
        if let Bridge::Extended(extension) = &bridge {
            self.ids.extend_from_slice(&completion[..extension.num_kept]);
            self.ids.extend_from_slice(&extension.rendered.ids);
        }
        Ok(bridge)
    }

    /// Runs [`Conversation::parse`] and [`Conversation::extend`].
    ///
    /// # Errors
    /// The errors of both; then the prompt is unchanged.
    pub fn turn(&mut self, completion: &[u32], messages: &[Message]) -> Result<(Parsed, Bridge)> {
        let parsed = self.parse(completion)?;
        Ok((parsed, self.extend(completion, messages)?))
    }
}
