// The face of `fulmar-spec`, once for Node and for WebAssembly: each includes this table into its own `spec.rs`, see
// `bindings/faces/tensor.rs`. A value of any kind crosses as a `SpecValue`, what is no value as JSON.

use fulmar::core::{Result as CoreResult, Rng, integer_from_f64, options_from_json};
use fulmar::core::{index_from_f64 as index, indices_from_f64 as indices};
use fulmar::spec::{self, Operation, make_composite_from_td};
use fulmar::tensor::{Entry, NonTensor};
use serde_json::{Value, json};

face! {
    /// A tensor, rows, a dictionary or JSON values on their way to a spec or from it.
    SpecValue(Entry)
    make {
        /// A tensor.
        fn from_tensor as fromTensor(tensor: &Tensor) { Ok(Entry::from(tensor.share()?)) }
        /// Rows.
        fn from_ragged as fromRagged(ragged: &Ragged) { Ok(Entry::from(ragged.share()?)) }
        /// A dictionary.
        fn from_dict as fromDict(dict: &TensorDict) { Ok(Entry::from(dict.share()?)) }
        /// One JSON value.
        fn from_shared as fromShared(value: String) {{
            Ok(Entry::from(NonTensor::shared(options_from_json("value", &value)?)))
        }}
        /// One JSON value for each element of a batch.
        fn from_each as fromEach(shape: &[f64], values: String) {{
            let values = options_from_json("values", &values)?;
            NonTensor::nested(&indices("shape", shape)?, values).map(Entry::from)
        }}
    }
    call {
        /// Which of them it is.
        fn kind as kind() -> (String) { |value| Ok(value.kind().to_owned()) }
        /// The tensor.
        fn tensor as tensor() -> (Option<Tensor>) {
            |value| Ok(if let Entry::Tensor(tensor) = value { Some(tensor.clone().into()) } else { None })
        }
        /// The rows.
        fn ragged as ragged() -> (Option<Ragged>) {
            |value| Ok(if let Entry::Ragged(ragged) = value { Some(ragged.clone().into()) } else { None })
        }
        /// The dictionary.
        fn dict as dict() -> (Option<TensorDict>) {
            |value| Ok(if let Entry::Dict(dict) = value { Some(dict.clone().into()) } else { None })
        }
        /// The JSON values.
        fn json as json() -> (Option<String>) {
            |value| Ok(if let Entry::NonTensor(json) = value { Some(json.to_json().to_string()) } else { None })
        }
    }
}

face! {
    /// What a value may be. Keys are paths.
    TensorSpec(spec::TensorSpec)
    make {
        /// The spec that the JSON describes.
        fn from_json as fromJson(json: String) { spec::TensorSpec::from_json(&json) }
        /// The unbounded spec of what a dictionary holds.
        fn from_dict as fromDict(dict: &TensorDict, unsqueeze_null_shapes: bool, dynamic_shape: bool) {
            make_composite_from_td(&dict.share()?, unsqueeze_null_shapes, dynamic_shape).map(spec::TensorSpec::from)
        }
    }
    call {
        /// Its JSON.
        fn to_json as toJson() -> (String) { |spec| Ok(spec.to_json().to_string()) }
        /// The name of its class.
        fn kind as kind() -> (String) { |spec| Ok(spec.kind().to_owned()) }
        /// The dimensions, -1 for a dynamic one.
        fn shape as shape() -> (Float64Array) {
            |spec| Ok(spec.shape().dims().iter().map(|dim| dim.map_or(-1.0, |len| len as f64)).collect::<Vec<f64>>())
        }
        /// The name of the element type, if there is one.
        fn dtype as dtype() -> (Option<String>) { |spec| Ok(spec.dtype().map(|dtype| dtype.name().to_owned())) }
        /// Refuses a value that is not of this spec.
        fn check as check(value: &SpecValue, strict: bool) -> (()) {
            value = value.share()? => |spec| if strict { spec.check_strict(&value) } else { spec.check(&value) }
        }
        /// What is wrong with a value, as JSON; nothing if it is of this spec.
        fn explain as explain(value: &SpecValue, strict: bool) -> (Option<String>) {
            value = value.share()? => |spec| Ok(spec.explain(&value, strict).map(|wrong| json!(wrong).to_string()))
        }
        /// The nearest value of this spec.
        fn project as project(value: &SpecValue) -> (SpecValue) {
            value = value.share()? => |spec| spec.project(&value)
        }
        /// Draws a value from the beginning of the stream of `seed`.
        fn rand as rand(seed: f64, batch: &[f64]) -> (SpecValue) {
            |spec| spec.rand(&mut Rng::new(integer_from_f64("seed", seed)?), &indices("shape", batch)?)
        }
        /// Zeros.
        fn zero as zero(batch: &[f64]) -> (SpecValue) { |spec| spec.zero(&indices("shape", batch)?) }
        /// Ones.
        fn one as one(batch: &[f64]) -> (SpecValue) { |spec| spec.one(&indices("shape", batch)?) }
        /// The value that plain JSON describes.
        fn encode as encode(value: String) -> (SpecValue) {
            |spec| spec.encode(&options_from_json::<Value>("value", &value)?)
        }
        /// The plain JSON of a value.
        fn decode as decode(value: &SpecValue) -> (String) {
            value = value.share()? => |spec| Ok(spec.decode(&value)?.to_string())
        }
        /// All values.
        fn enumerate as enumerate(use_mask: bool) -> (SpecValue) { |spec| spec.enumerate(use_mask) }
        /// How many there are, in decimal; nothing if there is no end of them.
        fn cardinality as cardinality() -> (Option<String>) {
            |spec| Ok(spec.cardinality()?.map(|count| count.to_string()))
        }
        /// The one-hot blocks of indices.
        fn to_one_hot as toOneHot(value: &Tensor) -> (Tensor) {
            value = value.share()? => |spec| spec.to_one_hot(&value)
        }
        /// The indices of one-hot blocks.
        fn to_categorical as toCategorical(value: &Tensor) -> (Tensor) {
            value = value.share()? => |spec| spec.to_categorical(&value)
        }
        /// The elements of a table that values name.
        fn index as index(value: &Tensor, table: &Tensor) -> (Tensor) {
            args = (value.share()?, table.share()?) => |spec| spec.index(&args.0, &args.1)
        }
        /// The least values, if the spec is `Bounded`.
        fn low as low() -> (Option<Tensor>) { |spec| Ok(spec.bounds().map(|(low, _)| low.clone().into())) }
        /// The largest values, if the spec is `Bounded`.
        fn high as high() -> (Option<Tensor>) { |spec| Ok(spec.bounds().map(|(_, high)| high.clone().into())) }
        /// The number of values of each choice, if the spec is discrete.
        fn nvec as nvec() -> (Option<Tensor>) { |spec| Ok(spec.nvec().map(|nvec| nvec.clone().into())) }
        /// Which values are allowed, if not all.
        fn mask as mask() -> (Option<Tensor>) { |spec| Ok(spec.mask().map(|mask| mask.clone().into())) }
        /// Allows some values.
        fn set_mask as setMask(mask: &Tensor) -> (()) { mask = mask.share()? => |spec| spec.update_mask(Some(mask)) }
        /// Allows all values.
        fn clear_mask as clearMask() -> (()) { |spec| spec.update_mask(None) }
        /// What an operation makes of it.
        fn operate as operate(operation: String) -> (TensorSpec) {
            |spec| spec.operate(&options_from_json::<Operation>("operation", &operation)?)
        }
        /// One spec for each index of a dimension.
        fn unbind as unbind(dim: f64) -> (TensorSpecList) { |spec| spec.unbind(index("dim", dim)?) }
        /// The specs of a stack or of a choice; none otherwise.
        fn parts as parts() -> (TensorSpecList) { |spec| CoreResult::Ok(spec.parts().to_vec()) }
        /// The dimension along which a stack stands.
        fn stack_dim as stackDim() -> (Option<f64>) {
            |spec| Ok(if let spec::TensorSpec::Stacked(stacked) = spec { Some(stacked.dim() as f64) } else { None })
        }
        /// The names of the entries.
        fn keys as keys() -> (String) { |spec| Ok(json!(spec.keys()?).to_string()) }
        /// The keys of all entries.
        fn nested_keys as nestedKeys() -> (String) { |spec| Ok(json!(spec.nested_keys()?).to_string()) }
        /// The keys of all entries but the dictionaries.
        fn leaf_keys as leafKeys() -> (String) { |spec| Ok(json!(spec.leaf_keys()?).to_string()) }
        /// Whether there is an entry, also one that may be anything.
        fn has as has(path: Vec<String>) -> (bool) { |spec| CoreResult::Ok(spec.has(path)) }
        /// The spec there, if it says something.
        fn get as get(path: Vec<String>) -> (Option<TensorSpec>) {
            |spec| Ok(spec.get(path)?.map(TensorSpec::from))
        }
        /// Puts a spec there.
        fn set as set(path: Vec<String>, entry: &TensorSpec) -> (()) {
            entry = entry.share()? => |spec| spec.as_composite_mut()?.set(path, entry)
        }
        /// Puts an entry there that may be anything.
        fn set_any as setAny(path: Vec<String>) -> (()) { |spec| spec.as_composite_mut()?.set(path, None) }
        /// Takes the entry out; whether there was one.
        fn remove as remove(path: Vec<String>) -> (bool) { |spec| Ok(spec.as_composite_mut()?.remove(path)) }
        /// Puts all entries of another one here.
        fn update as update(other: &TensorSpec) -> (()) {
            other = other.share()? => |spec| {
                let mut other = other;
                spec.as_composite_mut()?.update(other.as_composite_mut()?)
            }
        }
        /// Whether specs that differ are stacked in it.
        fn contains_lazy as containsLazy() -> (bool) { |spec| CoreResult::Ok(spec::contains_lazy_spec(spec)) }
        /// Whether the dictionaries of every stack in it have the same keys.
        fn no_exclusive_keys as noExclusiveKeys() -> (bool) {
            |spec| CoreResult::Ok(spec::check_no_exclusive_keys(spec))
        }
        /// Whether they are equal.
        fn equals as equals(other: &TensorSpec) -> (bool) { other = other.share()? => |spec| Ok(*spec == other) }
    }
}

face! {
    /// Specs on their way to be joined, or from a division.
    TensorSpecList(Vec<spec::TensorSpec>)
    make {
        /// No specs.
        fn empty as empty() { Ok(Vec::new()) }
    }
    call {
        /// Appends one.
        fn push as push(spec: &TensorSpec) -> (()) {
            spec = spec.share()? => |list| {
                list.push(spec);
                CoreResult::Ok(())
            }
        }
        /// How many there are.
        fn count as count() -> (f64) { |list| CoreResult::Ok(list.len() as f64) }
        /// One of them.
        fn get as get(at: f64) -> (Option<TensorSpec>) {
            |list| Ok(list.get(index("at", at)?).cloned().map(TensorSpec::from))
        }
        /// The spec of values stacked along a new dimension.
        fn stack as stack(dim: f64) -> (TensorSpec) { |list| spec::TensorSpec::stack(list, index("dim", dim)?) }
        /// The spec of values of one of them.
        fn choice as choice() -> (TensorSpec) {
            |list| spec::Choice::of_specs(list.clone()).map(spec::TensorSpec::Choice)
        }
        /// One spec for each index of a new dimension, also if they are equal.
        fn stacked as stacked(dim: f64) -> (TensorSpec) {
            |list| spec::Stacked::new(list.clone(), index("dim", dim)?).map(spec::TensorSpec::Stacked)
        }
    }
}
