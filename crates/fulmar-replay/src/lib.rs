//! Replay buffers: storages of items, writers and samplers.
//!
//! A **row** is a place in a buffer. Writers choose the rows of new items, samplers those of a batch; a
//! buffer passes every write to its sampler with `extend`. All randomness comes from a [`fulmar_core::Rng`],
//! so a seed gives the same rows on every target, and a state taken from a sampler or a writer continues
//! where it was taken.
//!
//! Storages here are in memory. Other crates have rows in memory-mapped files (`fulmar-replay-memmap`), in a durable
//! store and on a server (`fulmar-replay-store`), and the formats of checkpoints (`fulmar-replay-files`).
//!
//! ```
//! use fulmar_replay::{PrioritizedOptions, PrioritizedSampler, RoundRobinWriter};
//! let mut writer = RoundRobinWriter::new(4)?;
//! let mut sampler = PrioritizedSampler::new(4, PrioritizedOptions::default(), 7)?;
//! let rows = writer.extend(6)?;
//! assert_eq!(rows, [0, 1, 2, 3, 0, 1]);
//! sampler.extend(&rows)?;
//! sampler.update_priority(&[2], &[9.0])?;
//! let batch = sampler.sample(32)?;
//! assert_eq!((batch.rows.len(), batch.weights.len()), (32, 32));
//! # Ok::<(), fulmar_core::Error>(())
//! ```

mod ahead;
mod buffer;
mod check;
mod checkpoint;
mod ensemble;
mod follower;
mod foreign;
mod hindsight;
mod priority_tree;
mod query;
mod rate_limiter;
mod read;
pub mod row;
mod sampler;
mod schedule;
mod sequence;
mod shared;
mod stateful;
mod storage;
mod trajectory;
mod unit;
mod writer;

pub use ahead::PendingBatch;
pub use buffer::{
    Batch, ConditionalUpdate, ConditionalUpdateResult, ReplayBuffer, ReplayBufferOptions, ReplayBufferState,
    ReplayBufferStats,
};
pub use check::{check_storage, check_storage_reads};
pub use checkpoint::ensemble::StorageEnsembleCheckpointer;
pub use checkpoint::{StorageCheckpointer, StoredRows, folder};
pub use ensemble::members::{SamplerEnsemble, StorageEnsemble, WriterEnsemble};
pub use ensemble::{EnsembleBatch, EnsembleOptions, OfflineToOnline, ReplayBufferEnsemble, Routing};
pub use follower::Follower;
pub use foreign::sampler::ForeignSampler;
pub use foreign::storage::ForeignStorage;
pub use foreign::writer::ForeignWriter;
pub use foreign::{Callee, Mailbox};
pub use hindsight::{Hindsight, HindsightOptions, HindsightReplayBuffer, HindsightStrategy, RewardFunction};
pub use priority_tree::PriorityTree;
pub use priority_tree::state::PriorityTreeState;
pub use query::{Comparand, Comparison, TrajectoryPredicate, TrajectoryReduction, TrajectoryValue};
pub use rate_limiter::{RateLimiter, RateLimiterOptions};
pub use read::{Reads, Reduction, TrajectoryKeys};
pub use sampler::consuming::{ConsumingSampler, ConsumingSamplerState};
pub use sampler::fragmented_slices::FragmentedSliceSampler;
pub use sampler::lane_slices::LaneSliceSampler;
pub use sampler::prioritized::{
    PrioritizedOptions, PrioritizedSampler, PrioritizedSamplerState, WeightedRows,
};
pub use sampler::prioritized_slice::{PrioritizedSliceSampler, PrioritizedSliceSamplerState, WeightedSlices};
pub use sampler::prompt_group::{
    GroupMember, GroupStrategy, PromptGroupOptions, PromptGroupSampler, PromptGroupSamplerState,
};
pub use sampler::random::{RandomSampler, RandomSamplerState};
pub use sampler::slice::{SliceBy, SliceOptions, SliceSampler, SliceSamplerState, Slices, Span};
pub use sampler::slice_without_replacement::{
    SliceSamplerWithoutReplacement, SliceSamplerWithoutReplacementState,
};
pub use sampler::staleness::{StaleRows, StalenessAwareSampler, StalenessAwareSamplerState};
pub use sampler::streaming_slice::{StreamingSliceSampler, StreamingSliceSamplerState};
pub use sampler::without_replacement::{
    SamplerWithoutReplacement, SamplerWithoutReplacementState, WithoutReplacementOptions,
};
pub use sampler::{Sampled, Sampler, SamplerOptions};
pub use schedule::{LambdaScheduler, ParameterScheduler, Schedule};
pub use sequence::{EpisodeBoundary, SequenceOptions, Sequences};
pub use shared::{SharedReplayBuffer, WeakReplayBuffer};
pub use stateful::Stateful;
pub use storage::Storage;
pub use storage::abilities::{LastingRows, PartialReads, SharedWrites, StorageAbilities};
pub use storage::compressed_list::CompressedListStorage;
pub use storage::lazy_stack::LazyStackStorage;
pub use storage::list::ListStorage;
pub use storage::options::StorageOptions;
pub use storage::shared::SharedStorage;
pub use storage::tensor::TensorStorage;
pub use trajectory::{Trajectory, TrajectoryIndex, TrajectoryIndexState, ends_of_ids, find_trajectories};
pub use unit::{SampleUnit, SampleUnitOptions, Sequence, Transition};
pub use writer::immutable::ImmutableWriter;
pub use writer::max_value::{MaxValueWriter, MaxValueWriterState};
pub use writer::ranked::RankedWriter;
pub use writer::round_robin::{RoundRobinWriter, RoundRobinWriterState};
pub use writer::{WritePlan, Writer, WriterOptions};
