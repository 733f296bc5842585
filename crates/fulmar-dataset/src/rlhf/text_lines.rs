//! Rows of texts as JSON lines.

use std::io::{BufRead, Read};

use fulmar_core::{Error, ErrorKind, Result, json_error};
use serde_json::{Map, Value};

/// Most bytes of a line of JSON.
pub const TEXT_LINE_BYTES_MAX: u64 = 1 << 26;

/// Values of a row by the names of their columns.
pub type TextRow = Map<String, Value>;

/// Reads JSON lines, an object a row, one at a time. Empty lines are passed over. Ends behind the first error.
///
/// The error of a row, with its line: `Corrupt` for other than an object of JSON in UTF-8; `LimitExceeded` for more than
/// [`TEXT_LINE_BYTES_MAX`] bytes; `Io`.
///
/// # Examples
/// ```
/// use fulmar_dataset::read_text_lines;
/// let mut rows = read_text_lines(&b"{\"text\": \"a\"}\n\n[1]\n"[..]);
/// assert_eq!(rows.next().transpose()?.map(|row| row["text"].clone()), Some("a".into()));
/// assert!(rows.next().is_some_and(|row| row.unwrap_err().to_string().starts_with("line 3")));
/// assert!(rows.next().is_none());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_text_lines(mut source: impl BufRead) -> impl Iterator<Item = Result<TextRow>> {
    let mut line = Vec::new();
    let mut number = 0;
    let mut has_ended = false;
    std::iter::from_fn(move || {
        while !has_ended {
            number += 1;
            let row = next_row(&mut source, &mut line).map_err(|error| error.at(format!("line {number}")));
            has_ended = !matches!(row, Ok(Line::Row(_) | Line::Blank));
            match row {
                Ok(Line::Row(row)) => return Some(Ok(row)),
                Ok(Line::Blank | Line::End) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    })
}

enum Line {
    Row(TextRow),
    Blank,
    End,
}

fn next_row(source: &mut impl BufRead, line: &mut Vec<u8>) -> Result<Line> {
    line.clear();
    source.by_ref().take(TEXT_LINE_BYTES_MAX + 1).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(Line::End);
    }
    if line.len() as u64 > TEXT_LINE_BYTES_MAX {
        let detail = format!("must have at most {TEXT_LINE_BYTES_MAX} bytes: it has more");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(Line::Blank);
    }
    match serde_json::from_slice(line) {
        Ok(row) => Ok(Line::Row(row)),
        Err(error) => {
            let detail = json_error("the row", &error).detail().to_owned();
            Err(Error::new(ErrorKind::Corrupt, detail).because(error))
        }
    }
}

/// Returns the text of a column.
pub(super) fn text_at<'a>(row: &'a TextRow, name: &str) -> Result<&'a str> {
    row.get(name).and_then(Value::as_str).ok_or_else(|| {
        let got = row.get(name).map_or_else(|| "nothing".to_owned(), kind_of);
        Error::new(ErrorKind::Malformed, format!("{name} must be a text: got {got}"))
    })
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}
