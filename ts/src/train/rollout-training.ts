/**
 * Shared loop of the recipes over rollouts: groups from a controller, one update of the decoder per step, in
 * one pass or several, and a count of skipped steps.
 */

import {
  type BatcherOptions,
  Controller,
  type ControllerOptions,
  type ControllerState,
  type ControllerStep,
  type StalenessPolicy,
  type StepBatch,
  type TrainContext,
  type WeightSync,
} from '../collect/index.js'
import { FulmarError } from '../core/index.js'
import type { Decoder, Optimizer, Scores } from '../model/index.js'
import type { LossResult, ObjectiveResult } from '../objective/index.js'
import type { Policy } from '../policy/index.js'
import type { Rollouter, RolloutGroup, TrainingBatch } from '../rollout/index.js'
import { type Clock, metric, reduceMetrics } from '../telemetry/index.js'
import { checkReference, type Reference, referenceLogProb } from './reference.js'
import type { Schedule } from './schedule.js'
import { type TrainStepResult, trainStep, wholeResult } from './train-step.js'

/** Options that the recipes over rollouts share. */
export interface RolloutTrainingOptions<Sample> {
  /** Policy that the rollouter samples from. */
  readonly policy: Pick<Policy, 'version' | 'capabilities'> & { readonly decoder?: Decoder }
  /**
   * Decoder whose weights are trained.
   * @default the policy's
   */
  readonly decoder?: Decoder
  /** Source of groups of scored rollouts. */
  readonly rollouter: Rollouter<Sample>
  /** Optimizer of the weights. */
  readonly optimizer: Optimizer
  /** Groups per step. */
  readonly promptsPerStep: number
  /** Index of the first step after the run. */
  readonly steps: number
  /**
   * Index of the first step, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * Position of the groups when the run was left, as in {@link GrpoStep}.
   * @default the rollouter's position
   */
  readonly state?: unknown
  /**
   * Number of steps that rollouts may run ahead.
   * @default none: every batch is sampled by the weights of the last step
   */
  readonly staleness?: StalenessPolicy
  /**
   * Transfers weights to policies that hold their own copy.
   * @default the policy shares the decoder
   */
  readonly weightSync?: WeightSync<never>
  /**
   * If true, draws more groups until `promptsPerStep` of them have different rewards.
   * @default false
   */
  readonly dynamicSampling?: boolean
  /**
   * Splits a step's samples into several passes to save memory. Each pass counts by its share of the trained
   * tokens, as a loss with the normalization `tokenMean` does.
   * @default one pass
   */
  readonly batching?: Pick<BatcherOptions, 'seqLen' | 'rowsPerMicrobatch'>
  /**
   * The learning rate of each step.
   * @default the optimizer's learningRate
   */
  readonly schedule?: Schedule
  /**
   * Maximum L2 norm of the gradient; larger ones are scaled down.
   * @default 1
   */
  readonly maxGradNorm?: number
  /**
   * Maximum number of consecutive steps with a non-finite loss or gradient; these are skipped and counted.
   * @default 3
   */
  readonly maxSkippedSteps?: number
  /**
   * Frozen reference policy, to measure the divergence and for a `klToRef` of the loss. `'base'` is the
   * weights without the decoder's adapter.
   * @default none
   */
  readonly reference?: Reference
  /** Called with each group before its ledgers are freed; `step` is the step that trains it, counted from 1. */
  readonly onGroup?: (group: RolloutGroup<Sample>, context: { readonly step: number }) => void
  /** Stops between steps and while sampling. */
  readonly signal?: AbortSignal
  /** Clock of waits and timings. @default systemClock */
  readonly clock?: Clock
}

/** One step of a recipe over rollouts. */
export interface RolloutTrainingStep {
  /** Index of the step, from 0. */
  readonly index: number
  /** Rewards of all scored rollouts of this step. */
  readonly reward: { readonly mean: number; readonly std: number }
  /**
   * Mean over trained tokens of the k3 estimate of the divergence from `reference`, or else from the sampling
   * policy.
   */
  readonly kl: number
  /** Number of sampled tokens. */
  readonly numTokens: number
  /** All metrics by name, except those that depend on the clock. */
  readonly metrics: Readonly<Record<string, number>>
  /** Time that the trainer waited for rollouts, and total time of the step. */
  readonly seconds: { readonly waiting: number; readonly total: number }
  /** Loss and gradient; `null` if no group had a training signal, or they were not finite. */
  readonly update: TrainStepResult | null
  /** Position of the groups after the step: plain JSON, for a checkpoint. */
  readonly state: ControllerState
}

/** Keys of {@link RolloutTrainingOptions}, and the required ones. */
export const ROLLOUT_TRAINING_KEYS = {
  known: [
    'policy',
    'decoder',
    'rollouter',
    'optimizer',
    'promptsPerStep',
    'steps',
    'firstStep',
    'state',
    'staleness',
    'weightSync',
    'dynamicSampling',
    'batching',
    'schedule',
    'maxGradNorm',
    'maxSkippedSteps',
    'reference',
    'onGroup',
    'signal',
    'clock',
  ],
  required: ['policy', 'rollouter', 'optimizer', 'promptsPerStep', 'steps'],
} as const

/** Number of consecutive steps without a training signal after which a run fails. */
export const EMPTY_STEPS_MAX = 100

/** Options of a recipe on this loop. */
export interface EngineOptions<Sample> extends RolloutTrainingOptions<Sample> {
  /** Computes the loss of one batch. */
  readonly lossOf: (
    scores: Scores,
    batch: TrainingBatch,
    refLogProb: Float32Array | undefined,
  ) => ObjectiveResult
  /** As {@link ControllerOptions.buildSamples}. */
  readonly buildSamples?: NonNullable<ControllerOptions<Sample>['buildSamples']>
}

/** Runs the steps. @throws {FulmarError} As the recipes. */
export async function* trainOnRollouts<Sample>(
  options: EngineOptions<Sample>,
): AsyncGenerator<RolloutTrainingStep, void, undefined> {
  const { rollouter, promptsPerStep: groupsPerStep, state, signal, onGroup, staleness, weightSync } = options
  const { policy, steps, firstStep = 0, dynamicSampling = false, batching, clock, buildSamples } = options
  const updates = new Map<number, Update>()
  const trainer = new Trainer(options)
  const controller = new Controller({
    ...{ rollouter, policy, groupsPerStep, steps, firstStep, dynamicSampling },
    ...(batching && { batching }),
    ...(onGroup && { onGroup }),
    ...(staleness && { staleness }),
    ...(weightSync && { weightSync }),
    ...(signal && { signal }),
    ...(clock && { clock }),
    ...(buildSamples && { buildSamples }),
    maxEmptyGroups: EMPTY_STEPS_MAX * groupsPerStep,
    train: async (batch, context) => {
      const update = await trainer.step(batch, context)
      updates.set(context.step, update)
      return { version: trainer.decoder.version, metrics: update.metrics }
    },
  })
  if (state !== undefined) controller.loadStateDict(state)
  for await (const step of controller) {
    const update = updates.get(step.index)
    updates.delete(step.index)
    yield toStep(step, update?.result ?? null, controller.stateDict())
  }
}

/** Result of one batch. */
interface Update {
  readonly result: TrainStepResult | null
  readonly metrics: Readonly<Record<string, number>>
}

/** Updates one decoder by batches. */
class Trainer<Sample> {
  readonly decoder: Decoder
  readonly #options: EngineOptions<Sample>
  #numSkipped = 0

  constructor(options: EngineOptions<Sample>) {
    const { decoder = options.policy.decoder } = options
    if (decoder === undefined)
      throw new FulmarError('EMPTY', 'decoder must be given where the policy has none: it is undefined')
    checkReference(options.reference, decoder)
    this.decoder = decoder
    this.#options = options
  }

  /** Runs one update; none if there is nothing to train, or loss or gradient are not finite. */
  async step(batch: StepBatch, context: TrainContext): Promise<Update> {
    if (batch.samples.length === 0) return { result: null, metrics: {} }
    try {
      const update = await this.#update(batch, context)
      this.#numSkipped = 0
      return update
    } catch (error) {
      if (!(error instanceof FulmarError) || error.code !== 'NON_FINITE') throw error
      this.#numSkipped += 1
      if (this.#numSkipped > (this.#options.maxSkippedSteps ?? SKIPPED_STEPS_MAX)) throw error
      return { result: null, metrics: { 'loss/num_skipped_steps': this.#numSkipped } }
    }
  }

  async #update(batch: StepBatch, { step, beforeUpdate, signal }: TrainContext): Promise<Update> {
    const { optimizer, steps, schedule, maxGradNorm = 1, reference } = this.#options
    const cells = batch.microbatches.flat().flatMap((cell) => cell.batch ?? [])
    const refs: (Float32Array | undefined)[] = []
    for (const cell of cells) refs.push(reference && (await referenceLogProb(reference, this.decoder, cell)))
    const drift = new Drift()
    const result = await trainStep({
      decoder: this.decoder,
      optimizer,
      batch: cells,
      loss: (scores, index) => {
        const cell = cells[index]
        if (cell === undefined)
          throw new FulmarError('OUT_OF_RANGE', `index must be that of a batch: got ${index}`)
        drift.add(scores.logProb, cell)
        const share = cells.length === 1 ? 1 : cell.numTrained / batch.numTrained
        return scaled(wholeResult(this.#options.lossOf(scores, cell, refs[index])), share)
      },
      maxGradNorm,
      beforeUpdate,
      ...(schedule && { learningRate: schedule(step, steps) }),
      signal,
    })
    const { ratioMean, ratioMax } = result.metrics
    // A loss without ratios has no metric for it.
    const onPolicy = ratioMean === undefined ? {} : { onPolicy: Number(ratioMean === 1 && ratioMax === 1) }
    return { result, metrics: { ...result.metrics, ...drift.metrics(), ...onPolicy } }
  }
}

const SKIPPED_STEPS_MAX = 3

/** Scales a loss by its share of a step. */
function scaled(result: LossResult, share: number): LossResult {
  if (share === 1) return result
  const times = (gradient: Float32Array) => gradient.map((value) => value * share)
  const losses = Object.entries(result.metrics).map(([name, value]) => [
    name,
    name.endsWith('Loss') ? value * share : value,
  ])
  return {
    ...result,
    loss: result.loss * share,
    metrics: Object.fromEntries(losses),
    gradLogProb: times(result.gradLogProb),
    ...(result.gradEntropy && { gradEntropy: times(result.gradEntropy) }),
  }
}

/** Difference between the log-probs of the trainer and of the sampler, over the trained tokens. */
class Drift {
  #sum = 0
  #max = 0
  #count = 0

  add(logProb: Float32Array, { mask, logProbs }: TrainingBatch): void {
    mask.forEach((flag, at) => {
      if (flag === 0) return
      const gap = Math.abs((logProb[at] ?? 0) - (logProbs[at] ?? 0))
      this.#sum += gap
      this.#max = Math.max(this.#max, gap)
      this.#count += 1
    })
  }

  metrics(): Readonly<Record<string, number>> {
    return { logProbDiffMean: this.#sum / Math.max(1, this.#count), logProbDiffMax: this.#max }
  }
}

function toStep<Sample>(
  { index, groups, metrics, seconds }: ControllerStep<Sample>,
  update: TrainStepResult | null,
  state: ControllerState,
): RolloutTrainingStep {
  const rollouts = groups.flatMap((group) => group.rollouts)
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const { values } = reduceMetrics([metric('reward', 'mean', rewards), metric('reward', 'std', rewards)])
  const numTokens = rollouts
    .flatMap(({ turns }) => turns)
    .reduce((sum, { completionIds }) => sum + completionIds.length, 0)
  const kl = update?.metrics.klToRef ?? update?.metrics.kl ?? 0
  const reward = { mean: values['reward/mean'] ?? 0, std: values['reward/std'] ?? 0 }
  return { index, reward, kl, numTokens, metrics, seconds, update, state }
}
