//! A message in the form that families read: joined text, reasoning under one name, parsed tool calls.

use std::borrow::Cow;

use fulmar_core::{Error, ErrorKind};
use serde_json::Value;

use crate::python_json::write_json;
use crate::{Message, Origin, Result};

/// The keys of reasoning in chat APIs; the first that exists wins, as in transformers.
const REASONING_KEYS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// One message, checked against the roles of a family.
#[derive(Debug)]
pub(crate) struct MessageView<'a> {
    /// The role.
    pub role: &'a str,
    /// The origin of the message's text.
    pub origin: Origin,
    /// The text; empty without content.
    pub text: Cow<'a, str>,
    /// `true` if there is content, even if it is empty.
    pub has_content: bool,
    /// The reasoning, if it was given separately from the text.
    pub reasoning: Option<&'a str>,
    /// The tool calls; only assistants have any.
    pub calls: Vec<CallView<'a>>,
    /// The dictionary, for fields that only one family reads.
    pub message: &'a Message,
}

/// One tool call of an assistant message.
#[derive(Debug)]
pub(crate) struct CallView<'a> {
    /// The tool.
    pub name: &'a str,
    /// The kind of tool; defaults to `function`.
    pub kind: &'a str,
    /// The call's id, if it has one.
    pub id: Option<&'a str>,
    /// The arguments, as JSON text or as an object.
    pub arguments: Option<&'a Value>,
}

impl<'a> MessageView<'a> {
    /// Returns the view of `message`, whose role must be one of `roles`.
    ///
    /// # Errors
    /// `UnknownName` for another role or a part that is not text; `Malformed` for invalid tool calls;
    /// `Incompatible` for tool calls of another role than the assistant.
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
        let reasoning = reasoning.and_then(Value::as_str);
        let has_content = message.has_content();
        Ok(Self { role, origin, text: message.text()?, has_content, reasoning, calls, message })
    }

    /// Returns the views of `messages`.
    ///
    /// # Errors
    /// The errors of [`MessageView::new`], with the message's index.
    pub(crate) fn list(messages: &'a [Message], roles: &[(&str, Origin)]) -> Result<Vec<Self>> {
        let view = |(index, message)| {
            Self::new(message, roles).map_err(|error| error.at(format!("messages[{index}]")))
        };
        messages.iter().enumerate().map(view).collect()
    }

    /// Returns whether the role is an assistant.
    pub(crate) fn is_assistant(&self) -> bool {
        self.origin == Origin::Assistant
    }

    /// Returns whether the role is a tool.
    pub(crate) fn is_tool(&self) -> bool {
        self.origin == Origin::Tool
    }
}

impl CallView<'_> {
    /// Appends the arguments as JSON: text unchanged, an object in Python's format, `{}` without arguments.
    ///
    /// # Errors
    /// `LimitExceeded` for arguments that are nested too deep.
    pub(crate) fn write_arguments(&self, out: &mut String) -> Result<()> {
        match self.arguments {
            None => out.push_str("{}"),
            Some(Value::String(text)) => out.push_str(text),
            Some(value) => write_json(out, value)?,
        }
        Ok(())
    }
}

/// Returns the origin of a role's text, if the family has the role.
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
