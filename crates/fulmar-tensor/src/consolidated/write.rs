//! A dictionary as one run of bytes.

use std::io::Write;

use fulmar_core::limits::MEMMAP_META_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use super::{ALIGNMENT_BYTES, CONTROL_KEYS, OFFSETS, VALUES};
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict};
use crate::torch_dtype::torch_name;

/// Writes `dict` to `writer`.
pub fn to(dict: &TensorDict, writer: &mut dyn Write) -> Result<()> {
    let mut payload = Payload::default();
    let text = payload.described(dict)?.to_string();
    if text.len() > MEMMAP_META_BYTES_MAX {
        let detail =
            format!("the description must have at most {MEMMAP_META_BYTES_MAX} bytes: got {}", text.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    for tensor in &payload.tensors {
        tensor.write_bytes(writer)?;
        writer.write_all(&[0; ALIGNMENT_BYTES][..padding(tensor)])?;
    }
    writer.write_all(text.as_bytes())?;
    Ok(writer.write_all(&(text.len() as i64).to_le_bytes())?)
}

/// The leaves in the order in which they are written.
#[derive(Default)]
struct Payload {
    tensors: Vec<Tensor>,
    len: usize,
}

impl Payload {
    fn described(&mut self, dict: &TensorDict) -> Result<Value> {
        let (mut leaves, mut values, mut below) = (Map::new(), Map::new(), Map::new());
        for (key, entry) in dict.entries() {
            check_key(key, entry)?;
            match entry {
                Entry::Tensor(tensor) => {
                    leaves.insert(key.to_owned(), self.placed(tensor, None));
                }
                Entry::Ragged(ragged) => {
                    let offsets: Vec<_> = ragged.offsets().iter().map(|offset| *offset as i64).collect();
                    let offsets = Tensor::from_vec(&[offsets.len()], offsets)?;
                    leaves.insert(format!("{VALUES}{key}"), self.placed(ragged.values(), None));
                    leaves.insert(format!("{OFFSETS}{key}"), self.placed(&offsets, Some(1)));
                }
                Entry::NonTensor(shared) if shared.shape().is_none() => {
                    values.insert(key.to_owned(), json!([shared.to_json(), dict.batch_size(), null]));
                }
                Entry::NonTensor(each) => {
                    below.insert(key.to_owned(), stacked(&each.to_json(), dict.batch_size().len()));
                }
                Entry::Dict(dict) => {
                    let described = self.described(dict).map_err(|error| error.at(format!("{key:?}")))?;
                    below.insert(key.to_owned(), described);
                }
            }
        }
        let own = json!({
            "device": null, "names": dict.names(), "batch_size": dict.batch_size(), "is_locked": dict.is_locked()
        });
        Ok(object("TensorDict", values, leaves, own, below))
    }

    /// Returns the place of `tensor` in the file: dtype, shape, start, stop and number of padding bytes.
    fn placed(&mut self, tensor: &Tensor, ragged_dim: Option<usize>) -> Value {
        let (start, padding) = (self.len, padding(tensor));
        self.len += tensor.size_bytes() + padding;
        self.tensors.push(tensor.clone());
        let mut place = vec![
            json!(torch_name(tensor.dtype())),
            json!(tensor.shape()),
            json!(start),
            json!(self.len),
            json!(padding),
        ];
        place.extend(ragged_dim.map(|dim| json!(dim)));
        Value::Array(place)
    }
}

/// Nests per-element values for a batch of `rank` dimensions: stacks of stacks down to single values.
fn stacked(values: &Value, rank: usize) -> Value {
    let (mut singles, mut below) = (Map::new(), Map::new());
    for (at, value) in values.as_array().into_iter().flatten().enumerate() {
        if rank > 1 {
            below.insert(at.to_string(), stacked(value, rank - 1));
        } else {
            singles.insert(at.to_string(), json!([value, [], null]));
        }
    }
    let own = json!({ "stack_dim": 0, "stack_dim_name": null, "is_locked": false });
    object("NonTensorStack", singles, Map::new(), own, below)
}

fn object(
    class: &str,
    values: Map<String, Value>,
    leaves: Map<String, Value>,
    own: Value,
    below: Map<String, Value>,
) -> Value {
    let mut object = Map::new();
    let parts = [Value::from(class), Value::Object(values), Value::Object(leaves), own];
    object.extend(CONTROL_KEYS.into_iter().map(str::to_owned).zip(parts));
    object.extend(below);
    Value::Object(object)
}

/// Returns the number of padding bytes after `tensor`.
fn padding(tensor: &Tensor) -> usize {
    tensor.size_bytes().next_multiple_of(ALIGNMENT_BYTES) - tensor.size_bytes()
}

fn check_key(key: &str, entry: &Entry) -> Result<()> {
    let rule = match entry {
        Entry::Tensor(_) if key.starts_with("<NJT") => "not begin with \"<NJT\" for a tensor",
        Entry::Dict(_) | Entry::NonTensor(_) if CONTROL_KEYS.contains(&key) => {
            "not be \"cls\", \"non_tensors\", \"leaves\" or \"cls_metadata\", words of the format"
        }
        _ => return Ok(()),
    };
    let detail = format!("key must {rule}: got {key:?}");
    Err(Error::new(ErrorKind::Malformed, detail).at(format!("{key:?}")))
}
