//! Python's printing of values: `str` for the output of a template, `repr` inside lists and dictionaries.

use std::fmt::{self, Write};

use fulmar_core::limits::{TEMPLATE_DATA_DEPTH_MAX, TEMPLATE_OUTPUT_BYTES_MAX};
use minijinja::value::{ObjectRepr, Value, ValueKind};

use crate::meter;
use crate::namespace::Namespace;
use crate::value::is_tuple;

/// Writes `str(value)`; an undefined value is empty text.
///
/// # Errors
/// The errors of `out`; an error past `TEMPLATE_DATA_DEPTH_MAX` nested values.
pub fn write_str(out: &mut dyn Write, value: &Value) -> fmt::Result {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()),
        _ => write_repr(out, value, 0),
    }
}

/// Returns `str(value)`.
///
/// # Errors
/// An error past `TEMPLATE_DATA_DEPTH_MAX` nested values, and past `TEMPLATE_OUTPUT_BYTES_MAX` bytes.
pub fn to_str(value: &Value) -> Result<String, fmt::Error> {
    let mut text = Text(String::new());
    write_str(&mut text, value)?;
    Ok(text.0)
}

/// A text of limited length, even for a list that contains itself many times.
struct Text(String);

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if TEMPLATE_OUTPUT_BYTES_MAX - self.0.len() < more.len() || meter::make(more.len()).is_err() {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}

/// Returns `repr(value)`.
///
/// # Errors
/// The errors of [`to_str`].
pub fn to_repr(value: &Value) -> Result<String, fmt::Error> {
    let mut text = Text(String::new());
    write_repr(&mut text, value, 0)?;
    Ok(text.0)
}

fn write_repr(out: &mut dyn Write, value: &Value, depth: usize) -> fmt::Result {
    if depth > TEMPLATE_DATA_DEPTH_MAX || !meter::try_touch(1) {
        return Err(fmt::Error);
    }
    if let Some(namespace) = value.downcast_object_ref::<Namespace>() {
        return write_namespace(out, namespace, depth);
    }
    match value.kind() {
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Number => match as_float(value) {
            Some(number) => out.write_str(&float_repr(number)),
            None => write!(out, "{value}"),
        },
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => write_container(out, value, depth),
        _ => write!(out, "{value}"),
    }
}

fn write_namespace(out: &mut dyn Write, namespace: &Namespace, depth: usize) -> fmt::Result {
    out.write_str("<Namespace {")?;
    for (at, (name, value)) in namespace.attributes().iter().enumerate() {
        if at > 0 {
            out.write_str(", ")?;
        }
        write_quoted(out, name)?;
        out.write_str(": ")?;
        write_repr(out, value, depth + 1)?;
    }
    out.write_str("}>")
}

fn write_container(out: &mut dyn Write, value: &Value, depth: usize) -> fmt::Result {
    let is_map = value.as_object().is_some_and(|object| object.repr() == ObjectRepr::Map);
    let Some(items) = value.as_object().and_then(minijinja::value::DynObject::try_iter) else {
        return write!(out, "{value}");
    };
    let (open, close) = match (is_map, is_tuple(value)) {
        (true, _) => ('{', '}'),
        (false, true) => ('(', ')'),
        (false, false) => ('[', ']'),
    };
    out.write_char(open)?;
    let mut count = 0;
    for item in items {
        if count > 0 {
            out.write_str(", ")?;
        }
        write_repr(out, &item, depth + 1)?;
        if is_map {
            out.write_str(": ")?;
            write_repr(out, &value.get_item(&item).unwrap_or_default(), depth + 1)?;
        }
        count += 1;
    }
    if count == 1 && is_tuple(value) {
        out.write_char(',')?;
    }
    out.write_char(close)
}

/// Returns the number of a Python float.
pub fn as_float(value: &Value) -> Option<f64> {
    let is_float = value.kind() == ValueKind::Number && !value.is_integer();
    is_float.then(|| f64::try_from(value.clone()).ok()).flatten()
}

/// Returns `repr` of a float: the fewest digits that read back as the same number, with an exponent below
/// 1e-4 and from 1e16.
pub fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

/// Writes a text between quotes: single ones, unless only those occur in it.
fn write_quoted(out: &mut dyn Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            c if c == quote => write!(out, "\\{c}")?,
            c if is_printable(c) => out.write_char(c)?,
            c if u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c))?,
            c if u32::from(c) < 0x1_0000 => write!(out, "\\u{:04x}", u32::from(c))?,
            c => write!(out, "\\U{:08x}", u32::from(c))?,
        }
    }
    out.write_char(quote)
}

/// Returns whether Python prints a character unescaped: no control, format, private or separator character
/// except the space.
pub fn is_printable(c: char) -> bool {
    let is_format = matches!(u32::from(c),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890 | 0x891 | 0x8E2 | 0x180E | 0x200B..=0x200F
        | 0x202A..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xFFF0..=0xFFFB | 0xFFFE | 0xFFFF | 0x110BD | 0x110CD
        | 0x13430..=0x1343F | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE00FF | 0xFDD0..=0xFDEF);
    let is_private = matches!(u32::from(c), 0xE000..=0xF8FF | 0xF_0000..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format || is_private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (number, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456.789, "123456.789"),
            (5e-324, "5e-324"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_repr(number), expected);
        }
    }

    #[test]
    fn texts_inside_containers_are_quoted_as_in_python() {
        for (text, expected) in [
            ("a'b", "\"a'b\""),
            ("a'b\"c", "'a\\'b\"c'"),
            ("\u{7}\u{a0}é\u{200b}\u{10ffff}", "'\\x07\\xa0é\\u200b\\U0010ffff'"),
            ("a\\\n", "'a\\\\\\n'"),
        ] {
            assert_eq!(to_repr(&Value::from(text)).unwrap(), expected);
        }
    }

    #[test]
    fn containers_print_down_to_their_limit() {
        let nested = |depth: usize| (0..depth).fold(Value::from(1), |value, _| Value::from(vec![value]));
        assert!(to_str(&nested(TEMPLATE_DATA_DEPTH_MAX)).is_ok());
        assert!(to_str(&nested(TEMPLATE_DATA_DEPTH_MAX + 1)).is_err());
    }
}
