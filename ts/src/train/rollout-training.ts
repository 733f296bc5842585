/**
 * What the recipes over rollouts share: groups from a controller, one update of one decoder a step, in one pass or several,
 * and a count of steps that had to be left out.
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
  /** The rollouter samples from it. */
  readonly policy: Pick<Policy, 'version'> & { readonly decoder?: Decoder }
  /**
   * Whose weights change.
   * @default the policy's
   */
  readonly decoder?: Decoder
  /** Gives groups of scored rollouts. */
  readonly rollouter: Rollouter<Sample>
  /** Changes the weights. */
  readonly optimizer: Optimizer
  /** Groups per step. */
  readonly promptsPerStep: number
  /** The step to end before, counted from 0. */
  readonly steps: number
  /**
   * The step to begin with, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * Where the groups stood when the run was left, as {@link GrpoStep} tells.
   * @default where the rollouter stands
   */
  readonly state?: unknown
  /**
   * How far the rollouts run ahead.
   * @default not at all: every batch is sampled by the weights that the last step left
   */
  readonly staleness?: StalenessPolicy
  /**
   * Takes the weights to policies that hold their own.
   * @default the policy shares the decoder
   */
  readonly weightSync?: WeightSync<never>
  /**
   * Draws further groups until `promptsPerStep` of them have different rewards.
   * @default false
   */
  readonly dynamicSampling?: boolean
  /**
   * Takes a step's samples in several passes, for memory's sake. Each pass counts by its share of the trained tokens, as
   * a loss under the normalisation `tokenMean` does.
   * @default one pass
   */
  readonly batching?: Pick<BatcherOptions, 'seqLen' | 'rowsPerMicrobatch'>
  /**
   * The learning rate of each step.
   * @default the optimiser's learningRate
   */
  readonly schedule?: Schedule
  /**
   * Gradients are scaled down to this L2 norm.
   * @default 1
   */
  readonly maxGradNorm?: number
  /**
   * Steps in a row whose loss or gradient may be no number; they are left out and counted.
   * @default 3
   */
  readonly maxSkippedSteps?: number
  /**
   * A frozen policy to measure the distance to, and to stay near if the loss has a `klToRef`. `'base'` stands for the weights under the
   * decoder's adapter.
   * @default none
   */
  readonly reference?: Reference
  /** Called with each group before its ledgers are freed. */
  readonly onGroup?: (group: RolloutGroup<Sample>) => void
  /** Stops between steps and while sampling. */
  readonly signal?: AbortSignal
  /** @default systemClock */
  readonly clock?: Clock
}

/** One step of a recipe over rollouts. */
export interface RolloutTrainingStep {
  /** Counts from 0. */
  readonly index: number
  /** Rewards of all scored rollouts of this step. */
  readonly reward: { readonly mean: number; readonly std: number }
  /** Mean over trained tokens of the k3 estimate of the distance to `reference`; without one, to the sampling policy. */
  readonly kl: number
  /** Sampled tokens. */
  readonly numTokens: number
  /** Everything measured, by name, but what depends on the clock. */
  readonly metrics: Readonly<Record<string, number>>
  /** How long the trainer waited for rollouts, and how long the step took with that. */
  readonly seconds: { readonly waiting: number; readonly total: number }
  /** Loss and gradient; `null` where no group had anything to learn from, or they were no numbers. */
  readonly update: TrainStepResult | null
  /** Where the groups stand after it: plain JSON, for a checkpoint. */
  readonly state: ControllerState
}

/** The keys of {@link RolloutTrainingOptions}, and those that must be given. */
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

/** Steps in a row without anything to learn from, after which a run is given up. */
export const EMPTY_STEPS_MAX = 100

/** What makes a recipe of the engine. */
export interface EngineOptions<Sample> extends RolloutTrainingOptions<Sample> {
  /** The loss of one batch. */
  readonly lossOf: (
    scores: Scores,
    batch: TrainingBatch,
    refLogProb: Float32Array | undefined,
  ) => ObjectiveResult
  /** As {@link ControllerOptions.buildSamples}. */
  readonly buildSamples?: NonNullable<ControllerOptions<Sample>['buildSamples']>
}

/** Runs the steps. @throws {FulmarError} As the recipes say. */
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

/** What came of one batch. */
interface Update {
  readonly result: TrainStepResult | null
  readonly metrics: Readonly<Record<string, number>>
}

/** Turns batches into updates of one decoder. */
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

  /** One update; none where there is nothing to train, or loss or gradient are no numbers. */
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
    // A loss without ratios has nothing to say of it.
    const onPolicy = ratioMean === undefined ? {} : { onPolicy: Number(ratioMean === 1 && ratioMax === 1) }
    return { result, metrics: { ...result.metrics, ...drift.metrics(), ...onPolicy } }
  }
}

const SKIPPED_STEPS_MAX = 3

/** A loss that is one share of a step's. */
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

/** How far the log-probs of the trainer are from those of the sampler, over the trained tokens. */
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
