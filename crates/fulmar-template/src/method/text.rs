//! The methods of Python's `str`.

use fulmar_core::ErrorKind;
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::Value;
use minijinja::{Error, value::ValueKind};

use super::{check_length, list, none_of, pay_for, tuple};
use crate::arguments::{Arguments, as_integer};
use crate::failure::{fail, type_error};
use crate::filter::string;
use crate::meter;
use crate::print::is_printable;
use crate::value::is_tuple;

/// Calls `text.name(arguments)`; returns `None` if text has no such method.
///
/// # Errors
/// A type error for wrong arguments; Python's `ValueError` is `OutOfRange`.
pub fn call(text: &str, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    if let Some(answer) = predicate(text, name) {
        none_of(name, arguments)?;
        return Ok(Some(Value::from(answer)));
    }
    if !matches!(name, "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count") {
        // The results of the other methods are about as long as the text.
        meter::make(text.len())?;
    }
    if let Some(answer) = cased(text, name) {
        none_of(name, arguments)?;
        return Ok(Some(Value::from(answer)));
    }
    match name {
        "strip" | "lstrip" | "rstrip" => stripped(text, name, arguments),
        "split" | "rsplit" => split(text, name, arguments),
        "startswith" | "endswith" => affix_test(text, name, arguments),
        "removeprefix" | "removesuffix" => without_affix(text, name, arguments),
        "find" | "rfind" | "index" | "rindex" => find(text, name, arguments),
        "partition" | "rpartition" => partition(text, name, arguments),
        "center" | "ljust" | "rjust" | "zfill" => padded(text, name, arguments),
        "replace" => replaced(text, arguments),
        "splitlines" => lines(text, arguments),
        "count" => count(text, arguments),
        "join" => joined(text, arguments),
        "format" => formatted(text, arguments).map(Value::from),
        _ => return Ok(None),
    }
    .map(Some)
}

/// Returns whether Python counts a character as space: Unicode's white space and four separators of ASCII.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// Returns Python's `text.format(*arguments)`; named arguments are the last one.
///
/// # Errors
/// The errors of the engine; `LimitExceeded` if the result could be longer than a rendering may output.
fn formatted(text: &str, arguments: &[Value]) -> Result<String, Error> {
    let is_plain = !text.contains(['.', '[', ':', '!']);
    let is_width_given = text.split('}').any(|field| field.matches('{').count() > 1);
    let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    let mut widest = digits.map(|run| run.parse().unwrap_or(usize::MAX)).max().unwrap_or(0);
    let mut printed = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let (length, argument) = match argument.kind() {
            ValueKind::String => (argument.as_str().map_or(0, str::len), argument.clone()),
            ValueKind::Number if !is_plain => {
                let width = as_integer(argument).filter(|_| is_width_given).unwrap_or(0);
                (usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX), argument.clone())
            }
            ValueKind::Bool if !is_plain => (0, argument.clone()),
            _ if argument.is_kwargs() => (string(argument)?.len(), argument.clone()),
            _ => {
                let text = string(argument)?;
                (text.len(), if is_plain { Value::from(text) } else { argument.clone() })
            }
        };
        widest = widest.max(length);
        printed.push(argument);
    }
    let most = widest.checked_mul(text.matches('{').count()).and_then(|most| most.checked_add(text.len()));
    check_length(most)?;
    meter::make(most.unwrap_or(usize::MAX))?;
    format(FormatStyle::StrFormat, text, &printed)
}

fn predicate(text: &str, name: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    Some(match name {
        "isspace" => all(is_space),
        "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => text.is_ascii(),
        "isprintable" => text.chars().all(is_printable),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        "istitle" => text.chars().any(char::is_alphabetic) && titled(text) == text,
        "isidentifier" => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
                && chars.all(|c| c == '_' || c.is_alphanumeric())
        }
        _ => return None,
    })
}

fn cased(text: &str, name: &str) -> Option<String> {
    Some(match name {
        "upper" => text.to_uppercase(),
        "lower" | "casefold" => text.to_lowercase(),
        "title" => titled(text),
        "capitalize" => capitalized(text),
        "swapcase" => {
            let swap = |c: char| {
                if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() }
            };
            text.chars().map(swap).collect()
        }
        _ => return None,
    })
}

/// Returns the text with its first letter in upper case, the others in lower case.
pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase(),
        None => String::new(),
    }
}

/// Returns the text with each letter after a non-letter in upper case, the others in lower case.
fn titled(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut follows_letter = false;
    for c in text.chars() {
        if follows_letter {
            titled.extend(c.to_lowercase());
        } else {
            titled.extend(c.to_uppercase());
        }
        follows_letter = c.is_alphabetic();
    }
    titled
}

/// Returns a required text argument.
fn text_of<'a>(name: &str, value: &'a Value) -> Result<&'a str, Error> {
    value.as_str().ok_or_else(|| type_error(format!("{name} must be given text: got {}", value.kind())))
}

/// Returns an optional text argument; none counts as missing.
fn optional_text(name: &str, value: Option<Value>) -> Result<Option<String>, Error> {
    match value.filter(|value| !value.is_none()) {
        None => Ok(None),
        Some(value) => Ok(Some(text_of(name, &value)?.to_owned())),
    }
}

fn stripped(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let chars = optional_text(name, Arguments::new(name, arguments, &["chars"])?.get("chars"))?;
    Ok(Value::from(strip(text, chars.as_deref(), name != "rstrip", name != "lstrip")))
}

/// Returns the distinct characters of a text in order, for look-ups.
fn distinct(chars: &str) -> Vec<char> {
    let mut distinct: Vec<char> = chars.chars().collect();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

/// Removes the characters of `chars` (spaces by default) at the start, the end or both.
pub fn strip<'a>(text: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let chars = chars.map(distinct);
    let goes = |c: char| chars.as_ref().map_or_else(|| is_space(c), |chars| chars.binary_search(&c).is_ok());
    let text = if start { text.trim_start_matches(goes) } else { text };
    if end { text.trim_end_matches(goes) } else { text }
}

fn split(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(name, arguments, &["sep", "maxsplit"])?;
    let separator = optional_text(name, arguments.get("sep"))?;
    let limit = usize::try_from(arguments.integer("maxsplit", -1)?).unwrap_or(usize::MAX - 1);
    let from_end = name == "rsplit";
    let parts: Vec<&str> = match separator.as_deref() {
        Some("") => return Err(fail(ErrorKind::OutOfRange, format!("{name}: sep must not be empty"))),
        Some(separator) if from_end => {
            let mut parts: Vec<_> = text.rsplitn(limit + 1, separator).collect();
            parts.reverse();
            parts
        }
        Some(separator) => text.splitn(limit + 1, separator).collect(),
        None => words(text, limit, from_end),
    };
    list(parts.into_iter().map(Value::from).collect())
}

/// Returns the words between runs of spaces; after `limit` splits the rest stays whole.
fn words(text: &str, limit: usize, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = if from_end { strip(text, None, false, true) } else { strip(text, None, true, false) };
    while !rest.is_empty() {
        let gap = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        match gap.filter(|_| words.len() < limit) {
            Some(at) if from_end => {
                let next = at + rest[at..].chars().next().map_or(0, char::len_utf8);
                words.push(&rest[next..]);
                rest = strip(&rest[..at], None, false, true);
            }
            Some(at) => {
                words.push(&rest[..at]);
                rest = strip(&rest[at..], None, true, false);
            }
            None => {
                words.push(rest);
                break;
            }
        }
    }
    if from_end {
        words.reverse();
    }
    words
}

fn affix_test(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(name, arguments, &["affix", "start", "end"])?;
    let affix = arguments.need("affix")?;
    let part = part_of(text, &arguments)?;
    let matches =
        |affix: &str| if name == "startswith" { part.starts_with(affix) } else { part.ends_with(affix) };
    if is_tuple(&affix) {
        pay_for(&affix)?;
        for affix in affix.try_iter()? {
            if matches(text_of(name, &affix)?) {
                return Ok(Value::from(true));
            }
        }
        return Ok(Value::from(false));
    }
    Ok(Value::from(matches(text_of(name, &affix)?)))
}

/// Returns `text[start:end]` for methods with that range.
fn part_of<'a>(text: &'a str, arguments: &Arguments) -> Result<&'a str, Error> {
    let (start, end) = (arguments.integer("start", 0)?, arguments.integer("end", i64::MAX)?);
    if start == 0 && end == i64::MAX {
        return Ok(text);
    }
    let length = text.chars().count() as i64;
    let clamp = |at: i64| if at < 0 { (at + length).max(0) } else { at.min(length) } as usize;
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    let (start, end) = (byte(clamp(start)), byte(clamp(end)));
    Ok(if start <= end { &text[start..end] } else { "" })
}

fn without_affix(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let affix = Arguments::new(name, arguments, &["affix"])?.need("affix")?;
    let affix = text_of(name, &affix)?;
    let rest = if name == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
    Ok(Value::from(rest.unwrap_or(text)))
}

fn find(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(name, arguments, &["sub", "start", "end"])?;
    let wanted = arguments.need("sub")?;
    let wanted = text_of(name, &wanted)?;
    let part = part_of(text, &arguments)?;
    let at = if name.starts_with('r') { part.rfind(wanted) } else { part.find(wanted) };
    match at {
        Some(at) => {
            let before = part.as_ptr() as usize - text.as_ptr() as usize;
            let before = if part.is_empty() { text.len() } else { before };
            Ok(Value::from(text[..before].chars().count() + part[..at].chars().count()))
        }
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => Err(fail(ErrorKind::OutOfRange, format!("{name}: the text must hold {wanted:?}"))),
    }
}

fn partition(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let separator = Arguments::new(name, arguments, &["sep"])?.need("sep")?;
    let separator = text_of(name, &separator)?;
    if separator.is_empty() {
        return Err(fail(ErrorKind::OutOfRange, format!("{name}: sep must not be empty")));
    }
    let parts = if name == "partition" {
        text.split_once(separator).map_or([text, "", ""], |(before, after)| [before, separator, after])
    } else {
        text.rsplit_once(separator).map_or(["", "", text], |(before, after)| [before, separator, after])
    };
    tuple(parts.map(Value::from).into())
}

fn padded(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(name, arguments, &["width", "fillchar"])?;
    arguments.need("width")?;
    let width = usize::try_from(arguments.integer("width", 0)?).unwrap_or(0);
    let fill = if name == "zfill" { "0".to_owned() } else { arguments.text("fillchar", " ")? };
    if fill.chars().count() != 1 {
        return Err(type_error(format!("{name}: fillchar must be one character: got {fill:?}")));
    }
    let length = text.chars().count();
    let missing = width.saturating_sub(length);
    check_length(missing.checked_mul(fill.len()))?;
    meter::make(missing * fill.len())?;
    if name == "zfill" {
        let sign = text.len() - text.trim_start_matches(['+', '-']).len();
        let (sign, digits) = text.split_at(sign.min(1));
        return Ok(Value::from(format!("{sign}{}{digits}", fill.repeat(missing))));
    }
    let left = match name {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd one on the left only if the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(Value::from(format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn replaced(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new("replace", arguments, &["old", "new", "count"])?;
    let (old, new) = (arguments.need("old")?, arguments.need("new")?);
    let limit = usize::try_from(arguments.integer("count", -1)?).ok();
    replace(text, text_of("replace", &old)?, text_of("replace", &new)?, limit).map(Value::from)
}

/// Replaces `old` by `new`, at most `limit` times.
///
/// # Errors
/// `LimitExceeded` if the result is longer than a rendering may output.
pub fn replace(text: &str, old: &str, new: &str, limit: Option<usize>) -> Result<String, Error> {
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    let found = found.min(limit.unwrap_or(usize::MAX));
    let most = found.checked_mul(new.len()).and_then(|bytes| bytes.checked_add(text.len()));
    check_length(most)?;
    meter::make(most.unwrap_or(usize::MAX))?;
    Ok(text.replacen(old, new, found))
}

fn lines(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let keep = Arguments::new("splitlines", arguments, &["keepends"])?.flag("keepends", false);
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_end = |c| {
            matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
        };
        let Some((at, c)) = rest.char_indices().find(|(_, c)| is_end(*c)) else {
            lines.push(rest);
            break;
        };
        let next = at + if rest[at..].starts_with("\r\n") { 2 } else { c.len_utf8() };
        lines.push(&rest[..if keep { next } else { at }]);
        rest = &rest[next..];
    }
    list(lines.into_iter().map(Value::from).collect())
}

fn count(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new("count", arguments, &["sub", "start", "end"])?;
    let wanted = arguments.need("sub")?;
    let part = part_of(text, &arguments)?;
    let wanted = text_of("count", &wanted)?;
    Ok(Value::from(if wanted.is_empty() { part.chars().count() + 1 } else { part.matches(wanted).count() }))
}

fn joined(separator: &str, arguments: &[Value]) -> Result<Value, Error> {
    let items = Arguments::new("join", arguments, &["iterable"])?.need("iterable")?;
    let mut joined = String::new();
    for (at, item) in items.try_iter()?.enumerate() {
        let separator = if at > 0 { separator } else { "" };
        let item = text_of("join", &item)?;
        meter::touch(1)?;
        meter::make(separator.len() + item.len())?;
        check_length(Some(joined.len() + separator.len() + item.len()))?;
        joined.push_str(separator);
        joined.push_str(item);
    }
    Ok(Value::from(joined))
}
