//! Reads one tool call: JSON of several shapes, or XML-like tags whose values take the types that a schema asks for.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::ToolCallStatus;
use crate::completion::CallBody;

/// What one call says, before anybody looks whether its tool exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadCall {
    pub status: ToolCallStatus,
    pub name: Option<String>,
    /// JSON text.
    pub arguments: Option<String>,
    pub id: Option<String>,
}

impl ReadCall {
    /// A call that cannot be used.
    pub(crate) fn broken(status: ToolCallStatus, name: Option<String>) -> Self {
        Self { status, name, arguments: None, id: None }
    }
}

impl CallBody<'_> {
    /// Reads `{"name": ..., <arguments_key>: ...}`. Arguments stay the text that was sampled.
    pub(crate) fn read_json(&self, arguments_key: &str) -> ReadCall {
        let Ok(object) = serde_json::from_str::<Value>(self.text.trim()) else {
            return ReadCall::broken(ToolCallStatus::InvalidJson, None);
        };
        let Value::Object(fields) = &object else {
            return ReadCall::broken(ToolCallStatus::MalformedStructure, None);
        };
        let Some(name) = fields.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return ReadCall::broken(ToolCallStatus::MissingName, None);
        };
        let name = Some(name.to_owned());
        let id = fields.get("id").and_then(Value::as_str).map(str::to_owned);
        match fields.get(arguments_key) {
            None => ReadCall { status: ToolCallStatus::Ok, name, arguments: Some("{}".to_owned()), id },
            Some(Value::String(text)) => ReadCall { id, ..read_arguments(name, text) },
            Some(Value::Object(_)) => {
                let arguments = raw_field(self.text.trim(), arguments_key);
                ReadCall { status: ToolCallStatus::Ok, name, arguments, id }
            }
            Some(_) => ReadCall::broken(ToolCallStatus::MalformedStructure, name),
        }
    }
}

/// Reads arguments that are JSON text of their own.
pub(crate) fn read_arguments(name: Option<String>, text: &str) -> ReadCall {
    let status = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => ToolCallStatus::Ok,
        Ok(_) => ToolCallStatus::MalformedStructure,
        Err(_) => ToolCallStatus::InvalidJson,
    };
    ReadCall { status, name, arguments: Some(text.trim().to_owned()), id: None }
}

/// The text of one field of a JSON object; the last one if it stands there twice.
fn raw_field(object: &str, key: &str) -> Option<String> {
    let fields: std::collections::HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    fields.get(key).map(|raw| raw.get().to_owned())
}

/// Whether a tool of that name is on offer; where none is, every name is.
pub(crate) fn is_offered(tools: &[Value], name: Option<&str>) -> bool {
    tools.is_empty() || name.is_some_and(|name| tool_named(tools, name).is_some())
}

/// The tool of that name, out of its envelope.
fn tool_named<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let mut tools = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
    tools.find(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
}
