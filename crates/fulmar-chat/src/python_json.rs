//! JSON in the format of Python's `json.dumps(value, ensure_ascii=False)`, which chat templates show to
//! models.

use fulmar_core::{Error, ErrorKind, kept_integer, limits};
use serde_json::{Number, Value};

use crate::Result;

/// Appends `value` with `", "` and `": "` between its parts, keys in their order.
///
/// # Errors
/// `LimitExceeded` if `value` is nested deeper than [`limits::TEMPLATE_DATA_DEPTH_MAX`].
pub(crate) fn write_json(out: &mut String, value: &Value) -> Result<()> {
    write_value(out, value, None, 0)
}

/// Appends `value` over several lines, each level indented by `width` more spaces.
///
/// # Errors
/// The errors of [`write_json`].
pub(crate) fn write_indented_json(out: &mut String, value: &Value, width: usize) -> Result<()> {
    write_value(out, value, Some(width), 0)
}

/// Appends `value` without blanks, with the keys of each object sorted.
///
/// # Errors
/// The errors of [`write_json`].
pub(crate) fn write_sorted_json(out: &mut String, value: &Value) -> Result<()> {
    write_sorted(out, value, 0)
}

fn write_sorted(out: &mut String, value: &Value, depth: usize) -> Result<()> {
    check_depth(depth)?;
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_sorted(out, item, depth + 1)?;
            }
            out.push(']');
        }
        Value::Object(fields) if kept_integer(value).is_none() => {
            let fields: std::collections::BTreeMap<_, _> = fields.iter().collect();
            out.push('{');
            for (index, (key, item)) in fields.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_text(out, key);
                out.push(':');
                write_sorted(out, item, depth + 1)?;
            }
            out.push('}');
        }
        value => write_value(out, value, None, depth)?,
    }
    Ok(())
}

fn check_depth(depth: usize) -> Result<()> {
    let max = limits::TEMPLATE_DATA_DEPTH_MAX;
    if depth <= max {
        return Ok(());
    }
    let detail = format!("tools and arguments must nest at most {max} deep, and these go on");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

fn write_value(out: &mut String, value: &Value, indent: Option<usize>, depth: usize) -> Result<()> {
    check_depth(depth)?;
    if let Some(digits) = kept_integer(value) {
        out.push_str(digits);
        return Ok(());
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                start_item(out, index == 0, indent, depth + 1);
                write_value(out, item, indent, depth + 1)?;
            }
            end(out, items.is_empty(), indent, depth);
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (key, item)) in fields.iter().enumerate() {
                start_item(out, index == 0, indent, depth + 1);
                write_text(out, key);
                out.push_str(": ");
                write_value(out, item, indent, depth + 1)?;
            }
            end(out, fields.is_empty(), indent, depth);
            out.push('}');
        }
    }
    Ok(())
}

fn start_item(out: &mut String, is_first: bool, indent: Option<usize>, depth: usize) {
    match indent {
        None if is_first => {}
        None => out.push_str(", "),
        Some(width) => {
            if !is_first {
                out.push(',');
            }
            start_line(out, width * depth);
        }
    }
}

fn end(out: &mut String, is_empty: bool, indent: Option<usize>, depth: usize) {
    if let Some(width) = indent
        && !is_empty
    {
        start_line(out, width * depth);
    }
}

fn start_line(out: &mut String, num_spaces: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', num_spaces));
}

/// Appends a number: integers unchanged, floats in the format of Python's `repr`.
pub(crate) fn write_number(out: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if number.is_f64() => out.push_str(&float_repr(float)),
        _ => out.push_str(&number.to_string()),
    }
}

/// Returns the fewest digits that read back as the same number, with an exponent below 1e-4 and from 1e16 on.
fn float_repr(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            8 => out.push_str("\\b"),
            12 => out.push_str("\\f"),
            _ => out.push_str(&format!("\\u{byte:04x}")),
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dumps(value: &Value) -> String {
        let mut text = String::new();
        write_json(&mut text, value).unwrap();
        text
    }

    #[test]
    fn values_are_written_as_python_writes_them() {
        let value: Value = serde_json::from_str(
            r#"{"z":[1,-2.0,1e20,0.00001,null,true],"a":{},"é\n\u0001\"\\":"\u2028\t","l":[]}"#,
        )
        .unwrap();
        let expected = "{\"z\": [1, -2.0, 1e+20, 1e-05, null, true], \"a\": {}, \"é\\n\\u0001\\\"\\\\\": \"\u{2028}\\t\", \"l\": []}";
        assert_eq!(dumps(&value), expected);
    }

    #[test]
    fn indented_values_are_written_as_python_writes_them() {
        let mut text = String::new();
        write_indented_json(&mut text, &json!({ "a": [1, { "b": [] }], "c": {} }), 4).unwrap();
        let expected = "{\n    \"a\": [\n        1,\n        {\n            \"b\": []\n        }\n    ],\n    \"c\": {}\n}";
        assert_eq!(text, expected);
    }

    #[test]
    fn values_nest_as_deep_as_the_limit_and_no_deeper() {
        let nested = |depth| (0..depth).fold(json!(1), |value, _| json!([value]));
        assert!(write_json(&mut String::new(), &nested(limits::TEMPLATE_DATA_DEPTH_MAX)).is_ok());
        let error = write_json(&mut String::new(), &nested(limits::TEMPLATE_DATA_DEPTH_MAX + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
