// The face of `fulmar-replay`, once for Node and for WebAssembly: each includes this table into its own `replay.rs`, see
// `bindings/faces/tensor.rs`. Parts and their states cross as JSON, rows as doubles, -1 for an item that was not kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar::core::{Result as CoreResult, integer_from_f64, options_from_json};
use fulmar::core::{index_from_f64 as index, indices_from_f64 as indices};
use fulmar::replay::{self, ConditionalUpdate, ReplayBufferState, SharedStorage, Storage as _, StorageOptions};
use fulmar::tensor::{Index, Key};
use serde_json::json;

face! {
    /// Where the items of buffers lie; several may share it.
    Storage(SharedStorage)
    make {
        /// The storage that options describe.
        fn create as create(options: String) {
            options_from_json::<StorageOptions>("storage", &options)?.build().map(SharedStorage::new)
        }
        /// A storage whose rows are those of a dictionary.
        fn over as over(dict: &TensorDict) {
            Ok(SharedStorage::new(Box::new(replay::TensorStorage::over(&dict.share()?)?)))
        }
    }
    call {
        /// How many rows there is room for.
        fn capacity as capacity() -> (f64) { |storage| CoreResult::Ok(storage.capacity() as f64) }
        /// `[capacity]`, or `[time, lanes..]`.
        fn shape as shape() -> (Float64Array) {
            |storage| Ok(storage.shape().iter().map(|len| *len as f64).collect::<Vec<_>>())
        }
        /// How many rows hold an item.
        fn count as count() -> (f64) { |storage| CoreResult::Ok(storage.len() as f64) }
        /// Writes items.
        fn set as set(rows: &[f64], items: &TensorDict) -> (()) {
            items = items.share()? => |storage| storage.set(&indices("rows", rows)?, &items)
        }
        /// The items in rows.
        fn get as get(rows: &[f64]) -> (TensorDict) { |storage| storage.get(&indices("rows", rows)?) }
        /// Empties every row.
        fn clear as clear() -> (()) {
            |storage| {
                storage.clear();
                CoreResult::Ok(())
            }
        }
    }
}

face! {
    /// Items that were drawn.
    ReplayBatch(replay::Batch)
    make {
        /// No items: memory to draw into.
        fn empty as empty() {{
            let none = fulmar::tensor::TensorDict::new(&[0])?;
            Ok(replay::Batch { items: none.clone(), rows: Vec::new(), info: none })
        }}
    }
    call {
        /// The items.
        fn items as items() -> (TensorDict) { |batch| CoreResult::Ok(batch.items.clone()) }
        /// Their rows.
        fn rows as rows() -> (Float64Array) { |batch| Ok(batch.rows.iter().map(|row| *row as f64).collect::<Vec<_>>()) }
        /// What sampler and unit say of the rows.
        fn info as info() -> (TensorDict) { |batch| CoreResult::Ok(batch.info.clone()) }
    }
}

face! {
    /// A storage, a writer, a sampler and a sample unit.
    ReplayBuffer(Buffer)
    make {
        /// A buffer over a storage.
        fn create as create(storage: &Storage, options: String) {{
            let options = options_from_json("options", &options)?;
            Ok(Buffer::new(replay::ReplayBuffer::new(Box::new(storage.share()?), options)?))
        }}
    }
    call {
        /// How many rows can be drawn.
        fn count as count() -> (f64) { |buffer| CoreResult::Ok(buffer.lock().len() as f64) }
        /// Figures, as JSON.
        fn stats as stats() -> (String) { |buffer| CoreResult::Ok(json!(buffer.lock().stats()).to_string()) }
        /// Writes one item; its row.
        fn add as add(item: &TensorDict) -> (f64) {
            item = item.share()? => |buffer| CoreResult::Ok(buffer.lock().add(&item)?.map_or(-1.0, |row| row as f64))
        }
        /// Writes items; their rows.
        fn extend as extend(items: &TensorDict, prioritized: bool) -> (Float64Array) {
            items = items.share()? => |buffer| {
                let mut buffer = buffer.lock();
                let rows =
                    if prioritized { buffer.extend(&items)? } else { buffer.extend_without_priorities(&items)? };
                CoreResult::Ok(rows.into_iter().map(|row| row.map_or(-1.0, |row| row as f64)).collect::<Vec<_>>())
            }
        }
        /// Draws a batch.
        fn sample as sample(count: Option<f64>) -> (ReplayBatch) {
            |buffer| buffer.lock().sample(count.map(|count| index("count", count)).transpose()?)
        }
        /// Draws a batch into the memory of another.
        fn sample_into as sampleInto(count: Option<f64>, out: &ReplayBatch) -> (()) {
            |buffer| {
                let count = count.map(|count| index("count", count)).transpose()?;
                out.lend(|out| buffer.lock().sample_into(count, out))
            }
        }
        /// The batch of given rows.
        fn batch_of as batchOf(rows: &[f64]) -> (ReplayBatch) { |buffer| buffer.lock().batch_of(&indices("rows", rows)?) }
        /// Items by index.
        fn at as at(at: String) -> (TensorDict) {
            |buffer| buffer.lock().at(&options_from_json::<Vec<Index>>("index", &at)?)
        }
        /// Writes over items by index.
        fn set_at as setAt(at: String, items: &TensorDict) -> (()) {
            items = items.share()? =>
                |buffer| buffer.lock().set_at(&options_from_json::<Vec<Index>>("index", &at)?, &items)
        }
        /// Writes over one leaf of items by index.
        fn set_key_at as setKeyAt(path: Vec<String>, value: &Tensor, at: String) -> (()) {
            value = value.share()? => |buffer| {
                let at = options_from_json::<Vec<Index>>("index", &at)?;
                buffer.lock().set_key_at(&Key::from(path), &value, &at)
            }
        }
        /// Sets priorities.
        fn update_priority as updatePriority(rows: &[f64], priorities: &[f32]) -> (()) {
            |buffer| buffer.lock().update_priority(&signed("index", rows)?, priorities)
        }
        /// Sets the priorities that a batch holds.
        fn update_tensor_dict_priority as updateTensorDictPriority(batch: &TensorDict) -> (()) {
            batch = batch.share()? => |buffer| buffer.lock().update_tensordict_priority(&batch)
        }
        /// Tells the sampler of rows that were written in another way.
        fn mark_update as markUpdate(rows: &[f64]) -> (()) { |buffer| buffer.lock().mark_update(&indices("index", rows)?) }
        /// How often rows were rewritten.
        fn generations_of as generationsOf(rows: &[f64]) -> (Float64Array) {
            |buffer| {
                let generations = buffer.lock().generations_of(&signed("index", rows)?);
                CoreResult::Ok(generations.into_iter().map(|count| count as f64).collect::<Vec<_>>())
            }
        }
        /// Patches the rows that still hold what they held; which, as JSON. No path of a version: none is compared.
        fn update_if_present as updateIfPresent(
            rows: &[f64], generations: &[f64], patch: &TensorDict, version_path: Vec<String>, versions: &[f64], require_newer: bool
        ) -> (String) {
            patch = patch.share()? => |buffer| {
                let (rows, generations) = (signed("index", rows)?, signed("generation", generations)?);
                let (key, versions) = (Key::from(version_path), signed("version", versions)?);
                let versions = if key.path().is_empty() { None } else { Some((&key, versions.as_slice())) };
                let update =
                    ConditionalUpdate { rows: &rows, generations: &generations, patch: &patch, versions, require_newer };
                let result = buffer.lock().update_if_present(&update)?;
                CoreResult::Ok(json!({ "updated": result.updated, "versionRejected": result.version_rejected }).to_string())
            }
        }
        /// The first items, or all.
        fn read_all as readAll(end: Option<f64>) -> (TensorDict) {
            |buffer| buffer.lock().read_all_in_order(end.map(|end| index("end", end)).transpose()?)
        }
        /// Writes over the first items, or all.
        fn write_all as writeAll(items: &TensorDict, end: Option<f64>) -> (()) {
            items = items.share()? =>
                |buffer| buffer.lock().write_all(&items, end.map(|end| index("end", end)).transpose()?)
        }
        /// A parameter of the sampler.
        fn parameter as parameter(name: String) -> (f64) { |buffer| buffer.lock().sampler().parameter(&name) }
        /// Changes one.
        fn set_parameter as setParameter(name: String, value: f64) -> (()) {
            |buffer| buffer.lock().sampler_mut().set_parameter(&name, value)
        }
        /// Whether the last draw ended an epoch.
        fn ran_out as ranOut() -> (bool) { |buffer| CoreResult::Ok(buffer.lock().ran_out()) }
        /// Empties every row.
        fn clear as clear(keeps_count: bool) -> (()) {
            |buffer| {
                buffer.lock().clear(keeps_count);
                CoreResult::Ok(())
            }
        }
        /// All that must be kept to go on.
        fn state as state() -> (ReplayState) { |buffer| buffer.lock().state() }
        /// Goes on where a state was taken.
        fn restore as restore(state: &ReplayState) -> (()) { state = state.share()? => |buffer| buffer.lock().restore(&state) }
    }
}

face! {
    /// All that a buffer keeps to go on.
    ReplayState(ReplayBufferState)
    make {
        /// The states of the parts, as JSON, and every item.
        fn of as of(parts: String, items: &TensorDictList) {
            Ok(ReplayBufferState { parts: options_from_json("parts", &parts)?, items: items.share()? })
        }
    }
    call {
        /// The states of the parts, as JSON.
        fn parts as parts() -> (String) { |state| CoreResult::Ok(state.parts.to_string()) }
        /// Every item.
        fn items as items() -> (TensorDictList) { |state| CoreResult::Ok(state.items.clone()) }
    }
}

/// One buffer, shared by the objects that stand for it.
#[derive(Clone)]
pub struct Buffer(Arc<Mutex<replay::ReplayBuffer>>);

impl Buffer {
    fn new(buffer: replay::ReplayBuffer) -> Self {
        Self(Arc::new(Mutex::new(buffer)))
    }

    fn lock(&self) -> MutexGuard<'_, replay::ReplayBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows, -1 for none.
fn signed(name: &str, rows: &[f64]) -> CoreResult<Vec<i64>> {
    let one = |row: &f64| if *row == -1.0 { Ok(-1) } else { integer_from_f64(name, *row).map(|row| row as i64) };
    rows.iter().map(one).collect()
}
