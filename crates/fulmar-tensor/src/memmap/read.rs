//! Reads a dictionary from an untrusted tree of files.

use std::io::Read;

use fulmar_core::limits::{MEMMAP_VALUES_BYTES_MAX, TENSOR_DICT_DEPTH_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file_name::file_name;
use super::files::Files;
use super::write::CONTROL_KEYS;
use crate::lazy_stack::LazyStack;
use crate::non_tensor::NonTensor;
use crate::ragged::Ragged;
use crate::storage::Storage;
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict};
use crate::torch_dtype::from_torch_name;

/// Reads the tree whose root is a dictionary.
pub fn dict(files: &mut dyn Files) -> Result<TensorDict> {
    let dict = match folder(files, "", &[], 0)? {
        Entry::Dict(dict) => dict,
        other => {
            return Err(corrupt(format!("the root must be a dictionary: got one of kind {}", other.kind())));
        }
    };
    match files.stray()? {
        None => Ok(dict),
        Some(path) => {
            let detail = format!("{path} must be described by the meta.json of its dictionary: it is not");
            Err(corrupt(detail))
        }
    }
}

/// The description of a tensor in `meta.json`.
#[derive(Deserialize)]
struct Leaf {
    shape: Vec<usize>,
    dtype: String,
    #[serde(default)]
    is_nested: bool,
}

/// Reads the entry at `prefix`, which is empty or ends in `/`, inside a dictionary of `batch_size`.
fn folder(files: &mut dyn Files, prefix: &str, batch_size: &[usize], depth: usize) -> Result<Entry> {
    if depth > TENSOR_DICT_DEPTH_MAX {
        let detail = format!("folders must be nested at most {TENSOR_DICT_DEPTH_MAX} deep: got {prefix:?}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut meta = meta_at(files, prefix)?;
    let class = match meta.get("_type") {
        Some(Value::String(class)) => class.clone(),
        _ => return Err(corrupt("meta.json must have the class as a text at \"_type\"".to_owned())),
    };
    // Classes are written as Python shows them, `<class 'module.Name'>`.
    let class = class.trim_end_matches("'>").rsplit('.').next().unwrap_or_default();
    match class {
        "NonTensorData" => shared_value(meta).map(|value| NonTensor::shared(value).into()),
        "NonTensorStack" => each_value(meta, batch_size),
        "LazyStackedTensorDict" => lazy_stack(files, prefix, &meta, depth),
        "TensorDict" => {
            let batch_size: Vec<usize> = control(&mut meta, "shape")?;
            entries(files, prefix, meta, &batch_size, depth).map(Entry::Dict)
        }
        // A tensor class: a dictionary with its own name.
        _ => folder(files, &format!("{prefix}_tensordict/"), batch_size, depth + 1),
    }
}

fn entries(
    files: &mut dyn Files,
    prefix: &str,
    meta: Map<String, Value>,
    batch_size: &[usize],
    depth: usize,
) -> Result<TensorDict> {
    check_no_lost_leaf(files, prefix)?;
    let mut dict = TensorDict::new(batch_size)?;
    for (key, description) in meta {
        if CONTROL_KEYS.contains(&&*key) {
            continue;
        }
        let path = format!("{prefix}{}", file_name(&key));
        let named = |error: Error| error.at(format!("{key:?}"));
        let entry = match description {
            Value::Object(nested) if nested.contains_key("type") => {
                folder(files, &format!("{path}/"), batch_size, depth + 1).map(Some)
            }
            description => leaf(files, &path, description),
        };
        if let Some(entry) = entry.map_err(named)? {
            // `set` names the key itself.
            dict.set(&*key, entry)?;
        }
    }
    Ok(dict)
}

/// Refuses a folder that lost a leaf. Upstream writes a leaf whose key is a reserved word and then overwrites
/// its description with its own value: the elements remain, their dtype and shape are lost.
fn check_no_lost_leaf(files: &mut dyn Files, prefix: &str) -> Result<()> {
    for key in CONTROL_KEYS {
        if files.open(&format!("{prefix}{key}.memmap"))?.is_some() {
            let detail = format!(
                "{key:?}: a leaf must have a description: got a file alone, its key being a word of the format"
            );
            return Err(corrupt(detail));
        }
    }
    Ok(())
}

/// Reads a tensor or ragged rows; nothing for a tensor that is left in its file.
fn leaf(files: &mut dyn Files, path: &str, description: Value) -> Result<Option<Entry>> {
    let leaf: Leaf = serde_json::from_value(description).map_err(|error| {
        corrupt(format!("a description must be of a tensor or of a folder: {error}")).because(error)
    })?;
    let dtype = from_torch_name(&leaf.dtype)?;
    if leaf.is_nested {
        return ragged(files, path, dtype, &leaf.shape).map(Some);
    }
    let path = format!("{path}.memmap");
    if files.leaves(&path, dtype, &leaf.shape)? {
        return Ok(None);
    }
    elements(files, &path, dtype, &leaf.shape).map(|tensor| Some(Entry::Tensor(tensor)))
}

/// Reads the elements of a tensor after checking that the file has exactly their length.
fn elements(files: &mut dyn Files, path: &str, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    let len = num_elements(shape)?;
    if len == 0 {
        return Tensor::zeros(dtype, shape);
    }
    let want = (len as u64).saturating_mul(dtype.size_bytes() as u64);
    let Some((size_bytes, mut reader)) = files.open(path)? else {
        return Err(corrupt(format!("{path} must hold {want} bytes: got no such file")));
    };
    if size_bytes != want {
        return Err(corrupt(format!("{path} must hold {want} bytes: got {size_bytes}")));
    }
    let storage = Storage::read(dtype, len, &mut reader)?;
    // Reading to the end of an archive member verifies its checksum.
    if reader.read(&mut [0]).map_err(|error| corrupt(format!("{path}: {error}")).because(error))? != 0 {
        return Err(corrupt(format!("{path} must hold exactly {want} bytes: it holds more")));
    }
    Ok(Tensor::over(storage, dtype, shape))
}

/// Reads rows whose shapes, `[rows, rank]`, agree in all dimensions but the first.
fn ragged(files: &mut dyn Files, path: &str, dtype: Dtype, shape: &[usize]) -> Result<Entry> {
    let [rows, rank] = *shape else {
        return Err(corrupt(format!("the shapes of rows must have 2 dimensions: got {shape:?}")));
    };
    if rank == 0 {
        return Err(corrupt("rows must have at least 1 dimension: got 0".to_owned()));
    }
    let shapes = elements(files, &format!("{path}.shape.memmap"), Dtype::I64, &[rows, rank])?;
    let shapes = shapes.as_slice::<i64>()?;
    let features = shapes.get(1..rank).map_or_else(|| vec![0; rank - 1], <[i64]>::to_vec);
    let mut offsets = vec![0_u64];
    let mut len = 0_u64;
    for row in shapes.chunks_exact(rank) {
        if row[0] < 0 || row[1..] != features {
            let detail = format!(
                "rows must differ in their first dimension alone, {:?} here: got {row:?}",
                &shapes[..rank]
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        len = len.saturating_add(row[0].unsigned_abs());
        offsets.push(len);
    }
    let mut shape = vec![len_of(len)?];
    for feature in &features {
        let feature = u64::try_from(*feature)
            .map_err(|_| corrupt(format!("a length must be at least 0: got {feature}")))?;
        shape.push(len_of(feature)?);
    }
    Ragged::new(elements(files, &format!("{path}.memmap"), dtype, &shape)?, &offsets).map(Entry::Ragged)
}

fn len_of(len: u64) -> Result<usize> {
    usize::try_from(len).map_err(|_| corrupt(format!("a length must fit this machine: got {len}")))
}

fn shared_value(mut meta: Map<String, Value>) -> Result<Value> {
    meta.shift_remove("data").ok_or_else(|| {
        let detail = "a value must be JSON in meta.json: pickled values are never read";
        Error::new(ErrorKind::Forbidden, detail)
    })
}

fn each_value(meta: Map<String, Value>, batch_size: &[usize]) -> Result<Entry> {
    NonTensor::nested(batch_size, shared_value(meta)?).map(Entry::NonTensor)
}

/// Reads the parts of a lazy stack from the folders `0`, `1`, ...; their number is not stored.
fn lazy_stack(files: &mut dyn Files, prefix: &str, meta: &Map<String, Value>, depth: usize) -> Result<Entry> {
    let Some(dim) = meta.get("stack_dim").and_then(Value::as_u64) else {
        return Err(corrupt("meta.json of a lazy stack must have its dimension at \"stack_dim\"".to_owned()));
    };
    let mut parts = Vec::new();
    while files.open(&format!("{prefix}{}/meta.json", parts.len()))?.is_some() {
        let part = format!("{prefix}{}/", parts.len());
        match folder(files, &part, &[], depth + 1)
            .map_err(|error| error.at(format!("part {}", parts.len())))?
        {
            Entry::Dict(dict) => parts.push(dict),
            other => {
                return Err(corrupt(format!(
                    "a part must be a dictionary: got one of kind {}",
                    other.kind()
                )));
            }
        }
    }
    LazyStack::along(parts, len_of(dim)?)?.into_dict().map(Entry::Dict)
}

fn control<T: serde::de::DeserializeOwned>(meta: &mut Map<String, Value>, key: &str) -> Result<T> {
    let value = meta.shift_remove(key).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| {
        corrupt(format!("meta.json must have the batch size at {key:?}: {error}")).because(error)
    })
}

fn meta_at(files: &mut dyn Files, prefix: &str) -> Result<Map<String, Value>> {
    let path = format!("{prefix}meta.json");
    let Some((size_bytes, reader)) = files.open(&path)? else {
        return Err(corrupt(format!("a dictionary must have a {path}: got no such file")));
    };
    if size_bytes > MEMMAP_VALUES_BYTES_MAX as u64 {
        let detail = format!("{path} must have at most {MEMMAP_VALUES_BYTES_MAX} bytes: got {size_bytes}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut text = Vec::new();
    // The length that an archive states for a member may be wrong.
    reader
        .take(MEMMAP_VALUES_BYTES_MAX as u64)
        .read_to_end(&mut text)
        .map_err(|error| corrupt(format!("{path}: {error}")).because(error))?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(meta)) => Ok(meta),
        Ok(_) => Err(corrupt(format!("{path} must be a JSON object"))),
        Err(error) => Err(corrupt(format!("{path} must be JSON: {error}"))),
    }
}

fn corrupt(detail: String) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}
