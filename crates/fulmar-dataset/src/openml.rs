//! Tables of OpenML as contextual bandits: `X` is what is known about a row, `y` the arm that is right for it.
//!
//! ```text
//! id                   X [rows, columns] f64                          y [rows] i64
//! *_num, covertype,    all columns standardised; a nominal one is     the place of the target's value among those that
//! shuttle, magic       the place of its value in order                 are there, in the order of their texts
//! *_onehot             numeric columns standardised, then a column    the same
//!                      of 0 and 1 for each value of a nominal one
//! adult_*              without occupation                             occupation; rows with a missing value are dropped
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result, open_regular};
use fulmar_tensor::{Tensor, TensorDict};
use serde::{Deserialize, Serialize};

use crate::arff::{ArffColumn, read_arff};

/// Ids of the tables of [`read_openml`].
pub const OPENML_IDS: [&str; 7] =
    ["adult_num", "adult_onehot", "mushroom_num", "mushroom_onehot", "covertype", "shuttle", "magic"];

/// The columns of a table by their use, as OpenML describes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenmlOptions {
    /// Name of the column that is foretold.
    pub target: String,
    /// Names of columns that are no features, such as numbers of rows.
    #[serde(default)]
    pub ignored: Vec<String>,
}

/// Opens the ARFF file at `path` as the table `id`, see [`read_openml`].
///
/// # Errors
/// With the file, `Io` if it cannot be read; those of [`read_arff`] and [`read_openml`].
pub fn open_openml(id: &str, path: impl AsRef<Path>, options: &OpenmlOptions) -> Result<TensorDict> {
    let (file, _) = open_regular(&path)?;
    let columns = read_arff(BufReader::new(file));
    columns
        .and_then(|columns| read_openml(id, columns, options))
        .map_err(|error| error.at(path.as_ref().display()))
}

/// Returns the columns of the table `id` as `X`, `[rows, columns]` f64, and `y`, `[rows]` i64. Each column that is standardised
/// has mean 0 and variance 1, or is 0 if it has one value alone; a missing number stays NaN.
///
/// # Errors
/// `UnknownName` for an id that is not one of [`OPENML_IDS`], or without the target or a column that must be left out;
/// `Incompatible` if the target is not nominal; `Corrupt` if it is missing in a row; `Empty` without rows.
///
/// # Examples
/// ```
/// use fulmar_dataset::{OpenmlOptions, read_arff, read_openml};
/// let text = "@attribute width real\n@attribute class {g, h}\n@data\n1, h\n3, g\n";
/// let options = OpenmlOptions { target: "class".to_owned(), ..OpenmlOptions::default() };
/// let table = read_openml("magic", read_arff(text.as_bytes())?, &options)?;
/// assert_eq!(table.tensor("X")?.to_vec::<f64>()?, [-1.0, 1.0]);
/// assert_eq!(table.tensor("y")?.to_vec::<i64>()?, [1, 0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_openml(id: &str, columns: Vec<ArffColumn>, options: &OpenmlOptions) -> Result<TensorDict> {
    if !OPENML_IDS.contains(&id) {
        let detail = format!("id must be one of {}: got {id:?}", OPENML_IDS.join(", "));
        return Err(Error::new(ErrorKind::UnknownName, detail));
    }
    let mut columns = columns;
    let mut outcome = take(&mut columns, &options.target)?;
    for name in &options.ignored {
        take(&mut columns, name)?;
    }
    if id.starts_with("adult_") {
        columns = whole_rows(columns);
        outcome = take(&mut columns, "occupation")?;
    }
    table_of(&columns, &outcome, id.ends_with("_onehot"))
}

/// Takes the column `name` out of the others.
fn take(columns: &mut Vec<ArffColumn>, name: &str) -> Result<ArffColumn> {
    match columns.iter().position(|column| column.name == name) {
        Some(place) => Ok(columns.remove(place)),
        None => {
            let known: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
            let detail = format!("the table must have the attribute {name:?}: it has {}", known.join(", "));
            Err(Error::new(ErrorKind::UnknownName, detail))
        }
    }
}

/// Drops the rows that lack a value.
fn whole_rows(mut columns: Vec<ArffColumn>) -> Vec<ArffColumn> {
    let num_rows = columns.first().map_or(0, |column| column.values.len());
    let is_whole: Vec<bool> =
        (0..num_rows).map(|row| columns.iter().all(|column| !column.values[row].is_nan())).collect();
    for column in &mut columns {
        let mut kept = is_whole.iter();
        column.values.retain(|_| kept.next() == Some(&true));
    }
    columns
}

fn table_of(columns: &[ArffColumn], outcome: &ArffColumn, one_hot: bool) -> Result<TensorDict> {
    let num_rows = outcome.values.len();
    if num_rows == 0 {
        return Err(Error::new(ErrorKind::Empty, "a table must have rows: it has none"));
    }
    let features: Vec<Vec<f64>> = match one_hot {
        true => {
            let (nominal, numeric): (Vec<_>, Vec<_>) =
                columns.iter().partition(|column| column.nominal.is_some());
            let numbers = numeric.iter().map(|column| standardised(column.values.clone()));
            numbers.chain(nominal.iter().flat_map(|column| indicators(&codes(column)))).collect()
        }
        false => columns.iter().map(|column| standardised(codes(column))).collect(),
    };
    let mut rows = Vec::new();
    rows.try_reserve_exact(num_rows * features.len())
        .map_err(|error| Error::new(ErrorKind::OutOfMemory, "X must fit memory").because(error))?;
    (0..num_rows).for_each(|row| rows.extend(features.iter().map(|column| column[row])));
    let mut table = TensorDict::new(&[num_rows])?;
    table.set("X", Tensor::from_vec(&[num_rows, features.len()], rows)?)?;
    table.set("y", Tensor::from_vec(&[num_rows], outcomes(outcome)?)?)?;
    Ok(table)
}

fn outcomes(outcome: &ArffColumn) -> Result<Vec<i64>> {
    if outcome.nominal.is_none() {
        let detail = format!("the target {:?} must be nominal: got numbers", outcome.name);
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    if let Some(row) = outcome.values.iter().position(|value| value.is_nan()) {
        let detail =
            format!("the target {:?} must have a value in each row: row {row} lacks it", outcome.name);
        return Err(Error::new(ErrorKind::Corrupt, detail));
    }
    Ok(codes(outcome).into_iter().map(|code| code as i64).collect())
}

/// Returns the numbers of a column: of a nominal one the places of its values among those that are there, in the order of
/// their texts; a missing value comes last.
fn codes(column: &ArffColumn) -> Vec<f64> {
    let Some(names) = &column.nominal else { return column.values.clone() };
    let name_of = |value: f64| names.get(value as usize).filter(|_| !value.is_nan());
    let there: BTreeSet<_> = column.values.iter().filter_map(|value| name_of(*value)).collect();
    let places: BTreeMap<_, _> =
        there.iter().enumerate().map(|(place, name)| (*name, place as f64)).collect();
    let code = |value: &f64| name_of(*value).map_or(there.len() as f64, |name| places[name]);
    column.values.iter().map(code).collect()
}

/// Returns a column of 0 and 1 for each code.
fn indicators(codes: &[f64]) -> Vec<Vec<f64>> {
    let num_codes = codes.iter().fold(0.0, |most: f64, code| most.max(code + 1.0)) as usize;
    (0..num_codes).map(|code| codes.iter().map(|found| f64::from(*found == code as f64)).collect()).collect()
}

/// Returns a column less its mean, divided by its deviation; NaN is not counted. As scikit-learn, a column that is constant to
/// rounding is not divided.
fn standardised(mut values: Vec<f64>) -> Vec<f64> {
    let count = values.iter().filter(|value| !value.is_nan()).count() as f64;
    let mean = sum(values.iter().copied()) / count;
    let variance = sum(values.iter().map(|value| (value - mean) * (value - mean))) / count;
    let rounding = count * f64::EPSILON * variance + (count * mean * f64::EPSILON).powi(2);
    let deviation = if variance <= rounding { 1.0 } else { variance.sqrt() };
    values.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
    values
}

/// Returns the sum of what is not NaN, with the rounding of each addition carried to the next.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0, 0.0);
    for value in values.filter(|value| !value.is_nan()) {
        let next = total + (value - lost);
        lost = (next - total) - (value - lost);
        total = next;
    }
    total
}
