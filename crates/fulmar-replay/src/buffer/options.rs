//! What goes into a buffer besides its storage, and what comes out.

use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::Reduction;
use crate::sampler::SamplerOptions;
use crate::unit::SampleUnitOptions;
use crate::writer::WriterOptions;

/// A buffer as options describe it; the storage comes beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReplayBufferOptions {
    /// Fixes all draws. 0.
    pub seed: u64,
    /// Rows of a batch where none are asked for. Absent.
    pub batch_size: Option<usize>,
    /// How many batches are drawn before they are asked for, where a shared buffer gives one after the other. 0.
    pub prefetch: usize,
    /// Which rows a batch takes. Random ones.
    pub sampler: SamplerOptions,
    /// Which rows new items take. A ring.
    pub writer: WriterOptions,
    /// What a row stands for. Itself.
    pub unit: SampleUnitOptions,
    /// Whether items and batches hold their rows at `"index"`, and batches what the sampler says of them. True.
    pub write_info: bool,
    /// Where the priority of an item is. `"td_error"`.
    pub priority_key: Key,
    /// How the values there become one priority. The largest.
    pub reduction: Reduction,
    /// Where slices flag the last of their steps; absent where they do not. `["next", "truncated"]`.
    pub truncated_key: Option<Key>,
    /// The flag of a trajectory's first step, set at the first step of each slice where it is stored; absent where not.
    /// `"is_init"`.
    pub init_key: Option<Key>,
    /// Whether one write may hold more items than the buffer, of which the last stay. True.
    pub allow_overwrite: bool,
}

impl Default for ReplayBufferOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            batch_size: None,
            prefetch: 0,
            sampler: SamplerOptions::default(),
            writer: WriterOptions::default(),
            unit: SampleUnitOptions::default(),
            write_info: true,
            priority_key: Key::from("td_error"),
            reduction: Reduction::Max,
            truncated_key: Some(Key::from(["next", "truncated"])),
            init_key: Some(Key::from("is_init")),
            allow_overwrite: true,
        }
    }
}

/// A batch and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The items, `[rows]`, with the leaves of `info` where the buffer writes them.
    pub items: TensorDict,
    /// Their rows.
    pub rows: Vec<usize>,
    /// What sampler and unit say of the rows, and `index_generation` where the writer tracks it. `[rows]`.
    pub info: TensorDict,
}

/// Figures of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayBufferStats {
    /// Rows that hold an item.
    pub size: usize,
    /// Rows there is room for.
    pub capacity: usize,
    /// Items, or time steps where there are lanes, ever written.
    pub write_count: u64,
    /// `size` over `capacity`.
    pub utilization: f64,
    /// Batches that are drawn and were not asked for yet.
    pub prefetch_queue_size: usize,
}

/// All that a [`ReplayBuffer`](super::ReplayBuffer) must keep to go on as if never stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayBufferState {
    /// The states of sampler, writer and unit.
    pub parts: Value,
    /// Every row, in order: of rows that are alike one batch, else one for each.
    pub items: Vec<TensorDict>,
    /// The batches that were drawn and not asked for yet, in their order.
    pub ahead: Vec<TensorDict>,
}
