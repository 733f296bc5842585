/** Batches of rollouts for training. */

export {
  type BatchCell,
  Batcher,
  type BatcherOptions,
  padRows,
  type RowLayout,
  type SampleGroup,
  type StepBatch,
} from './batcher.js'
export { Controller, type ControllerState } from './controller.js'
export type { ControllerOptions, ControllerStep, TrainContext, TrainOutcome } from './controller-options.js'
export { type LimitAgeOptions, limitAge, type OverStale } from './over-stale.js'
export { ParkingPolicy, type ParkingPolicyOptions } from './parking-policy.js'
export { policyAge } from './policy-age.js'
export {
  CollectorBatch,
  type CollectorUnit,
  RolloutCollector,
  type RolloutCollectorOptions,
  type RolloutCollectorState,
} from './rollout-collector.js'
export { type RolloutRowKind, rolloutRows } from './rollout-rows.js'
export {
  capacityRule,
  type OverStaleOptions,
  readyFirst,
  type StalenessOptions,
  type StalenessPolicy,
  strictFifo,
  type WindowedFifo,
  type WindowedFifoOptions,
  type WorkEntry,
  windowedFifo,
} from './staleness.js'
export { WeightSync, type WeightSyncOptions } from './weight-sync.js'
export {
  type ClaimedWork,
  type FinalizedWork,
  type Lease,
  type ReleaseReason,
  WorkBuffer,
  type WorkBufferOptions,
} from './work-buffer.js'
