//! The `tojson` filter: Python's `json.dumps`.

use std::fmt::Write;

use fulmar_core::ErrorKind;
use fulmar_core::limits::{TEMPLATE_DATA_DEPTH_MAX, TEMPLATE_INDENT_MAX};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, State};

use crate::arguments::{Arguments, as_integer};
use crate::failure::{fail, type_error};
use crate::integer::Integer;
use crate::meter;
use crate::method::check_length;
use crate::print::{as_float, float_repr};

/// The style of JSON output.
struct Style {
    ensure_ascii: bool,
    /// One level of indentation; `None` writes everything on one line.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// Runs `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
///
/// # Errors
/// A type error for values that JSON cannot represent, and for invalid options.
pub fn tojson(_state: &State, value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options = Arguments::with_named(
        "tojson",
        &options,
        named,
        &["ensure_ascii", "indent", "separators", "sort_keys"],
    )?;
    let indent = indent_of(options.get("indent"))?;
    let (between_items, after_key) = separators_of(options.get("separators"), indent.is_some())?;
    let style = Style {
        ensure_ascii: options.flag("ensure_ascii", false),
        indent,
        between_items,
        after_key,
        sort_keys: options.flag("sort_keys", false),
    };
    let mut text = String::new();
    style.write(&mut text, value, 0)?;
    Ok(text)
}

fn indent_of(indent: Option<Value>) -> Result<Option<String>, Error> {
    let Some(indent) = indent.filter(|indent| !indent.is_none()) else { return Ok(None) };
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let width = as_integer(&indent).ok_or_else(|| type_error("tojson: indent must be an integer or text"))?;
    if width > TEMPLATE_INDENT_MAX {
        let detail = format!("tojson: indent must be at most {TEMPLATE_INDENT_MAX} spaces: got {width}");
        return Err(fail(ErrorKind::LimitExceeded, detail));
    }
    Ok(Some(" ".repeat(usize::try_from(width).unwrap_or(0))))
}

fn separators_of(separators: Option<Value>, is_indented: bool) -> Result<(String, String), Error> {
    let Some(separators) = separators.filter(|separators| !separators.is_none()) else {
        return Ok((if is_indented { "," } else { ", " }.to_owned(), ": ".to_owned()));
    };
    let pair: Vec<Value> = separators.try_iter()?.take(3).collect();
    match pair.as_slice() {
        [item, key] if item.as_str().is_some() && key.as_str().is_some() => {
            Ok((item.as_str().unwrap_or_default().to_owned(), key.as_str().unwrap_or_default().to_owned()))
        }
        _ => Err(type_error("tojson: separators must be two texts")),
    }
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > TEMPLATE_DATA_DEPTH_MAX {
            return Err(type_error(format!(
                "tojson: values must nest at most {TEMPLATE_DATA_DEPTH_MAX} deep"
            )));
        }
        // A list may contain another one many times, and that one another.
        check_length(Some(out.len()))?;
        meter::touch(1)?;
        if let Some(integer) = value.downcast_object_ref::<Integer>() {
            out.push_str(integer.digits());
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(out, value),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                meter::make(text.len())?;
                self.write_text(out, text);
            }
            ValueKind::Seq | ValueKind::Iterable => self.write_list(out, value, depth)?,
            ValueKind::Map => self.write_dict(out, value, depth)?,
            kind => return Err(type_error(format!("tojson: {kind} must have a JSON form: it has none"))),
        }
        Ok(())
    }

    fn write_list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.start_item(out, &mut is_empty, depth + 1)?;
            self.write(out, &item, depth + 1)?;
        }
        self.end(out, is_empty, depth);
        out.push(']');
        Ok(())
    }

    fn write_dict(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            entries.push((key_text(&key)?, value.get_item(&key)?));
        }
        if self.sort_keys {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        out.push('{');
        let mut is_empty = true;
        for (key, item) in &entries {
            self.start_item(out, &mut is_empty, depth + 1)?;
            meter::make(key.len())?;
            self.write_text(out, key);
            out.push_str(&self.after_key);
            self.write(out, item, depth + 1)?;
        }
        self.end(out, is_empty, depth);
        out.push('}');
        Ok(())
    }

    fn start_item(&self, out: &mut String, is_first: &mut bool, depth: usize) -> Result<(), Error> {
        if !*is_first {
            meter::make(self.between_items.len())?;
            out.push_str(&self.between_items);
        }
        *is_first = false;
        meter::make(self.after_key.len())?;
        if let Some(indent) = &self.indent {
            let num_bytes = indent.len().checked_mul(depth);
            check_length(num_bytes.and_then(|more| more.checked_add(out.len())))?;
            meter::make(num_bytes.unwrap_or(usize::MAX))?;
        }
        self.start_line(out, depth);
        Ok(())
    }

    fn end(&self, out: &mut String, is_empty: bool, depth: usize) {
        if !is_empty {
            self.start_line(out, depth);
        }
    }

    fn start_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_text(&self, out: &mut String, text: &str) {
        out.push('"');
        let mut start = 0;
        for (at, c) in text.char_indices() {
            let is_plain = !matches!(c, '"' | '\\' | '\0'..='\x1f') && (c.is_ascii() || !self.ensure_ascii);
            if is_plain {
                continue;
            }
            out.push_str(&text[start..at]);
            start = at + c.len_utf8();
            write_escape(out, c);
        }
        out.push_str(&text[start..]);
        out.push('"');
    }
}

fn write_escape(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

fn write_number(out: &mut String, value: &Value) {
    match as_float(value) {
        Some(number) if number.is_nan() => out.push_str("NaN"),
        Some(number) if number.is_infinite() => {
            out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
        }
        Some(number) => out.push_str(&float_repr(number)),
        None => out.push_str(&value.to_string()),
    }
}

/// Returns a key of a JSON object: Python converts numbers, truth values and none to text.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => key.is_true().to_string(),
        ValueKind::Number => {
            let mut text = String::new();
            write_number(&mut text, key);
            text
        }
        kind => return Err(type_error(format!("tojson: keys must be text: got {kind}"))),
    })
}
