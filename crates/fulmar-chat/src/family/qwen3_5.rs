//! Qwen3.5 and Qwen3.6: the frame of Qwen2.5, reasoning opened by the prompt, and calls as XML-like tags.
//!
//! As in Qwen3, earlier turns without reasoning write the empty wrapper again if thinking is disabled, unlike
//! the template. Lossy in `parse(render(x))`: blanks around content and reasoning; the types of arguments
//! without a schema. Qwen3.5 writes truth values as `True`, Qwen3.6 as `true`.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, keep_integers};
use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::qwen2_5::{self, Pieces};
use super::qwen3;
use super::{Family, Table};
use crate::completion::{CallFormat, ReasoningFormat, ReasoningState, Tag};
use crate::message_view::{CallView, MessageView};
use crate::python_json::{write_json, write_number};
use crate::script::{Scaffold, Script};
use crate::tool_call::read_xml;
use crate::{Origin, PrefixStability, Result, ThinkingRetention};

/// The options of Qwen3.5.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Qwen35Options {
    /// If true, the model thinks before it answers. The smallest models (0.8B, 2B) were trained with `false`.
    pub enable_thinking: bool,
    /// The messages that a bridge may cross. Defaults to all without thinking, else to those of a tool cycle.
    pub thinking_retention: Option<ThinkingRetention>,
}

/// The options of Qwen3.6.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Qwen36Options {
    /// If true, the model thinks before it answers.
    pub enable_thinking: bool,
    /// If true, all turns keep their reasoning; if not, only those after the last query.
    pub preserve_thinking: bool,
    /// The messages that a bridge may cross. Defaults to all without thinking or if it is preserved, else to
    /// those of a tool cycle.
    pub thinking_retention: Option<ThinkingRetention>,
}

impl Default for Qwen35Options {
    fn default() -> Self {
        Self { enable_thinking: true, thinking_retention: None }
    }
}

impl Default for Qwen36Options {
    fn default() -> Self {
        Self { enable_thinking: true, preserve_thinking: false, thinking_retention: None }
    }
}

/// The renderer of Qwen3.5 and Qwen3.6.
pub(crate) struct Qwen35 {
    table: Table,
    pieces: Pieces,
    wrapper: Wrapper,
    knobs: Knobs,
}

#[derive(Debug, Clone, Copy)]
struct Knobs {
    enable_thinking: bool,
    preserve_thinking: bool,
    /// `true` if values that are not text are written as Python prints them, not as JSON.
    prints_python: bool,
}

struct Wrapper {
    open: Scaffold,
    close: Scaffold,
    empty: Scaffold,
    tools_open: Scaffold,
    tools_close: Scaffold,
    call_open: Scaffold,
    call_close: Scaffold,
    turn_close: Scaffold,
}

impl Qwen35 {
    /// Returns the renderer of Qwen3.5 with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &Qwen35Options) -> Result<Self> {
        let enable_thinking = options.enable_thinking;
        let knobs = Knobs { enable_thinking, preserve_thinking: false, prints_python: true };
        Self::with_knobs(tokenizer, knobs, options.thinking_retention)
    }

    /// Returns the renderer of Qwen3.6 with `tokenizer`.
    ///
    /// # Errors
    /// The errors of [`Qwen35::new`]; `Incompatible` if thinking is preserved in renders but not retained in
    /// bridges.
    pub(crate) fn new_3_6(tokenizer: Arc<dyn Tokenizer>, options: &Qwen36Options) -> Result<Self> {
        let Qwen36Options { enable_thinking, preserve_thinking, thinking_retention } = *options;
        if preserve_thinking
            && thinking_retention.is_some_and(|retention| retention != ThinkingRetention::All)
        {
            let got = thinking_retention.map_or("none", ThinkingRetention::name);
            let detail =
                format!("thinkingRetention must be \"all\" where preserveThinking is true: got {got:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let knobs = Knobs { enable_thinking, preserve_thinking, prints_python: false };
        Self::with_knobs(tokenizer, knobs, thinking_retention)
    }

    fn with_knobs(
        tokenizer: Arc<dyn Tokenizer>,
        knobs: Knobs,
        retention: Option<ThinkingRetention>,
    ) -> Result<Self> {
        let lexicon = qwen2_5::lexicon(&*tokenizer, &["<think>", "</think>"])?;
        let keeps_all = knobs.preserve_thinking || !knobs.enable_thinking;
        let derived = if keeps_all { ThinkingRetention::All } else { ThinkingRetention::ToolCycle };
        let mut table = qwen2_5::table(tokenizer, &lexicon);
        table.retention = retention.unwrap_or(derived);
        table.stability =
            if knobs.preserve_thinking { PrefixStability::Always } else { PrefixStability::WithinToolCycle };
        table.fixes_system = true;
        table.reasoning = Some(ReasoningFormat {
            open: Tag::new(&lexicon, "<think>"),
            close: Tag::new(&lexicon, "</think>"),
            initial: if knobs.enable_thinking { ReasoningState::Open } else { ReasoningState::Closed },
            call_ends_reasoning: true,
            keeps_empty: true,
            synthetic_close: lexicon.scaffold("\n</think>\n\n"),
        });
        table.calls = table.calls.map(|calls| CallFormat { read: read_xml, ..calls });
        let wrapper = Wrapper {
            open: lexicon.scaffold("<think>\n"),
            close: lexicon.scaffold("\n</think>\n\n"),
            empty: lexicon.scaffold("<think>\n\n</think>\n\n"),
            tools_open: lexicon.scaffold("# Tools\n\nYou have access to the following functions:\n\n<tools>"),
            tools_close: lexicon.scaffold(TOOLS_GUIDE),
            call_open: lexicon.scaffold("<tool_call>\n<function="),
            call_close: lexicon.scaffold("</function>\n</tool_call>"),
            turn_close: lexicon.scaffold("<|im_end|>\n"),
        };
        Ok(Self { table, pieces: Pieces::new(&lexicon), wrapper, knobs })
    }

    fn write_assistant(&self, script: &mut Script, message: &MessageView<'_>, is_recent: bool) -> Result<()> {
        let (reasoning, content) = qwen3::split_reasoning(message.reasoning, message.text.trim());
        let reasoning = reasoning.trim();
        self.pieces.frame.open(script, message.role);
        if !self.knobs.enable_thinking && reasoning.is_empty() {
            script.frame(&self.wrapper.empty);
        } else if is_recent || self.knobs.preserve_thinking {
            // The prompt opens the reasoning, so the tag is not sampled.
            let opener = if self.knobs.enable_thinking { Origin::Template } else { Origin::Assistant };
            script.scaffold(&self.wrapper.open, opener);
            script.text(reasoning, Origin::Assistant);
            script.scaffold(&self.wrapper.close, Origin::Assistant);
        }
        script.text(content, Origin::Assistant);
        for (index, call) in message.calls.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "\n\n" };
            if index > 0 || !content.trim().is_empty() {
                script.text(separator, Origin::Assistant);
            }
            self.write_call(script, call).map_err(|error| error.at(format!("tool_calls[{index}]")))?;
        }
        self.pieces.frame.close(script, Origin::Assistant);
        Ok(())
    }

    fn write_call(&self, script: &mut Script, call: &CallView<'_>) -> Result<()> {
        script.scaffold(&self.wrapper.call_open, Origin::Assistant);
        let arguments = call.argument_fields()?;
        script.text_with(Origin::Assistant, |out| {
            out.push_str(call.name);
            out.push_str(">\n");
            for (key, value) in arguments.iter() {
                out.push_str("<parameter=");
                out.push_str(key);
                out.push_str(">\n");
                self.write_value(out, value)?;
                out.push_str("\n</parameter>\n");
            }
            Ok(())
        })?;
        script.scaffold(&self.wrapper.call_close, Origin::Assistant);
        Ok(())
    }

    fn write_value(&self, out: &mut String, value: &Value) -> Result<()> {
        match value {
            Value::String(text) => out.push_str(text),
            Value::Null if self.knobs.prints_python => out.push_str("None"),
            Value::Bool(true) if self.knobs.prints_python => out.push_str("True"),
            Value::Bool(false) if self.knobs.prints_python => out.push_str("False"),
            Value::Number(number) => write_number(out, number),
            value => write_json(out, value)?,
        }
        Ok(())
    }
}

impl Family for Qwen35 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        if !messages.iter().any(|message| self.is_query(message)) {
            return Err(Error::new(
                ErrorKind::Incompatible,
                "messages must hold a user's query, which this family starts from",
            ));
        }
        let system = messages.first().filter(|message| message.role == "system");
        if tools.is_empty() {
            if let Some(message) = system {
                script.start_message(0);
                self.pieces.frame.message(script, message.role, message.text.trim(), Origin::System);
            }
            return Ok(usize::from(system.is_some()));
        }
        self.pieces.frame.open(script, "system");
        script.frame(&self.wrapper.tools_open);
        for tool in tools {
            script.text_with(Origin::Template, |out| {
                out.push('\n');
                write_json(out, tool)
            })?;
        }
        script.frame(&self.wrapper.tools_close);
        if let Some(message) = system.filter(|message| !message.text.trim().is_empty()) {
            script.start_message(0);
            script.text("\n\n", Origin::Template);
            script.text(message.text.trim(), Origin::System);
        }
        script.frame(&self.wrapper.turn_close);
        script.leave_messages();
        Ok(usize::from(system.is_some()))
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        let last_query = messages.iter().rposition(|message| self.is_query(message));
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            match message.origin {
                Origin::Assistant => self.write_assistant(script, message, Some(index) > last_query)?,
                Origin::Tool => self.pieces.write_answer(script, messages, index, message.text.trim()),
                Origin::System => {
                    let detail =
                        format!("messages[{index}]: a system's message must be the first: got it later");
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
                origin => self.pieces.frame.message(script, message.role, message.text.trim(), origin),
            }
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        self.pieces.frame.open(script, "assistant");
        script.frame(if self.knobs.enable_thinking { &self.wrapper.open } else { &self.wrapper.empty });
    }

    fn is_query(&self, message: &MessageView<'_>) -> bool {
        qwen3::is_query(message.role, message.text.trim())
    }
}

impl CallView<'_> {
    /// Returns the arguments as fields; text is parsed as JSON first.
    ///
    /// # Errors
    /// `Malformed` for arguments that are not an object; `LimitExceeded` for an integer with too many digits.
    pub(crate) fn argument_fields(&self) -> Result<std::borrow::Cow<'_, Map<String, Value>>> {
        let malformed = || {
            let got: String =
                self.arguments.map_or_else(String::new, Value::to_string).chars().take(80).collect();
            Error::new(ErrorKind::Malformed, format!("arguments must be a JSON object: got {got}"))
        };
        match self.arguments {
            None => Ok(std::borrow::Cow::Owned(Map::new())),
            Some(Value::Object(fields)) => Ok(std::borrow::Cow::Borrowed(fields)),
            Some(Value::String(text)) => {
                let text = keep_integers(text)?;
                serde_json::from_str(&text).map(std::borrow::Cow::Owned).map_err(|_| malformed())
            }
            Some(_) => Err(malformed()),
        }
    }
}

/// The template's description of calls.
const TOOLS_GUIDE: &str = concat!(
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n",
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n",
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n",
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n",
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within ",
    "<tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n",
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT ",
    "after\n- If there is no function call available, answer the question like normal with your current knowledge and ",
    "do not tell the user about function calls\n</IMPORTANT>"
);
