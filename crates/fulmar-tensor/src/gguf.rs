//! GGUF files, the format of llama.cpp: metadata, then tensors, plain or in quantised blocks. Read only.
//!
//! Reading checks every count, length and offset against the file before it allocates memory, and an error
//! names the key or the tensor. <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

mod block;
mod reader;

use std::collections::BTreeMap;

use fulmar_core::limits::{GGUF_TENSORS_MAX, TENSOR_RANK_MAX};
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use serde_json::{Map, Value};

use self::block::Block;
use self::reader::Reader;
use crate::storage::reserved;
use crate::tensor::Tensor;

/// The first bytes of every file.
const MAGIC: &[u8] = b"GGUF";

/// Alignment of tensor data if the file does not set `general.alignment`.
const ALIGNMENT_DEFAULT: u64 = 32;

/// A file in memory: its metadata, and tensors that are decoded on request.
#[derive(Debug, Clone)]
pub struct File<'a> {
    /// The metadata of the file by key. 64-bit numbers keep their value.
    pub metadata: Map<String, Value>,
    tensors: BTreeMap<String, Stored<'a>>,
}

/// A tensor as stored in the file.
#[derive(Debug, Clone)]
struct Stored<'a> {
    shape: Vec<usize>,
    block: Block,
    bytes: &'a [u8],
}

impl<'a> File<'a> {
    /// Reads the metadata and the list of tensors; decodes no tensor.
    ///
    /// # Errors
    /// `Corrupt` if the bytes break a rule of the format (truncated, duplicate name, a tensor past the end);
    /// `Incompatible` for a version other than 2 and 3; `UnknownName` for an unsupported kind of block;
    /// `LimitExceeded` for more than [`GGUF_TENSORS_MAX`] tensors or keys, or for arrays that are nested too
    /// deep.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::gguf::File;
    /// // Version 3, no tensors, one key: the text "a" under "k".
    /// let bytes = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k\x08\0\0\0\x01\0\0\0\0\0\0\0a";
    /// assert_eq!(File::read(bytes)?.metadata["k"], "a");
    /// assert!(File::read(b"GGUF\x03\0\0\0").is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(corrupt("a GGUF file must begin with \"GGUF\""));
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            let detail = format!("version must be 2 or 3: got {version}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let num_tensors = count("tensors", reader.u64()?)?;
        let num_keys = count("keys", reader.u64()?)?;
        let mut metadata = Map::new();
        for _ in 0..num_keys {
            let key = reader.text()?;
            let value = reader.value().map_err(|error| error.at(&key))?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(corrupt(format!("keys must differ: got {key:?} twice")));
            }
        }
        let mut infos = Vec::new();
        for _ in 0..num_tensors {
            let name = reader.text()?;
            infos.push((info(&mut reader).map_err(|error| error.at(&name))?, name));
        }
        let alignment = metadata.get("general.alignment").map_or(Some(ALIGNMENT_DEFAULT), Value::as_u64);
        let Some(alignment) = alignment.filter(|alignment| alignment.is_power_of_two()) else {
            return Err(corrupt("general.alignment must be a power of two"));
        };
        let data = reader.aligned_rest(alignment);
        let mut tensors = BTreeMap::new();
        for (info, name) in infos {
            let stored = info.stored(data, alignment).map_err(|error| error.at(&name))?;
            if tensors.insert(name.clone(), stored).is_some() {
                return Err(corrupt(format!("tensors must differ in name: got {name:?} twice")));
            }
        }
        Ok(Self { metadata, tensors })
    }

    /// Returns the names of the tensors, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Decodes a tensor in single precision, row-major. GGUF lists the fastest dimension first; the shape
    /// here lists the slowest first.
    ///
    /// # Errors
    /// `UnknownName` if there is no tensor of that name; `OutOfMemory` if there is no memory for it.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let Some(stored) = self.tensors.get(name) else {
            let detail =
                format!("tensor must be one of the {} in the file: got {name:?}", self.tensors.len());
            return Err(Error::new(ErrorKind::UnknownName, detail));
        };
        let mut values = reserved::<f32>(num_elements(&stored.shape)?)?;
        stored.block.decode(stored.bytes, &mut values);
        Tensor::from_vec_f32(&stored.shape, values)
    }
}

/// The header of a tensor in the file.
struct Info {
    shape: Vec<usize>,
    block: Block,
    offset: u64,
}

fn info(reader: &mut Reader<'_>) -> Result<Info> {
    let rank = reader.u32()? as usize;
    if rank > TENSOR_RANK_MAX {
        let detail = format!("a tensor must have at most {TENSOR_RANK_MAX} dimensions: got {rank}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut shape = Vec::with_capacity(rank);
    for _ in 0..rank {
        let len = reader.u64()?;
        shape.push(
            usize::try_from(len).map_err(|_| corrupt(format!("a length must fit in memory: got {len}")))?,
        );
    }
    shape.reverse();
    Ok(Info { shape, block: Block::of(reader.u32()?)?, offset: reader.u64()? })
}

impl Info {
    fn stored(self, data: &[u8], alignment: u64) -> Result<Stored<'_>> {
        let Self { shape, block, offset } = self;
        let row = shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(block.elements()) {
            let detail = format!("rows must be a multiple of {} long: got {row}", block.elements());
            return Err(corrupt(detail));
        }
        if !offset.is_multiple_of(alignment) {
            return Err(corrupt(format!("offset must be a multiple of {alignment}: got {offset}")));
        }
        let len = num_elements(&shape)?;
        let end = (len / block.elements())
            .checked_mul(block.bytes())
            .and_then(|size| usize::try_from(offset).ok()?.checked_add(size));
        match end.and_then(|end| data.get(offset as usize..end)) {
            Some(bytes) => Ok(Stored { shape, block, bytes }),
            None => {
                Err(corrupt(format!("a tensor must end within the file: got {len} elements at {offset}")))
            }
        }
    }
}

fn count(what: &str, count: u64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count <= GGUF_TENSORS_MAX => Ok(count),
        _ => {
            let detail = format!("a GGUF file must hold at most {GGUF_TENSORS_MAX} {what}: got {count}");
            Err(Error::new(ErrorKind::LimitExceeded, detail))
        }
    }
}

fn corrupt(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}
