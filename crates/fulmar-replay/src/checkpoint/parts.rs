//! TorchRL's checkpoint files of samplers and writers, as changes to their states.
//!
//! A part is identified by the form of its state. Parts that upstream lacks have no files here.

use std::fs;
use std::path::Path;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, NonTensor, Tensor, TensorDict, memmap};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::folder::{corrupt, expect_json, read_elements, write_elements, write_json};
use crate::stateful::to_state;
use crate::{
    MaxValueWriterState, PrioritizedSamplerState, PriorityTree, RoundRobinWriterState,
    SamplerWithoutReplacement, SamplerWithoutReplacementState,
};

/// The value of an unset leaf in upstream's tree of smallest leaves.
const UNSET: f64 = f32::MAX as f64;
const WRITER: &str = "metadata.json";
const TOP_VALUES: &str = "current_top_values.memmap";
const GENERATIONS: &str = "generation.memmap";

/// Returns the leaves of priorities in the state of a sampler, if it has any.
pub fn leaves_of(state: &mut Value) -> Option<&mut Value> {
    let path = if state.get("priorities").is_some() { "/priorities/tree/leaves" } else { "/tree/leaves" };
    state.pointer_mut(path)
}

/// Writes the state of a sampler as `folder`, or nothing if upstream has no files for it.
pub fn save_sampler(state: &Value, folder: &Path) -> Result<()> {
    if let Some((priorities, _)) = prioritized(state) {
        fs::create_dir(folder)?;
        save_priorities(&priorities, folder)
    } else if let Some(epochs) = read::<SamplerWithoutReplacementState>(state) {
        memmap::save(folder, &epochs_to_dict(&epochs)?)
    } else if let Some(epochs) = read::<SamplerWithoutReplacementState>(&state["epochs"]) {
        // The order of slices is stored by trajectories, which upstream numbers differently.
        memmap::save(
            folder,
            &epochs_to_dict(&SamplerWithoutReplacementState { num_rows: 0, taken: 0, ..epochs })?,
        )
    } else if let Some(version) = state["consumerVersion"].as_i64() {
        let staleness = state["sampler"]["maxStaleness"].as_i64().unwrap_or(-1);
        let mut dict = TensorDict::new(&[])?;
        dict.set("consumer_version", Tensor::from_vec(&[], vec![version])?)?;
        dict.set("max_staleness", Tensor::from_vec(&[], vec![staleness])?)?;
        memmap::save(folder, &dict)
    } else {
        Ok(())
    }
}

/// Updates `state`, of a sampler with all rows, by the content of `folder`. Parts that upstream does not
/// store, such as its generator, stay.
pub fn load_sampler(mut state: Value, folder: &Path) -> Result<Value> {
    if let Some((before, nested)) = prioritized(&state) {
        let after = load_priorities(before, folder)?;
        let top = after.tree.top;
        let after = to_state(&after)?;
        if nested {
            state["priorities"] = after;
            state["startsTop"] = json!(top);
            return Ok(state);
        }
        return Ok(after);
    }
    if let Some(before) = read::<SamplerWithoutReplacementState>(&state) {
        return to_state(
            &epochs_of_dict(before, &memmap::load(folder)?).map_err(|error| error.at(folder.display()))?,
        );
    }
    if read::<SamplerWithoutReplacementState>(&state["epochs"]).is_some() {
        let drop_last =
            flag(&memmap::load(folder)?, "drop_last").map_err(|error| error.at(folder.display()))?;
        state["epochs"]["options"]["dropLast"] = json!(drop_last);
    } else if state.get("consumerVersion").is_some() {
        let dict = memmap::load(folder)?;
        let number = |key: &str| count(&dict, key).map_err(|error| error.at(folder.display()));
        state["consumerVersion"] = json!(number("consumer_version")?);
        let staleness = number("max_staleness")?;
        state["sampler"]["maxStaleness"] = if staleness < 0 { Value::Null } else { json!(staleness) };
    }
    Ok(state)
}

#[derive(Serialize, Deserialize)]
struct Priorities {
    _alpha: f32,
    _beta: f32,
    _eps: f32,
    /// The largest priority and its row, as numbers or null.
    _max_priority: (Option<f64>, Option<f64>),
    _max_capacity: f64,
    #[serde(default)]
    _schema_version: u32,
}

fn save_priorities(state: &PrioritizedSamplerState, folder: &Path) -> Result<()> {
    let capacity = state.tree.capacity;
    let leaf = |row: usize| state.tree.leaves.get(row).copied().flatten().map(f64::from);
    let column =
        |unset| Tensor::from_vec(&[capacity], (0..capacity).map(|row| leaf(row).unwrap_or(unset)).collect());
    write_elements(&folder.join("sumtree.memmap"), &column(0.0)?)?;
    write_elements(&folder.join("mintree.memmap"), &column(UNSET)?)?;
    let about = Priorities {
        _alpha: state.options.alpha,
        _beta: state.options.beta,
        _eps: state.options.eps,
        _max_priority: state.max_priority.map(|(most, row)| (f64::from(most), row as f64)).unzip(),
        _max_capacity: capacity as f64,
        _schema_version: 1,
    };
    write_json(&folder.join("sampler_metadata.json"), &about)
}

fn load_priorities(mut state: PrioritizedSamplerState, folder: &Path) -> Result<PrioritizedSamplerState> {
    let path = folder.join("sampler_metadata.json");
    let about: Priorities = expect_json(&path)?;
    let capacity = state.tree.capacity;
    if about._max_capacity != capacity as f64 {
        let detail = format!("capacity must be {capacity}: got {}", about._max_capacity);
        return Err(Error::new(ErrorKind::Incompatible, detail).at(path.display()));
    }
    state.options.alpha = about._alpha;
    state.options.beta = about._beta;
    state.options.eps = about._eps;
    // Restoring the state refuses an invalid row.
    state.max_priority =
        about._max_priority.0.zip(about._max_priority.1).map(|(most, row)| (most as f32, row as usize));
    let leaves = load_leaves(capacity, folder)?;
    let mut tree = PriorityTree::new(capacity)?;
    let (rows, set): (Vec<_>, Vec<_>) =
        leaves.iter().enumerate().filter_map(|(row, leaf)| Some((row, (*leaf)?))).unzip();
    tree.update(&rows, &set).map_err(|error| error.at(folder.display()))?;
    state.tree = tree.state();
    Ok(state)
}

/// Returns the leaf of each of `capacity` rows; `None` if unset.
pub fn load_leaves(capacity: usize, folder: &Path) -> Result<Vec<Option<f32>>> {
    let column = |name: &str| read_elements(&folder.join(name), Dtype::F64, &[capacity]);
    let (sums, least) = (column("sumtree.memmap")?, column("mintree.memmap")?);
    let rows = sums.as_slice::<f64>()?.iter().zip(least.as_slice::<f64>()?);
    let mut leaves: Vec<_> = rows.map(|(leaf, least)| (*least < UNSET).then_some(*leaf as f32)).collect();
    let end = leaves.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    leaves.truncate(end);
    Ok(leaves)
}

fn epochs_to_dict(state: &SamplerWithoutReplacementState) -> Result<TensorDict> {
    let mut dict = TensorDict::new(&[])?;
    dict.set("len_storage", Tensor::from_vec(&[], vec![state.num_rows as i64])?)?;
    let rows = SamplerWithoutReplacement::from_state(state)?.rows_left();
    let rows: Entry = if state.num_rows == 0 {
        NonTensor::shared(Value::Null).into()
    } else {
        Tensor::from_vec(&[rows.len()], rows)?.into()
    };
    dict.set("_sample_list", rows)?;
    dict.set("drop_last", Tensor::from_vec(&[], vec![state.options.drop_last])?)?;
    dict.set("_ran_out", Tensor::from_vec(&[], vec![state.ran_out])?)?;
    Ok(dict)
}

fn epochs_of_dict(
    mut state: SamplerWithoutReplacementState,
    dict: &TensorDict,
) -> Result<SamplerWithoutReplacementState> {
    state.options.drop_last = flag(dict, "drop_last")?;
    state.ran_out = flag(dict, "_ran_out")?;
    (state.num_rows, state.taken, state.order) = (0, 0, None);
    let Entry::Tensor(left) = dict.entry("_sample_list")? else { return Ok(state) };
    let bad = || corrupt("\"_sample_list\" must hold rows below \"len_storage\", each once");
    let num_rows = usize::try_from(count(dict, "len_storage")?).map_err(|_| bad())?;
    let left = left.to_vec::<i64>()?;
    let left = left.iter().map(|row| u32::try_from(*row)).collect::<std::result::Result<Vec<_>, _>>();
    let left = left.map_err(|_| bad())?;
    if left.len() > num_rows || num_rows > fulmar_core::limits::REPLAY_ROWS_MAX {
        return Err(bad());
    }
    let mut is_left = vec![false; num_rows];
    for row in &left {
        let seen = is_left.get_mut(*row as usize).ok_or_else(bad)?;
        if std::mem::replace(seen, true) {
            return Err(bad());
        }
    }
    // The order of the rows already taken no longer matters.
    let taken = (0..num_rows as u32).filter(|row| !is_left[*row as usize]);
    let order: Vec<u32> = taken.chain(left.iter().copied()).collect();
    (state.taken, state.num_rows, state.order) = (num_rows - left.len(), num_rows, Some(order));
    Ok(state)
}

/// `metadata.json` of a writer. Old folders store only the cursor.
#[derive(Serialize, Deserialize)]
pub struct WriterAbout {
    pub cursor: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank_key: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation_shape: Option<Vec<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation_dtype: Option<String>,
}

impl WriterAbout {
    pub fn read(folder: &Path) -> Result<Self> {
        expect_json(&folder.join(WRITER))
    }
}

/// Writes the state of a writer at `cursor` as `folder`; `rank_key` is the key of its ranks.
pub fn save_writer(
    state: &Value,
    (cursor, write_count): (usize, u64),
    rank_key: Option<&Key>,
    folder: &Path,
) -> Result<()> {
    let mut about = WriterAbout {
        cursor,
        write_count: Some(write_count),
        rank_key: None,
        dtype: None,
        shape: None,
        generation_shape: None,
        generation_dtype: None,
    };
    fs::create_dir(folder)?;
    if let Some(ring) = read::<RoundRobinWriterState>(state) {
        if let Some(mut generations) = ring.generations {
            generations.resize(ring.capacity, -1);
            write_elements(&folder.join(GENERATIONS), &Tensor::from_vec(&[ring.capacity], generations)?)?;
            about.generation_shape = Some(vec![ring.capacity]);
            about.generation_dtype = Some("torch.int64".to_owned());
        }
    } else if let Some(best) = read::<MaxValueWriterState>(state) {
        let mut rows: Vec<(f32, f32)> =
            best.ranks.iter().enumerate().map(|(row, rank)| (*rank as f32, row as f32)).collect();
        rows.sort_by(|left, right| left.0.total_cmp(&right.0));
        let values = rows.iter().flat_map(|(rank, row)| [*rank, *row]).collect();
        write_elements(&folder.join(TOP_VALUES), &Tensor::from_vec_f32(&[rows.len(), 2], values)?)?;
        about.rank_key = rank_key.map(|key| json!(key.path()));
        about.dtype = Some("torch.float32".to_owned());
        about.shape = Some(vec![rows.len(), 2]);
    }
    write_json(&folder.join(WRITER), &about)
}

/// Updates `state`, of a writer, by the content of `folder`, written after `len` time steps.
pub fn load_writer(state: Value, len: usize, folder: &Path) -> Result<Value> {
    let about = WriterAbout::read(folder)?;
    // Without a count, assume that each row was written once.
    let write_count = about.write_count.unwrap_or(len as u64);
    let path = folder.join(WRITER);
    if let Some(mut ring) = read::<RoundRobinWriterState>(&state) {
        ring.generations = match (ring.generations, &about.generation_shape) {
            (None, _) => None,
            (Some(_), None) => Some(vec![0; len]),
            (Some(_), Some(shape)) if shape[..] == [ring.capacity] => {
                let mut all = read_elements(&folder.join(GENERATIONS), Dtype::I64, shape)?.to_vec::<i64>()?;
                let end = all.iter().rposition(|generation| *generation >= 0).map_or(0, |last| last + 1);
                all.truncate(end);
                Some(all)
            }
            (Some(_), Some(shape)) => {
                let detail = format!("generation_shape must be [{}]: got {shape:?}", ring.capacity);
                return Err(Error::new(ErrorKind::Incompatible, detail).at(path.display()));
            }
        };
        let is_ring = if len == ring.capacity { about.cursor < ring.capacity } else { about.cursor == len };
        if !is_ring {
            let detail = format!(
                "cursor must be that of a ring of {} with {len} written: got {}",
                ring.capacity, about.cursor
            );
            return Err(corrupt(detail).at(path.display()));
        }
        (ring.cursor, ring.len, ring.write_count) = (about.cursor, len, write_count);
        return to_state(&ring);
    }
    if let Some(mut best) = read::<MaxValueWriterState>(&state) {
        let ranks = if len == 0 { Vec::new() } else { load_ranks(len, folder)? };
        (best.ranks, best.write_count) = (ranks, write_count);
        return to_state(&best);
    }
    Ok(state)
}

/// Returns the rank of each of `len` rows.
fn load_ranks(len: usize, folder: &Path) -> Result<Vec<f64>> {
    let path = folder.join(TOP_VALUES);
    let values = read_elements(&path, Dtype::F32, &[len, 2])?;
    let mut ranks = vec![None; len];
    for pair in values.as_slice::<f32>()?.chunks_exact(2) {
        let place = ranks.get_mut(pair[1] as usize).filter(|_| pair[1] >= 0.0 && pair[1].fract() == 0.0);
        match place {
            Some(place @ None) => *place = Some(f64::from(pair[0])),
            _ => {
                let detail = format!("rows must be those of {len} items, each once: got {}", pair[1]);
                return Err(corrupt(detail).at(path.display()));
            }
        }
    }
    Ok(ranks.into_iter().flatten().collect())
}

/// Returns the priorities in the state of a sampler, and whether they are only a part of it.
fn prioritized(state: &Value) -> Option<(PrioritizedSamplerState, bool)> {
    let own = read(state).map(|priorities| (priorities, false));
    own.or_else(|| read(&state["priorities"]).map(|priorities| (priorities, true)))
}

fn read<T: DeserializeOwned>(state: &Value) -> Option<T> {
    T::deserialize(state).ok()
}

fn flag(dict: &TensorDict, key: &str) -> Result<bool> {
    let values = dict.tensor(key)?.to_vec::<bool>()?;
    values.first().copied().ok_or_else(|| corrupt(format!("{key:?} must hold a bool: it is empty")))
}

fn count(dict: &TensorDict, key: &str) -> Result<i64> {
    let values = dict.tensor(key)?.to_vec::<i64>()?;
    values.first().copied().ok_or_else(|| corrupt(format!("{key:?} must hold a number: it is empty")))
}
