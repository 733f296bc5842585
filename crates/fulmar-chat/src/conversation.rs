//! The tokens of one conversation as it grows, turn by turn.

use std::sync::Arc;

use crate::{
    Attribution, Bridge, BridgeRefusal, Extension, Ledger, Message, Origin, ParseOptions, Parsed,
    RecordedTurn, RenderOptions, Rendered, Renderer, Result, Tools, Turn, Versions,
};

/// A prompt that grows by the completions of a policy and the messages that follow them, in one buffer, with a ledger of the
/// completions that were recorded.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fulmar_chat::{Bridge, Conversation, Message, Renderer, RendererConfig, Tools, create_renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer: Arc<dyn Renderer> = create_renderer(tokenizer.clone(), &RendererConfig::Chatml {})?.into();
/// let completion = [tokenizer.encode("2")?.ids, renderer.stop_ids()[..1].to_vec()].concat();
/// let mut conversation = Conversation::new(renderer, Tools::NONE);
/// let num_prompt = conversation.start(&[Message::new("user", "1+1?")?])?.ids.len();
/// let (parsed, bridge) = conversation.turn(&completion, &[Message::new("user", "2+2?")?])?;
/// let Bridge::Extended(extension) = bridge else { unreachable!("nothing to refuse here") };
/// assert_eq!(parsed.content, "2");
/// assert_eq!(conversation.ids().len(), num_prompt + completion.len() + extension.rendered.ids.len());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct Conversation {
    renderer: Arc<dyn Renderer>,
    /// The tokens of the prompt with the tools, in the form that [`Renderer::parse`] reads.
    prompt: ParseOptions,
    tail: Tail,
    num_messages: usize,
    /// The refusal of the last extension, which explains the next prompt.
    refusal: Option<BridgeRefusal>,
    ledger: Ledger,
}

/// The origins of the last tokens of a prompt: of all, or of those that a bridge added.
#[derive(Default)]
struct Tail {
    origin: Vec<Origin>,
    message_index: Vec<i32>,
    message_offset: u32,
    /// The refusal that made the prompt a rendering of the whole conversation.
    refusal: Option<BridgeRefusal>,
}

/// The sampled tokens of one turn.
#[derive(Debug, Clone, Copy)]
pub struct Sampled<'a> {
    /// The tokens. Shape `[T]`.
    pub ids: &'a [u32],
    /// See [`Turn::log_probs`].
    pub log_probs: &'a [f32],
    /// See [`Turn::sampled_log_probs`].
    pub sampled_log_probs: &'a [f32],
    /// The weights that sampled them.
    pub versions: Versions<'a>,
}

impl Conversation {
    /// Returns a conversation without tokens, whose messages may call `tools`.
    #[must_use]
    pub fn new(renderer: Arc<dyn Renderer>, tools: Tools) -> Self {
        let prompt = ParseOptions { prompt_ids: Some(Vec::new()), tools };
        Self {
            renderer,
            prompt,
            tail: Tail::default(),
            num_messages: 0,
            refusal: None,
            ledger: Ledger::default(),
        }
    }

    /// Returns the tokens of the prompt.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        self.prompt.prompt_ids.as_deref().unwrap_or_default()
    }

    /// Returns the ledger of the recorded turns.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the ledger of the recorded turns, and begins an empty one.
    pub fn take_ledger(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }

    /// Replaces the prompt by that of `messages`, with a generation prompt.
    ///
    /// # Errors
    /// The errors of [`Renderer::render`]; then the prompt is unchanged.
    pub fn start(&mut self, messages: &[Message]) -> Result<Rendered> {
        let options = RenderOptions { add_generation_prompt: true, tools: self.prompt.tools.clone() };
        let rendered = self.renderer.render(messages, &options)?;
        self.prompt.prompt_ids = Some(rendered.ids.clone());
        self.tail.set(&rendered, 0, self.refusal.take());
        self.num_messages = messages.len();
        Ok(rendered)
    }

    /// Appends a completion of the prompt to the ledger.
    ///
    /// # Errors
    /// The errors of [`Ledger::record_turn`]; then the ledger is unchanged.
    pub fn record(&mut self, sampled: &Sampled<'_>) -> Result<RecordedTurn> {
        self.ledger.record_turn(&Turn {
            prompt_ids: self.prompt.prompt_ids.as_deref().unwrap_or_default(),
            completion_ids: sampled.ids,
            log_probs: sampled.log_probs,
            sampled_log_probs: sampled.sampled_log_probs,
            versions: sampled.versions,
            attribution: Some(self.tail.attribution()),
            branch_reason: self.tail.refusal.map(Into::into),
        })
    }

    /// Parses a completion of the prompt.
    ///
    /// # Errors
    /// The errors of [`Renderer::parse`].
    pub fn parse(&self, completion: &[u32]) -> Result<Parsed> {
        self.renderer.parse(completion, &self.prompt)
    }

    /// Appends what [`Renderer::bridge`] keeps of a completion, and what it adds. The prompt is unchanged by a
    /// refusal.
    ///
    /// # Errors
    /// The errors of [`Renderer::bridge`]; then the prompt is unchanged.
    pub fn extend(&mut self, completion: &[u32], messages: &[Message]) -> Result<Bridge> {
        let bridge = self.renderer.bridge(self.ids(), completion, messages, &self.prompt.tools)?;
        match &bridge {
            Bridge::Extended(extension) => self.append(completion, extension, messages.len()),
            Bridge::Declined(refusal) => self.refusal = Some(*refusal),
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

    fn append(&mut self, completion: &[u32], extension: &Extension, num_messages: usize) {
        let ids = self.prompt.prompt_ids.get_or_insert_default();
        ids.extend_from_slice(&completion[..extension.num_kept]);
        ids.extend_from_slice(&extension.rendered.ids);
        // The completion is a message, too.
        self.num_messages += 1;
        self.tail.set(&extension.rendered, self.num_messages, None);
        self.num_messages += num_messages;
        self.refusal = None;
    }
}

impl Tail {
    fn set(&mut self, rendered: &Rendered, message_offset: usize, refusal: Option<BridgeRefusal>) {
        self.origin.clone_from(&rendered.origin);
        self.message_index.clone_from(&rendered.message_index);
        self.message_offset = u32::try_from(message_offset).unwrap_or(u32::MAX);
        self.refusal = refusal;
    }

    fn attribution(&self) -> Attribution<'_> {
        Attribution {
            origin: &self.origin,
            message_index: &self.message_index,
            message_offset: self.message_offset,
        }
    }
}
