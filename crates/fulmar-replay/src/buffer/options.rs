//! Options and results of a buffer.

use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::Reduction;
use crate::sampler::SamplerOptions;
use crate::unit::SampleUnitOptions;
use crate::writer::WriterOptions;

/// The parts of a buffer; the storage is given separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReplayBufferOptions {
    /// The seed of all draws. Defaults to 0.
    pub seed: u64,
    /// The default batch size. Absent by default.
    pub batch_size: Option<usize>,
    /// Number of prefetched batches of a shared buffer. Defaults to 0.
    pub prefetch: usize,
    /// The sampler. Defaults to random rows.
    pub sampler: SamplerOptions,
    /// The writer. Defaults to a ring.
    pub writer: WriterOptions,
    /// The sample unit of a row. Defaults to the row itself.
    pub unit: SampleUnitOptions,
    /// If true, items and batches have their rows at `"index"`, and batches the sampler's info. Defaults to
    /// true.
    pub write_info: bool,
    /// The key of an item's priority. Defaults to `"td_error"`.
    pub priority_key: Key,
    /// The reduction of the values there to one priority. Defaults to the largest.
    pub reduction: Reduction,
    /// The key at which slices flag their last step; absent for no flag. Defaults to `["next", "truncated"]`.
    pub truncated_key: Option<Key>,
    /// The key of a trajectory's first-step flag, set at the first step of each slice if it is stored; absent
    /// for no flag. Defaults to `"is_init"`.
    pub init_key: Option<Key>,
    /// If true, one write may hold more items than the buffer, which keeps the last. Defaults to true.
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

/// A batch with its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The items, `[rows]`, with the leaves of `info` if the buffer writes them.
    pub items: TensorDict,
    /// Their rows.
    pub rows: Vec<usize>,
    /// Info of sampler and unit on the rows, and `index_generation` if the writer tracks it. `[rows]`.
    pub info: TensorDict,
}

/// Statistics of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayBufferStats {
    /// Number of rows with items.
    pub size: usize,
    /// Maximum number of rows.
    pub capacity: usize,
    /// Number of items, or of time steps with lanes, ever written.
    pub write_count: u64,
    /// `size` over `capacity`.
    pub utilization: f64,
    /// Number of prefetched batches.
    pub prefetch_queue_size: usize,
}

/// The state of a [`ReplayBuffer`](super::ReplayBuffer) for a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayBufferState {
    /// The states of sampler, writer and unit.
    pub parts: Value,
    /// Every row in order: one batch if rows are alike, else one for each row.
    pub items: Vec<TensorDict>,
    /// The prefetched batches in order.
    pub ahead: Vec<TensorDict>,
}
