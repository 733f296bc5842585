// The face of `fulmar-spec`, once for Node and for WebAssembly: each includes this table into its own `spec.rs`, see
// `bindings/faces/tensor.rs`. A value of any kind crosses as a `SpecValue`, what is no value as JSON.

use fulmar::core::{Result as CoreResult, Rng, integer_from_f64, options_from_json};
use fulmar::core::{index_from_f64 as index, indices_from_f64 as indices};
use fulmar::spec::{self, Operation, make_composite_from_td};
use fulmar::tensor::{Entry, NonTensor};
use serde_json::{Value, json};

face! {
    /// A value of a spec: a tensor, rows, a dictionary or JSON values.
    SpecValue(Entry)
    make {
        /// Wraps a tensor.
        fn from_tensor as fromTensor(tensor: &Tensor) { Ok(Entry::from(tensor.share()?)) }
        /// Wraps rows.
        fn from_ragged as fromRagged(ragged: &Ragged) { Ok(Entry::from(ragged.share()?)) }
        /// Wraps a dictionary.
        fn from_dict as fromDict(dict: &TensorDict) { Ok(Entry::from(dict.share()?)) }
        /// Wraps one JSON value.
        fn from_shared as fromShared(value: String) {{
            Ok(Entry::from(NonTensor::shared(options_from_json("value", &value)?)))
        }}
        /// Wraps one JSON value for each element of a batch.
        fn from_each as fromEach(shape: &[f64], values: String) {{
            let values = options_from_json("values", &values)?;
            NonTensor::nested(&indices("shape", shape)?, values).map(Entry::from)
        }}
    }
    call {
        /// Returns the kind of value.
        fn kind as kind() -> (String) { |value| Ok(value.kind().to_owned()) }
        /// Returns the tensor.
        fn tensor as tensor() -> (Option<Tensor>) {
            |value| Ok(if let Entry::Tensor(tensor) = value { Some(tensor.clone().into()) } else { None })
        }
        /// Returns the rows.
        fn ragged as ragged() -> (Option<Ragged>) {
            |value| Ok(if let Entry::Ragged(ragged) = value { Some(ragged.clone().into()) } else { None })
        }
        /// Returns the dictionary.
        fn dict as dict() -> (Option<TensorDict>) {
            |value| Ok(if let Entry::Dict(dict) = value { Some(dict.clone().into()) } else { None })
        }
        /// Returns the JSON values.
        fn json as json() -> (Option<String>) {
            |value| Ok(if let Entry::NonTensor(json) = value { Some(json.to_json().to_string()) } else { None })
        }
    }
}

face! {
    /// The domain of a value. Keys are paths.
    TensorSpec(spec::TensorSpec)
    make {
        /// Reads a spec from JSON.
        fn from_json as fromJson(json: String) { spec::TensorSpec::from_json(&json) }
        /// Makes the unbounded spec of a dictionary.
        fn from_dict as fromDict(dict: &TensorDict, unsqueeze_null_shapes: bool, dynamic_shape: bool) {
            make_composite_from_td(&dict.share()?, unsqueeze_null_shapes, dynamic_shape).map(spec::TensorSpec::from)
        }
    }
    call {
        /// Returns the spec as JSON.
        fn to_json as toJson() -> (String) { |spec| Ok(spec.to_json().to_string()) }
        /// Returns the name of its class.
        fn kind as kind() -> (String) { |spec| Ok(spec.kind().to_owned()) }
        /// Returns the dimensions, -1 for a dynamic one.
        fn shape as shape() -> (Float64Array) {
            |spec| Ok(spec.shape().dims().iter().map(|dim| dim.map_or(-1.0, |len| len as f64)).collect::<Vec<f64>>())
        }
        /// Returns the name of the element type, if there is one.
        fn dtype as dtype() -> (Option<String>) { |spec| Ok(spec.dtype().map(|dtype| dtype.name().to_owned())) }
        /// Checks that a value is in the spec.
        fn check as check(value: &SpecValue, strict: bool) -> (()) {
            value = value.share()? => |spec| if strict { spec.check_strict(&value) } else { spec.check(&value) }
        }
        /// Returns the first problem of a value, as JSON; null if the value is in the spec.
        fn explain as explain(value: &SpecValue, strict: bool) -> (Option<String>) {
            value = value.share()? => |spec| Ok(spec.explain(&value, strict).map(|wrong| json!(wrong).to_string()))
        }
        /// Returns the nearest value of this spec.
        fn project as project(value: &SpecValue) -> (SpecValue) {
            value = value.share()? => |spec| spec.project(&value)
        }
        /// Draws a value from the beginning of the stream of `seed`.
        fn rand as rand(seed: f64, batch: &[f64]) -> (SpecValue) {
            |spec| spec.rand(&mut Rng::new(integer_from_f64("seed", seed)?), &indices("shape", batch)?)
        }
        /// Makes a value of zeros.
        fn zero as zero(batch: &[f64]) -> (SpecValue) { |spec| spec.zero(&indices("shape", batch)?) }
        /// Makes a value of ones.
        fn one as one(batch: &[f64]) -> (SpecValue) { |spec| spec.one(&indices("shape", batch)?) }
        /// Returns the value that plain JSON describes.
        fn encode as encode(value: String) -> (SpecValue) {
            |spec| spec.encode(&options_from_json::<Value>("value", &value)?)
        }
        /// Returns the plain JSON of a value.
        fn decode as decode(value: &SpecValue) -> (String) {
            value = value.share()? => |spec| Ok(spec.decode(&value)?.to_string())
        }
        /// Returns all values.
        fn enumerate as enumerate(use_mask: bool) -> (SpecValue) { |spec| spec.enumerate(use_mask) }
        /// Returns the number of values, in decimal; null if it is infinite.
        fn cardinality as cardinality() -> (Option<String>) {
            |spec| Ok(spec.cardinality()?.map(|count| count.to_string()))
        }
        /// Returns the one-hot blocks of indices.
        fn to_one_hot as toOneHot(value: &Tensor) -> (Tensor) {
            value = value.share()? => |spec| spec.to_one_hot(&value)
        }
        /// Returns the indices of one-hot blocks.
        fn to_categorical as toCategorical(value: &Tensor) -> (Tensor) {
            value = value.share()? => |spec| spec.to_categorical(&value)
        }
        /// Returns the elements of a table at the indices that values give.
        fn index as index(value: &Tensor, table: &Tensor) -> (Tensor) {
            args = (value.share()?, table.share()?) => |spec| spec.index(&args.0, &args.1)
        }
        /// Returns the least values, if the spec is `Bounded`.
        fn low as low() -> (Option<Tensor>) { |spec| Ok(spec.bounds().map(|(low, _)| low.clone().into())) }
        /// Returns the largest values, if the spec is `Bounded`.
        fn high as high() -> (Option<Tensor>) { |spec| Ok(spec.bounds().map(|(_, high)| high.clone().into())) }
        /// Returns the number of values of each choice, if the spec is discrete.
        fn nvec as nvec() -> (Option<Tensor>) { |spec| Ok(spec.nvec().map(|nvec| nvec.clone().into())) }
        /// Returns the mask of the allowed values, if there is one.
        fn mask as mask() -> (Option<Tensor>) { |spec| Ok(spec.mask().map(|mask| mask.clone().into())) }
        /// Allows some values.
        fn set_mask as setMask(mask: &Tensor) -> (()) { mask = mask.share()? => |spec| spec.update_mask(Some(mask)) }
        /// Allows all values.
        fn clear_mask as clearMask() -> (()) { |spec| spec.update_mask(None) }
        /// Applies an operation.
        fn operate as operate(operation: String) -> (TensorSpec) {
            |spec| spec.operate(&options_from_json::<Operation>("operation", &operation)?)
        }
        /// Returns one spec for each index of a dimension.
        fn unbind as unbind(dim: f64) -> (TensorSpecList) { |spec| spec.unbind(index("dim", dim)?) }
        /// Returns the specs of a stack or of a choice; otherwise an empty list.
        fn parts as parts() -> (TensorSpecList) { |spec| CoreResult::Ok(spec.parts().to_vec()) }
        /// Returns the dimension of a stack.
        fn stack_dim as stackDim() -> (Option<f64>) {
            |spec| Ok(if let spec::TensorSpec::Stacked(stacked) = spec { Some(stacked.dim() as f64) } else { None })
        }
        /// Returns the names of the entries.
        fn keys as keys() -> (String) { |spec| Ok(json!(spec.keys()?).to_string()) }
        /// Returns the keys of all entries.
        fn nested_keys as nestedKeys() -> (String) { |spec| Ok(json!(spec.nested_keys()?).to_string()) }
        /// Returns the keys of all entries but the dictionaries.
        fn leaf_keys as leafKeys() -> (String) { |spec| Ok(json!(spec.leaf_keys()?).to_string()) }
        /// Returns whether there is an entry, also an unconstrained one.
        fn has as has(path: Vec<String>) -> (bool) { |spec| CoreResult::Ok(spec.has(path)) }
        /// Returns the spec at a path; null if it is unconstrained.
        fn get as get(path: Vec<String>) -> (Option<TensorSpec>) {
            |spec| Ok(spec.get(path)?.map(TensorSpec::from))
        }
        /// Sets the spec at a path.
        fn set as set(path: Vec<String>, entry: &TensorSpec) -> (()) {
            entry = entry.share()? => |spec| spec.as_composite_mut()?.set(path, entry)
        }
        /// Sets an unconstrained entry at a path.
        fn set_any as setAny(path: Vec<String>) -> (()) { |spec| spec.as_composite_mut()?.set(path, None) }
        /// Removes an entry; returns whether it existed.
        fn remove as remove(path: Vec<String>) -> (bool) { |spec| Ok(spec.as_composite_mut()?.remove(path)) }
        /// Copies all entries of another one into this one.
        fn update as update(other: &TensorSpec) -> (()) {
            other = other.share()? => |spec| {
                let mut other = other;
                spec.as_composite_mut()?.update(other.as_composite_mut()?)
            }
        }
        /// Returns whether it contains a stack of different specs.
        fn contains_lazy as containsLazy() -> (bool) { |spec| CoreResult::Ok(spec::contains_lazy_spec(spec)) }
        /// Returns whether the dictionaries of every stack in it have the same keys.
        fn no_exclusive_keys as noExclusiveKeys() -> (bool) {
            |spec| CoreResult::Ok(spec::check_no_exclusive_keys(spec))
        }
        /// Returns whether they are equal.
        fn equals as equals(other: &TensorSpec) -> (bool) { other = other.share()? => |spec| Ok(*spec == other) }
    }
}

face! {
    /// A list of specs.
    TensorSpecList(Vec<spec::TensorSpec>)
    make {
        /// Makes an empty list.
        fn empty as empty() { Ok(Vec::new()) }
    }
    call {
        /// Appends to the list.
        fn push as push(spec: &TensorSpec) -> (()) {
            spec = spec.share()? => |list| {
                list.push(spec);
                CoreResult::Ok(())
            }
        }
        /// Returns the length of the list.
        fn count as count() -> (f64) { |list| CoreResult::Ok(list.len() as f64) }
        /// Returns one element.
        fn get as get(at: f64) -> (Option<TensorSpec>) {
            |list| Ok(list.get(index("at", at)?).cloned().map(TensorSpec::from))
        }
        /// Returns the spec of values stacked along a new dimension.
        fn stack as stack(dim: f64) -> (TensorSpec) { |list| spec::TensorSpec::stack(list, index("dim", dim)?) }
        /// Returns the spec of values that are in one of the specs.
        fn choice as choice() -> (TensorSpec) {
            |list| spec::Choice::of_specs(list.clone()).map(spec::TensorSpec::Choice)
        }
        /// Stacks the specs along a new dimension and keeps each, even if they are equal.
        fn stacked as stacked(dim: f64) -> (TensorSpec) {
            |list| spec::Stacked::new(list.clone(), index("dim", dim)?).map(spec::TensorSpec::Stacked)
        }
    }
}
