//! Llama 3: headers with roles, `<|eot_id|>` after each turn; from 3.1 on a system turn with dates, and
//! tools.
//!
//! A call is the whole turn: `{"name": ..., "parameters": ...}`, exactly one. Lossy in `parse(render(x))`:
//! blanks around texts, the content of a message with a call, and reasoning, which the format lacks.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;

use super::{Family, Table};
use crate::completion::{CallBody, Completion};
use crate::message_view::MessageView;
use crate::python_json::{write_indented_json, write_json};
use crate::script::{Lexicon, Scaffold, Script};
use crate::tool_call::is_offered;
use crate::{
    Origin, ParseOptions, Parsed, ParsedToolCall, PrefixStability, Result, ThinkingRetention, ToolCallStatus,
};

const ROLES: [(&str, Origin); 5] = [
    ("system", Origin::System),
    ("user", Origin::User),
    ("assistant", Origin::Assistant),
    ("tool", Origin::Tool),
    ("ipython", Origin::Tool),
];
const REQUIRED: [&str; 4] = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];
const OPTIONAL: [&str; 3] = ["<|end_of_text|>", "<|eom_id|>", "<|python_tag|>"];
const FORMAT_GUIDE: &str = concat!(
    "Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}.",
    "Do not use variables.\n\n"
);

/// The options of Llama 3.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Llama3Options {
    /// Today's date for the model. Defaults to `26 Jul 2024`.
    pub date_string: String,
    /// If true, tools precede the first user's text; if not, they are in the system turn.
    pub tools_in_user_message: bool,
    /// If true, there is a system turn with dates, and tools, as from 3.1 on. Otherwise this is Llama 3.0.
    pub system_block: bool,
}

impl Default for Llama3Options {
    fn default() -> Self {
        Self { date_string: "26 Jul 2024".to_owned(), tools_in_user_message: true, system_block: true }
    }
}

/// The renderer of Llama 3.
pub(crate) struct Llama3 {
    table: Table,
    options: Llama3Options,
    begin: Scaffold,
    header_open: Scaffold,
    header_close: Scaffold,
    end: Scaffold,
    python_tag_id: Option<u32>,
}

impl Llama3 {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &Llama3Options) -> Result<Self> {
        let lexicon = Lexicon::new(&*tokenizer, &REQUIRED, &OPTIONAL)?;
        let table = Table {
            tokenizer,
            roles: &ROLES,
            stop_ids: lexicon.ids(&["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"]),
            close: lexicon.scaffold("<|eot_id|>"),
            separator: Scaffold::default(),
            retention: ThinkingRetention::All,
            stability: PrefixStability::Always,
            reasoning: None,
            calls: None,
            has_tools: options.system_block,
            fixes_system: false,
            trims_content: true,
        };
        Ok(Self {
            table,
            options: options.clone(),
            begin: lexicon.scaffold("<|begin_of_text|>"),
            header_open: lexicon.scaffold("<|start_header_id|>"),
            header_close: lexicon.scaffold("<|end_header_id|>\n\n"),
            end: lexicon.scaffold("<|eot_id|>"),
            python_tag_id: lexicon.id("<|python_tag|>"),
        })
    }

    fn open(&self, script: &mut Script, role: &str) {
        script.frame(&self.header_open);
        script.text(role, Origin::Template);
        script.frame(&self.header_close);
    }

    fn write_system(
        &self,
        script: &mut Script,
        system: Option<&MessageView<'_>>,
        tools: &[Value],
    ) -> Result<()> {
        self.open(script, "system");
        if !tools.is_empty() {
            script.text("Environment: ipython\n", Origin::Template);
        }
        script.text("Cutting Knowledge Date: December 2023\nToday Date: ", Origin::Template);
        script.text(&self.options.date_string, Origin::Template);
        script.text("\n\n", Origin::Template);
        if !tools.is_empty() && !self.options.tools_in_user_message {
            let opening = "You have access to the following functions. To call a function, please respond with JSON \
                           for a function call.";
            write_tools(script, opening, tools)?;
        }
        if let Some(message) = system {
            script.start_message(0);
            script.text(message.text.trim(), Origin::System);
        }
        script.frame(&self.end);
        script.leave_messages();
        Ok(())
    }

    /// Writes the first message after the system message, with the tools before its text.
    fn write_tools_message(
        &self,
        script: &mut Script,
        message: &MessageView<'_>,
        tools: &[Value],
    ) -> Result<()> {
        self.open(script, "user");
        let opening = "Given the following functions, please respond with a JSON for a function call with its proper \
                       arguments that best answers the given prompt.\n\n";
        write_tools(script, opening, tools)?;
        script.text(message.text.trim(), message.origin);
        script.frame(&self.end);
        Ok(())
    }

    fn write_message(&self, script: &mut Script, message: &MessageView<'_>) -> Result<()> {
        let is_answer = message.is_tool() && self.options.system_block;
        self.open(script, if is_answer { "ipython" } else { message.role });
        match message.calls.as_slice() {
            [] if is_answer => {
                let text = Value::String(message.text.clone().into_owned());
                script.text_with(Origin::Tool, |out| write_json(out, &text))?;
            }
            [] => script.text(message.text.trim(), message.origin),
            [call] => script.text_with(Origin::Assistant, |out| {
                out.push_str("{\"name\": \"");
                out.push_str(call.name);
                out.push_str("\", \"parameters\": ");
                call.write_arguments(out)?;
                out.push('}');
                Ok(())
            })?,
            calls => {
                let detail = format!("tool_calls must hold one call in this family: got {}", calls.len());
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        script.scaffold(&self.end, if message.is_assistant() { Origin::Assistant } else { Origin::Template });
        Ok(())
    }

    /// Parses a turn that is one JSON object with parameters, or that began as a call.
    fn read_call(&self, ids: &[u32], parsed: &Parsed, tools: &[Value]) -> Option<ParsedToolCall> {
        let content = &*parsed.content;
        let is_announced = ids.first().is_some_and(|id| Some(*id) == self.python_tag_id);
        let text = content.strip_prefix("<|python_tag|>").filter(|_| is_announced).unwrap_or(content);
        let has_parameters = |value: Value| value.get("parameters").is_some();
        let is_call = text.starts_with("{\"name\"") && text.contains("\"parameters\"");
        if !(is_announced || is_call || serde_json::from_str(text).is_ok_and(has_parameters)) {
            return None;
        }
        let read = CallBody { text, tools }.read_json("parameters");
        let status = match read.status {
            ToolCallStatus::InvalidJson if !parsed.finished => ToolCallStatus::UnclosedBlock,
            ToolCallStatus::Ok if !is_offered(tools, read.name.as_deref()) => ToolCallStatus::UnknownTool,
            status => status,
        };
        let (raw, token_span) = (content.to_owned(), [0, ids.len()]);
        Some(ParsedToolCall {
            raw,
            status,
            name: read.name,
            arguments: read.arguments,
            id: read.id,
            token_span,
        })
    }
}

impl Family for Llama3 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        script.frame(&self.begin);
        if !self.options.system_block {
            return Ok(0);
        }
        let system = messages.first().filter(|message| message.role == "system");
        let num_written = usize::from(system.is_some());
        self.write_system(script, system, tools)?;
        if tools.is_empty() || !self.options.tools_in_user_message {
            return Ok(num_written);
        }
        let Some(message) = messages.get(num_written) else {
            let detail = "messages must hold one that can carry the tools: got only the system's";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        script.start_message(num_written);
        self.write_tools_message(script, message, tools)?;
        Ok(num_written + 1)
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            self.write_message(script, message).map_err(|error| error.at(format!("messages[{index}]")))?;
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        self.open(script, "assistant");
    }

    fn read(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        let completion = Completion::new(&self.table, ids, None)?;
        let mut parsed = completion.parse(&options.tools)?;
        let call = self.read_call(completion.ids(), &parsed, &options.tools);
        if let Some(call) = call.filter(|_| self.table.has_tools) {
            parsed.content.clear();
            parsed.tool_calls.push(call);
        }
        Ok(parsed)
    }
}

fn write_tools(script: &mut Script, opening: &str, tools: &[Value]) -> Result<()> {
    script.text(opening, Origin::Template);
    script.text(FORMAT_GUIDE, Origin::Template);
    for tool in tools {
        script.text_with(Origin::Template, |out| {
            write_indented_json(out, tool, 4)?;
            out.push_str("\n\n");
            Ok(())
        })?;
    }
    Ok(())
}
