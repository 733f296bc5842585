//! DeepSeek V3 and R1: plain system text, a marker before each user and assistant message, an end of sentence
//! after each assistant message.
//!
//! The templates count tool calls and tool answers over the whole conversation: only the first round gets the
//! opening markers. The renderer does the same, so a re-render is not a prefix of the next; bridges are
//! unaffected. Lossy in `parse(render(x))`: reasoning, which the templates drop from every turn; blanks
//! around content; in V3, the content of messages with calls after the first round; in R1, calls of messages
//! with content, which its template drops.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;

use super::{Family, Table};
use crate::completion::{CallBody, CallFormat, ReasoningFormat, ReasoningState, Tag};
use crate::message_view::MessageView;
use crate::script::{Lexicon, Scaffold, Script};
use crate::tool_call::{ReadCall, read_arguments};
use crate::{Origin, PrefixStability, Result, ThinkingRetention, ToolCallStatus};

const BEGIN: &str = "<\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}>";
const END: &str = "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>";
const USER: &str = "<\u{ff5c}User\u{ff5c}>";
const ASSISTANT: &str = "<\u{ff5c}Assistant\u{ff5c}>";
const CALLS_BEGIN: &str = "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>";
const CALLS_END: &str = "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>";
const CALL_BEGIN: &str = "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>";
const CALL_END: &str = "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>";
const SEPARATOR: &str = "<\u{ff5c}tool\u{2581}sep\u{ff5c}>";
const ANSWERS_BEGIN: &str = "<\u{ff5c}tool\u{2581}outputs\u{2581}begin\u{ff5c}>";
const ANSWERS_END: &str = "<\u{ff5c}tool\u{2581}outputs\u{2581}end\u{ff5c}>";
const ANSWER_BEGIN: &str = "<\u{ff5c}tool\u{2581}output\u{2581}begin\u{ff5c}>";
const ANSWER_END: &str = "<\u{ff5c}tool\u{2581}output\u{2581}end\u{ff5c}>";
const OPTIONAL: [&str; 11] = [
    CALLS_BEGIN,
    CALLS_END,
    CALL_BEGIN,
    CALL_END,
    SEPARATOR,
    ANSWERS_BEGIN,
    ANSWERS_END,
    ANSWER_BEGIN,
    ANSWER_END,
    "<think>",
    "</think>",
];

/// The options of DeepSeek V3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DeepseekV3Options {
    /// If true, the generation prompt opens reasoning.
    pub enable_thinking: bool,
}

/// The options of DeepSeek R1, which always reasons.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DeepseekR1Options {
    /// The messages that a bridge may cross. Defaults to `template`.
    pub thinking_retention: Option<ThinkingRetention>,
}

/// The renderer of DeepSeek V3 and R1.
pub(crate) struct DeepSeek {
    table: Table,
    pieces: Pieces,
    is_r1: bool,
    answers_begin_id: Option<u32>,
}

struct Pieces {
    begin: Scaffold,
    user: Scaffold,
    assistant: Scaffold,
    generation_prompt: Scaffold,
    end: Scaffold,
    calls_begin: Scaffold,
    calls_end: Scaffold,
    call_begin: Scaffold,
    separator: Scaffold,
    call_end: Scaffold,
    answers_begin: Scaffold,
    answers_end: Scaffold,
    answer_begin: Scaffold,
    answer_end: Scaffold,
}

/// The templates' state from one message to the next.
#[derive(Debug, Clone, Copy, Default)]
struct Rounds {
    has_called: bool,
    has_answered: bool,
    /// `true` if the last message was a tool's answer.
    is_answering: bool,
}

impl DeepSeek {
    /// Returns the renderer of V3 with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn v3(tokenizer: Arc<dyn Tokenizer>, options: &DeepseekV3Options) -> Result<Self> {
        let retention =
            if options.enable_thinking { ThinkingRetention::Template } else { ThinkingRetention::All };
        Self::new(tokenizer, false, options.enable_thinking, retention)
    }

    /// Returns the renderer of R1 with `tokenizer`.
    ///
    /// # Errors
    /// The errors of [`DeepSeek::v3`].
    pub(crate) fn r1(tokenizer: Arc<dyn Tokenizer>, options: &DeepseekR1Options) -> Result<Self> {
        Self::new(tokenizer, true, true, options.thinking_retention.unwrap_or(ThinkingRetention::Template))
    }

    fn new(
        tokenizer: Arc<dyn Tokenizer>,
        is_r1: bool,
        opens_reasoning: bool,
        retention: ThinkingRetention,
    ) -> Result<Self> {
        let lexicon = Lexicon::new(&*tokenizer, &[BEGIN, END, USER, ASSISTANT], &OPTIONAL)?;
        let reasoning = ReasoningFormat {
            open: Tag::new(&lexicon, "<think>"),
            close: Tag::new(&lexicon, "</think>"),
            initial: if opens_reasoning { ReasoningState::Open } else { ReasoningState::Absent },
            call_ends_reasoning: false,
            keeps_empty: false,
            synthetic_close: lexicon.scaffold("\n</think>\n\n"),
        };
        let calls = CallFormat {
            section: Some((Tag::new(&lexicon, CALLS_BEGIN), Tag::new(&lexicon, CALLS_END))),
            open: Tag::new(&lexicon, CALL_BEGIN),
            close: Tag::new(&lexicon, CALL_END),
            read: read_call,
        };
        let table = Table {
            tokenizer,
            roles: &super::chatml::ROLES,
            stop_ids: lexicon.ids(&[END]),
            close: lexicon.scaffold(END),
            separator: Scaffold::default(),
            retention,
            stability: PrefixStability::Never,
            reasoning: Some(reasoning),
            calls: Some(calls),
            has_tools: true,
            fixes_system: true,
            trims_content: true,
        };
        let pieces = Pieces::new(&lexicon, opens_reasoning);
        Ok(Self { table, pieces, is_r1, answers_begin_id: lexicon.id(ANSWERS_BEGIN) })
    }

    fn write_rounds(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        mut rounds: Rounds,
    ) -> Result<()> {
        for (index, message) in messages.iter().enumerate() {
            script.start_message(index);
            match message.origin {
                Origin::User => {
                    rounds.is_answering = false;
                    script.frame(&self.pieces.user);
                    script.text(&message.text, Origin::User);
                }
                Origin::Tool => self.write_answer(script, message, &mut rounds),
                Origin::Assistant if self.has_calls(message) => {
                    self.write_calls(script, message, &mut rounds)?;
                }
                Origin::Assistant => self.write_assistant(script, message, &mut rounds),
                // The header has written the system messages.
                _ => {}
            }
        }
        if rounds.is_answering {
            script.frame(&self.pieces.answers_end);
        }
        Ok(())
    }

    /// Returns whether the template writes the calls of a message: R1's does only without content.
    fn has_calls(&self, message: &MessageView<'_>) -> bool {
        let is_dropped = self.is_r1 && message.has_content;
        !message.calls.is_empty() && !is_dropped
    }

    fn write_answer(&self, script: &mut Script, message: &MessageView<'_>, rounds: &mut Rounds) {
        if !rounds.has_answered {
            script.frame(&self.pieces.answers_begin);
        } else if self.is_r1 {
            script.text("\n", Origin::Template);
        }
        (rounds.has_answered, rounds.is_answering) = (true, true);
        script.frame(&self.pieces.answer_begin);
        script.text(&message.text, Origin::Tool);
        script.frame(&self.pieces.answer_end);
    }

    fn write_assistant(&self, script: &mut Script, message: &MessageView<'_>, rounds: &mut Rounds) {
        if rounds.is_answering {
            script.frame(&self.pieces.answers_end);
            script.text(&message.text, Origin::Assistant);
        } else {
            script.frame(&self.pieces.assistant);
            let content = message.text.rsplit_once("</think>").map_or(&*message.text, |(_, content)| content);
            script.text(content, Origin::Assistant);
        }
        rounds.is_answering = false;
        script.scaffold(&self.pieces.end, Origin::Assistant);
    }

    fn write_calls(&self, script: &mut Script, message: &MessageView<'_>, rounds: &mut Rounds) -> Result<()> {
        let pieces = &self.pieces;
        rounds.is_answering = false;
        for call in &message.calls {
            if rounds.has_called {
                script.text("\n", Origin::Assistant);
            } else {
                script.frame(&pieces.assistant);
                script.text(&message.text, Origin::Assistant);
                script.scaffold(&pieces.calls_begin, Origin::Assistant);
            }
            rounds.has_called = true;
            script.scaffold(&pieces.call_begin, Origin::Assistant);
            script.text(call.kind, Origin::Assistant);
            script.scaffold(&pieces.separator, Origin::Assistant);
            script.text_with(Origin::Assistant, |out| {
                out.push_str(call.name);
                out.push_str("\n```json\n");
                call.write_arguments(out)
            })?;
            script.scaffold(&pieces.call_end, Origin::Assistant);
        }
        script.scaffold(&pieces.calls_end, Origin::Assistant);
        script.scaffold(&pieces.end, Origin::Assistant);
        Ok(())
    }
}

impl Family for DeepSeek {
    fn table(&self) -> &Table {
        &self.table
    }

    /// System messages come first, wherever they are: all of them in V3, the last in R1.
    fn write_header(&self, script: &mut Script, messages: &[MessageView<'_>], _: &[Value]) -> Result<usize> {
        script.frame(&self.pieces.begin);
        let systems = messages.iter().enumerate().filter(|(_, message)| message.origin == Origin::System);
        let num_skipped = if self.is_r1 { systems.clone().count().saturating_sub(1) } else { 0 };
        for (position, (index, message)) in systems.skip(num_skipped).enumerate() {
            script.start_message(index);
            if position > 0 {
                script.text("\n\n", Origin::Template);
            }
            script.text(&message.text, Origin::System);
        }
        Ok(0)
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], _first: usize) -> Result<()> {
        self.write_rounds(script, messages, Rounds::default())
    }

    fn write_extension(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        prompt: &[u32],
        _: &[u32],
    ) -> Result<()> {
        let has_answered = self.answers_begin_id.is_some_and(|id| prompt.contains(&id));
        self.write_rounds(script, messages, Rounds { has_answered, ..Rounds::default() })
    }

    fn write_generation_prompt(&self, script: &mut Script, messages: &[MessageView<'_>]) {
        let last = messages.iter().rfind(|message| message.origin != Origin::System);
        if !last.is_some_and(MessageView::is_tool) {
            script.frame(&self.pieces.generation_prompt);
        }
    }
}

/// Reads `kind<separator>name`, then the arguments as JSON between fences.
fn read_call(body: &CallBody<'_>) -> ReadCall {
    let Some((_, call)) = body.text.split_once(SEPARATOR) else {
        return ReadCall::broken(ToolCallStatus::MalformedStructure, None);
    };
    let (name, rest) = call.split_once('\n').unwrap_or((call, ""));
    let name = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
    if name.is_none() {
        return ReadCall::broken(ToolCallStatus::MissingName, None);
    }
    let Some(fenced) = rest.trim().strip_prefix("```json") else {
        return ReadCall::broken(ToolCallStatus::MalformedStructure, name);
    };
    read_arguments(name, fenced.strip_suffix("```").unwrap_or(fenced))
}

impl Pieces {
    fn new(lexicon: &Lexicon, opens_reasoning: bool) -> Self {
        let reasoning = if opens_reasoning { "<think>\n" } else { "" };
        Self {
            begin: lexicon.scaffold(BEGIN),
            user: lexicon.scaffold(USER),
            assistant: lexicon.scaffold(ASSISTANT),
            generation_prompt: lexicon.scaffold(&format!("{ASSISTANT}{reasoning}")),
            end: lexicon.scaffold(END),
            calls_begin: lexicon.scaffold(CALLS_BEGIN),
            calls_end: lexicon.scaffold(CALLS_END),
            call_begin: lexicon.scaffold(CALL_BEGIN),
            separator: lexicon.scaffold(SEPARATOR),
            call_end: lexicon.scaffold(&format!("\n```{CALL_END}")),
            answers_begin: lexicon.scaffold(ANSWERS_BEGIN),
            answers_end: lexicon.scaffold(ANSWERS_END),
            answer_begin: lexicon.scaffold(ANSWER_BEGIN),
            answer_end: lexicon.scaffold(ANSWER_END),
        }
    }
}
