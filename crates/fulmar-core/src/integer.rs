//! Integers of any size in JSON.
//!
//! `serde_json` reads an integer beyond 64 bits as a float and loses its digits. [`keep_integers`] writes such an integer
//! as an object with one reserved key before the text is parsed, [`kept_integer`] recognizes that object in the parsed
//! value, and [`restore_integers`] turns serialized text back. An object of this form in the input is read as
//! an integer too.

use std::borrow::Cow;

use memchr::memchr2;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::limits::INTEGER_DIGITS_MAX;
use crate::{Error, ErrorKind, Result, options_from_json};

/// The only key of the object that represents an integer.
const KEY: &str = "\0integer";

/// The text before the digits in serialized JSON.
const OPEN: &str = "{\"\\u0000integer\":\"";
const CLOSE: &str = "\"}";

/// Reads options as [`options_from_json`] does, with integers beyond 64 bits as values that [`kept_integer`] recognizes.
///
/// # Errors
/// The errors of [`options_from_json`] and [`keep_integers`].
///
/// # Examples
/// ```
/// let ids: Vec<serde_json::Value> = fulmar_core::exact_options_from_json("ids", "[123456789012345678901234567890]")?;
/// assert_eq!(fulmar_core::kept_integer(&ids[0]), Some("123456789012345678901234567890"));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn exact_options_from_json<T: DeserializeOwned>(name: &str, json: &str) -> Result<T> {
    let json = keep_integers(json)?;
    // The place of a mistake costs an allocation for each key, so it is looked for where there is one.
    serde_json::from_str(&json).or_else(|_| options_from_json(name, &json))
}

/// Returns `json` with each integer beyond 64 bits as an object that [`kept_integer`] recognizes.
///
/// Text without such integers comes back borrowed. `-0` becomes `0`, as an integer has no sign of zero.
///
/// # Errors
/// `LimitExceeded` if an integer has more than `INTEGER_DIGITS_MAX` digits.
///
/// # Examples
/// ```
/// use fulmar_core::{keep_integers, kept_integer, restore_integers};
/// let json = r#"{"id":123456789012345678901234567890}"#;
/// let value: serde_json::Value = serde_json::from_str(&keep_integers(json)?).unwrap();
/// assert_eq!(kept_integer(&value["id"]), Some("123456789012345678901234567890"));
/// assert_eq!(restore_integers(&value.to_string()), json);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn keep_integers(json: &str) -> Result<Cow<'_, str>> {
    let bytes = json.as_bytes();
    let mut kept = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_text(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = end_of_number(bytes, at);
                if let Some(replacement) = kept_form(&json[at..end])? {
                    kept.push_str(&json[copied..at]);
                    kept.push_str(&replacement);
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(json));
    }
    kept.push_str(&json[copied..]);
    Ok(Cow::Owned(kept))
}

/// Returns the digits, with a minus sign where it is negative, of an integer that [`keep_integers`] kept.
#[must_use]
pub fn kept_integer(value: &Value) -> Option<&str> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    let digits = map.get(KEY)?.as_str()?;
    let has_form = !digits.is_empty() && digits.len() <= INTEGER_DIGITS_MAX + 1;
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    let is_integer = unsigned.bytes().all(|byte| byte.is_ascii_digit()) && !unsigned.starts_with('0');
    (has_form && is_integer && !unsigned.is_empty()).then_some(digits)
}

/// Returns serialized JSON with the integers that [`keep_integers`] kept as plain integers.
#[must_use]
pub fn restore_integers(json: &str) -> Cow<'_, str> {
    if !json.contains(OPEN) {
        return Cow::Borrowed(json);
    }
    let mut restored = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(start) = rest.find(OPEN) {
        let behind = &rest[start + OPEN.len()..];
        let digits = &behind[..behind.find(CLOSE).unwrap_or(0)];
        let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let is_integer = is_integer && !digits.is_empty();
        restored.push_str(&rest[..start]);
        restored.push_str(if is_integer { digits } else { OPEN });
        rest = if is_integer { &behind[digits.len() + CLOSE.len()..] } else { behind };
    }
    restored.push_str(rest);
    Cow::Owned(restored)
}

/// Returns the index of the byte after the closing quote of the string that opens at `start`.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

fn end_of_number(bytes: &[u8], start: usize) -> usize {
    let is_part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    start + bytes[start..].iter().take_while(is_part).count()
}

/// Returns the text to write for a number, or `None` if it stays unchanged.
fn kept_form(number: &str) -> Result<Option<String>> {
    if number == "-0" {
        return Ok(Some("0".to_owned()));
    }
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    if !is_integer || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() || digits.is_empty() {
        return Ok(None);
    }
    if digits.len() > INTEGER_DIGITS_MAX {
        let got = digits.len();
        let detail = format!("an integer must have at most {INTEGER_DIGITS_MAX} digits, this one has {got}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(Some(format!("{OPEN}{number}{CLOSE}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integers_beyond_64_bits_are_kept_apart() {
        let json = r#"["1e400 99999999999999999999", 18446744073709551615, -9223372036854775808, 1.5e30, 0, "\"-0"]"#;
        assert!(matches!(keep_integers(json), Ok(Cow::Borrowed(_))));
        let json = r#"[18446744073709551616,-9223372036854775809,-0]"#;
        let kept = keep_integers(json).unwrap();
        let value: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept_integer(&value[0]), Some("18446744073709551616"));
        assert_eq!(kept_integer(&value[1]), Some("-9223372036854775809"));
        assert_eq!(value[2], serde_json::json!(0));
        assert_eq!(restore_integers(&value.to_string()), "[18446744073709551616,-9223372036854775809,0]");
    }

    #[test]
    fn text_that_is_no_json_is_left_for_the_parser() {
        for json in
            ["", "-", "\"", "\"\\", "00000000000000000000001", "1-2-3", "[99999999999999999999.5]", "é"]
        {
            assert!(matches!(keep_integers(json), Ok(Cow::Borrowed(_))), "{json}");
        }
        assert_eq!(restore_integers("{\"\\u0000integer\":\"x\"}"), "{\"\\u0000integer\":\"x\"}");
        assert_eq!(restore_integers("{\"\\u0000integer\":\""), "{\"\\u0000integer\":\"");
    }

    #[test]
    fn integers_have_at_most_their_digits() {
        let most = "9".repeat(INTEGER_DIGITS_MAX);
        assert!(keep_integers(&most).is_ok() && keep_integers(&format!("-{most}")).is_ok());
        assert_eq!(keep_integers(&format!("{most}9")).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn objects_of_another_form_are_no_integers() {
        for form in [
            r#"{"\u0000integer":"1x"}"#,
            r#"{"\u0000integer":"-"}"#,
            r#"{"\u0000integer":"01"}"#,
            r#"{"\u0000integer":1}"#,
            r#"{"\u0000integer":"1","a":2}"#,
            r#"{"integer":"1"}"#,
        ] {
            assert_eq!(kept_integer(&serde_json::from_str(form).unwrap()), None, "{form}");
        }
    }
}
