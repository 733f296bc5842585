export { BatchMemory } from './batch-memory.js'
export type { BatchesOptions } from './batches-ahead.js'
export type { BufferTransform } from './buffer-transform.js'
export type { ConditionalUpdate, ConditionalUpdateResult } from './conditional-update.js'
export { DurableStorage, type DurableStorageOptions, type DurableStorageStats } from './durable-storage.js'
export {
  type EnsembleBatch,
  type EnsembleRow,
  type OfflineToOnlineOptions,
  OfflineToOnlineReplayBuffer,
  prefillReplayBuffer,
  ReplayBufferEnsemble,
  type ReplayBufferEnsembleOptions,
} from './ensemble.js'
export {
  type EnsembleParts,
  SamplerEnsemble,
  type SamplerEnsembleOptions,
  StorageEnsemble,
  WriterEnsemble,
} from './ensemble-parts.js'
export {
  type FindStartStopTrajOptions,
  findStartStopTraj,
  type TrajectorySpan,
} from './find-start-stop-traj.js'
export { HERReplayBuffer, type HERReplayBufferOptions } from './her.js'
export { LazyMemmapStorage, type LazyMemmapStorageOptions } from './lazy-memmap-storage.js'
export {
  PrioritizedReplayBuffer,
  type PrioritizedReplayBufferOptions,
  TensorDictPrioritizedReplayBuffer,
  type TensorDictPrioritizedReplayBufferOptions,
} from './prioritized-replay-buffer.js'
export { PrioritizedSampler, type PrioritizedSamplerOptions } from './prioritized-sampler.js'
export { PriorityTree } from './priority-tree.js'
export { PromptGroupSampler, type PromptGroupSamplerOptions } from './prompt-group-sampler.js'
export {
  type TrajectoryNumber,
  type TrajectoryPredicate,
  type TrajectoryReduction,
  type TrajectoryValue,
  traj,
} from './query.js'
export { RateLimiter, type RateLimiterOptions, type WaitOptions } from './rate-limiter.js'
export { ReplayBuffer } from './replay-buffer.js'
export type {
  BufferKind,
  ReplayBatch,
  ReplayBufferOptions,
  ReplayBufferStats,
} from './replay-buffer-options.js'
export type { ReplayBufferState } from './replay-buffer-state.js'
export type { AttachOptions, ReplayBufferToken } from './replay-buffer-token.js'
export type { ReplayColumns } from './replay-columns.js'
export { SampleUnit, Sequence, type SequenceOptions, Transition } from './sample-unit.js'
export {
  ConsumingSampler,
  type ConsumingSamplerOptions,
  type DrawnRows,
  RandomSampler,
  Sampler,
  type SamplerSource,
  SamplerWithoutReplacement,
  type SamplerWithoutReplacementOptions,
} from './sampler.js'
export {
  LambdaScheduler,
  LinearScheduler,
  type LinearSchedulerOptions,
  type ParameterScheduler,
  type ScheduleBounds,
  SchedulerList,
  StepScheduler,
  type StepSchedulerOptions,
} from './scheduler.js'
export {
  type FragmentOptions,
  PrioritizedSliceSampler,
  type PrioritizedSliceSamplerOptions,
  SliceSampler,
  type SliceSamplerOptions,
  SliceSamplerWithoutReplacement,
  type SliceSamplerWithoutReplacementOptions,
  type Span,
  StreamingSliceSampler,
  type StreamingSliceSamplerOptions,
  type TrajectoryOptions,
} from './slice-sampler.js'
export { StalenessAwareSampler, type StalenessAwareSamplerOptions } from './staleness-aware-sampler.js'
export {
  CompressedListStorage,
  type CompressedListStorageOptions,
  LazyStackStorage,
  LazyTensorStorage,
  type LazyTensorStorageOptions,
  ListStorage,
  Storage,
  type StorageSource,
  TensorStorage,
} from './storage.js'
export { StoreStorage, type StoreStorageOptions } from './store-storage.js'
export { TensorDictReplayBuffer, type TensorDictReplayBufferOptions } from './tensor-dict-replay-buffer.js'
export {
  ImmutableDatasetWriter,
  type MaxValueWriterOptions,
  RoundRobinWriter,
  type RoundRobinWriterOptions,
  TensorDictMaxValueWriter,
  TensorDictRoundRobinWriter,
  Writer,
  type WriterSource,
} from './writer.js'
