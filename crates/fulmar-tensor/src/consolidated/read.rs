//! Reads a dictionary from one run of untrusted bytes.

use std::io::{Read, Seek, SeekFrom};

use fulmar_core::limits::{MEMMAP_META_BYTES_MAX, TENSOR_DICT_DEPTH_MAX};
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ALIGNMENT_BYTES, CONTROL_KEYS, LENGTH_BYTES, LENGTHS, OFFSETS, VALUES};
use crate::lazy_stack::LazyStack;
use crate::non_tensor::NonTensor;
use crate::ragged::Ragged;
use crate::storage::Storage;
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict};
use crate::torch_dtype::from_torch_name;

/// A reader that can also seek.
pub trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// Reads a file of `size_bytes`.
pub fn from(source: &mut dyn Source, size_bytes: u64) -> Result<TensorDict> {
    let length = read_length(source, size_bytes)?;
    let payload = size_bytes - LENGTH_BYTES - length;
    source.seek(SeekFrom::Start(payload))?;
    let mut text = vec![0; length as usize];
    source.read_exact(&mut text)?;
    let description: Description = serde_json::from_slice(&text).map_err(|error| {
        corrupt(format!("the description must be that of a dictionary: {error}")).because(error)
    })?;
    let mut reader = Reader { source, payload, left: payload };
    let dict = match reader.entry(description, &[], 0)? {
        Entry::Dict(dict) => dict,
        other => {
            return Err(corrupt(format!("the root must be a dictionary: got one of kind {}", other.kind())));
        }
    };
    if reader.left > 0 {
        let detail = format!(
            "leaves must fill the {payload} bytes before the description: {} bytes are unused",
            reader.left
        );
        return Err(corrupt(detail));
    }
    Ok(dict)
}

/// Returns the length of the description after checking it against the limit and the file.
fn read_length(source: &mut dyn Source, size_bytes: u64) -> Result<u64> {
    let Some(rest) = size_bytes.checked_sub(LENGTH_BYTES) else {
        let detail = format!("a consolidated file must have at least {LENGTH_BYTES} bytes: got {size_bytes}");
        return Err(corrupt(detail));
    };
    source.seek(SeekFrom::Start(rest))?;
    let mut length = [0; LENGTH_BYTES as usize];
    source.read_exact(&mut length)?;
    let length = i64::from_le_bytes(length);
    match u64::try_from(length) {
        Ok(length) if length <= rest && length <= MEMMAP_META_BYTES_MAX as u64 => Ok(length),
        Ok(length) if length <= rest => {
            let detail =
                format!("the description must have at most {MEMMAP_META_BYTES_MAX} bytes: got {length}");
            Err(Error::new(ErrorKind::LimitExceeded, detail))
        }
        _ => Err(corrupt(format!(
            "the description must fit in the {rest} bytes before its length: got {length}"
        ))),
    }
}

/// The description of a dictionary or of a stack.
#[derive(Deserialize)]
struct Description {
    cls: String,
    non_tensors: Map<String, Value>,
    leaves: Map<String, Value>,
    cls_metadata: Map<String, Value>,
    #[serde(flatten)]
    below: Map<String, Value>,
}

/// Dtype, shape, start, stop and number of padding bytes; for offsets also the ragged dimension.
#[derive(Deserialize)]
#[serde(untagged)]
enum Place {
    Plain(String, Vec<usize>, u64, u64, u64),
    Ragged(String, Vec<usize>, u64, u64, u64, u64),
}

struct Reader<'a> {
    source: &'a mut dyn Source,
    payload: u64,
    /// Number of bytes that may still be read. Leaves never share bytes, so a small file cannot ask for much
    /// memory.
    left: u64,
}

impl Reader<'_> {
    fn entry(&mut self, description: Description, batch_size: &[usize], depth: usize) -> Result<Entry> {
        if depth > TENSOR_DICT_DEPTH_MAX {
            let detail = format!("nesting must be at most {TENSOR_DICT_DEPTH_MAX} deep: got {depth}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        match &*description.cls {
            "NonTensorStack" => {
                NonTensor::nested(batch_size, stacked_values(description, depth)?).map(Entry::NonTensor)
            }
            "LazyStackedTensorDict" => self.lazy_stack(description, depth),
            // A tensor class is a dictionary with its own name.
            _ => self.dict(description, depth).map(Entry::Dict),
        }
    }

    fn dict(&mut self, mut description: Description, depth: usize) -> Result<TensorDict> {
        let batch_size: Vec<usize> = own(&mut description.cls_metadata, "batch_size")?;
        // Older files name no dimension.
        let names: Option<Vec<Option<String>>> = own(&mut description.cls_metadata, "names")?;
        let mut dict = TensorDict::new(&batch_size)?;
        for (key, place) in &description.leaves {
            if key.starts_with(LENGTHS) || key.starts_with(OFFSETS) {
                continue;
            }
            let (key, entry) = match key.strip_prefix(VALUES) {
                Some(key) => (key, self.ragged(key, place, &description.leaves)),
                None => (&**key, self.tensor(place).map(Entry::Tensor)),
            };
            dict.set(key, entry.map_err(|error| error.at(format!("{key:?}")))?)?;
        }
        for (key, value) in description.non_tensors {
            dict.set(&*key, NonTensor::shared(single_value(&key, value)?))?;
        }
        for (key, below) in description.below {
            let entry = described(below).and_then(|below| self.entry(below, &batch_size, depth + 1));
            dict.set(&*key, entry.map_err(|error| error.at(format!("{key:?}")))?)?;
        }
        // Also if they are not as many as the dimensions.
        if let Some(names) =
            names.filter(|names| names.len() != batch_size.len() || names.iter().any(Option::is_some))
        {
            let names: Vec<_> = names.iter().map(Option::as_deref).collect();
            dict.set_names(&names).map_err(|error| corrupt(error.to_string()).because(error))?;
        }
        Ok(dict)
    }

    fn tensor(&mut self, place: &Value) -> Result<Tensor> {
        let place = Place::deserialize(place).map_err(|error| {
            corrupt(format!("a leaf must be [dtype, shape, start, stop, padding]: {error}")).because(error)
        })?;
        let (Place::Plain(dtype, shape, start, stop, padding)
        | Place::Ragged(dtype, shape, start, stop, padding, _)) = place;
        let dtype = from_torch_name(&dtype)?;
        let len = num_elements(&shape)?;
        let size_bytes = (len as u64).saturating_mul(dtype.size_bytes() as u64);
        let fits = start <= stop
            && stop <= self.payload
            && padding < ALIGNMENT_BYTES as u64
            && stop - start == size_bytes.saturating_add(padding);
        if !fits {
            let detail = format!(
                "{len} elements of {} and {padding} bytes of padding must be within 0..{}: got {start}..{stop}",
                dtype.name(),
                self.payload
            );
            return Err(corrupt(detail));
        }
        let Some(left) = self.left.checked_sub(stop - start) else {
            return Err(corrupt(format!("leaves must not overlap: {start}..{stop} overlaps another")));
        };
        self.left = left;
        self.source.seek(SeekFrom::Start(start))?;
        Ok(Tensor::over(Storage::read(dtype, len, &mut self.source)?, dtype, &shape))
    }

    /// Reads rows that follow one another, or rows at `offsets` with `lengths`.
    fn ragged(&mut self, key: &str, values: &Value, leaves: &Map<String, Value>) -> Result<Entry> {
        let values = self.tensor(values)?;
        let Some(place) = leaves.get(&format!("{OFFSETS}{key}")) else {
            return Err(corrupt("a ragged tensor must have offsets".to_owned()));
        };
        if let Ok(Place::Ragged(_, _, _, _, _, dim)) = Place::deserialize(place)
            && dim != 1
        {
            let detail = format!("rows must be along dimension 1: got {dim}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let offsets = counts(&self.tensor(place)?)?;
        let Some(lengths) = leaves.get(&format!("{LENGTHS}{key}")) else {
            return Ragged::new(values, &offsets).map(Entry::Ragged);
        };
        let lengths = counts(&self.tensor(lengths)?)?;
        if lengths.len() + 1 != offsets.len() {
            let detail = format!(
                "lengths must be one fewer than the {} offsets: got {}",
                offsets.len(),
                lengths.len()
            );
            return Err(corrupt(detail));
        }
        // Rows may leave gaps, but not share elements: a small file cannot ask for much memory.
        let total = lengths.iter().fold(0_u64, |total, len| total.saturating_add(*len));
        if total > values.shape().first().copied().unwrap_or(0) as u64 {
            let detail = format!("rows must not overlap: got {total} elements of {:?}", values.shape());
            return Err(corrupt(detail));
        }
        let rows = offsets.iter().zip(&lengths).map(|(start, len)| {
            values.slice(0, *start as usize..(*start as usize).saturating_add(*len as usize))
        });
        match rows.collect::<Result<Vec<_>>>()?.as_slice() {
            [] => Ragged::new(values.slice(0, 0..0)?, &[0_u64]).map(Entry::Ragged),
            rows => Ragged::from_rows(rows).map(Entry::Ragged),
        }
    }

    fn lazy_stack(&mut self, mut description: Description, depth: usize) -> Result<Entry> {
        let dim: usize = own(&mut description.cls_metadata, "stack_dim")?;
        let mut parts = Vec::new();
        while let Some(part) = description.below.shift_remove(&parts.len().to_string()) {
            match self.entry(described(part)?, &[], depth + 1)? {
                Entry::Dict(dict) => parts.push(dict),
                other => {
                    return Err(corrupt(format!(
                        "a part must be a dictionary: got one of kind {}",
                        other.kind()
                    )));
                }
            }
        }
        if let Some(other) = description.below.keys().next() {
            return Err(corrupt(format!("parts must be named \"0\", \"1\", and so on: got {other:?}")));
        }
        LazyStack::along(parts, dim)?.into_dict().map(Entry::Dict)
    }
}

/// Returns the values of a stack, in nested arrays of its rank.
fn stacked_values(mut description: Description, depth: usize) -> Result<Value> {
    if depth > TENSOR_DICT_DEPTH_MAX {
        let detail = format!("nesting must be at most {TENSOR_DICT_DEPTH_MAX} deep: got {depth}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut values = Vec::new();
    loop {
        let key = values.len().to_string();
        if let Some(value) = description.non_tensors.shift_remove(&key) {
            values.push(single_value(&key, value)?);
        } else if let Some(below) = description.below.shift_remove(&key) {
            values.push(stacked_values(described(below)?, depth + 1)?);
        } else {
            return Ok(Value::Array(values));
        }
    }
}

/// Returns the value of `[value, batch size, device]`.
fn single_value(key: &str, value: Value) -> Result<Value> {
    match value {
        Value::Array(mut parts) if parts.len() == 3 => Ok(parts.swap_remove(0)),
        _ => Err(corrupt(format!("{key:?}: a value must be [value, batch size, device]"))),
    }
}

/// Reads offsets or lengths.
fn counts(tensor: &Tensor) -> Result<Vec<u64>> {
    let counts = tensor.to_vec::<i64>()?;
    counts
        .into_iter()
        .map(|count| {
            u64::try_from(count).map_err(|_| corrupt(format!("a count must be at least 0: got {count}")))
        })
        .collect()
}

fn described(below: Value) -> Result<Description> {
    serde_json::from_value(below).map_err(|error| {
        let words = CONTROL_KEYS.join(", ");
        corrupt(format!("a nested description must have {words}: {error}")).because(error)
    })
}

fn own<T: serde::de::DeserializeOwned>(own: &mut Map<String, Value>, key: &str) -> Result<T> {
    let value = own.shift_remove(key).unwrap_or_default();
    serde_json::from_value(value)
        .map_err(|error| corrupt(format!("\"cls_metadata\" must have {key:?}: {error}")).because(error))
}

fn corrupt(detail: String) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}
