//! GPT-OSS with the harmony format: `<|start|>HEADER<|message|>BODY` and one of `<|end|>`, `<|call|>`,
//! `<|return|>`. A header names the author, a channel (`analysis` for reasoning, `commentary` for calls and
//! their results, `final`) and, for calls, the tool.
//!
//! Intended differences from the stock template: several calls in one message, and a system message after the
//! beginning, are refused, while the template drops them silently; text arguments are written as they are,
//! while the template quotes them; the date is an option, and without it its line is omitted.
//!
//! Lossy in `parse(render(x))`: the content of a message with a call is rendered as reasoning and comes back
//! as such; reasoning that the template drops because of a later answer; blanks around content and reasoning;
//! call ids.

mod harmony;
mod typescript;

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;

use super::{Family, Table};
use crate::completion::{ReasoningFormat, ReasoningState, Tag};
use crate::message_view::MessageView;
use crate::python_json::write_json;
use crate::script::{Lexicon, Scaffold, Script};
use crate::{Origin, ParseOptions, Parsed, PrefixStability, Result, ThinkingRetention};
use harmony::Harmony;

const MARKERS: [&str; 6] = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"];
const OPTIONAL_MARKERS: [&str; 1] = ["<|constrain|>"];

const ROLES: [(&str, Origin); 5] = [
    ("system", Origin::System),
    ("developer", Origin::System),
    ("user", Origin::User),
    ("assistant", Origin::Assistant),
    ("tool", Origin::Tool),
];

/// The options of GPT-OSS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GptOssOptions {
    /// The reasoning effort in the system block.
    pub reasoning_effort: String,
    /// If true, a conversation opens with the system block about the model.
    pub use_system_prompt: bool,
    /// The current date for the model, such as `2025-08-05`. Without it the line is omitted.
    pub conversation_start_date: Option<String>,
    /// The knowledge cutoff in the system block.
    pub knowledge_cutoff: String,
    /// The model identity in the system block.
    pub model_identity: String,
    /// If true, reasoning is dropped once a later answer exists, as in the stock template.
    pub auto_drop_analysis: bool,
    /// The messages that a bridge may cross. Defaults to those of a tool cycle, or to all if analysis is not
    /// dropped.
    pub thinking_retention: Option<ThinkingRetention>,
}

impl Default for GptOssOptions {
    fn default() -> Self {
        Self {
            reasoning_effort: "medium".to_owned(),
            use_system_prompt: true,
            conversation_start_date: None,
            knowledge_cutoff: "2024-06".to_owned(),
            model_identity: "You are ChatGPT, a large language model trained by OpenAI.".to_owned(),
            auto_drop_analysis: true,
            thinking_retention: None,
        }
    }
}

/// The renderer of GPT-OSS.
pub(crate) struct GptOss {
    table: Table,
    options: GptOssOptions,
    harmony: Harmony,
    pieces: Pieces,
}

struct Pieces {
    open_system: Scaffold,
    open_developer: Scaffold,
    open_user: Scaffold,
    open_assistant: Scaffold,
    start: Scaffold,
    channel: Scaffold,
    message: Scaffold,
    analysis: Scaffold,
    answer: Scaffold,
    tool_message: Scaffold,
    end: Scaffold,
    end_and_speak: Scaffold,
    call: Scaffold,
    done: Scaffold,
}

impl GptOss {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family, or if analysis is kept but a
    /// bridge must not cross a user's query.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &GptOssOptions) -> Result<Self> {
        let lexicon = Lexicon::new(&*tokenizer, &MARKERS, &OPTIONAL_MARKERS)?;
        let keeps_all = !options.auto_drop_analysis;
        let derived = if keeps_all { ThinkingRetention::All } else { ThinkingRetention::ToolCycle };
        let retention = options.thinking_retention.unwrap_or(derived);
        if keeps_all && retention != ThinkingRetention::All {
            let got = retention.name();
            let detail = format!("thinkingRetention must be all with autoDropAnalysis false: got {got}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let harmony = Harmony::new(Arc::clone(&tokenizer), &lexicon);
        let pieces = Pieces::new(&lexicon);
        let table = Table {
            tokenizer,
            roles: &ROLES,
            stop_ids: lexicon.ids(&["<|return|>", "<|call|>"]),
            close: lexicon.scaffold("<|end|>"),
            separator: Scaffold::default(),
            retention,
            // An answer ends with `<|return|>` only if nothing follows it.
            stability: PrefixStability::WithinToolCycle,
            reasoning: Some(ReasoningFormat {
                open: Tag::new(&lexicon, "<|channel|>"),
                close: Tag::new(&lexicon, "<|end|>"),
                initial: ReasoningState::Absent,
                call_ends_reasoning: false,
                keeps_empty: false,
                // The token that closes a turn closes its reasoning.
                synthetic_close: Scaffold::default(),
            }),
            calls: None,
            has_tools: true,
            fixes_system: true,
            trims_content: true,
        };
        Ok(Self { table, options: options.clone(), harmony, pieces })
    }

    fn write_system(&self, script: &mut Script, has_tools: bool) {
        let options = &self.options;
        script.frame(&self.pieces.open_system);
        let mut text =
            format!("{}\nKnowledge cutoff: {}\n", options.model_identity, options.knowledge_cutoff);
        if let Some(date) = &options.conversation_start_date {
            text += &format!("Current date: {date}\n");
        }
        text += &format!("\nReasoning: {}\n\n", options.reasoning_effort);
        text += "# Valid channels: analysis, commentary, final. Channel must be included for every message.";
        if has_tools {
            text += "\nCalls to these tools must go to the commentary channel: 'functions'.";
        }
        script.text(&text, Origin::Template);
        script.frame(&self.pieces.end);
    }

    fn write_developer(&self, script: &mut Script, instructions: &str, tools: &[Value]) -> Result<()> {
        script.frame(&self.pieces.open_developer);
        if !instructions.is_empty() {
            script.text("# Instructions\n\n", Origin::Template);
            script.text(instructions, Origin::System);
            script.text("\n\n", Origin::Template);
        }
        if !tools.is_empty() {
            script.text_with(Origin::Template, |out| typescript::write_tools(out, tools))?;
        }
        script.frame(&self.pieces.end);
        Ok(())
    }

    /// Writes an assistant's turn; `is_open` is true if no answer follows it yet, `is_last` if no message
    /// does.
    fn write_assistant(
        &self,
        script: &mut Script,
        message: &MessageView<'_>,
        is_open: bool,
        is_last: bool,
    ) -> Result<()> {
        let spoken = Origin::Assistant;
        let pieces = &self.pieces;
        let keeps = |is_shown: bool| is_shown || !self.options.auto_drop_analysis;
        let reasoning = message.reasoning.filter(|text| !text.is_empty());
        script.frame(&pieces.open_assistant);
        let Some(call) = message.calls.first() else {
            if let Some(reasoning) = message.reasoning.filter(|_| keeps(is_last)) {
                self.write_analysis(script, reasoning);
            }
            script.scaffold(&pieces.answer, spoken);
            script.text(&message.text, spoken);
            script.scaffold(if is_last { &pieces.done } else { &pieces.end }, spoken);
            return Ok(());
        };
        if message.calls.len() > 1 {
            let got = message.calls.len();
            let detail =
                format!("tool_calls must hold one call, for this family makes one at a time: got {got}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let analysis = match (reasoning, &*message.text) {
            (Some(_), text) if !text.is_empty() => {
                let detail = "a message with a call must hold content or reasoning, not both";
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            (Some(reasoning), _) => reasoning,
            (None, text) => text,
        };
        if !analysis.is_empty() && keeps(is_open) {
            self.write_analysis(script, analysis);
        }
        script.text(" to=functions.", spoken);
        script.text(call.name, spoken);
        script.scaffold(&pieces.channel, spoken);
        script.text("commentary json", spoken);
        script.scaffold(&pieces.message, spoken);
        script.text_with(spoken, |out| call.write_arguments(out))?;
        script.scaffold(&pieces.call, spoken);
        Ok(())
    }

    fn write_analysis(&self, script: &mut Script, reasoning: &str) {
        script.scaffold(&self.pieces.analysis, Origin::Assistant);
        script.text(reasoning, Origin::Assistant);
        script.scaffold(&self.pieces.end_and_speak, Origin::Assistant);
    }

    /// Writes a tool's answer with the name of the tool: the one called last, else the one in the message.
    fn write_answer(
        &self,
        script: &mut Script,
        message: &MessageView<'_>,
        called: Option<&str>,
    ) -> Result<()> {
        let named = message.message.value("name").and_then(Value::as_str);
        let Some(tool) = called.or(named) else {
            let detail = "a tool message must follow a message with a tool call, or name its tool";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        script.frame(&self.pieces.start);
        script.text("functions.", Origin::Template);
        script.text(tool, Origin::Template);
        script.text(" to=assistant", Origin::Template);
        script.frame(&self.pieces.tool_message);
        let content = Value::String(message.text.clone().into_owned());
        script.text_with(Origin::Tool, |out| write_json(out, &content))?;
        script.frame(&self.pieces.end);
        Ok(())
    }

    /// Writes the messages from `first` on, after a call of the tool `called`.
    fn write_turns<'a>(
        &self,
        script: &mut Script,
        messages: &[MessageView<'a>],
        first: usize,
        mut called: Option<&'a str>,
    ) -> Result<()> {
        let is_answer = |message: &MessageView<'_>| message.is_assistant() && message.calls.is_empty();
        let last_answer = messages.iter().rposition(is_answer);
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            match message.origin {
                Origin::Assistant => {
                    let is_open = last_answer.is_none_or(|answer| index > answer);
                    let is_last = index + 1 == messages.len() && !script.expects_answer();
                    self.write_assistant(script, message, is_open, is_last)
                        .map_err(|error| error.at(format!("messages[{index}]")))?;
                    called = message.calls.first().map(|call| call.name);
                }
                Origin::Tool => self
                    .write_answer(script, message, called)
                    .map_err(|error| error.at(format!("messages[{index}]")))?,
                Origin::User => {
                    script.frame(&self.pieces.open_user);
                    script.text(&message.text, Origin::User);
                    script.frame(&self.pieces.end);
                }
                _ => {
                    let detail = format!(
                        "messages[{index}] must not be of role {:?}, which is allowed only at the beginning",
                        message.role
                    );
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
            }
        }
        Ok(())
    }
}

impl Family for GptOss {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        if self.options.use_system_prompt {
            self.write_system(script, !tools.is_empty());
        }
        let first = messages.first().filter(|message| message.origin == Origin::System);
        let instructions = first.map_or("", |message| &message.text);
        if !instructions.is_empty() || !tools.is_empty() {
            if first.is_some() {
                script.start_message(0);
            }
            self.write_developer(script, instructions, tools)?;
            script.leave_messages();
        }
        Ok(usize::from(first.is_some()))
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        self.write_turns(script, messages, first, None)
    }

    fn write_extension(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        prompt: &[u32],
        completion: &[u32],
    ) -> Result<()> {
        let parsed = self.harmony.read(completion, Some(prompt), &[])?;
        let called = parsed.tool_calls.last().and_then(|call| call.name.as_deref());
        self.write_turns(script, messages, 0, called)
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        script.frame(&self.pieces.open_assistant);
    }

    fn leaves_reasoning_open(&self, prompt: &[u32], completion: &[u32]) -> Result<bool> {
        Ok(!self.harmony.read(completion, Some(prompt), &[])?.reasoning_complete)
    }

    fn read(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        self.harmony.read(ids, options.prompt_ids.as_deref(), &options.tools)
    }
}

impl Pieces {
    fn new(lexicon: &Lexicon) -> Self {
        Self {
            open_system: lexicon.scaffold("<|start|>system<|message|>"),
            open_developer: lexicon.scaffold("<|start|>developer<|message|>"),
            open_user: lexicon.scaffold("<|start|>user<|message|>"),
            open_assistant: lexicon.scaffold("<|start|>assistant"),
            start: lexicon.scaffold("<|start|>"),
            channel: lexicon.scaffold("<|channel|>"),
            message: lexicon.scaffold("<|message|>"),
            analysis: lexicon.scaffold("<|channel|>analysis<|message|>"),
            answer: lexicon.scaffold("<|channel|>final<|message|>"),
            tool_message: lexicon.scaffold("<|channel|>commentary<|message|>"),
            end: lexicon.scaffold("<|end|>"),
            end_and_speak: lexicon.scaffold("<|end|><|start|>assistant"),
            call: lexicon.scaffold("<|call|>"),
            done: lexicon.scaffold("<|return|>"),
        }
    }
}
