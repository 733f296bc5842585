//! ARFF: a table as text, with a list of its attributes before the rows.
//!
//! ```text
//! % a comment
//! @RELATION name
//! @ATTRIBUTE age NUMERIC                 NUMERIC, REAL, INTEGER; keywords in any case
//! @ATTRIBUTE 'the home' {flat,'a house'} the values of a nominal attribute; quotes are ' or ", \ escapes
//! @DATA
//! 31,flat                                ? is a missing value
//! {0 31, 1 'a house'}                    a sparse row: what it leaves out is 0, or the first value of a nominal one
//! ```

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Read};

use fulmar_core::{Error, ErrorKind, Result};

use crate::arff_line::Line;

/// Most bytes of a line of an ARFF file.
pub const ARFF_LINE_BYTES_MAX: u64 = 1 << 26;

/// Most attributes of an ARFF file.
pub const ARFF_ATTRIBUTES_MAX: usize = 1 << 16;

/// Most values of an ARFF file, those that sparse rows leave out included.
pub const ARFF_VALUES_MAX: usize = 1 << 27;

/// An attribute of an ARFF file with its value in each row.
#[derive(Debug, Clone, PartialEq)]
pub struct ArffColumn {
    /// Name.
    pub name: String,
    /// The values of a nominal attribute; `None` for a numeric one.
    pub nominal: Option<Vec<String>>,
    /// A number for each row: of a nominal attribute the place of the value in `nominal`. NaN is a missing value.
    pub values: Vec<f64>,
}

/// Reads an ARFF file, a line at a time.
///
/// # Errors
/// With the line, `Corrupt` for text that is not ARFF, with the attribute for a value that is not one of it; `Incompatible` for
/// attributes of kind `STRING`, `DATE` and `RELATIONAL`, and for rows with weights; `LimitExceeded` past
/// [`ARFF_LINE_BYTES_MAX`], [`ARFF_ATTRIBUTES_MAX`] and [`ARFF_VALUES_MAX`]; `Io` if the source fails.
///
/// # Examples
/// ```
/// use fulmar_dataset::read_arff;
/// let text = "@relation pets\n@attribute age real\n@attribute kind {cat, 'big dog'}\n@data\n3.5, 'big dog'\n?, cat\n";
/// let columns = read_arff(text.as_bytes())?;
/// assert_eq!(columns[1].nominal.as_ref().unwrap()[1], "big dog");
/// assert_eq!(columns[1].values, [1.0, 0.0]);
/// assert!(columns[0].values[1].is_nan());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_arff(mut source: impl BufRead) -> Result<Vec<ArffColumn>> {
    let mut table = Table { values_left: ARFF_VALUES_MAX, ..Table::default() };
    let mut bytes = Vec::new();
    for number in 1_u64.. {
        bytes.clear();
        source.by_ref().take(ARFF_LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return table.finish();
        }
        table.take(&bytes).map_err(|error| error.at(format!("line {number}")))?;
    }
    table.finish()
}

pub(crate) fn corrupt(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}

fn limit(what: &str, most: usize) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("{what} must be at most {most}: got {} or more", most + 1))
}

/// The part of a file that was read.
#[derive(Default)]
struct Table {
    columns: Vec<ArffColumn>,
    names: HashSet<String>,
    /// The place of each nominal value, for each attribute.
    places: Vec<HashMap<String, f64>>,
    has_data: bool,
    /// Values that may still come.
    values_left: usize,
}

impl Table {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > ARFF_LINE_BYTES_MAX {
            return Err(limit("bytes of a line", ARFF_LINE_BYTES_MAX as usize));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| corrupt("a line must be UTF-8: got other bytes").because(error))?;
        let mut line = Line::new(text);
        match (line.peek(), self.has_data) {
            (None | Some('%'), _) => Ok(()),
            (Some('{'), true) => self.take_sparse(line),
            (_, true) => self.take_dense(line),
            _ => match line.word().to_ascii_lowercase().as_str() {
                "@relation" => Ok(()),
                "@attribute" => self.take_attribute(line),
                "@data" => {
                    self.has_data = true;
                    Ok(())
                }
                other => Err(corrupt(format!(
                    "must be @relation, @attribute or @data before the rows: got {other:?}"
                ))),
            },
        }
    }

    fn take_attribute(&mut self, mut line: Line<'_>) -> Result<()> {
        if self.columns.len() >= ARFF_ATTRIBUTES_MAX {
            return Err(limit("attributes", ARFF_ATTRIBUTES_MAX));
        }
        let name = line.name()?;
        let nominal = match line.peek() {
            Some('{') => Some(line.nominal()?),
            _ => {
                check_numeric(&name, line.word())?;
                None
            }
        };
        if !self.names.insert(name.clone()) {
            return Err(corrupt(format!("an attribute must have a name of its own: got {name:?} twice")));
        }
        let places = nominal.iter().flatten().enumerate();
        self.places.push(places.map(|(place, value)| (value.clone(), place as f64)).collect());
        self.columns.push(ArffColumn { name, nominal, values: Vec::new() });
        Ok(())
    }

    fn take_dense(&mut self, mut line: Line<'_>) -> Result<()> {
        let num_columns = self.columns.len();
        self.count_row()?;
        for place in 0..num_columns {
            let value = line.value(',')?;
            let is_last = line.at_end();
            if is_last != (place + 1 == num_columns) {
                let got = if is_last { (place + 1).to_string() } else { "more".to_owned() };
                return Err(corrupt(format!("a row must have {num_columns} values: got {got}")));
            }
            let number = self.number(place, &value)?;
            self.columns[place].values.push(number);
        }
        Ok(())
    }

    fn take_sparse(&mut self, mut line: Line<'_>) -> Result<()> {
        self.count_row()?;
        self.columns.iter_mut().for_each(|column| column.values.push(0.0));
        for (place, value) in line.sparse()? {
            let Some(column) = self.columns.get(place) else {
                let count = self.columns.len();
                return Err(corrupt(format!("a row must name attributes below {count}: got {place}")));
            };
            let (row, number) = (column.values.len() - 1, self.number(place, &value)?);
            self.columns[place].values[row] = number;
        }
        Ok(())
    }

    /// Counts the values of one more row.
    fn count_row(&mut self) -> Result<()> {
        if self.columns.is_empty() {
            return Err(corrupt("rows must have an @attribute before them: got nothing"));
        }
        self.values_left = self
            .values_left
            .checked_sub(self.columns.len())
            .ok_or_else(|| limit("values", ARFF_VALUES_MAX))?;
        Ok(())
    }

    /// Returns the number of a value; `None` is a missing one.
    fn number(&self, place: usize, value: &Option<String>) -> Result<f64> {
        let (column, Some(value)) = (&self.columns[place], value) else { return Ok(f64::NAN) };
        let (number, what) = match column.nominal {
            Some(_) => (self.places[place].get(value).copied(), "one of its values"),
            None => (value.parse::<f64>().ok(), "a number"),
        };
        number.ok_or_else(|| corrupt(format!("attribute {:?} must be {what}: got {value:?}", column.name)))
    }

    fn finish(self) -> Result<Vec<ArffColumn>> {
        if self.has_data { Ok(self.columns) } else { Err(corrupt("must have a line @data: it has none")) }
    }
}

fn check_numeric(name: &str, kind: &str) -> Result<()> {
    match kind.to_ascii_lowercase().as_str() {
        "numeric" | "real" | "integer" => Ok(()),
        "string" | "date" | "relational" => {
            let detail = format!("attribute {name:?} must be of numbers or a list of values: got {kind}");
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
        _ => Err(corrupt(format!("attribute {name:?} must be numeric or a list in braces: got {kind:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_rows_count_the_values_that_they_leave_out() {
        let mut table = Table { values_left: 5, ..Table::default() };
        for line in ["@attribute a real", "@attribute b real", "@data", "{}", "{1 2}"] {
            table.take(line.as_bytes()).unwrap();
        }
        assert_eq!(table.take(b"{}").unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(table.columns[1].values, [0.0, 2.0]);
    }

    #[test]
    fn lines_and_attributes_have_limits() {
        let endless = std::io::repeat(b'%').take(ARFF_LINE_BYTES_MAX + 2);
        let error = read_arff(std::io::BufReader::new(endless)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        let mut table = Table::default();
        for place in 0..ARFF_ATTRIBUTES_MAX {
            table.take(format!("@attribute a{place} real").as_bytes()).unwrap();
        }
        assert_eq!(table.take(b"@attribute b real").unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}
