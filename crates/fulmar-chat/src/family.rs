//! Families of models, one file each: the format of messages, tools and reasoning, and the parser of
//! completions.
//!
//! A family is a [`Table`] of constants and a few functions, [`Family`], that write its turns. Everything
//! else is shared here: attribution, refusals, the bridge, parsing completions by id.

mod chatml;
mod deepseek;
mod glm;
mod gpt_oss;
mod kimi_k2;
mod llama3;
mod minimax_m2;
mod qwen2_5;
mod qwen3;
mod qwen3_5;

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, limits};
use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

pub use chatml::ChatMlRenderer;
pub(crate) use deepseek::DeepSeek;
pub use deepseek::{DeepseekR1Options, DeepseekV3Options};
pub(crate) use glm::Glm45;
pub use glm::Glm45Options;
pub(crate) use gpt_oss::GptOss;
pub use gpt_oss::GptOssOptions;
pub(crate) use kimi_k2::KimiK2;
pub(crate) use llama3::Llama3;
pub use llama3::Llama3Options;
pub(crate) use minimax_m2::MinimaxM2;
pub use minimax_m2::MinimaxM2Options;
pub(crate) use qwen2_5::Qwen25;
pub use qwen3::Qwen3Options;
pub(crate) use qwen3::{Qwen3, split_reasoning};
pub(crate) use qwen3_5::Qwen35;
pub use qwen3_5::{Qwen35Options, Qwen36Options};

use crate::completion::{CallFormat, Completion, ReasoningFormat};
use crate::message_view::{MessageView, origin_of};
use crate::script::{Scaffold, Script};
use crate::{
    Bridge, BridgeRefusal, Extension, Message, Origin, ParseOptions, Parsed, PrefixStability, RenderOptions,
    Rendered, Renderer, Result, ThinkingRetention,
};

/// Bytes of a token of most texts, for the size of buffers.
const TOKEN_BYTES: usize = 3;

/// The constants of a family with its options and its tokenizer.
pub(crate) struct Table {
    /// The tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// The roles and the origin of their text.
    pub roles: &'static [(&'static str, Origin)],
    /// The ids that end an assistant's turn; the first is the regular one.
    pub stop_ids: Vec<u32>,
    /// Closes a turn that was cut off before it sampled a stop.
    pub close: Scaffold,
    /// Separates a turn's close from the next message.
    pub separator: Scaffold,
    /// The new messages that a bridge may cross.
    pub retention: ThinkingRetention,
    /// The prefix stability of a re-render.
    pub stability: PrefixStability,
    /// The format of reasoning, if the family has any.
    pub reasoning: Option<ReasoningFormat>,
    /// The format of tool calls, if the family uses special tokens for them.
    pub calls: Option<CallFormat>,
    /// If true, the family has tools; if not, tools and messages with calls are refused.
    pub has_tools: bool,
    /// If true, a system message can only open a conversation, so no bridge can add one.
    pub fixes_system: bool,
    /// If true, parsed content is trimmed.
    pub trims_content: bool,
}

/// The functions in which families differ beyond their [`Table`].
pub(crate) trait Family: Send + Sync {
    /// Returns the constants.
    fn table(&self) -> &Table;

    /// Writes the beginning of a conversation: system text and tools. Returns the number of messages that
    /// this used up.
    ///
    /// # Errors
    /// For a message or a tool that the family cannot express.
    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize>;

    /// Writes the messages from `first` on. Earlier messages are already written or, in a bridge, do not
    /// exist.
    ///
    /// # Errors
    /// For a message that the family cannot express.
    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()>;

    /// Opens an assistant's turn after `messages`.
    fn write_generation_prompt(&self, script: &mut Script, messages: &[MessageView<'_>]);

    /// In a bridge, writes the new `messages` after the ids of the prompt and of its completion.
    ///
    /// # Errors
    /// The errors of [`Family::write_messages`].
    fn write_extension(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        _prompt: &[u32],
        _completion: &[u32],
    ) -> Result<()> {
        self.write_messages(script, messages, 0)
    }

    /// In a bridge, writes the text between the last turn, which ended on the stop `ended_on` or was cut off,
    /// and `next`.
    fn write_close(&self, script: &mut Script, ended_on: Option<u32>, _next: &MessageView<'_>) {
        if ended_on.is_none() {
            script.scaffold(&self.table().close, Origin::Synthetic);
        }
        script.frame(&self.table().separator);
    }

    /// Returns whether a message is a query, after which a template drops earlier reasoning.
    fn is_query(&self, message: &MessageView<'_>) -> bool {
        message.origin == Origin::User
    }

    /// Returns whether the turn `completion` of `prompt` left its reasoning open.
    ///
    /// # Errors
    /// `OutOfRange` for ids outside of the vocabulary.
    fn leaves_reasoning_open(&self, prompt: &[u32], completion: &[u32]) -> Result<bool> {
        Completion::new(self.table(), completion, Some(prompt))?.is_reasoning_open()
    }

    /// Parses a completion.
    ///
    /// # Errors
    /// `OutOfRange` for ids outside of the vocabulary.
    fn read(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        Completion::new(self.table(), ids, options.prompt_ids.as_deref())?.parse(&options.tools)
    }
}

impl<F: Family> Renderer for F {
    fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered> {
        let mut rendered = Rendered::default();
        let script = script_of(self, Script::with_capacity, messages, options)?;
        script.encode_into(&*self.table().tokenizer, &mut rendered)?;
        Ok(rendered)
    }

    fn render_text(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        Ok(script_of(self, Script::of_text, messages, options)?.into_text())
    }

    fn bridge(
        &self,
        prev_prompt: &[u32],
        prev_completion: &[u32],
        new_messages: &[Message],
        tools: &[Value],
    ) -> Result<Bridge> {
        let table = self.table();
        check_tools(table, tools)?;
        let has_place = |role: &str| {
            origin_of(table.roles, role)
                .is_some_and(|origin| !(table.fixes_system && origin == Origin::System))
        };
        if let Some(refusal) = refusal_of(prev_prompt, new_messages, has_place) {
            return Ok(Bridge::Declined(refusal));
        }
        let views = view_messages(table, new_messages)?;
        if table.retention != ThinkingRetention::All && views.iter().any(|view| self.is_query(view)) {
            return Ok(Bridge::Declined(BridgeRefusal::UserQueryUnderToolCycle));
        }
        let kept = crate::trim_to_turn_close(prev_completion, &table.stop_ids);
        let ended_on = kept.last().copied().filter(|id| table.stop_ids.contains(id));
        let is_open = self.leaves_reasoning_open(prev_prompt, kept)?;
        if is_open && ended_on.is_some() {
            return Ok(Bridge::Declined(BridgeRefusal::OpenReasoningAfterStop));
        }
        let mut script = Script::with_capacity(256 + num_bytes(&views));
        script.expect_answer(true);
        if let Some(reasoning) = table.reasoning.as_ref().filter(|_| is_open) {
            script.scaffold(&reasoning.synthetic_close, Origin::Synthetic);
        }
        self.write_close(&mut script, ended_on, &views[0]);
        self.write_extension(&mut script, &views, prev_prompt, kept)?;
        script.leave_messages();
        self.write_generation_prompt(&mut script, &views);
        let mut rendered = Rendered::with_capacity(script.len() / TOKEN_BYTES);
        script.encode_into(&*table.tokenizer, &mut rendered)?;
        Ok(within_length(prev_prompt.len(), Extension { num_kept: kept.len(), rendered }))
    }

    fn parse(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        self.read(ids, options)
    }

    fn stop_ids(&self) -> &[u32] {
        &self.table().stop_ids
    }

    fn prefix_stability(&self) -> PrefixStability {
        self.table().stability
    }

    fn thinking_retention(&self) -> ThinkingRetention {
        self.table().retention
    }
}

/// Writes the whole conversation to what `make` returns for its size.
fn script_of<F: Family>(
    family: &F,
    make: fn(usize) -> Script,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<Script> {
    let table = family.table();
    if messages.is_empty() {
        return Err(Error::new(
            ErrorKind::Empty,
            "messages must hold at least one message, but the list is empty",
        ));
    }
    check_tools(table, &options.tools)?;
    let views = view_messages(table, messages)?;
    let mut script = make(256 + num_bytes(&views));
    script.expect_answer(options.add_generation_prompt);
    let first = family.write_header(&mut script, &views, &options.tools)?;
    family.write_messages(&mut script, &views, first)?;
    script.leave_messages();
    if options.add_generation_prompt {
        family.write_generation_prompt(&mut script, &views);
    }
    Ok(script)
}

/// Returns the first reason why the roles of `new_messages` cannot extend `prev_prompt`. `has_place` returns
/// whether a role may occur after the beginning.
pub(crate) fn refusal_of(
    prev_prompt: &[u32],
    new_messages: &[Message],
    has_place: impl Fn(&str) -> bool,
) -> Option<BridgeRefusal> {
    if prev_prompt.is_empty() {
        Some(BridgeRefusal::EmptyPrompt)
    } else if new_messages.is_empty() {
        Some(BridgeRefusal::EmptyExtension)
    } else if crate::reject_assistant_in_extension(new_messages) {
        Some(BridgeRefusal::AssistantInExtension)
    } else if !new_messages.iter().all(|message| has_place(message.role())) {
        Some(BridgeRefusal::UnknownRole)
    } else {
        None
    }
}

/// Returns the extension of a prompt of `num_prompt` tokens, unless the result exceeds the length of a
/// model's prompt.
pub(crate) fn within_length(num_prompt: usize, extension: Extension) -> Bridge {
    if num_prompt + extension.num_kept + extension.rendered.ids.len() > limits::SEQUENCE_TOKENS_MAX {
        return Bridge::Declined(BridgeRefusal::OverLength);
    }
    Bridge::Extended(extension)
}

fn view_messages<'a>(table: &Table, messages: &'a [Message]) -> Result<Vec<MessageView<'a>>> {
    let views = MessageView::list(messages, table.roles)?;
    let with_calls = views.iter().position(|view| !view.calls.is_empty());
    match with_calls {
        Some(index) if !table.has_tools => Err(no_form_for("tool_calls").at(format!("messages[{index}]"))),
        _ => Ok(views),
    }
}

fn check_tools(table: &Table, tools: &[Value]) -> Result<()> {
    if !table.has_tools && !tools.is_empty() {
        return Err(no_form_for("tools"));
    }
    Ok(())
}

fn no_form_for(what: &str) -> Error {
    let detail = format!("{what} must be left out, since this family has no form for them");
    Error::new(ErrorKind::Incompatible, detail)
}

fn num_bytes(views: &[MessageView<'_>]) -> usize {
    views.iter().map(|view| view.text.len() + view.reasoning.map_or(0, str::len) + 64).sum()
}
