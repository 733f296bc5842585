//! The JSON header: `{"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}}`.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;

use fulmar_core::limits::TENSOR_RANK_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::tensor::Tensor;

const METADATA: &str = "__metadata__";
const ALIGN_BYTES: usize = 8;

/// All dtypes with their names in files, in the order of the format's own crate: by width.
const DTYPES: [(Dtype, &str); 11] = [
    (Dtype::Bool, "BOOL"),
    (Dtype::U8, "U8"),
    (Dtype::I8, "I8"),
    (Dtype::I16, "I16"),
    (Dtype::F16, "F16"),
    (Dtype::Bf16, "BF16"),
    (Dtype::I32, "I32"),
    (Dtype::U32, "U32"),
    (Dtype::F32, "F32"),
    (Dtype::F64, "F64"),
    (Dtype::I64, "I64"),
];

/// The dtypes of the format that [`Dtype`] does not have, with the bits of an element.
const FOREIGN: [(&str, u64); 11] = [
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("U16", 16),
    ("C64", 64),
    ("U64", 64),
];

/// A header that was checked against the length of the data.
#[derive(Debug)]
pub struct Header {
    /// In the order of the data.
    pub tensors: Vec<(String, Entry)>,
    pub metadata: BTreeMap<String, String>,
}

/// One tensor of the file. Its bytes begin where the bytes of the one before it end.
#[derive(Debug)]
pub struct Entry {
    pub dtype: Known,
    pub shape: Vec<usize>,
    /// In elements.
    pub len: usize,
    pub size_bytes: u64,
}

/// A dtype, or the name of an unsupported one.
#[derive(Debug)]
pub enum Known {
    Dtype(Dtype),
    Not(String),
}

/// Returns the names of the supported dtypes.
pub fn names() -> String {
    DTYPES.map(|(_, name)| name).join(", ")
}

impl Header {
    /// Parses `text` and checks that its tensors fill `data_len` bytes exactly once.
    pub fn parse(text: &[u8], data_len: u64) -> Result<Self> {
        let raw: RawHeader = serde_json::from_slice(text).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("header must be that of a safetensors file: {error}"))
                .because(error)
        })?;
        let mut entries = raw.tensors.entries;
        entries.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut end = 0;
        let mut tensors = Vec::with_capacity(entries.len());
        for (name, entry) in entries {
            let checked =
                entry.checked(&mut end, data_len).map_err(|error| error.at(format!("tensor {name:?}")))?;
            tensors.push((name, checked));
        }
        if end != data_len {
            let detail = format!("the tensors must fill the {data_len} bytes of data: got {end} bytes");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        Ok(Self { tensors, metadata: raw.metadata.entries.into_iter().collect() })
    }
}

/// Returns the rank of `dtype` in the order of a file's tensors; the widest come first.
pub fn layout_rank(dtype: Dtype) -> usize {
    DTYPES.iter().position(|(each, _)| *each == dtype).unwrap_or_default()
}

/// Returns the header of `tensors` in this order, padded with spaces to align the data.
pub fn text(tensors: &[(&str, &Tensor)], metadata: &[(&str, &str)]) -> Result<String> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        let sorted: BTreeMap<_, _> = metadata.iter().copied().collect();
        header.insert(METADATA.to_owned(), json!(sorted));
    }
    let mut begin = 0;
    for (name, tensor) in tensors {
        let end = begin + tensor.size_bytes();
        let dtype = DTYPES[layout_rank(tensor.dtype())].1;
        let entry = json!({ "dtype": dtype, "shape": tensor.shape(), "data_offsets": [begin, end] });
        if *name == METADATA || header.insert((*name).to_owned(), entry).is_some() {
            let detail = format!("a tensor name must be unique and not {METADATA:?}: got {name:?}");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
        begin = end;
    }
    let mut text = Value::Object(header).to_string();
    let padding = text.len().next_multiple_of(ALIGN_BYTES) - text.len();
    text.extend(std::iter::repeat_n(' ', padding));
    Ok(text)
}

struct RawHeader {
    tensors: Unique<RawEntry>,
    metadata: Unique<String>,
}

/// Pairs of a JSON object with unique keys.
struct Unique<T> {
    entries: Vec<(String, T)>,
    names: HashSet<String>,
}

#[derive(serde::Deserialize)]
struct RawEntry {
    dtype: String,
    shape: RawShape,
    data_offsets: (u64, u64),
}

/// A shape of any rank; at most `TENSOR_RANK_MAX` dimensions are kept.
struct RawShape {
    dims: Vec<usize>,
    rank: usize,
}

impl RawEntry {
    /// Returns the entry if its data begins at `end` and is within `data_len`; moves `end` past it.
    fn checked(self, end: &mut u64, data_len: u64) -> Result<Entry> {
        if self.shape.rank > TENSOR_RANK_MAX {
            let detail =
                format!("shape must have at most {TENSOR_RANK_MAX} dimensions: got {}", self.shape.rank);
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let (begin, stop) = self.data_offsets;
        if begin != *end || stop < begin || stop > data_len {
            let detail =
                format!("data_offsets must begin at {end} and end by {data_len}: got [{begin}, {stop}]");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        let size_bytes = stop - begin;
        let len = num_elements(&self.shape.dims)?;
        *end = stop;
        let (dtype, bits) = self.known()?;
        if (len as u64).checked_mul(bits) != size_bytes.checked_mul(8) {
            let detail =
                format!("data must have the bytes of shape {:?}: got {}", self.shape.dims, size_bytes);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        Ok(Entry { dtype, shape: self.shape.dims, len, size_bytes })
    }

    /// Returns the dtype and the number of bits of an element.
    fn known(&self) -> Result<(Known, u64)> {
        if let Some((dtype, _)) = DTYPES.iter().find(|(_, name)| *name == self.dtype) {
            return Ok((Known::Dtype(*dtype), 8 * dtype.size_bytes() as u64));
        }
        if let Some((name, bits)) = FOREIGN.iter().find(|(name, _)| *name == self.dtype) {
            return Ok((Known::Not((*name).to_owned()), *bits));
        }
        let detail =
            format!("dtype must be one of {} or others of the format: got {:?}", names(), self.dtype);
        Err(Error::new(ErrorKind::UnknownName, detail))
    }
}

impl<T> Default for Unique<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), names: HashSet::new() }
    }
}

impl<T> Unique<T> {
    fn insert<E: de::Error>(&mut self, name: String, value: T) -> std::result::Result<(), E> {
        if !self.names.insert(name.clone()) {
            return Err(E::custom(format_args!("{name:?} must come once: got it twice")));
        }
        self.entries.push((name, value));
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawHeader, A::Error> {
                let mut header = RawHeader { tensors: Unique::default(), metadata: Unique::default() };
                let mut has_metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    if name != METADATA {
                        let entry = map.next_value().map_err(|error| in_tensor(&name, &error))?;
                        header.tensors.insert(name, entry)?;
                    } else if std::mem::replace(&mut has_metadata, true) {
                        return Err(de::Error::custom(format_args!(
                            "{METADATA:?} must come once: got it twice"
                        )));
                    } else {
                        header.metadata = map.next_value()?;
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Pairs<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
            type Value = Unique<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Unique<T>, A::Error> {
                let mut unique = Unique::default();
                while let Some((name, value)) = map.next_entry()? {
                    unique.insert(name, value)?;
                }
                Ok(unique)
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

impl<'de> Deserialize<'de> for RawShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Dims;
        impl<'de> Visitor<'de> for Dims {
            type Value = RawShape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a shape")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<RawShape, A::Error> {
                let mut shape = RawShape { dims: Vec::new(), rank: 0 };
                while let Some(dim) = seq.next_element()? {
                    shape.rank += 1;
                    if shape.rank <= TENSOR_RANK_MAX {
                        shape.dims.push(dim);
                    }
                }
                Ok(shape)
            }
        }
        deserializer.deserialize_seq(Dims)
    }
}

fn in_tensor<E: de::Error>(name: &str, error: &E) -> E {
    E::custom(format_args!("tensor {name:?}: {error}"))
}
