//! MiniMax M2: `]~b]role
//! ` and `[e~[
//! `, role `ai` for the assistant, reasoning opened by the prompt, and calls as XML between two markers,
//! several in one block.
//!
//! Intended differences from the stock template: a tool's answer is its text, also if it is given as parts;
//! text arguments are parsed as JSON, because the family writes each argument separately.
//!
//! Lossy in `parse(render(x))`: blanks around content and reasoning; an empty reasoning, which becomes none;
//! call ids; without the tool's schema, text that parses as JSON becomes its value.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::{DecodeStream, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

use super::chatml::ROLES;
use super::qwen3::split_reasoning;
use super::{Family, Table};
use crate::completion::{CallFormat, Completion, ReasoningFormat, ReasoningState, Tag};
use crate::message_view::{CallView, MessageView};
use crate::python_json::write_json;
use crate::script::{Lexicon, Scaffold, Script};
use crate::tool_call::{Arguments, ReadCall, is_offered};
use crate::{
    Origin, ParseOptions, Parsed, ParsedToolCall, PrefixStability, Result, ThinkingRetention, ToolCallStatus,
};

const MARKERS: [&str; 7] =
    ["]~!b[", "]~b]", "[e~[", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"];

/// The options of MiniMax M2.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MinimaxM2Options {
    /// The model identity, if there is no system message.
    pub model_identity: String,
    /// The messages that a bridge may cross. Defaults to those of a tool cycle.
    pub thinking_retention: Option<ThinkingRetention>,
}

impl Default for MinimaxM2Options {
    fn default() -> Self {
        Self { model_identity: "You are a helpful assistant.".to_owned(), thinking_retention: None }
    }
}

/// The renderer of MiniMax M2.
pub(crate) struct MinimaxM2 {
    table: Table,
    pieces: Pieces,
    model_identity: String,
}

struct Pieces {
    open_system: Scaffold,
    open_user: Scaffold,
    open_ai: Scaffold,
    open_tool: Scaffold,
    end: Scaffold,
    newline: Scaffold,
    tools_open: Scaffold,
    tools_close: Scaffold,
    think_open: Scaffold,
    think_close: Scaffold,
    block_open: Scaffold,
    block_close: Scaffold,
}

impl MinimaxM2 {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &MinimaxM2Options) -> Result<Self> {
        let lexicon = Lexicon::new(&*tokenizer, &MARKERS, &[])?;
        let table = Table {
            tokenizer,
            roles: &ROLES,
            stop_ids: lexicon.ids(&["[e~["]),
            close: lexicon.scaffold("[e~["),
            separator: lexicon.scaffold("\n"),
            retention: options.thinking_retention.unwrap_or(ThinkingRetention::ToolCycle),
            stability: PrefixStability::WithinToolCycle,
            reasoning: Some(ReasoningFormat {
                open: Tag::new(&lexicon, "<think>"),
                close: Tag::new(&lexicon, "</think>"),
                initial: ReasoningState::Open,
                call_ends_reasoning: true,
                keeps_empty: false,
                synthetic_close: lexicon.scaffold("\n</think>\n\n"),
            }),
            calls: Some(CallFormat {
                section: None,
                open: Tag::new(&lexicon, "<minimax:tool_call>"),
                close: Tag::new(&lexicon, "</minimax:tool_call>"),
                // Split in `Family::read`: one block holds several calls.
                read: |_| ReadCall::broken(ToolCallStatus::Ok, None),
            }),
            has_tools: true,
            fixes_system: true,
            trims_content: true,
        };
        let model_identity = options.model_identity.clone();
        Ok(Self { table, pieces: Pieces::new(&lexicon), model_identity })
    }

    fn write_assistant(&self, script: &mut Script, message: &MessageView<'_>, is_recent: bool) -> Result<()> {
        let spoken = Origin::Assistant;
        let (reasoning, content) = match message.reasoning {
            Some(reasoning) => (reasoning, &*message.text),
            None if message.text.contains("</think>") => {
                let (reasoning, content) = split_reasoning(message.reasoning, &message.text);
                (reasoning.trim_matches('\n'), content.trim_matches('\n'))
            }
            None => ("", &*message.text),
        };
        script.frame(&self.pieces.open_ai);
        if is_recent && !reasoning.is_empty() {
            // The prompt opens the reasoning, so the tag is not sampled.
            script.frame(&self.pieces.think_open);
            script.text(reasoning, spoken);
            script.scaffold(&self.pieces.think_close, spoken);
        }
        script.text(content, spoken);
        if !message.calls.is_empty() {
            script.scaffold(&self.pieces.block_open, spoken);
            for (index, call) in message.calls.iter().enumerate() {
                write_call(script, call).map_err(|error| error.at(format!("tool_calls[{index}]")))?;
            }
            script.scaffold(&self.pieces.block_close, spoken);
        }
        script.scaffold(&self.pieces.end, spoken);
        script.frame(&self.pieces.newline);
        Ok(())
    }

    fn write_answer(&self, script: &mut Script, messages: &[MessageView<'_>], index: usize) {
        let is_tool = |index: usize| messages.get(index).is_some_and(MessageView::is_tool);
        if index == 0 || !is_tool(index - 1) {
            script.frame(&self.pieces.open_tool);
        }
        script.text("\n<response>", Origin::Template);
        script.text(&messages[index].text, Origin::Tool);
        script.text("</response>", Origin::Template);
        if !is_tool(index + 1) {
            self.end(script);
        }
    }

    fn end(&self, script: &mut Script) {
        script.frame(&self.pieces.end);
        script.frame(&self.pieces.newline);
    }

    /// Splits the block `call` into its calls, each with its own ids. A block without a call is malformed.
    fn read_block(
        &self,
        block: ParsedToolCall,
        ids: &[u32],
        tools: &[Value],
        calls: &mut Vec<ParsedToolCall>,
    ) -> Result<()> {
        let [start, end] = block.token_span;
        let is_closed = block.status != ToolCallStatus::UnclosedBlock;
        // The end of each id's text, to map a call's bytes to its ids.
        let mut ends = Vec::with_capacity(end - start);
        let mut text = String::new();
        let mut stream = DecodeStream::new(Arc::clone(&self.table.tokenizer), false);
        for &id in &ids[start..end] {
            text += &stream.push(id)?;
            ends.push(text.len());
        }
        let token_at = |byte: usize| start + ends.partition_point(|&end| end <= byte);
        let mut at = 0;
        let mut num_calls = 0;
        while let Some(open) = text[at..].find("<invoke").map(|open| at + open) {
            let close = text[open..].find("</invoke>").map(|close| open + close);
            at = close.map_or(text.len(), |close| close + "</invoke>".len());
            let read = read_invoke(&text[open..close.unwrap_or(at)], tools);
            let status = match read.status {
                _ if close.is_none() || !is_closed => ToolCallStatus::UnclosedBlock,
                ToolCallStatus::Ok if !is_offered(tools, read.name.as_deref()) => ToolCallStatus::UnknownTool,
                status => status,
            };
            calls.push(ParsedToolCall {
                raw: text[open..at].to_owned(),
                status,
                name: read.name,
                arguments: read.arguments,
                id: None,
                token_span: [token_at(open), (token_at(at - 1) + 1).min(end)],
            });
            num_calls += 1;
        }
        if num_calls == 0 {
            let status =
                if is_closed { ToolCallStatus::MalformedStructure } else { ToolCallStatus::UnclosedBlock };
            calls.push(ParsedToolCall { status, ..block });
        }
        Ok(())
    }
}

impl Family for MinimaxM2 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        let system = messages.first().filter(|message| message.role == "system");
        if system.is_some() {
            script.start_message(0);
        }
        script.frame(&self.pieces.open_system);
        match system.filter(|message| !message.text.is_empty()) {
            Some(message) => script.text(&message.text, Origin::System),
            None => script.text(&self.model_identity, Origin::Template),
        }
        for (key, label) in [("current_date", "date"), ("current_location", "location")] {
            let value = system.and_then(|message| message.message.value(key)).and_then(Value::as_str);
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                script.text(&format!("\nCurrent {label}: {value}"), Origin::Template);
            }
        }
        if !tools.is_empty() {
            script.frame(&self.pieces.tools_open);
            for tool in tools {
                script.text_with(Origin::Template, |out| {
                    out.push_str("<tool>");
                    write_json(out, tool.get("function").unwrap_or(tool))?;
                    out.push_str("</tool>\n");
                    Ok(())
                })?;
            }
            script.frame(&self.pieces.tools_close);
        }
        self.end(script);
        script.leave_messages();
        Ok(usize::from(system.is_some()))
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        let last_user = messages.iter().rposition(|message| message.origin == Origin::User);
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            match message.origin {
                Origin::Assistant => self
                    .write_assistant(script, message, last_user.is_none_or(|user| index > user))
                    .map_err(|error| error.at(format!("messages[{index}]")))?,
                Origin::Tool => self.write_answer(script, messages, index),
                Origin::User => {
                    script.frame(&self.pieces.open_user);
                    script.text(&message.text, Origin::User);
                    self.end(script);
                }
                _ => {
                    let detail =
                        format!("messages[{index}]: a system's message must be the first: got it later");
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
            }
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        script.frame(&self.pieces.open_ai);
        script.frame(&self.pieces.think_open);
    }

    fn read(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        let completion = Completion::new(&self.table, ids, options.prompt_ids.as_deref())?;
        let mut parsed = completion.parse(&options.tools)?;
        let blocks = std::mem::take(&mut parsed.tool_calls);
        for block in blocks {
            self.read_block(block, ids, &options.tools, &mut parsed.tool_calls)?;
        }
        Ok(parsed)
    }
}

fn write_call(script: &mut Script, call: &CallView<'_>) -> Result<()> {
    let arguments = call.argument_fields()?;
    script.text_with(Origin::Assistant, |out| {
        *out += &format!("<invoke name=\"{}\">\n", call.name);
        for (key, value) in arguments.iter() {
            *out += &format!("<parameter name=\"{key}\">");
            match value {
                Value::String(text) => out.push_str(text),
                value => write_json(out, value)?,
            }
            out.push_str("</parameter>\n");
        }
        out.push_str("</invoke>\n");
        Ok(())
    })
}

/// Reads `<invoke name="NAME">` and `<parameter name="KEY">VALUE</parameter>` for each argument.
fn read_invoke(text: &str, tools: &[Value]) -> ReadCall {
    let malformed =
        |name: Option<&str>| ReadCall::broken(ToolCallStatus::MalformedStructure, name.map(str::to_owned));
    let Some((name, mut rest)) = text.strip_prefix("<invoke").and_then(named) else { return malformed(None) };
    if name.is_empty() {
        return ReadCall::broken(ToolCallStatus::MissingName, None);
    }
    let mut arguments = Arguments::new(tools, name);
    while let Some((_, parameter)) = rest.split_once("<parameter") {
        let Some((key, value)) = named(parameter) else { return malformed(Some(name)) };
        let Some((value, behind)) = value.split_once("</parameter>") else { return malformed(Some(name)) };
        arguments.insert(key, value);
        rest = behind;
    }
    arguments.into_call(name)
}

/// Reads ` name="NAME">`, with or without quotes, and returns the rest after it.
fn named(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.trim_start().strip_prefix("name=")?.split_once('>')?;
    Some((name.trim().trim_matches('"').trim_matches('\''), rest))
}

impl Pieces {
    fn new(lexicon: &Lexicon) -> Self {
        Self {
            open_system: lexicon.scaffold("]~!b[]~b]system\n"),
            open_user: lexicon.scaffold("]~b]user\n"),
            open_ai: lexicon.scaffold("]~b]ai\n"),
            open_tool: lexicon.scaffold("]~b]tool"),
            end: lexicon.scaffold("[e~["),
            newline: lexicon.scaffold("\n"),
            tools_open: lexicon.scaffold(concat!(
                "\n\n# Tools\nYou may call one or more tools to assist with the user query.\n",
                "Here are the tools available in JSONSchema format:\n\n<tools>\n"
            )),
            tools_close: lexicon.scaffold(concat!(
                "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass parameters:\n\n",
                "<minimax:tool_call>\n<invoke name=\"tool-name-1\">\n",
                "<parameter name=\"param-key-1\">param-value-1</parameter>\n",
                "<parameter name=\"param-key-2\">param-value-2</parameter>\n...\n</invoke>\n</minimax:tool_call>"
            )),
            think_open: lexicon.scaffold("<think>\n"),
            think_close: lexicon.scaffold("\n</think>\n\n"),
            block_open: lexicon.scaffold("\n<minimax:tool_call>\n"),
            block_close: lexicon.scaffold("</minimax:tool_call>"),
        }
    }
}
