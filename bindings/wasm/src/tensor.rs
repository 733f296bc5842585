//! The face of `fulmar-tensor`: tensors, ragged tensors, tensor dictionaries and safetensors files.

use fulmar::core::{Dtype, index_from_f64, indices_from_f64, options_from_json};
use fulmar::tensor::{self, Entry, Key, NonTensor, PadSide, safetensors};
use serde_json::json;
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// A class around one value of the crate.
macro_rules! owner {
    ($class:ident, $inner:ty) => {
        impl From<$inner> for $class {
            fn from(inner: $inner) -> Self {
                Self { inner }
            }
        }
    };
}

/// A dense tensor.
#[wasm_bindgen]
pub struct Tensor {
    inner: tensor::Tensor,
}

owner!(Tensor, tensor::Tensor);

#[wasm_bindgen]
impl Tensor {
    /// Copies little-endian bytes.
    #[wasm_bindgen(js_name = fromBytes)]
    pub fn from_bytes(dtype: &str, shape: &[f64], bytes: &[u8]) -> Result<Self> {
        guard(|| {
            let shape = indices_from_f64("shape", shape)?;
            Ok(tensor::Tensor::from_bytes(Dtype::parse(dtype)?, &shape, bytes)?.into())
        })
    }

    /// Zeros.
    pub fn zeros(dtype: &str, shape: &[f64]) -> Result<Self> {
        guard(|| Ok(tensor::Tensor::zeros(Dtype::parse(dtype)?, &indices_from_f64("shape", shape)?)?.into()))
    }

    /// The name of the element type.
    pub fn dtype(&self) -> String {
        self.inner.dtype().name().to_owned()
    }

    /// The dimensions.
    pub fn shape(&self) -> Vec<f64> {
        dims(self.inner.shape())
    }

    /// The elements as little-endian bytes, row-major: a copy.
    pub fn bytes(&self) -> Vec<u8> {
        self.inner.to_bytes()
    }

    /// The elements as singles: a copy.
    #[wasm_bindgen(js_name = toFloat32)]
    pub fn to_float32(&self) -> Vec<f32> {
        self.inner.to_f32_vec()
    }

    /// A view without dimension `dim`.
    pub fn select(&self, dim: f64, index: f64) -> Result<Self> {
        guard(|| {
            let (dim, index) = (index_from_f64("dim", dim)?, index_from_f64("index", index)?);
            Ok(self.inner.select(dim, index)?.into())
        })
    }

    /// A view of a range of dimension `dim`.
    pub fn slice(&self, dim: f64, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let range = index_from_f64("start", start)?..index_from_f64("end", end)?;
            Ok(self.inner.slice(index_from_f64("dim", dim)?, range)?.into())
        })
    }

    /// The same elements in another shape.
    pub fn reshape(&self, shape: &[f64]) -> Result<Self> {
        guard(|| Ok(self.inner.reshape(&indices_from_f64("shape", shape)?)?.into()))
    }

    /// A view with two dimensions exchanged.
    pub fn transpose(&self, left: f64, right: f64) -> Result<Self> {
        guard(|| {
            let (left, right) = (index_from_f64("left", left)?, index_from_f64("right", right)?);
            Ok(self.inner.transpose(left, right)?.into())
        })
    }

    /// The parts at `indices` of dimension `dim`: a copy.
    #[wasm_bindgen(js_name = indexSelect)]
    pub fn index_select(&self, dim: f64, indices: &[f64]) -> Result<Self> {
        guard(|| {
            let indices = indices_from_f64("indices", indices)?;
            Ok(self.inner.index_select(index_from_f64("dim", dim)?, &indices)?.into())
        })
    }

    /// Whether dtype, shape and elements are equal.
    pub fn equals(&self, other: &Tensor) -> bool {
        self.inner == other.inner
    }
}

/// Tensors on their way to be joined.
#[wasm_bindgen]
pub struct TensorList {
    inner: Vec<tensor::Tensor>,
}

owner!(TensorList, Vec<tensor::Tensor>);

#[wasm_bindgen]
impl TensorList {
    /// No tensors.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Vec::new().into()
    }

    /// Appends one.
    pub fn push(&mut self, tensor: &Tensor) {
        self.inner.push(tensor.inner.clone());
    }

    /// Joins them along a new dimension.
    pub fn stack(&self, dim: f64) -> Result<Tensor> {
        guard(|| Ok(tensor::Tensor::stack(&self.inner, index_from_f64("dim", dim)?)?.into()))
    }

    /// Joins them along a dimension.
    pub fn cat(&self, dim: f64) -> Result<Tensor> {
        guard(|| Ok(tensor::Tensor::cat(&self.inner, index_from_f64("dim", dim)?)?.into()))
    }

    /// Joins them as rows.
    pub fn ragged(&self) -> Result<Ragged> {
        guard(|| Ok(tensor::Ragged::from_rows(&self.inner)?.into()))
    }
}

/// Rows of different lengths.
#[wasm_bindgen]
pub struct Ragged {
    inner: tensor::Ragged,
}

owner!(Ragged, tensor::Ragged);

#[wasm_bindgen]
impl Ragged {
    /// Shares `values`.
    #[wasm_bindgen(constructor)]
    pub fn new(values: &Tensor, offsets: &[u32]) -> Result<Self> {
        guard(|| Ok(tensor::Ragged::new(values.inner.clone(), offsets)?.into()))
    }

    /// All rows one after another.
    pub fn values(&self) -> Tensor {
        self.inner.values().clone().into()
    }

    /// Where rows begin and the last one ends.
    pub fn offsets(&self) -> Result<Vec<u32>> {
        guard(|| self.inner.offsets_u32())
    }

    /// A view of one row.
    pub fn row(&self, index: f64) -> Result<Tensor> {
        guard(|| Ok(self.inner.row(index_from_f64("row", index)?)?.into()))
    }

    /// A view of a range of rows.
    pub fn slice(&self, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let range = index_from_f64("start", start)?..index_from_f64("end", end)?;
            Ok(self.inner.slice(range)?.into())
        })
    }

    /// The rows at `indices`: a copy.
    #[wasm_bindgen(js_name = indexSelect)]
    pub fn index_select(&self, indices: &[f64]) -> Result<Self> {
        guard(|| Ok(self.inner.index_select(&indices_from_f64("indices", indices)?)?.into()))
    }

    /// A dense copy.
    #[wasm_bindgen(js_name = toPadded)]
    pub fn to_padded(&self, side: &str, fill: f64) -> Result<Tensor> {
        guard(|| Ok(self.inner.to_padded(PadSide::parse(side)?, fill)?.into()))
    }

    /// Whether the rows are equal.
    pub fn equals(&self, other: &Ragged) -> bool {
        self.inner == other.inner
    }
}

/// Named tensors of one batch.
#[wasm_bindgen]
pub struct TensorDict {
    inner: tensor::TensorDict,
}

owner!(TensorDict, tensor::TensorDict);

#[wasm_bindgen]
impl TensorDict {
    /// No entries.
    #[wasm_bindgen(constructor)]
    pub fn new(batch_size: &[f64]) -> Result<Self> {
        guard(|| Ok(tensor::TensorDict::new(&indices_from_f64("batchSize", batch_size)?)?.into()))
    }

    /// The batch dimensions.
    #[wasm_bindgen(js_name = batchSize)]
    pub fn batch_size(&self) -> Vec<f64> {
        dims(self.inner.batch_size())
    }

    /// The names of the entries.
    pub fn names(&self) -> Vec<String> {
        self.inner.entries().map(|(name, _)| name.to_owned()).collect()
    }

    /// The paths of all entries, as JSON.
    #[wasm_bindgen(js_name = nestedKeys)]
    pub fn nested_keys(&self) -> String {
        json!(self.inner.nested_keys()).to_string()
    }

    /// The paths of all entries but the dictionaries, as JSON.
    #[wasm_bindgen(js_name = leafKeys)]
    pub fn leaf_keys(&self) -> String {
        json!(self.inner.leaf_keys()).to_string()
    }

    /// The kind of the entry at `path`, if there is one.
    pub fn kind(&self, path: Vec<String>) -> Option<String> {
        self.inner.get(path).map(|entry| entry.kind().to_owned())
    }

    /// The tensor at `path`.
    pub fn tensor(&self, path: Vec<String>) -> Result<Tensor> {
        guard(|| Ok(self.inner.tensor(path)?.clone().into()))
    }

    /// The ragged tensor at `path`.
    pub fn ragged(&self, path: Vec<String>) -> Result<Ragged> {
        guard(|| Ok(self.inner.ragged(path)?.clone().into()))
    }

    /// The dictionary at `path`.
    pub fn dict(&self, path: Vec<String>) -> Result<TensorDict> {
        guard(|| Ok(self.inner.dict(path)?.clone().into()))
    }

    /// The JSON value at `path`.
    pub fn value(&self, path: Vec<String>) -> Result<String> {
        guard(|| Ok(self.inner.non_tensor(path)?.to_json().to_string()))
    }

    /// Puts a tensor at `path`.
    #[wasm_bindgen(js_name = setTensor)]
    pub fn set_tensor(&mut self, path: Vec<String>, tensor: &Tensor) -> Result<()> {
        guard(|| self.put(path, tensor.inner.clone()))
    }

    /// Puts a ragged tensor at `path`.
    #[wasm_bindgen(js_name = setRagged)]
    pub fn set_ragged(&mut self, path: Vec<String>, ragged: &Ragged) -> Result<()> {
        guard(|| self.put(path, ragged.inner.clone()))
    }

    /// Puts a dictionary at `path`.
    #[wasm_bindgen(js_name = setDict)]
    pub fn set_dict(&mut self, path: Vec<String>, dict: &TensorDict) -> Result<()> {
        guard(|| self.put(path, dict.inner.clone()))
    }

    /// Puts one JSON value for the whole batch at `path`.
    #[wasm_bindgen(js_name = setShared)]
    pub fn set_shared(&mut self, path: Vec<String>, value: &str) -> Result<()> {
        guard(|| self.put(path, NonTensor::shared(options_from_json("value", value)?)))
    }

    /// Puts one JSON value for each element of the batch at `path`.
    #[wasm_bindgen(js_name = setEach)]
    pub fn set_each(&mut self, path: Vec<String>, values: &str) -> Result<()> {
        guard(|| {
            let batch_size = self.inner.batch_size().to_vec();
            self.put(path, NonTensor::nested(&batch_size, options_from_json("values", values)?)?)
        })
    }

    /// Takes the entry at `path` out; whether there was one.
    pub fn remove(&mut self, path: Vec<String>) -> bool {
        self.inner.remove(path).is_some()
    }

    /// A view of one element of the batch.
    pub fn index(&self, at: f64) -> Result<Self> {
        guard(|| Ok(self.inner.index(index_from_f64("index", at)?)?.into()))
    }

    /// A view of a range of the batch.
    pub fn slice(&self, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let range = index_from_f64("start", start)?..index_from_f64("end", end)?;
            Ok(self.inner.slice(range)?.into())
        })
    }

    /// The elements of the batch at `indices`: a copy.
    #[wasm_bindgen(js_name = indexSelect)]
    pub fn index_select(&self, indices: &[f64]) -> Result<Self> {
        guard(|| {
            let indices = indices_from_f64("indices", indices)?;
            Ok(self.inner.index_select(&indices)?.into())
        })
    }

    /// Only the entries at `paths`, a JSON array of arrays.
    pub fn select(&self, paths: &str) -> Result<Self> {
        guard(|| Ok(self.inner.select(&options_from_json::<Vec<Key>>("keys", paths)?)?.into()))
    }

    /// All entries but those at `paths`, a JSON array of arrays.
    pub fn exclude(&self, paths: &str) -> Result<Self> {
        guard(|| Ok(self.inner.exclude(&options_from_json::<Vec<Key>>("keys", paths)?).into()))
    }

    /// Whether batch size and entries are equal.
    pub fn equals(&self, other: &TensorDict) -> bool {
        self.inner == other.inner
    }

    fn put(&mut self, path: Vec<String>, entry: impl Into<Entry>) -> fulmar::core::Result<()> {
        self.inner.set(path, entry)
    }
}

/// Dictionaries on their way to be joined.
#[wasm_bindgen]
pub struct TensorDictList {
    inner: Vec<tensor::TensorDict>,
}

owner!(TensorDictList, Vec<tensor::TensorDict>);

#[wasm_bindgen]
impl TensorDictList {
    /// No dictionaries.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Vec::new().into()
    }

    /// Appends one.
    pub fn push(&mut self, dict: &TensorDict) {
        self.inner.push(dict.inner.clone());
    }

    /// Joins them along a new batch dimension.
    pub fn stack(&self, dim: f64) -> Result<TensorDict> {
        guard(|| Ok(tensor::TensorDict::stack(&self.inner, index_from_f64("dim", dim)?)?.into()))
    }

    /// Joins them along a batch dimension.
    pub fn cat(&self, dim: f64) -> Result<TensorDict> {
        guard(|| Ok(tensor::TensorDict::cat(&self.inner, index_from_f64("dim", dim)?)?.into()))
    }
}

/// What a safetensors file holds.
#[wasm_bindgen]
pub struct SafetensorsFile {
    inner: safetensors::File,
}

owner!(SafetensorsFile, safetensors::File);

#[wasm_bindgen]
impl SafetensorsFile {
    /// No tensors, no metadata.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        safetensors::File::default().into()
    }

    /// Reads a whole file.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        guard(|| Ok(safetensors::read(bytes)?.into()))
    }

    /// The names of the tensors.
    pub fn names(&self) -> Vec<String> {
        self.inner.tensors.keys().cloned().collect()
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        guard(|| Ok(self.inner.tensor(name)?.clone().into()))
    }

    /// Adds a tensor.
    pub fn set(&mut self, name: String, tensor: &Tensor) {
        self.inner.tensors.insert(name, tensor.inner.clone());
    }

    /// The texts of the header, as a JSON object.
    pub fn metadata(&self) -> String {
        json!(self.inner.metadata).to_string()
    }

    /// Replaces the texts of the header by those of a JSON object.
    #[wasm_bindgen(js_name = setMetadata)]
    pub fn set_metadata(&mut self, metadata: &str) -> Result<()> {
        guard(|| {
            self.inner.metadata = options_from_json("metadata", metadata)?;
            Ok(())
        })
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        guard(|| self.inner.to_bytes())
    }
}

fn dims(shape: &[usize]) -> Vec<f64> {
    shape.iter().map(|dim| *dim as f64).collect()
}
