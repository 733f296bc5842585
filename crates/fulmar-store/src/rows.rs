//! Rows of tensor dictionaries as records.
//!
//! A record holds the columns of its row in sequence, in the order of the schema, without gaps:
//!
//! | column | bytes |
//! |---|---|
//! | tensor | its elements, little-endian, row-major; the schema has their number |
//! | ragged | the length of the first dimension (`u32`), then the elements |
//! | json | the length of the text (`u32`), then the text |
//! | dict | none: it marks a dictionary, with its batch dimensions beyond the row |

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements, options_from_json};
use fulmar_tensor::{Entry, Key, NonTensor, Ragged, Tensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::layout::corrupt;

const FORMAT: u32 = 1;

/// The columns of a row, which convert [`TensorDict`]s of one batch dimension to records and back. Its text
/// is the schema of a store.
///
/// A value that one [`NonTensor`] shares among all rows is stored with each row, and comes back as one value
/// a row.
///
/// # Examples
/// ```
/// use fulmar_store::RowSchema;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut items = TensorDict::new(&[2])?;
/// items.set("reward", Tensor::from_vec_f32(&[2, 1], vec![0.5, 1.5])?)?;
/// let schema = RowSchema::of(&items)?;
/// let records = schema.encode(&items)?;
/// assert_eq!(records[1], 1.5_f32.to_le_bytes());
/// assert_eq!(RowSchema::parse(&schema.to_text())?.decode(&records)?, items);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSchema {
    format: u32,
    columns: Vec<Column>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Column {
    key: Key,
    #[serde(flatten)]
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Form {
    Tensor { dtype: String, shape: Vec<usize> },
    Ragged { dtype: String, shape: Vec<usize> },
    Json { batch: Vec<usize> },
    Dict { batch: Vec<usize> },
}

impl RowSchema {
    /// Returns the schema of the rows of `items`.
    ///
    /// # Errors
    /// `ShapeMismatch` if `items` has no batch dimension, or more than one.
    pub fn of(items: &TensorDict) -> Result<Self> {
        check_batch(items)?;
        let mut columns = Vec::new();
        columns_of(items, &[], &mut columns)?;
        Ok(Self { format: FORMAT, columns })
    }

    /// Parses a schema.
    ///
    /// # Errors
    /// `Malformed` or `UnknownName` for another text; `Incompatible` for a newer format; `LimitExceeded` for
    /// invalid shapes.
    pub fn parse(text: &str) -> Result<Self> {
        let schema: Self = options_from_json("schema", text)?;
        if schema.format != FORMAT {
            let detail = format!("the format of a schema must be {FORMAT}: got {}", schema.format);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        for column in &schema.columns {
            column.row_bytes().map_err(|error| error.at(&column.key))?;
        }
        Ok(schema)
    }

    /// Returns the text of this schema.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Keys, names and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns one record for each row of `items`.
    ///
    /// # Errors
    /// `ShapeMismatch` if `items` does not have exactly one batch dimension; `Incompatible`, with the key, if
    /// an entry is missing, has another dtype, shape or kind, or is not in the schema; `LimitExceeded` for a
    /// ragged row or a text of 2^32 or more.
    pub fn encode(&self, items: &TensorDict) -> Result<Vec<Vec<u8>>> {
        self.check(items)?;
        let mut records = vec![Vec::new(); items.batch_size()[0]];
        for column in &self.columns {
            let Some(entry) = items.get(column.key.clone()) else { continue };
            column.encode(entry, &mut records).map_err(|error| error.at(&column.key))?;
        }
        Ok(records)
    }

    /// Returns the dictionary whose rows are `records`, with the batch size `[records.len()]`.
    ///
    /// # Errors
    /// `Corrupt`, with the key, if a record is not of this schema.
    pub fn decode(&self, records: &[impl AsRef<[u8]>]) -> Result<TensorDict> {
        let mut rests: Vec<&[u8]> = records.iter().map(AsRef::as_ref).collect();
        let mut items = TensorDict::new(&[records.len()])?;
        for column in &self.columns {
            let entry = column.decode(&mut rests).map_err(|error| error.at(&column.key))?;
            items.set(column.key.clone(), entry)?;
        }
        match rests.iter().position(|rest| !rest.is_empty()) {
            None => Ok(items),
            Some(row) => Err(corrupt(format!(
                "a record must end with its last column: got {} bytes more",
                rests[row].len()
            ))),
        }
    }

    /// Checks that `items` has exactly these columns, in any order.
    fn check(&self, items: &TensorDict) -> Result<()> {
        let found = Self::of(items)?;
        for column in &self.columns {
            let form = found.columns.iter().find(|other| other.key == column.key).map(|other| &other.form);
            if form != Some(&column.form) {
                let got = form.map_or("it is missing".to_owned(), |form| format!("got {form:?}"));
                let detail = format!("{} must be {:?}: {got}", column.key, column.form);
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        match found.columns.iter().find(|other| self.columns.iter().all(|column| column.key != other.key)) {
            None => Ok(()),
            Some(other) => Err(Error::new(
                ErrorKind::Incompatible,
                format!("{} must be in the schema: got a new key", other.key),
            )),
        }
    }
}

fn check_batch(items: &TensorDict) -> Result<()> {
    if items.batch_size().len() == 1 {
        return Ok(());
    }
    let detail = format!("items must have one batch dimension: got {:?}", items.batch_size());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}

/// Adds the columns of `items`, those of a dictionary after it. Recursion is limited to the depth of
/// dictionaries.
fn columns_of(items: &TensorDict, parents: &[String], columns: &mut Vec<Column>) -> Result<()> {
    let batch = &items.batch_size()[1..];
    for (name, entry) in items.entries() {
        let path: Vec<String> = parents.iter().cloned().chain([name.to_owned()]).collect();
        let key = Key::from(path.clone());
        let tail = |shape: &[usize]| shape[1..].to_vec();
        let form = match entry {
            Entry::Tensor(tensor) => {
                Form::Tensor { dtype: tensor.dtype().name().to_owned(), shape: tail(tensor.shape()) }
            }
            Entry::Ragged(ragged) => {
                let values = ragged.values();
                Form::Ragged { dtype: values.dtype().name().to_owned(), shape: tail(values.shape()) }
            }
            Entry::NonTensor(_) => Form::Json { batch: batch.to_vec() },
            Entry::Dict(dict) => Form::Dict { batch: tail(dict.batch_size()) },
        };
        columns.push(Column { key, form });
        if let Entry::Dict(dict) = entry {
            columns_of(dict, &path, columns)?;
        }
    }
    Ok(())
}

impl Column {
    /// Returns the size in bytes of a row of a tensor, or of one step of a ragged row.
    fn row_bytes(&self) -> Result<usize> {
        match &self.form {
            Form::Tensor { dtype, shape } | Form::Ragged { dtype, shape } => {
                let bytes = num_elements(shape)?.checked_mul(Dtype::parse(dtype)?.size_bytes());
                bytes.ok_or_else(|| {
                    Error::new(
                        ErrorKind::LimitExceeded,
                        format!("a row must have countable bytes: got {shape:?}"),
                    )
                })
            }
            Form::Json { batch } | Form::Dict { batch } => num_elements(batch).map(|_| 0),
        }
    }

    fn encode(&self, entry: &Entry, records: &mut [Vec<u8>]) -> Result<()> {
        let size = self.row_bytes()?;
        match entry {
            Entry::Tensor(tensor) => {
                let bytes = tensor.to_bytes();
                for (i, record) in records.iter_mut().enumerate() {
                    record.extend_from_slice(&bytes[i * size..(i + 1) * size]);
                }
            }
            Entry::Ragged(ragged) => {
                let (bytes, offsets) = (ragged.values().to_bytes(), ragged.offsets());
                for (record, range) in records.iter_mut().zip(offsets.windows(2)) {
                    put_count(record, (range[1] - range[0]) as usize)?;
                    record.extend_from_slice(&bytes[range[0] as usize * size..range[1] as usize * size]);
                }
            }
            Entry::NonTensor(values) => {
                for (record, value) in records.iter_mut().zip(json_rows(values, &self.form)) {
                    let text = value.to_string();
                    put_count(record, text.len())?;
                    record.extend_from_slice(text.as_bytes());
                }
            }
            Entry::Dict(_) => {}
        }
        Ok(())
    }

    fn decode(&self, rests: &mut [&[u8]]) -> Result<Entry> {
        let size = self.row_bytes()?;
        let with_rows = |shape: &[usize]| [&[rests.len()], shape].concat();
        match &self.form {
            Form::Tensor { dtype, shape } => {
                let shape = with_rows(shape);
                let mut bytes = Vec::new();
                rests
                    .iter_mut()
                    .try_for_each(|rest| taken(rest, size).map(|row| bytes.extend_from_slice(row)))?;
                Ok(Tensor::from_bytes(Dtype::parse(dtype)?, &shape, &bytes)?.into())
            }
            Form::Ragged { dtype, shape } => {
                let (mut bytes, mut offsets) = (Vec::new(), vec![0_u64]);
                for rest in rests {
                    let count = taken_count(rest)?;
                    let len = count
                        .checked_mul(size)
                        .ok_or_else(|| corrupt("a row must be countable: got 2^64 bytes"))?;
                    bytes.extend_from_slice(taken(rest, len)?);
                    offsets.push(offsets[offsets.len() - 1] + count as u64);
                }
                let num_steps = offsets[offsets.len() - 1] as usize;
                let values =
                    Tensor::from_bytes(Dtype::parse(dtype)?, &[&[num_steps], &**shape].concat(), &bytes)?;
                Ok(Ragged::new(values, &offsets)?.into())
            }
            Form::Json { batch } => {
                let shape = with_rows(batch);
                let mut values = Vec::new();
                for rest in rests {
                    let len = taken_count(rest)?;
                    let value = serde_json::from_slice(taken(rest, len)?);
                    values.push(value.map_err(|error| {
                        corrupt(format!("a text must be JSON: got {error}")).because(error)
                    })?);
                }
                let nested = NonTensor::nested(&shape, Value::Array(values));
                Ok(nested.map_err(|error| corrupt(error.detail()))?.into())
            }
            Form::Dict { batch } => Ok(TensorDict::new(&with_rows(batch))?.into()),
        }
    }
}

/// Returns the value of each row; a shared value repeats indefinitely.
fn json_rows(values: &NonTensor, form: &Form) -> Box<dyn Iterator<Item = Value>> {
    match (values.shape(), values.to_json(), form) {
        (Some(_), Value::Array(rows), _) => Box::new(rows.into_iter()),
        (_, value, Form::Json { batch }) => {
            let row = batch.iter().rev().fold(value, |value, len| Value::Array(vec![value; *len]));
            Box::new(std::iter::repeat(row))
        }
        (_, value, _) => Box::new(std::iter::repeat(value)),
    }
}

fn put_count(record: &mut Vec<u8>, count: usize) -> Result<()> {
    let narrow = u32::try_from(count).map_err(|_| {
        Error::new(ErrorKind::LimitExceeded, format!("a row must have fewer than 2^32 values: got {count}"))
    })?;
    record.extend_from_slice(&narrow.to_le_bytes());
    Ok(())
}

fn taken_count(rest: &mut &[u8]) -> Result<usize> {
    let bytes = taken(rest, 4)?;
    Ok(bytes.iter().rev().fold(0, |count, byte| count << 8 | usize::from(*byte)))
}

fn taken<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let Some((bytes, left)) = rest.split_at_checked(len) else {
        return Err(corrupt(format!("a record must have {len} bytes more: got {}", rest.len())));
    };
    *rest = left;
    Ok(bytes)
}
