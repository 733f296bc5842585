//! The face of `fulmar-tensor`: tensors, ragged tensors, tensor dictionaries and safetensors files.

use fulmar::core::{Dtype, index_from_f64, indices_from_f64, options_from_json};
use fulmar::tensor::{self, Entry, Key, NonTensor, PadSide, safetensors};
use napi::bindgen_prelude::{Float32Array, Float64Array, Uint8Array, Uint32Array};
use napi_derive::napi;
use serde_json::json;

use crate::error::{Result, guard};
use crate::slot::Slot;

/// A class that owns one value of the crate and can give it back.
macro_rules! owner {
    ($class:ident, $inner:ty) => {
        impl $class {
            fn share(&self) -> fulmar::core::Result<$inner> {
                self.inner.with(|inner| Ok(inner.clone()))
            }
        }

        #[napi]
        impl $class {
            /// Drops what it owns.
            #[napi]
            pub fn free(&self) -> Result<()> {
                guard(|| {
                    self.inner.free();
                    Ok(())
                })
            }
        }

        impl From<$inner> for $class {
            fn from(inner: $inner) -> Self {
                Self { inner: Slot::new(stringify!($class), inner) }
            }
        }
    };
}

/// A dense tensor.
#[napi]
pub struct Tensor {
    inner: Slot<tensor::Tensor>,
}

owner!(Tensor, tensor::Tensor);

#[napi]
impl Tensor {
    /// Copies little-endian bytes.
    #[napi(factory)]
    pub fn from_bytes(dtype: String, shape: &[f64], bytes: &[u8]) -> Result<Self> {
        guard(|| {
            let shape = indices_from_f64("shape", shape)?;
            Ok(tensor::Tensor::from_bytes(Dtype::parse(&dtype)?, &shape, bytes)?.into())
        })
    }

    /// Zeros.
    #[napi(factory)]
    pub fn zeros(dtype: String, shape: &[f64]) -> Result<Self> {
        guard(|| Ok(tensor::Tensor::zeros(Dtype::parse(&dtype)?, &indices_from_f64("shape", shape)?)?.into()))
    }

    /// The name of the element type.
    #[napi]
    pub fn dtype(&self) -> Result<&'static str> {
        guard(|| self.inner.with(|tensor| Ok(tensor.dtype().name())))
    }

    /// The dimensions.
    #[napi]
    pub fn shape(&self) -> Result<Float64Array> {
        guard(|| self.inner.with(|tensor| Ok(dims(tensor.shape()))))
    }

    /// The elements as little-endian bytes, row-major: a copy.
    #[napi]
    pub fn bytes(&self) -> Result<Uint8Array> {
        guard(|| self.inner.with(|tensor| Ok(tensor.to_bytes().into())))
    }

    /// The elements as singles: a copy.
    #[napi]
    pub fn to_float32(&self) -> Result<Float32Array> {
        guard(|| self.inner.with(|tensor| Ok(tensor.to_f32_vec().into())))
    }

    /// A view without dimension `dim`.
    #[napi]
    pub fn select(&self, dim: f64, index: f64) -> Result<Self> {
        guard(|| {
            let (dim, index) = (index_from_f64("dim", dim)?, index_from_f64("index", index)?);
            Ok(self.share()?.select(dim, index)?.into())
        })
    }

    /// A view of a range of dimension `dim`.
    #[napi]
    pub fn slice(&self, dim: f64, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let range = index_from_f64("start", start)?..index_from_f64("end", end)?;
            Ok(self.share()?.slice(index_from_f64("dim", dim)?, range)?.into())
        })
    }

    /// The same elements in another shape.
    #[napi]
    pub fn reshape(&self, shape: &[f64]) -> Result<Self> {
        guard(|| Ok(self.share()?.reshape(&indices_from_f64("shape", shape)?)?.into()))
    }

    /// A view with two dimensions exchanged.
    #[napi]
    pub fn transpose(&self, left: f64, right: f64) -> Result<Self> {
        guard(|| {
            let (left, right) = (index_from_f64("left", left)?, index_from_f64("right", right)?);
            Ok(self.share()?.transpose(left, right)?.into())
        })
    }

    /// The parts at `indices` of dimension `dim`: a copy.
    #[napi]
    pub fn index_select(&self, dim: f64, indices: &[f64]) -> Result<Self> {
        guard(|| {
            let indices = indices_from_f64("indices", indices)?;
            Ok(self.share()?.index_select(index_from_f64("dim", dim)?, &indices)?.into())
        })
    }

    /// Whether dtype, shape and elements are equal.
    #[napi]
    pub fn equals(&self, other: &Tensor) -> Result<bool> {
        guard(|| Ok(self.share()? == other.share()?))
    }
}

/// Tensors on their way to be joined.
#[napi]
pub struct TensorList {
    inner: Slot<Vec<tensor::Tensor>>,
}

owner!(TensorList, Vec<tensor::Tensor>);

#[napi]
impl TensorList {
    /// No tensors.
    #[napi(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(Vec::new().into()))
    }

    /// Appends one.
    #[napi]
    pub fn push(&self, tensor: &Tensor) -> Result<()> {
        guard(|| {
            let tensor = tensor.share()?;
            self.inner.with(|list| {
                list.push(tensor);
                Ok(())
            })
        })
    }

    /// Joins them along a new dimension.
    #[napi]
    pub fn stack(&self, dim: f64) -> Result<Tensor> {
        guard(|| Ok(tensor::Tensor::stack(&self.share()?, index_from_f64("dim", dim)?)?.into()))
    }

    /// Joins them along a dimension.
    #[napi]
    pub fn cat(&self, dim: f64) -> Result<Tensor> {
        guard(|| Ok(tensor::Tensor::cat(&self.share()?, index_from_f64("dim", dim)?)?.into()))
    }

    /// Joins them as rows.
    #[napi]
    pub fn ragged(&self) -> Result<Ragged> {
        guard(|| Ok(tensor::Ragged::from_rows(&self.share()?)?.into()))
    }
}

/// Rows of different lengths.
#[napi]
pub struct Ragged {
    inner: Slot<tensor::Ragged>,
}

owner!(Ragged, tensor::Ragged);

#[napi]
impl Ragged {
    /// Shares `values`.
    #[napi(constructor)]
    pub fn new(values: &Tensor, offsets: &[u32]) -> Result<Self> {
        guard(|| Ok(tensor::Ragged::new(values.share()?, offsets)?.into()))
    }

    /// All rows one after another.
    #[napi]
    pub fn values(&self) -> Result<Tensor> {
        guard(|| Ok(self.share()?.values().clone().into()))
    }

    /// Where rows begin and the last one ends.
    #[napi]
    pub fn offsets(&self) -> Result<Uint32Array> {
        guard(|| Ok(self.share()?.offsets_u32()?.into()))
    }

    /// A view of one row.
    #[napi]
    pub fn row(&self, index: f64) -> Result<Tensor> {
        guard(|| Ok(self.share()?.row(index_from_f64("row", index)?)?.into()))
    }

    /// A view of a range of rows.
    #[napi]
    pub fn slice(&self, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let range = index_from_f64("start", start)?..index_from_f64("end", end)?;
            Ok(self.share()?.slice(range)?.into())
        })
    }

    /// The rows at `indices`: a copy.
    #[napi]
    pub fn index_select(&self, indices: &[f64]) -> Result<Self> {
        guard(|| Ok(self.share()?.index_select(&indices_from_f64("indices", indices)?)?.into()))
    }

    /// A dense copy.
    #[napi]
    pub fn to_padded(&self, side: String, fill: f64) -> Result<Tensor> {
        guard(|| Ok(self.share()?.to_padded(PadSide::parse(&side)?, fill)?.into()))
    }

    /// Whether the rows are equal.
    #[napi]
    pub fn equals(&self, other: &Ragged) -> Result<bool> {
        guard(|| Ok(self.share()? == other.share()?))
    }
}

/// Named tensors of one batch.
#[napi]
pub struct TensorDict {
    inner: Slot<tensor::TensorDict>,
}

owner!(TensorDict, tensor::TensorDict);

#[napi]
impl TensorDict {
    /// No entries.
    #[napi(constructor)]
    pub fn new(batch_size: &[f64]) -> Result<Self> {
        guard(|| Ok(tensor::TensorDict::new(&indices_from_f64("batchSize", batch_size)?)?.into()))
    }

    /// The batch dimensions.
    #[napi]
    pub fn batch_size(&self) -> Result<Float64Array> {
        guard(|| self.inner.with(|dict| Ok(dims(dict.batch_size()))))
    }

    /// The names of the entries.
    #[napi]
    pub fn names(&self) -> Result<Vec<String>> {
        guard(|| self.inner.with(|dict| Ok(dict.entries().map(|(name, _)| name.to_owned()).collect())))
    }

    /// The paths of all entries, as JSON.
    #[napi]
    pub fn nested_keys(&self) -> Result<String> {
        guard(|| self.inner.with(|dict| Ok(json!(dict.nested_keys()).to_string())))
    }

    /// The paths of all entries but the dictionaries, as JSON.
    #[napi]
    pub fn leaf_keys(&self) -> Result<String> {
        guard(|| self.inner.with(|dict| Ok(json!(dict.leaf_keys()).to_string())))
    }

    /// The kind of the entry at `path`, if there is one.
    #[napi]
    pub fn kind(&self, path: Vec<String>) -> Result<Option<&'static str>> {
        guard(|| self.inner.with(|dict| Ok(dict.get(path).map(Entry::kind))))
    }

    /// The tensor at `path`.
    #[napi]
    pub fn tensor(&self, path: Vec<String>) -> Result<Tensor> {
        guard(|| self.inner.with(|dict| Ok(dict.tensor(path)?.clone().into())))
    }

    /// The ragged tensor at `path`.
    #[napi]
    pub fn ragged(&self, path: Vec<String>) -> Result<Ragged> {
        guard(|| self.inner.with(|dict| Ok(dict.ragged(path)?.clone().into())))
    }

    /// The dictionary at `path`.
    #[napi]
    pub fn dict(&self, path: Vec<String>) -> Result<TensorDict> {
        guard(|| self.inner.with(|dict| Ok(dict.dict(path)?.clone().into())))
    }

    /// The JSON value at `path`.
    #[napi]
    pub fn value(&self, path: Vec<String>) -> Result<String> {
        guard(|| self.inner.with(|dict| Ok(dict.non_tensor(path)?.to_json().to_string())))
    }

    /// Puts a tensor at `path`.
    #[napi]
    pub fn set_tensor(&self, path: Vec<String>, tensor: &Tensor) -> Result<()> {
        guard(|| self.put(path, tensor.share()?))
    }

    /// Puts a ragged tensor at `path`.
    #[napi]
    pub fn set_ragged(&self, path: Vec<String>, ragged: &Ragged) -> Result<()> {
        guard(|| self.put(path, ragged.share()?))
    }

    /// Puts a dictionary at `path`.
    #[napi]
    pub fn set_dict(&self, path: Vec<String>, dict: &TensorDict) -> Result<()> {
        guard(|| self.put(path, dict.share()?))
    }

    /// Puts one JSON value for the whole batch at `path`.
    #[napi]
    pub fn set_shared(&self, path: Vec<String>, value: String) -> Result<()> {
        guard(|| self.put(path, NonTensor::shared(options_from_json("value", &value)?)))
    }

    /// Puts one JSON value for each element of the batch at `path`.
    #[napi]
    pub fn set_each(&self, path: Vec<String>, values: String) -> Result<()> {
        guard(|| {
            let batch_size = self.inner.with(|dict| Ok(dict.batch_size().to_vec()))?;
            self.put(path, NonTensor::nested(&batch_size, options_from_json("values", &values)?)?)
        })
    }

    /// Takes the entry at `path` out; whether there was one.
    #[napi]
    pub fn remove(&self, path: Vec<String>) -> Result<bool> {
        guard(|| self.inner.with(|dict| Ok(dict.remove(path).is_some())))
    }

    /// A view of one element of the batch.
    #[napi]
    pub fn index(&self, at: f64) -> Result<Self> {
        guard(|| self.inner.with(|dict| Ok(dict.index(index_from_f64("index", at)?)?.into())))
    }

    /// A view of a range of the batch.
    #[napi]
    pub fn slice(&self, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let range = index_from_f64("start", start)?..index_from_f64("end", end)?;
            self.inner.with(|dict| Ok(dict.slice(range)?.into()))
        })
    }

    /// The elements of the batch at `indices`: a copy.
    #[napi]
    pub fn index_select(&self, indices: &[f64]) -> Result<Self> {
        guard(|| {
            let indices = indices_from_f64("indices", indices)?;
            self.inner.with(|dict| Ok(dict.index_select(&indices)?.into()))
        })
    }

    /// Only the entries at `paths`, a JSON array of arrays.
    #[napi]
    pub fn select(&self, paths: String) -> Result<Self> {
        guard(|| {
            self.inner.with(|dict| Ok(dict.select(&options_from_json::<Vec<Key>>("keys", &paths)?)?.into()))
        })
    }

    /// All entries but those at `paths`, a JSON array of arrays.
    #[napi]
    pub fn exclude(&self, paths: String) -> Result<Self> {
        guard(|| {
            self.inner.with(|dict| Ok(dict.exclude(&options_from_json::<Vec<Key>>("keys", &paths)?).into()))
        })
    }

    /// Whether batch size and entries are equal.
    #[napi]
    pub fn equals(&self, other: &TensorDict) -> Result<bool> {
        guard(|| Ok(self.share()? == other.share()?))
    }

    fn put(&self, path: Vec<String>, entry: impl Into<Entry>) -> fulmar::core::Result<()> {
        self.inner.with(|dict| dict.set(path, entry))
    }
}

/// Dictionaries on their way to be joined.
#[napi]
pub struct TensorDictList {
    inner: Slot<Vec<tensor::TensorDict>>,
}

owner!(TensorDictList, Vec<tensor::TensorDict>);

#[napi]
impl TensorDictList {
    /// No dictionaries.
    #[napi(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(Vec::new().into()))
    }

    /// Appends one.
    #[napi]
    pub fn push(&self, dict: &TensorDict) -> Result<()> {
        guard(|| {
            let dict = dict.share()?;
            self.inner.with(|list| {
                list.push(dict);
                Ok(())
            })
        })
    }

    /// Joins them along a new batch dimension.
    #[napi]
    pub fn stack(&self, dim: f64) -> Result<TensorDict> {
        guard(|| Ok(tensor::TensorDict::stack(&self.share()?, index_from_f64("dim", dim)?)?.into()))
    }

    /// Joins them along a batch dimension.
    #[napi]
    pub fn cat(&self, dim: f64) -> Result<TensorDict> {
        guard(|| Ok(tensor::TensorDict::cat(&self.share()?, index_from_f64("dim", dim)?)?.into()))
    }
}

/// What a safetensors file holds.
#[napi]
pub struct SafetensorsFile {
    inner: Slot<safetensors::File>,
}

owner!(SafetensorsFile, safetensors::File);

#[napi]
impl SafetensorsFile {
    /// No tensors, no metadata.
    #[napi(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(safetensors::File::default().into()))
    }

    /// Reads a whole file.
    #[napi(factory)]
    pub fn read(bytes: &[u8]) -> Result<Self> {
        guard(|| Ok(safetensors::read(bytes)?.into()))
    }

    /// The names of the tensors.
    #[napi]
    pub fn names(&self) -> Result<Vec<String>> {
        guard(|| Ok(self.share()?.tensors.into_keys().collect()))
    }

    /// The tensor called `name`.
    #[napi]
    pub fn tensor(&self, name: String) -> Result<Tensor> {
        guard(|| self.inner.with(|file| Ok(file.tensor(&name)?.clone().into())))
    }

    /// Adds a tensor.
    #[napi]
    pub fn set(&self, name: String, tensor: &Tensor) -> Result<()> {
        guard(|| {
            let tensor = tensor.share()?;
            self.inner.with(|file| {
                file.tensors.insert(name, tensor);
                Ok(())
            })
        })
    }

    /// The texts of the header, as a JSON object.
    #[napi]
    pub fn metadata(&self) -> Result<String> {
        guard(|| self.inner.with(|file| Ok(json!(file.metadata).to_string())))
    }

    /// Replaces the texts of the header by those of a JSON object.
    #[napi]
    pub fn set_metadata(&self, metadata: String) -> Result<()> {
        guard(|| {
            let metadata = options_from_json("metadata", &metadata)?;
            self.inner.with(|file| {
                file.metadata = metadata;
                Ok(())
            })
        })
    }

    /// The bytes of the file.
    #[napi]
    pub fn bytes(&self) -> Result<Uint8Array> {
        guard(|| self.inner.with(|file| Ok(file.to_bytes()?.into())))
    }
}

fn dims(shape: &[usize]) -> Float64Array {
    shape.iter().map(|dim| *dim as f64).collect::<Vec<_>>().into()
}
