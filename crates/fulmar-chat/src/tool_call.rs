//! Parses one tool call: JSON of several shapes, or XML-like tags whose values have the types of a schema.

use fulmar_core::{keep_integers, kept_integer, limits, restore_integers};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::ToolCallStatus;
use crate::completion::CallBody;

/// The content of one call, before a check that its tool exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadCall {
    pub status: ToolCallStatus,
    pub name: Option<String>,
    /// The arguments as JSON text.
    pub arguments: Option<String>,
    pub id: Option<String>,
}

impl ReadCall {
    /// Returns a call that cannot be used.
    pub(crate) fn broken(status: ToolCallStatus, name: Option<String>) -> Self {
        Self { status, name, arguments: None, id: None }
    }
}

impl CallBody<'_> {
    /// Parses `{"name": ..., <arguments_key>: ...}`. Arguments keep their sampled text.
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

/// Parses arguments that are separate JSON text.
pub(crate) fn read_arguments(name: Option<String>, text: &str) -> ReadCall {
    let status = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => ToolCallStatus::Ok,
        Ok(_) => ToolCallStatus::MalformedStructure,
        Err(_) => ToolCallStatus::InvalidJson,
    };
    ReadCall { status, name, arguments: Some(text.trim().to_owned()), id: None }
}

/// Returns the text of one field of a JSON object; the last one of duplicates.
fn raw_field(object: &str, key: &str) -> Option<String> {
    let fields: std::collections::HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    fields.get(key).map(|raw| raw.get().to_owned())
}

/// Returns whether a tool of that name is available; without tools, every name is.
pub(crate) fn is_offered(tools: &[Value], name: Option<&str>) -> bool {
    tools.is_empty() || name.is_some_and(|name| tool_named(tools, name).is_some())
}

/// Returns the tool of that name, out of its envelope.
fn tool_named<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let mut tools = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
    tools.find(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
}

/// Parses `<function=name>`, then `<parameter=key>value</parameter>` for each argument.
pub(crate) fn read_xml(body: &CallBody<'_>) -> ReadCall {
    let Some((_, call)) = body.text.split_once("<function=") else {
        return ReadCall::broken(ToolCallStatus::MalformedStructure, None);
    };
    let (name, mut rest) = call.split_once('>').unwrap_or((call, ""));
    let name = name.trim();
    if name.is_empty() {
        return ReadCall::broken(ToolCallStatus::MissingName, None);
    }
    let mut arguments = Arguments::new(body.tools, name);
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let Some(((key, value), behind)) = parameter
            .split_once("</parameter>")
            .and_then(|(parameter, behind)| Some((parameter.split_once('>')?, behind)))
        else {
            return ReadCall::broken(ToolCallStatus::MalformedStructure, Some(name.to_owned()));
        };
        let value = value.strip_prefix('\n').unwrap_or(value);
        arguments.insert(key.trim(), value.strip_suffix('\n').unwrap_or(value));
        rest = behind;
    }
    if !rest.contains("</function>") {
        return ReadCall::broken(ToolCallStatus::MalformedStructure, Some(name.to_owned()));
    }
    arguments.into_call(name)
}

/// Arguments that come as text, one by one, and get the types of the tool's schema.
pub(crate) struct Arguments<'a> {
    properties: Option<&'a Value>,
    values: Map<String, Value>,
    status: ToolCallStatus,
}

impl<'a> Arguments<'a> {
    /// Makes an empty list for the tool `name`.
    pub(crate) fn new(tools: &'a [Value], name: &str) -> Self {
        let properties = tool_named(tools, name).and_then(|tool| tool.get("parameters")?.get("properties"));
        Self { properties, values: Map::new(), status: ToolCallStatus::Ok }
    }

    /// Adds one argument. Text that does not match its schema stays text, and the call is `invalid_json`.
    pub(crate) fn insert(&mut self, key: &str, text: &str) {
        let schema = self.properties.and_then(|properties| properties.get(key));
        let value = typed(text, schema).unwrap_or_else(|| {
            self.status = ToolCallStatus::InvalidJson;
            Value::String(text.to_owned())
        });
        self.values.insert(key.to_owned(), value);
    }

    /// Returns the call with these arguments.
    pub(crate) fn into_call(self, name: &str) -> ReadCall {
        let arguments = Value::Object(self.values).to_string();
        let arguments = Some(restore_integers(&arguments).into_owned());
        ReadCall { status: self.status, name: Some(name.to_owned()), arguments, id: None }
    }
}

/// Returns the value of `text` under `schema`. Text of a declared text type is unchanged. Without a schema,
/// JSON becomes its value and all else stays text. Otherwise returns the first type of null, integer, number,
/// boolean, object, array and text that the schema allows and the text matches; `None` if there is no such
/// type.
fn typed(text: &str, schema: Option<&Value>) -> Option<Value> {
    let mut types = Vec::new();
    if let Some(schema) = schema {
        collect_types(schema, &mut types, 0);
    }
    if types == ["string"] {
        return Some(Value::String(text.to_owned()));
    }
    let spelled = spelled_value(text.trim());
    if types.is_empty() {
        return Some(
            spelled.filter(|_| serde_json::from_str::<Value>(text).is_ok()).unwrap_or_else(|| text.into()),
        );
    }
    let allowed = |name: &str| types.contains(&name);
    let fits = |value: &Value| match value {
        Value::Null => allowed("null"),
        Value::Bool(_) => allowed("boolean"),
        Value::Number(number) => allowed("number") || (allowed("integer") && !number.is_f64()),
        integer @ Value::Object(_) if kept_integer(integer).is_some() => {
            allowed("number") || allowed("integer")
        }
        Value::Object(_) => allowed("object"),
        Value::Array(_) => allowed("array"),
        Value::String(_) => false,
    };
    spelled.filter(fits).or_else(|| allowed("string").then(|| Value::String(text.to_owned())))
}

/// Parses `text` as JSON, integers with all their digits, or as one of Python's constants.
fn spelled_value(text: &str) -> Option<Value> {
    match text {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        text => serde_json::from_str(&keep_integers(text).ok()?).ok(),
    }
}

/// Collects the types that a schema allows, through `type`, `anyOf`, `oneOf` and `allOf`.
fn collect_types<'a>(schema: &'a Value, types: &mut Vec<&'a str>, depth: usize) {
    if depth > limits::TEMPLATE_DATA_DEPTH_MAX {
        return;
    }
    match schema.get("type") {
        Some(Value::String(name)) => types.push(name),
        Some(Value::Array(names)) => types.extend(names.iter().filter_map(Value::as_str)),
        _ => {}
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            collect_types(branch, types, depth + 1);
        }
    }
}
