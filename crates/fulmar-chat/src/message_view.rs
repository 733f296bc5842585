//! A message as families read it: text joined, reasoning under its one name, tool calls taken apart.

use std::borrow::Cow;

use fulmar_core::{Error, ErrorKind};
use serde_json::Value;

use crate::python_json::write_json;
use crate::{Message, Origin, Result};

/// Names under which chat APIs pass reasoning; the first that is there wins, as in transformers.
const REASONING_KEYS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// One message, checked against the roles of a family.
#[derive(Debug)]
pub(crate) struct MessageView<'a> {
    /// Who speaks.
    pub role: &'a str,
    /// The origin of the message's text.
    pub origin: Origin,
    /// The text; empty where there is none.
    pub text: Cow<'a, str>,
    /// Whether there is content at all, be it empty.
    pub has_content: bool,
    /// The reasoning, where it was given apart from the text.
    pub reasoning: Option<&'a str>,
    /// The tool calls; only assistants have some.
    pub calls: Vec<CallView<'a>>,
    /// The dictionary, for what only one family reads.
    pub message: &'a Message,
}

/// One tool call of an assistant message.
#[derive(Debug)]
pub(crate) struct CallView<'a> {
    /// The tool.
    pub name: &'a str,
    /// The kind of tool, `function` where none is named.
    pub kind: &'a str,
    /// The call's id, where it has one.
    pub id: Option<&'a str>,
    /// The arguments, as JSON text or as an object.
    pub arguments: Option<&'a Value>,
}

impl<'a> MessageView<'a> {
    /// The view of `message`, whose role must be one of `roles`.
    ///
    /// # Errors
    /// `UnknownName` for another role or a part that is not text; `Malformed` for tool calls that are none;
    /// `Incompatible` for tool calls that no assistant makes.
    pub(crate) fn new(message: &'a Message, roles: &[(&str, Origin)]) -> Result<Self> {
        let role = message.role();
        let origin = origin_of(roles, role).ok_or_else(|| unknown_role(roles, role))?;
        let calls = calls_of(message)?;
        if !calls.is_empty() && origin != Origin::Assistant {
            let detail = format!("tool_calls must be an assistant's: got those of role {role:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let reasoning =
            REASONING_KEYS.iter().find_map(|key| message.value(key).filter(|value| !value.is_null()));
        let has_content = message.value("content").is_some_and(|content| !content.is_null());
        let reasoning = reasoning.and_then(Value::as_str);
        Ok(Self { role, origin, text: message.text()?, has_content, reasoning, calls, message })
    }

    /// The views of `messages`.
    ///
    /// # Errors
    /// As [`MessageView::new`], with the message's index.
    pub(crate) fn list(messages: &'a [Message], roles: &[(&str, Origin)]) -> Result<Vec<Self>> {
        let view = |(index, message)| {
            Self::new(message, roles).map_err(|error| error.at(format!("messages[{index}]")))
        };
        messages.iter().enumerate().map(view).collect()
    }

    /// Whether an assistant speaks.
    pub(crate) fn is_assistant(&self) -> bool {
        self.origin == Origin::Assistant
    }

    /// Whether a tool answers.
    pub(crate) fn is_tool(&self) -> bool {
        self.origin == Origin::Tool
    }
}

impl CallView<'_> {
    /// Appends the arguments as JSON: text as it is, an object the way Python writes it, nothing as `{}`.
    ///
    /// # Errors
    /// `LimitExceeded` for arguments that nest too deep.
    pub(crate) fn write_arguments(&self, out: &mut String) -> Result<()> {
        match self.arguments {
            None => out.push_str("{}"),
            Some(Value::String(text)) => out.push_str(text),
            Some(value) => write_json(out, value)?,
        }
        Ok(())
    }
}

/// The origin of a role's text, where the family has the role.
pub(crate) fn origin_of(roles: &[(&str, Origin)], role: &str) -> Option<Origin> {
    roles.iter().find(|(name, _)| *name == role).map(|(_, origin)| *origin)
}

fn unknown_role(roles: &[(&str, Origin)], role: &str) -> Error {
    let names: Vec<&str> = roles.iter().map(|(name, _)| *name).collect();
    Error::new(ErrorKind::UnknownName, format!("role must be one of {}: got {role:?}", names.join(", ")))
}

fn calls_of(message: &Message) -> Result<Vec<CallView<'_>>> {
    match message.value("tool_calls") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(calls)) => {
            let view =
                |(index, call)| call_of(call).map_err(|error| error.at(format!("tool_calls[{index}]")));
            calls.iter().enumerate().map(view).collect()
        }
        Some(other) => {
            Err(Error::new(ErrorKind::Malformed, format!("tool_calls must be a list: got {other}")))
        }
    }
}

/// Reads `{type, id, function: {name, arguments}}`, or the flat `{name, arguments}`.
fn call_of(call: &Value) -> Result<CallView<'_>> {
    let function = call.get("function").unwrap_or(call);
    let Some(name) = function.get("name").and_then(Value::as_str) else {
        let got = function.get("name").unwrap_or(&Value::Null);
        return Err(Error::new(ErrorKind::Malformed, format!("name must be text: got {got}")));
    };
    let kind = call.get("type").and_then(Value::as_str).unwrap_or("function");
    let id = call.get("id").and_then(Value::as_str);
    let arguments = function.get("arguments").filter(|arguments| !arguments.is_null());
    Ok(CallView { name, kind, id, arguments })
}
