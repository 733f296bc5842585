//! Filters that format text or escape it for other languages.

use fulmar_core::ErrorKind;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error};

use super::{add, iterate, string};
use crate::arguments::{Arguments, as_integer};
use crate::compare::type_name;
use crate::failure::{fail, type_error, undefined};
use crate::meter;
use crate::method::{check_length, dict, text};
use crate::print;
use crate::printf;

/// Characters of a URL that are not escaped, besides letters and digits.
const URL_PLAIN: &[u8] = b"_.-~/";

/// Puts every filter of this file in `environment`.
pub fn add_to(environment: &mut Environment) {
    add(environment, "format", format);
    add(environment, "indent", indent);
    add(environment, "truncate", truncate);
    add(environment, "center", center);
    add(environment, "wordcount", |value: &Value| Ok::<_, Error>(word_count(&string(value)?)));
    add(environment, "escape", |value: &Value| Ok::<_, Error>(escape(&string(value)?)));
    add(environment, "e", |value: &Value| Ok::<_, Error>(escape(&string(value)?)));
    add(environment, "forceescape", |value: &Value| Ok::<_, Error>(escape(&string(value)?)));
    add(environment, "safe", |value: &Value| string(value));
    add(environment, "striptags", |value: &Value| Ok::<_, Error>(without_tags(&string(value)?)));
    add(environment, "urlencode", url_encode);
    add(environment, "filesizeformat", file_size);
}

fn format(value: &Value, arguments: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let text = string(value)?;
    if named.args().next().is_none() {
        return printf::format_with(&text, &arguments, None);
    }
    if !arguments.is_empty() {
        return Err(type_error("can't handle positional and keyword arguments at the same time"));
    }
    let mut entries = Vec::new();
    for name in named.args() {
        entries.push((Value::from(name), named.get(name)?));
    }
    printf::format_with(&text, &[], Some(&dict(entries)?))
}

fn indent(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options = Arguments::with_named("indent", &options, named, &["width", "first", "blank"])?;
    let margin = match options.get("width").as_ref().and_then(Value::as_str) {
        Some(margin) => margin.to_owned(),
        None => {
            let width = usize::try_from(options.integer("width", 4)?).unwrap_or(0);
            check_length(Some(width))?;
            " ".repeat(width)
        }
    };
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => {
            return Err(undefined("indent needs a text, this value is undefined"));
        }
        None => {
            return Err(type_error(format!(
                "indent needs a text, this value is of type '{}'",
                type_name(value)
            )));
        }
    };
    let added = margin.len().checked_mul(text.matches('\n').count() + 1);
    check_length(added)?;
    meter::make(added.unwrap_or(usize::MAX))?;
    let blank = options.flag("blank", false);
    let mut indented = String::with_capacity(text.len() + margin.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            indented.push('\n');
        }
        let wants_margin = if at == 0 { options.flag("first", false) } else { blank || !line.is_empty() };
        if wants_margin {
            indented.push_str(&margin);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

fn truncate(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options =
        Arguments::with_named("truncate", &options, named, &["length", "killwords", "end", "leeway"])?;
    let length = usize::try_from(options.integer("length", 255)?).unwrap_or(0);
    let leeway = usize::try_from(options.integer("leeway", 5)?).unwrap_or(0);
    let end = options.text("end", "...")?;
    if length < end.chars().count() {
        let detail = format!("expected length >= {}, got {length}", end.chars().count());
        return Err(fail(ErrorKind::OutOfRange, detail));
    }
    let text = string(value)?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if options.flag("killwords", false) {
        kept.as_str()
    } else {
        kept.rsplit_once(' ').map_or(&*kept, |(kept, _)| kept)
    };
    Ok(format!("{kept}{end}"))
}

fn center(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("center", &options, named, &["width"])?;
    let width = Value::from(options.integer("width", 80)?);
    Ok(text::call(&string(value)?, "center", &[width])?.unwrap_or_default())
}

/// Returns the number of runs of letters, digits and underscores.
fn word_count(text: &str) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
}

/// Escapes text for HTML, with markupsafe's entities.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Removes text between angle brackets and collapses spaces.
fn without_tags(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let Some(length) = rest[start..].find('>') else { break };
        kept.push_str(&rest[..start]);
        rest = &rest[start + length + 1..];
    }
    kept.push_str(rest);
    kept.split(text::is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn url_encode(value: &Value) -> Result<String, Error> {
    let mut encoded = String::new();
    if !matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable) {
        quote(&mut encoded, &string(value)?);
        return Ok(encoded);
    }
    for item in value.try_iter()? {
        let pair = match value.kind() {
            ValueKind::Map => [item.clone(), value.get_item(&item)?],
            _ => pair(&item)?,
        };
        if !encoded.is_empty() {
            encoded.push('&');
        }
        quote(&mut encoded, &string(&pair[0])?);
        encoded.push('=');
        quote(&mut encoded, &string(&pair[1])?);
        check_length(Some(encoded.len()))?;
    }
    Ok(encoded)
}

/// Returns the two parts of an item that is a key and a value.
fn pair(item: &Value) -> Result<[Value; 2], Error> {
    let parts: Vec<Value> = iterate(item)?.try_iter()?.take(3).collect();
    let num_parts = parts.len();
    parts.try_into().map_err(|_| {
        fail(
            ErrorKind::OutOfRange,
            format!("urlencode needs pairs, this item has another number of parts than 2: {num_parts}"),
        )
    })
}

fn quote(encoded: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || URL_PLAIN.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn file_size(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options = Arguments::with_named("filesizeformat", &options, named, &["binary"])?;
    let (base, units) = if options.flag("binary", false) {
        (1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"])
    } else {
        (1000.0, ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"])
    };
    let bytes = print::as_float(value).or_else(|| as_integer(value).map(|bytes| bytes as f64)).unwrap_or(0.0);
    if bytes == 1.0 {
        return Ok("1 Byte".to_owned());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", bytes.trunc()));
    }
    let mut size = bytes / base;
    let mut unit = 0;
    while size >= base && unit + 1 < units.len() {
        size /= base;
        unit += 1;
    }
    Ok(format!("{size:.1} {}", units[unit]))
}
