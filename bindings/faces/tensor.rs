// The face of `fulmar-tensor`, once for Node and for WebAssembly: each includes this table into its own `tensor.rs`,
// whose `face!` makes a class of an entry. `make` holds static functions, `call` methods: arguments, result, and the call of
// the crate. A value before `=>` is taken before the object is borrowed, so an object may be its own argument.

use fulmar::core::{Dtype, Error, ErrorKind, Result as CoreResult, options_from_json};
use fulmar::core::{index_from_f64 as index, indices_from_f64 as indices};
use fulmar::tensor::{self, Index, Key, NonTensor, PadSequence, PadSide, consolidated, memmap, safetensors};
use serde_json::json;

face! {
    /// A dense tensor.
    Tensor(tensor::Tensor)
    make {
        /// Copies little-endian bytes.
        fn from_bytes as fromBytes(dtype: String, shape: &[f64], bytes: &[u8]) {
            tensor::Tensor::from_bytes(Dtype::parse(&dtype)?, &indices("shape", shape)?, bytes)
        }
        /// Makes a tensor of zeros.
        fn zeros as zeros(dtype: String, shape: &[f64]) {
            tensor::Tensor::zeros(Dtype::parse(&dtype)?, &indices("shape", shape)?)
        }
    }
    call {
        /// Returns the name of the element type.
        fn dtype as dtype() -> (String) { |tensor| Ok(tensor.dtype().name().to_owned()) }
        /// Returns the dimensions.
        fn shape as shape() -> (Float64Array) { |tensor| Ok(dims(tensor.shape())) }
        /// Returns the elements as little-endian bytes, row-major: a copy.
        fn bytes as bytes() -> (Uint8Array) { |tensor| Ok(tensor.to_bytes()) }
        /// Returns the elements as singles: a copy.
        fn to_float32 as toFloat32() -> (Float32Array) { |tensor| Ok(tensor.to_f32_vec()) }
        /// Returns a view without dimension `dim`.
        fn select as select(dim: f64, at: f64) -> (Tensor) {
            |tensor| tensor.select(index("dim", dim)?, index("index", at)?)
        }
        /// Returns a view of a range of dimension `dim`.
        fn slice as slice(dim: f64, start: f64, end: f64) -> (Tensor) {
            |tensor| tensor.slice(index("dim", dim)?, index("start", start)?..index("end", end)?)
        }
        /// Returns the same elements in another shape.
        fn reshape as reshape(shape: &[f64]) -> (Tensor) {
            |tensor| tensor.reshape(&indices("shape", shape)?)
        }
        /// Returns a view with two dimensions exchanged.
        fn transpose as transpose(left: f64, right: f64) -> (Tensor) {
            |tensor| tensor.transpose(index("left", left)?, index("right", right)?)
        }
        /// Returns the parts at `at` of dimension `dim`: a copy.
        fn index_select as indexSelect(dim: f64, at: &[f64]) -> (Tensor) {
            |tensor| tensor.index_select(index("dim", dim)?, &indices("indices", at)?)
        }
        /// Returns the numbers in another element type.
        fn to as to(dtype: String) -> (Tensor) { |tensor| tensor.to(Dtype::parse(&dtype)?) }
        /// Returns the name of the device.
        fn device as device() -> (String) { |tensor| Ok(tensor.device().to_string()) }
        /// Returns the elements on another device.
        fn to_device as toDevice(device: String) -> (Tensor) { |tensor| tensor.to_device(device.parse()?) }
        /// Returns the same elements in another shape, never copied.
        fn view as view(shape: &[f64]) -> (Tensor) { |tensor| tensor.view(&indices("shape", shape)?) }
        /// Returns the dimensions in another order.
        fn permute as permute(order: &[f64]) -> (Tensor) { |tensor| tensor.permute(&indices("order", order)?) }
        /// Returns a view without a dimension of length 1.
        fn squeeze as squeeze(dim: f64) -> (Tensor) { |tensor| tensor.squeeze(index("dim", dim)?) }
        /// Returns a view with a new dimension of length 1.
        fn unsqueeze as unsqueeze(dim: f64) -> (Tensor) { |tensor| tensor.unsqueeze(index("dim", dim)?) }
        /// Returns a view with dimensions of length 1 expanded.
        fn expand as expand(shape: &[f64]) -> (Tensor) { |tensor| tensor.expand(&indices("shape", shape)?) }
        /// Returns the tensor repeated along each dimension.
        fn repeat as repeat(counts: &[f64]) -> (Tensor) { |tensor| tensor.repeat(&indices("counts", counts)?) }
        /// Returns the part at an index.
        fn at as at(index: String) -> (Tensor) {
            |tensor| tensor.at(&options_from_json::<Vec<Index>>("index", &index)?)
        }
        /// Returns the sum of all elements.
        fn sum as sum() -> (Tensor) { |tensor| tensor.sum() }
        /// Returns the sums along a dimension.
        fn sum_dim as sumDim(dim: f64) -> (Tensor) { |tensor| tensor.sum_dim(index("dim", dim)?) }
        /// Returns whether dtype, shape and elements are equal.
        fn equals as equals(other: &Tensor) -> (bool) {
            other = other.share()? => |tensor| Ok(*tensor == other)
        }
    }
}

face! {
    /// A list of tensors.
    TensorList(Vec<tensor::Tensor>)
    make {
        /// Makes an empty list.
        fn empty as empty() { Ok(Vec::new()) }
    }
    call {
        /// Appends to the list.
        fn push as push(tensor: &Tensor) -> (()) { tensor = tensor.share()? => |list| push(list, tensor) }
        /// Joins them along a new dimension.
        fn stack as stack(dim: f64) -> (Tensor) { |list| tensor::Tensor::stack(list, index("dim", dim)?) }
        /// Joins them along a dimension.
        fn cat as cat(dim: f64) -> (Tensor) { |list| tensor::Tensor::cat(list, index("dim", dim)?) }
        /// Joins them as rows.
        fn ragged as ragged() -> (Ragged) { |list| tensor::Ragged::from_rows(list) }
    }
}

face! {
    /// Rows of different lengths.
    Ragged(tensor::Ragged)
    make {
        /// Shares `values`.
        fn from_values as fromValues(values: &Tensor, offsets: &[u32]) {
            tensor::Ragged::new(values.share()?, offsets)
        }
    }
    call {
        /// Returns all rows one after another.
        fn values as values() -> (Tensor) { |ragged| Ok(ragged.values().clone()) }
        /// Returns the offset of each row, and the end of the last one.
        fn offsets as offsets() -> (Uint32Array) { |ragged| ragged.offsets_u32() }
        /// Returns a view of one row.
        fn row as row(at: f64) -> (Tensor) { |ragged| ragged.row(index("row", at)?) }
        /// Returns a view of a range of rows.
        fn slice as slice(start: f64, end: f64) -> (Ragged) {
            |ragged| ragged.slice(index("start", start)?..index("end", end)?)
        }
        /// Returns the rows at `at`: a copy.
        fn index_select as indexSelect(at: &[f64]) -> (Ragged) {
            |ragged| ragged.index_select(&indices("indices", at)?)
        }
        /// Returns a dense copy.
        fn to_padded as toPadded(side: String, fill: f64) -> (Tensor) {
            |ragged| ragged.to_padded(PadSide::parse(&side)?, fill)
        }
        /// Returns whether the rows are equal.
        fn equals as equals(other: &Ragged) -> (bool) {
            other = other.share()? => |ragged| Ok(*ragged == other)
        }
    }
}

face! {
    /// Named tensors of one batch. Keys are paths; lists of keys are JSON.
    TensorDict(tensor::TensorDict)
    make {
        /// Makes an empty dictionary.
        fn empty as empty(batch_size: &[f64]) { tensor::TensorDict::new(&indices("batchSize", batch_size)?) }
        /// Reads a folder of memory-mapped leaves.
        fn load_memmap as loadMemmap(path: String) { memmap::load(path) }
        /// Reads an archive of memory-mapped leaves.
        fn read_archive as readArchive(bytes: &[u8]) { memmap::read_archive(bytes) }
        /// Reads a consolidated file.
        fn read_consolidated as readConsolidated(bytes: &[u8]) { consolidated::read(bytes) }
    }
    call {
        /// Returns the batch dimensions.
        fn batch_size as batchSize() -> (Float64Array) { |dict| Ok(dims(dict.batch_size())) }
        /// Returns the name of the device of all tensors; null if they differ.
        fn device as device() -> (Option<String>) { |dict| Ok(dict.device().map(|device| device.to_string())) }
        /// Writes a folder of memory-mapped leaves.
        fn save_memmap as saveMemmap(path: String) -> (()) { |dict| memmap::save(path, dict) }
        /// Returns the bytes of an archive of memory-mapped leaves.
        fn to_archive as toArchive() -> (Uint8Array) { |dict| memmap::write_archive(dict) }
        /// Returns the bytes of a consolidated file.
        fn to_consolidated as toConsolidated() -> (Uint8Array) { |dict| consolidated::write(dict) }
        /// Returns the bytes that the elements of all tensors take.
        fn size_bytes as sizeBytes() -> (f64) { |dict| CoreResult::Ok(dict.size_bytes() as f64) }
        /// Returns the names of the entries.
        fn names as names() -> (Vec<String>) {
            |dict| Ok(dict.entries().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
        }
        /// Returns the keys of all entries.
        fn nested_keys as nestedKeys() -> (String) { |dict| Ok(json!(dict.nested_keys()).to_string()) }
        /// Returns the keys of all entries but the dictionaries.
        fn leaf_keys as leafKeys() -> (String) { |dict| Ok(json!(dict.leaf_keys()).to_string()) }
        /// Returns the kind of the entry, if there is one.
        fn kind as kind(path: Vec<String>) -> (Option<String>) {
            |dict| Ok(dict.get(path).map(|entry| entry.kind().to_owned()))
        }
        /// Returns the tensor at a path.
        fn tensor as tensor(path: Vec<String>) -> (Tensor) { |dict| dict.tensor(path).cloned() }
        /// Returns the ragged tensor at a path.
        fn ragged as ragged(path: Vec<String>) -> (Ragged) { |dict| dict.ragged(path).cloned() }
        /// Returns the dictionary at a path.
        fn dict as dict(path: Vec<String>) -> (TensorDict) { |dict| dict.dict(path).cloned() }
        /// Returns the JSON value at a path.
        fn value as value(path: Vec<String>) -> (String) {
            |dict| Ok(dict.non_tensor(path)?.to_json().to_string())
        }
        /// Sets a tensor at a path.
        fn set_tensor as setTensor(path: Vec<String>, tensor: &Tensor) -> (()) {
            entry = tensor.share()? => |dict| dict.set(path, entry)
        }
        /// Sets a ragged tensor at a path.
        fn set_ragged as setRagged(path: Vec<String>, ragged: &Ragged) -> (()) {
            entry = ragged.share()? => |dict| dict.set(path, entry)
        }
        /// Sets a dictionary at a path.
        fn set_dict as setDict(path: Vec<String>, inner: &TensorDict) -> (()) {
            entry = inner.share()? => |dict| dict.set(path, entry)
        }
        /// Sets one JSON value for the whole batch at a path.
        fn set_shared as setShared(path: Vec<String>, value: String) -> (()) {
            |dict| dict.set(path, NonTensor::shared(options_from_json("value", &value)?))
        }
        /// Sets one JSON value for each element of the batch at a path.
        fn set_each as setEach(path: Vec<String>, values: String) -> (()) {
            values = options_from_json("values", &values)? =>
                |dict| dict.set(path, NonTensor::nested(dict.batch_size(), values)?)
        }
        /// Removes an entry; returns whether it existed.
        fn remove as remove(path: Vec<String>) -> (bool) { |dict| Ok(dict.remove(path)?.is_some()) }
        /// Returns a view of one element of the batch.
        fn index as index(at: f64) -> (TensorDict) { |dict| dict.index(index("index", at)?) }
        /// Returns a view of a range of the batch.
        fn slice as slice(start: f64, end: f64) -> (TensorDict) {
            |dict| dict.slice(index("start", start)?..index("end", end)?)
        }
        /// Returns the elements of the batch at `at`: a copy.
        fn index_select as indexSelect(at: &[f64]) -> (TensorDict) {
            |dict| dict.index_select(&indices("indices", at)?)
        }
        /// Returns only the entries at `keys`.
        fn select as select(keys: String) -> (TensorDict) {
            |dict| dict.select(&options_from_json::<Vec<Key>>("keys", &keys)?)
        }
        /// Returns all entries but those at `keys`.
        fn exclude as exclude(keys: String) -> (TensorDict) {
            |dict| Ok(dict.exclude(&options_from_json::<Vec<Key>>("keys", &keys)?))
        }
        /// Applies an operation.
        fn operate as operate(operation: String) -> (TensorDict) {
            |dict| dict.operate(&options_from_json("operation", &operation)?)
        }
        /// Returns the parts of a partition.
        fn part as part(partition: String) -> (TensorDictList) {
            |dict| dict.part(&options_from_json("partition", &partition)?)
        }
        /// Writes a part of the batch.
        fn set_at as setAt(index: String, part: &TensorDict) -> (()) {
            part = part.share()? =>
                |dict| dict.set_at(&options_from_json::<Vec<Index>>("index", &index)?, &part)
        }
        /// Writes a tensor over the elements of another.
        fn write_at as writeAt(path: Vec<String>, index: String, value: &Tensor) -> (()) {
            value = value.share()? =>
                |dict| dict.write_at(path, &options_from_json::<Vec<Index>>("index", &index)?, &value)
        }
        /// Writes over entries that exist.
        fn write_all as writeAll(other: &TensorDict) -> (()) {
            other = other.share()? => |dict| dict.write_all(&other)
        }
        /// Writes a number to a part of the batch.
        fn fill_at as fillAt(index: String, value: f64) -> (()) {
            |dict| dict.fill_at(&options_from_json::<Vec<Index>>("index", &index)?, value)
        }
        /// Takes elements from this where a mask is true, else from another.
        fn where_else as whereElse(mask: &Tensor, other: &TensorDict) -> (TensorDict) {
            both = (mask.share()?, other.share()?) => |dict| dict.where_else(&both.0, &both.1)
        }
        /// Returns the names of the dimensions.
        fn dim_names as dimNames() -> (String) { |dict| Ok(json!(dict.names()).to_string()) }
        /// Names all dimensions.
        fn set_dim_names as setDimNames(names: String) -> (()) {
            |dict| dict.set_names(&borrowed(&options_from_json::<Vec<_>>("names", &names)?))
        }
        /// Names dimensions that have no name.
        fn refine_dim_names as refineDimNames(names: String) -> (()) {
            |dict| dict.refine_names(&borrowed(&options_from_json::<Vec<_>>("names", &names)?))
        }
        /// Copies all entries of another one into this one.
        fn update as update(other: &TensorDict) -> (()) { other = other.share()? => |dict| dict.update(&other) }
        /// Moves an entry to another key; if not `safe`, over an existing entry.
        fn rename as rename(old: Vec<String>, key: Vec<String>, safe: bool) -> (()) {
            |dict| if safe { dict.rename_safe(old, key) } else { dict.rename(old, key) }
        }
        /// Locks or unlocks the set of keys.
        fn set_locked as setLocked(locked: bool) -> (()) {
            |dict| {
                if locked { dict.lock() } else { dict.unlock() }
                CoreResult::Ok(())
            }
        }
        /// Returns whether the keys are locked.
        fn locked as locked() -> (bool) { |dict| CoreResult::Ok(dict.is_locked()) }
        /// Returns whether batch size and entries are equal.
        fn equals as equals(other: &TensorDict) -> (bool) {
            other = other.share()? => |dict| Ok(*dict == other)
        }
    }
}

face! {
    /// A list of dictionaries.
    TensorDictList(Vec<tensor::TensorDict>)
    make {
        /// Makes an empty list.
        fn empty as empty() { Ok(Vec::new()) }
    }
    call {
        /// Appends to the list.
        fn push as push(dict: &TensorDict) -> (()) { dict = dict.share()? => |list| push(list, dict) }
        /// Returns the length of the list.
        fn count as count() -> (f64) { |list| CoreResult::Ok(list.len() as f64) }
        /// Returns one element.
        fn get as get(at: f64) -> (TensorDict) {
            |list| {
                let none = || Error::new(ErrorKind::OutOfRange, format!("at must be < {}: got {at}", list.len()));
                list.get(index("at", at)?).cloned().ok_or_else(none)
            }
        }
        /// Pads them to the longest and joins them along a new first dimension.
        fn pad_sequence as padSequence(dim: f64, value: f64, mask: Option<String>) -> (TensorDict) {
            |list| {
                let options = PadSequence { dim: signed("dim", dim)?, value, mask: mask.as_deref() };
                tensor::TensorDict::pad_sequence(list, &options)
            }
        }
        /// Makes a lazy stack of the dictionaries.
        fn lazy_stack as lazyStack(dim: f64) -> (LazyStack) {
            |list| tensor::LazyStack::new(list.clone(), signed("dim", dim)?)
        }
        /// Joins them along a new batch dimension.
        fn stack as stack(dim: f64) -> (TensorDict) {
            |list| tensor::TensorDict::stack(list, signed("dim", dim)?)
        }
        /// Joins them along a batch dimension.
        fn cat as cat(dim: f64) -> (TensorDict) { |list| tensor::TensorDict::cat(list, signed("dim", dim)?) }
    }
}

face! {
    /// A lazy stack of dictionaries.
    LazyStack(tensor::LazyStack)
    make {}
    call {
        /// Returns the stack dimension.
        fn dim as dim() -> (f64) { |stack| CoreResult::Ok(stack.dim() as f64) }
        /// Returns the batch dimensions, -1 where lengths differ.
        fn batch_size as batchSize() -> (Float64Array) {
            |stack| Ok(stack.batch_size().iter().map(|len| len.map_or(-1.0, |len| len as f64)).collect::<Vec<_>>())
        }
        /// Returns the keys of the entries that all have.
        fn names as names() -> (String) { |stack| Ok(json!(stack.names()).to_string()) }
        /// Returns the keys of the leaves that all have.
        fn leaf_keys as leafKeys() -> (String) { |stack| Ok(json!(stack.keys()).to_string()) }
        /// Returns the dictionaries.
        fn parts as parts() -> (TensorDictList) { |stack| Ok(stack.parts().to_vec()) }
        /// Returns the part at an index.
        fn at as at(index: String) -> (Stacked) {
            |stack| stack.at(&options_from_json::<Vec<Index>>("index", &index)?)
        }
        /// Returns the tensors at a path as rows.
        fn ragged as ragged(path: Vec<String>) -> (Ragged) { |stack| stack.ragged(path) }
        /// Returns the tensors at a path, padded.
        fn padded as padded(path: Vec<String>, side: String, fill: f64) -> (Tensor) {
            |stack| stack.padded(path, PadSide::parse(&side)?, fill)
        }
        /// Distributes the entry "" of a dictionary over the parts.
        fn set as set(path: Vec<String>, holder: &TensorDict) -> (()) {
            holder = holder.share()? => |stack| stack.set(path, holder.entry("")?.clone())
        }
        /// Writes over one part.
        fn set_part as setPart(at: f64, item: &TensorDict) -> (()) {
            item = item.share()? => |stack| stack.set_part(index("at", at)?, &item)
        }
        /// Puts a part before another.
        fn insert as insert(at: f64, part: &TensorDict) -> (()) {
            part = part.share()? => |stack| stack.insert(index("at", at)?, part)
        }
        /// Returns a stack of the parts of both.
        fn cat as cat(other: &LazyStack) -> (LazyStack) {
            other = other.share()? => |stack| tensor::LazyStack::cat(&[stack.clone(), other])
        }
        /// Stacks two lazy stacks part by part.
        fn stack as stack(other: &LazyStack) -> (LazyStack) {
            other = other.share()? => |stack| tensor::LazyStack::stack(&[stack.clone(), other])
        }
        /// Returns only the entries at `keys`.
        fn select as select(keys: String) -> (LazyStack) {
            |stack| stack.select(&options_from_json::<Vec<Key>>("keys", &keys)?)
        }
        /// Returns one dense dictionary.
        fn dense as dense() -> (TensorDict) { |stack| stack.dense() }
        /// Returns one dictionary, ragged where lengths differ.
        fn densify as densify() -> (TensorDict) { |stack| stack.to_dict() }
        /// Returns one dense dictionary if shapes allow it, else the stack.
        fn maybe_dense as maybeDense() -> (Stacked) { |stack| stack.clone().maybe_dense() }
        /// Returns whether parts and dimension are equal.
        fn equals as equals(other: &LazyStack) -> (bool) {
            other = other.share()? => |stack| Ok(*stack == other)
        }
    }
}

face! {
    /// A dictionary, or a lazy stack.
    Stacked(tensor::Stacked)
    make {}
    call {
        /// Returns whether it is a dictionary.
        fn is_dict as isDict() -> (bool) { |stacked| CoreResult::Ok(matches!(stacked, tensor::Stacked::Dict(_))) }
        /// Returns the dictionary.
        fn dict as dict() -> (TensorDict) {
            |stacked| match stacked {
                tensor::Stacked::Dict(dict) => Ok(dict.clone()),
                tensor::Stacked::Lazy(_) => Err(not_stacked("a dictionary")),
            }
        }
        /// Returns the stack.
        fn lazy as lazy() -> (LazyStack) {
            |stacked| match stacked {
                tensor::Stacked::Lazy(stack) => Ok(stack.clone()),
                tensor::Stacked::Dict(_) => Err(not_stacked("a stack")),
            }
        }
    }
}

face! {
    /// The content of a safetensors file.
    SafetensorsFile(safetensors::File)
    make {
        /// Makes an empty file; a JSON object gives the texts of the header.
        fn empty as empty(metadata: String) {{
            let metadata = options_from_json("metadata", &metadata)?;
            Ok(safetensors::File { metadata, ..Default::default() })
        }}
        /// Reads a whole file.
        fn read as read(bytes: &[u8]) { safetensors::read(bytes) }
    }
    call {
        /// Returns the names of the tensors.
        fn names as names() -> (Vec<String>) { |file| Ok(file.tensors.keys().cloned().collect::<Vec<_>>()) }
        /// Returns the tensor called `name`.
        fn tensor as tensor(name: String) -> (Tensor) { |file| file.tensor(&name).cloned() }
        /// Adds or replaces a tensor.
        fn set as set(name: String, tensor: &Tensor) -> (()) {
            tensor = tensor.share()? => |file| {
                file.tensors.insert(name, tensor);
                CoreResult::Ok(())
            }
        }
        /// Returns the dtypes of the tensors that were not read, by their names, as a JSON object.
        fn unread as unread() -> (String) { |file| Ok(json!(file.unread).to_string()) }
        /// Returns the texts of the header, as a JSON object.
        fn metadata as metadata() -> (String) { |file| Ok(json!(file.metadata).to_string()) }
        /// Returns the bytes of the file.
        fn bytes as bytes() -> (Uint8Array) { |file| file.to_bytes() }
    }
}

fn push<T>(list: &mut Vec<T>, item: T) -> CoreResult<()> {
    list.push(item);
    Ok(())
}

fn not_stacked(wanted: &str) -> Error {
    Error::new(ErrorKind::Incompatible, format!("a result must be {wanted}: got the other kind"))
}

fn borrowed(names: &[Option<String>]) -> Vec<Option<&str>> {
    names.iter().map(Option::as_deref).collect()
}

/// Returns a dimension, from the end if negative.
fn signed(name: &str, dim: f64) -> CoreResult<isize> {
    let size = index(name, dim.abs())? as isize;
    Ok(if dim < 0.0 { -size } else { size })
}

fn dims(shape: &[usize]) -> Vec<f64> {
    shape.iter().map(|dim| *dim as f64).collect()
}
