//! Tools as TypeScript declarations in GPT-OSS's training format, irregular blanks included.

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::Value;

use crate::Result;
use crate::python_json::write_json;

/// Longest item type that is written out; a longer one becomes `any[]`.
const ITEM_CHARS_MAX: usize = 50;

/// Appends the namespace of `tools`, given as OpenAI envelopes or flat.
///
/// # Errors
/// `Malformed` for a tool without a name or a description; `LimitExceeded` for a schema that is nested too
/// deep.
pub(super) fn write_tools(out: &mut String, tools: &[Value]) -> Result<()> {
    out.push_str("# Tools\n\n## functions\n\nnamespace functions {\n\n");
    for (index, tool) in tools.iter().enumerate() {
        let function = tool.get("function").unwrap_or(tool);
        write_function(out, function).map_err(|error| error.at(format!("tools[{index}]")))?;
    }
    out.push_str("} // namespace functions");
    Ok(())
}

fn write_function(out: &mut String, function: &Value) -> Result<()> {
    let text = |key: &str| {
        let detail = || format!("{key} of a tool must be text, but it is missing or of another type");
        function.get(key).and_then(Value::as_str).ok_or_else(|| Error::new(ErrorKind::Malformed, detail()))
    };
    *out += &format!("// {}\ntype {} = ", text("description")?, text("name")?);
    let parameters = function.get("parameters").unwrap_or(&Value::Null);
    let Some(fields) = fields_of(parameters) else {
        out.push_str("() => any;\n\n");
        return Ok(());
    };
    out.push_str("(_: {\n");
    for (name, schema) in fields {
        if let Some(description) = text_of(schema, "description") {
            *out += &format!("// {description}\n");
        }
        write_name(out, name, parameters);
        out.push_str(": ");
        out.push_str(&type_of(schema, 0)?);
        write_default(out, schema)?;
        out.push_str(",\n");
    }
    out.push_str("}) => any;\n\n");
    Ok(())
}

fn write_name(out: &mut String, name: &str, parent: &Value) {
    out.push_str(name);
    let required = parent.get("required").and_then(Value::as_array);
    if !required.is_some_and(|names| names.iter().any(|other| other == name)) {
        out.push('?');
    }
}

/// Writes a default after the type; for enumerations and unions as bare text.
fn write_default(out: &mut String, schema: &Value) -> Result<()> {
    let Some(default) = schema.get("default") else { return Ok(()) };
    let is_enum = is_filled(schema.get("enum"));
    let is_union = is_filled(schema.get("oneOf"));
    out.push_str(if is_union && !is_enum { "// default: " } else { ", // default: " });
    match default.as_str().filter(|_| is_enum || is_union) {
        Some(text) => out.push_str(text),
        None => write_json(out, default)?,
    }
    Ok(())
}

/// Returns the type of a schema.
fn type_of(schema: &Value, depth: usize) -> Result<String> {
    if depth > limits::TEMPLATE_DATA_DEPTH_MAX {
        let max = limits::TEMPLATE_DATA_DEPTH_MAX;
        let detail = format!("schemas must be nested at most {max} deep");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let kind = schema.get("type");
    let or_null = if is_true(schema.get("nullable")) { " | null" } else { "" };
    match kind.and_then(Value::as_str) {
        Some("array") => return Ok(item_type(schema, depth)? + or_null),
        None if kind.and_then(Value::as_array).is_some_and(|kinds| !kinds.is_empty()) => {
            let kinds = kind.and_then(Value::as_array).into_iter().flatten();
            return Ok(kinds.filter_map(Value::as_str).collect::<Vec<_>>().join(" | "));
        }
        _ => {}
    }
    if let Some(variants) = schema.get("oneOf").and_then(Value::as_array).filter(|list| !list.is_empty()) {
        return union_type(variants, depth);
    }
    Ok(match kind.and_then(Value::as_str) {
        Some("string") => {
            match schema.get("enum").and_then(Value::as_array).filter(|list| !list.is_empty()) {
                Some(texts) => {
                    let texts = texts
                        .iter()
                        .map(|text| text.as_str().map_or_else(|| text.to_string(), str::to_owned));
                    format!("\"{}\"", texts.collect::<Vec<_>>().join("\" | \""))
                }
                None => format!("string{or_null}"),
            }
        }
        Some("number" | "integer") => "number".to_owned(),
        Some("boolean") => "boolean".to_owned(),
        Some("object") => return object_type(schema, depth),
        _ => "any".to_owned(),
    })
}

fn item_type(schema: &Value, depth: usize) -> Result<String> {
    let Some(item) = schema.get("items").filter(|item| is_filled(Some(item))) else {
        return Ok("any[]".to_owned());
    };
    Ok(match item.get("type").and_then(Value::as_str) {
        Some("integer") => "number[]".to_owned(),
        Some(simple @ ("string" | "number" | "boolean")) => format!("{simple}[]"),
        _ => {
            let inner = type_of(item, depth + 1)?;
            let is_vague = inner == "object | object" || inner.chars().count() > ITEM_CHARS_MAX;
            if is_vague { "any[]".to_owned() } else { inner + "[]" }
        }
    })
}

fn union_type(variants: &[Value], depth: usize) -> Result<String> {
    let mut out = String::new();
    for (index, variant) in variants.iter().enumerate() {
        out += &type_of(variant, depth + 1)?;
        if let Some(description) = text_of(variant, "description") {
            out += &format!("// {description}");
        }
        if let Some(default) = variant.get("default") {
            out += &format!("{:20}// default: ", "");
            write_json(&mut out, default)?;
        }
        if index + 1 < variants.len() {
            out += " | \n";
        }
    }
    Ok(out)
}

fn object_type(schema: &Value, depth: usize) -> Result<String> {
    let Some(fields) = fields_of(schema) else { return Ok("object".to_owned()) };
    let mut out = "{\n".to_owned();
    for (index, (name, field)) in fields.iter().enumerate() {
        write_name(&mut out, name, schema);
        out += &format!(": \n{:16}{}", "", type_of(field, depth + 1)?);
        if index + 1 < fields.len() {
            out += ", ";
        }
    }
    Ok(out + "}")
}

/// Returns the fields of an object's schema, if it has any.
fn fields_of(schema: &Value) -> Option<&serde_json::Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object).filter(|fields| !fields.is_empty())
}

fn text_of<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or(false)
}

/// Returns whether a value is neither absent nor empty.
fn is_filled(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Null | Value::Bool(false)) | None => false,
        Some(_) => true,
    }
}
