/** Options and steps of a controller. */

import type { Policy } from '../policy/index.js'
import type { Rollouter, RolloutGroup, TrainingSamples } from '../rollout/index.js'
import type { Clock } from '../telemetry/index.js'
import type { BatcherOptions, StepBatch } from './batcher.js'
import type { Controller } from './controller.js'
import type { StalenessPolicy } from './staleness.js'
import type { WeightSync } from './weight-sync.js'

/** Context of a training step, besides its batch. */
export interface TrainContext {
  /** Counts from 0. */
  readonly step: number
  /** Await it before the weights change: weights in transfer to other policies are copied by then. */
  readonly beforeUpdate: () => Promise<void>
  /** Fires when the run is stopped or another part of it fails. */
  readonly signal: AbortSignal
}

/** Result of a training step. */
export interface TrainOutcome {
  /** Policy version after the step. */
  readonly version: number
  /** Metrics of the step, by name. */
  readonly metrics: Readonly<Record<string, number>>
}

/** Options of {@link Controller}. */
export interface ControllerOptions<Sample> {
  /** Gives groups of scored rollouts. */
  readonly rollouter: Rollouter<Sample>
  /** The policy that the rollouter samples from: its version is that of the trainer when the run begins. */
  readonly policy: Pick<Policy, 'version'>
  /** Trains one batch. Called once a step; a batch whose groups had nothing to train has no samples. */
  readonly train: (batch: StepBatch, context: TrainContext) => Promise<TrainOutcome>
  /** Groups of a step, >= 1. */
  readonly groupsPerStep: number
  /** The step to end before, counted from 0. */
  readonly steps: number
  /**
   * The step to begin with, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * Policy for how far rollouts run ahead of training.
   * @default strictFifo with offPolicySteps 0: synchronous
   */
  readonly staleness?: StalenessPolicy
  /**
   * Takes new weights to policies that hold their own.
   * @default the rollouter's policy shares the trainer's weights
   */
  readonly weightSync?: WeightSync<never>
  /**
   * Builds the samples of a group before its ledgers are freed.
   * @default buildTrainingSamples
   */
  readonly buildSamples?: (group: RolloutGroup<Sample>) => TrainingSamples
  /**
   * If true, draws more groups until `groupsPerStep` of them have something to train, instead of a fixed
   * number of groups.
   * @default false
   */
  readonly dynamicSampling?: boolean
  /** Layout of samples in rows and micro-batches. */
  readonly batching?: Omit<BatcherOptions, 'groupsPerBatch' | 'countsEmptyGroups'>
  /**
   * Called with each finished group, before anything is left out and while its ledgers are alive. `step` is the step whose batch the
   * group goes into, counted from 1 as in a run log.
   */
  readonly onGroup?: (group: RolloutGroup<Sample>, context: { readonly step: number }) => void
  /**
   * Groups in a row without anything to train, after which the run ends with `EMPTY` and the commonest reason.
   * @default 100 steps of them
   */
  readonly maxEmptyGroups?: number
  /**
   * Ends the run with `TIMEOUT` when no group has finished and no step has ended for so many milliseconds; `null` for never.
   * @default null
   */
  readonly stallTimeoutMs?: number | null
  /** Stops everything with `ABORTED`. */
  readonly signal?: AbortSignal
  /** @default systemClock */
  readonly clock?: Clock
}

/** One step of a {@link Controller}. */
export interface ControllerStep<Sample> {
  /** Counts from 0. */
  readonly index: number
  /** The groups behind it, those without anything to train too, in the order of their training. Their ledgers are gone. */
  readonly groups: readonly RolloutGroup<Sample>[]
  /** Result of {@link ControllerOptions.train}. */
  readonly outcome: TrainOutcome
  /** All metrics by name, except those that depend on the clock. */
  readonly metrics: Readonly<Record<string, number>>
  /** Time that the trainer waited for its batch, and total time of the step. */
  readonly seconds: { readonly waiting: number; readonly total: number }
}
