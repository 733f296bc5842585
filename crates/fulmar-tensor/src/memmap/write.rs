//! Writes a dictionary as a tree of files.

use std::collections::BTreeSet;

use fulmar_core::limits::MEMMAP_VALUES_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use super::file_name::file_name;
use super::files::Sink;
use crate::non_tensor::NonTensor;
use crate::ragged::Ragged;
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict};
use crate::torch_dtype::torch_name;

/// Keys of `meta.json` that describe the dictionary itself; they share an object with its entries.
pub const CONTROL_KEYS: [&str; 3] = ["shape", "device", "_type"];

/// Writes `dict` and its nested dictionaries.
pub fn dict(dict: &TensorDict, sink: &mut dyn Sink) -> Result<()> {
    folder(dict, "", sink)
}

/// Writes `dict` at `prefix`, which is empty or ends in `/`: its description, then its files in the order of their names.
fn folder(dict: &TensorDict, prefix: &str, sink: &mut dyn Sink) -> Result<()> {
    check_names(dict)?;
    let mut meta = Map::new();
    for (key, entry) in dict.entries() {
        meta.insert(key.to_owned(), described(entry));
    }
    meta.insert("shape".to_owned(), json!(dict.batch_size()));
    meta.insert("device".to_owned(), json!("cpu"));
    meta.insert("_type".to_owned(), json!("<class 'tensordict._td.TensorDict'>"));
    put_json(&Value::Object(meta), prefix, sink)?;
    let mut named: Vec<_> =
        dict.entries().map(|(key, entry)| (format!("{prefix}{}", file_name(key)), key, entry)).collect();
    named.sort_by(|left, right| left.0.cmp(&right.0));
    for (path, key, entry) in named {
        put(entry, &path, sink).map_err(|error| error.at(format!("{key:?}")))?;
    }
    Ok(())
}

/// Refuses two entries with one file name, and reserved words of the format.
fn check_names(dict: &TensorDict) -> Result<()> {
    let mut taken = BTreeSet::from(["meta.json".to_owned()]);
    for (key, entry) in dict.entries() {
        let refused = |rule: &str| {
            let detail = format!("key must {rule}: got {key:?}");
            Err(Error::new(ErrorKind::Malformed, detail).at(format!("{key:?}")))
        };
        if CONTROL_KEYS.contains(&key) {
            return refused("not be \"shape\", \"device\" or \"_type\", words of the format");
        }
        let name = file_name(key);
        let files = match entry {
            Entry::Tensor(_) => vec![format!("{name}.memmap")],
            Entry::Ragged(_) => vec![format!("{name}.memmap"), format!("{name}.shape.memmap")],
            Entry::NonTensor(_) | Entry::Dict(_) => vec![name],
        };
        if !files.into_iter().all(|file| taken.insert(file)) {
            return refused("name other files than the other entries do");
        }
    }
    Ok(())
}

fn described(entry: &Entry) -> Value {
    match entry {
        Entry::Tensor(tensor) => leaf(tensor, tensor.shape(), false),
        // Upstream describes the tensor of row shapes here.
        Entry::Ragged(ragged) => leaf(ragged.values(), &[ragged.num_rows(), ragged.values().rank()], true),
        Entry::NonTensor(values) if values.shape().is_none() => json!({ "type": "NonTensorData" }),
        Entry::NonTensor(_) => json!({ "type": "NonTensorStack" }),
        Entry::Dict(_) => json!({ "type": "TensorDict" }),
    }
}

fn leaf(tensor: &Tensor, shape: &[usize], is_nested: bool) -> Value {
    let dtype = torch_name(tensor.dtype());
    json!({ "device": "cpu", "shape": shape, "dtype": dtype, "is_nested": is_nested })
}

fn put(entry: &Entry, path: &str, sink: &mut dyn Sink) -> Result<()> {
    match entry {
        Entry::Tensor(tensor) => put_elements(tensor, &format!("{path}.memmap"), sink),
        Entry::Ragged(ragged) => {
            put_elements(ragged.values(), &format!("{path}.memmap"), sink)?;
            put_elements(&row_shapes(ragged)?, &format!("{path}.shape.memmap"), sink)
        }
        Entry::NonTensor(values) => put_json(&non_tensor(values), &format!("{path}/"), sink),
        Entry::Dict(dict) => folder(dict, &format!("{path}/"), sink),
    }
}

/// Returns the shape of each row, `[rows, rank]`.
fn row_shapes(ragged: &Ragged) -> Result<Tensor> {
    let features = &ragged.values().shape()[1..];
    let shapes = ragged.offsets().windows(2).flat_map(|pair| {
        std::iter::once((pair[1] - pair[0]) as i64).chain(features.iter().map(|len| *len as i64))
    });
    Tensor::from_vec(&[ragged.num_rows(), 1 + features.len()], shapes.collect())
}

fn non_tensor(values: &NonTensor) -> Value {
    if values.shape().is_none() {
        let class = "<class 'tensordict.tensorclass.NonTensorData'>";
        json!({ "_type": class, "data": values.to_json(), "_is_non_tensor": true, "_metadata": null })
    } else {
        let class = "<class 'tensordict.tensorclass.NonTensorStack'>";
        json!({ "_type": class, "stack_dim": 0, "device": null, "data": values.to_json() })
    }
}

/// Writes no file for a tensor without elements, as an empty file cannot be mapped.
fn put_elements(tensor: &Tensor, path: &str, sink: &mut dyn Sink) -> Result<()> {
    if tensor.num_elements() == 0 {
        return Ok(());
    }
    sink.put(path, true, &|writer| tensor.write_bytes(writer))
}

fn put_json(value: &Value, prefix: &str, sink: &mut dyn Sink) -> Result<()> {
    let (text, path) = (value.to_string(), format!("{prefix}meta.json"));
    check_length(&path, text.len())?;
    sink.put(&path, false, &|writer| Ok(writer.write_all(text.as_bytes())?))
}

/// Refuses a description that [`load`](super::load) would refuse.
///
/// # Errors
/// `LimitExceeded` above [`MEMMAP_VALUES_BYTES_MAX`].
pub fn check_length(path: &str, num_bytes: usize) -> Result<()> {
    if num_bytes <= MEMMAP_VALUES_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{path} must have at most {MEMMAP_VALUES_BYTES_MAX} bytes: got {num_bytes}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_not_written_longer_than_it_is_read() {
        assert!(check_length("meta.json", MEMMAP_VALUES_BYTES_MAX).is_ok());
        let error = check_length("meta.json", MEMMAP_VALUES_BYTES_MAX + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
