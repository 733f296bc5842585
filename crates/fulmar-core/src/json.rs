//! Options that arrive as JSON text.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::names::nearest_name;
use crate::{Error, ErrorKind, Result};

/// Maximum number of characters of an unknown name or value that an error repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// Parses options from `json`. Errors call the argument `name`, name the field at fault and, for an unknown
/// key or value, the nearest known one.
///
/// # Errors
/// `UnknownName` for a key or a value outside a closed set; `Malformed` for text that does not have the
/// documented form.
///
/// # Examples
/// ```
/// let sizes: Vec<u32> = fulmar_core::options_from_json("sizes", "[1, 2]")?;
/// assert_eq!(sizes, [1, 2]);
/// let error = fulmar_core::options_from_json::<Vec<u32>>("sizes", "[1, -2]").unwrap_err();
/// assert_eq!(error.detail(), "sizes[1] must be an integer >= 0: got -2");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn options_from_json<T: DeserializeOwned>(name: &str, json: &str) -> Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        json_error(&place(name, &path), error.inner())
    })?;
    deserializer.end().map_err(|error| json_error(name, &error))?;
    Ok(value)
}

/// Returns the error for invalid JSON in the argument called `name`, without a position in its text.
///
/// # Examples
/// ```
/// let error = serde_json::from_str::<Vec<bool>>("[1]").unwrap_err();
/// assert_eq!(fulmar_core::json_error("flags", &error).detail(), "flags must be true or false: got 1");
/// ```
#[must_use]
pub fn json_error(name: &str, error: &serde_json::Error) -> Error {
    let malformed = |rule: &str| Error::new(ErrorKind::Malformed, format!("{name} must be {rule}"));
    match error.classify() {
        Category::Eof => malformed("valid JSON: the text ends before its value does"),
        Category::Syntax | Category::Io => malformed("valid JSON"),
        Category::Data => data_error(name, &without_position(error)),
    }
}

/// Joins the name of an argument and a path in it: `options` and `.rates[2]` give `options.rates[2]`.
fn place(name: &str, path: &str) -> String {
    match path {
        "." => name.to_owned(),
        path if path.starts_with('[') => format!("{name}{path}"),
        path => format!("{name}.{path}"),
    }
}

/// Returns the parser's message without the line and column at its end.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

/// Converts a deserializer's message to ours.
fn data_error(name: &str, text: &str) -> Error {
    let malformed = |detail: String| Error::new(ErrorKind::Malformed, detail);
    if let Some(rest) = text.strip_prefix("unknown field ") {
        return unknown_key(name, &quoted(rest));
    }
    if let Some(rest) = text.strip_prefix("unknown variant ") {
        return unknown_value(name, &quoted(rest));
    }
    if let Some(rest) = text.strip_prefix("missing field ") {
        return malformed(format!("{name} must have the key {}", rest.replace('`', "\"")));
    }
    if let Some(rest) = text.strip_prefix("duplicate field ") {
        return malformed(format!("{name} must have the key {} only once", rest.replace('`', "\"")));
    }
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "];
    if let Some((got, expected)) =
        wrong.iter().find_map(|start| text.strip_prefix(start)?.split_once(", expected "))
    {
        return malformed(format!("{name} must be {}: got {}", in_words(expected), value_in_words(got)));
    }
    malformed(format!("{name} must be of the documented form: got {text}"))
}

fn unknown_key(place: &str, names: &[&str]) -> Error {
    let Some((key, known)) = names.split_first() else {
        return Error::new(ErrorKind::UnknownName, format!("{place} must have known keys only"));
    };
    // The path of an unknown key ends with that key if the deserializer had read it.
    let owner = place.strip_suffix(key).and_then(|start| start.strip_suffix('.')).unwrap_or(place);
    let hint = match nearest_name(key, known) {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None if known.is_empty() => "no keys are allowed here".to_owned(),
        None => format!("known are {}", known.join(", ")),
    };
    Error::new(ErrorKind::UnknownName, format!("{owner}.{} must be a known key: {hint}", shown(key)))
}

fn unknown_value(place: &str, names: &[&str]) -> Error {
    let (value, known) = names.split_first().map_or(("", &[][..]), |(value, known)| (*value, known));
    let hint = nearest_name(value, known).map(|nearest| format!("; did you mean '{nearest}'?"));
    let detail = format!(
        "{place} must be one of {}: got \"{}\"{}",
        known.join(", "),
        shown(value),
        hint.unwrap_or_default()
    );
    Error::new(ErrorKind::UnknownName, detail)
}

/// Returns the names between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

/// Describes the expected type of a deserializer without Rust's type names.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer >= 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" | "map" => "an object",
        "unit" => "null",
        "variant identifier" | "string or map" => "one of the documented names",
        _ if ["struct ", "internally tagged", "adjacently tagged"]
            .iter()
            .any(|start| expected.starts_with(start)) =>
        {
            "an object"
        }
        _ if ["tuple", "an array of "].iter().any(|start| expected.starts_with(start)) => {
            "a list of the documented length"
        }
        _ if expected.starts_with("nonzero") || expected.starts_with("a nonzero") => "an integer >= 1",
        other => other,
    }
}

/// Returns the value that a deserializer got, as written in JSON.
fn value_in_words(got: &str) -> String {
    let plain = ["string ", "integer ", "floating point ", "boolean ", "character "]
        .iter()
        .find_map(|kind| got.strip_prefix(kind))
        .unwrap_or(got);
    match plain {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit" => "null".to_owned(),
        plain if plain.parse::<u64>().is_ok() && plain == got => format!("{plain} elements"),
        plain => shown(plain.trim_matches('`')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Sizes {
        width: u32,
        #[serde(default)]
        kind: Kind,
        #[serde(default)]
        inner: Option<Box<Sizes>>,
        #[serde(default)]
        learning_rate: f64,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        Bf16,
        F32,
    }

    fn refusal(json: &str) -> (ErrorKind, String) {
        let error = options_from_json::<Sizes>("sizes", json).unwrap_err();
        (error.kind(), error.detail().to_owned())
    }

    #[test]
    fn unknown_keys_and_values_are_answered_with_the_nearest_name() {
        let unknown = |json: &str, detail: &str| {
            assert_eq!(refusal(json), (ErrorKind::UnknownName, detail.to_owned()), "{json}");
        };
        unknown(r#"{"width": 3, "widht": 4}"#, "sizes.widht must be a known key: did you mean 'width'?");
        unknown(r#"{"width": 3, "lr": 4}"#, "sizes.lr must be a known key: did you mean 'learningRate'?");
        unknown(
            r#"{"width": 3, "inner": {"width": 1, "banana": 4}}"#,
            "sizes.inner.banana must be a known key: known are width, kind, inner, learningRate",
        );
        unknown(
            r#"{"width": 3, "kind": "float32"}"#,
            "sizes.kind must be one of bf16, f32: got \"float32\"; did you mean 'f32'?",
        );
        unknown(r#"{"width": 3, "kind": "banana"}"#, "sizes.kind must be one of bf16, f32: got \"banana\"");
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_its_place_and_the_rule() {
        let malformed = |json: &str, detail: &str| {
            assert_eq!(refusal(json), (ErrorKind::Malformed, detail.to_owned()), "{json}");
        };
        malformed(r#"{"width": -3}"#, "sizes.width must be an integer >= 0: got -3");
        malformed(r#"{"width": "wide"}"#, "sizes.width must be an integer >= 0: got \"wide\"");
        malformed(
            r#"{"width": 1, "inner": {"width": 1.5}}"#,
            "sizes.inner.width must be an integer >= 0: got 1.5",
        );
        malformed(r#"{"width": 1, "learningRate": null}"#, "sizes.learningRate must be a number: got null");
        malformed("7", "sizes must be an object: got 7");
        malformed("{}", "sizes must have the key \"width\"");
        malformed(r#"{"width": 1, "width": 2}"#, "sizes must have the key \"width\" only once");
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn no_position_of_a_parser_is_told_wherever_a_text_breaks() {
        let whole = r#"{"width": 3, "kind": "f32", "inner": {"width": 1, "learningRate": 1e-3}}"#;
        assert!(options_from_json::<Sizes>("sizes", whole).is_ok());
        let cut = (0..whole.len()).map(|end| whole[..end].to_owned());
        let broken = (0..whole.len()).map(|at| format!("{}?{}", &whole[..at], &whole[at + 1..]));
        for text in cut.chain(broken).chain([format!("{whole} {whole}")]) {
            let Err(error) = options_from_json::<Sizes>("sizes", &text) else { continue };
            let detail = error.detail();
            assert!(detail.starts_with("sizes") && detail.contains(" must "), "{text}: {detail}");
            assert!(!detail.contains("line 1") && !detail.contains("column"), "{text}: {detail}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn long_foreign_texts_are_cut_in_messages() {
        let (_, detail) = refusal(&format!(r#"{{"width": 3, "{}": 4}}"#, "x".repeat(100_000)));
        assert!(detail.len() < 300, "{}", detail.len());
        let (_, detail) = refusal(&format!(r#"{{"width": "{}"}}"#, "x".repeat(100_000)));
        assert!(detail.len() < 300, "{}", detail.len());
    }
}
