/**
 * Group relative policy optimisation, on-policy: sample groups, compare siblings, step, repeat.
 *
 * ```text
 * each step: promptsPerStep samples -> groups of rollouts -> advantages -> one batch of ledger samples
 *            -> forward -> GRPO loss -> backward -> update -> the policy that samples next
 * ```
 * Z. Shao et al., "DeepSeekMath", https://arxiv.org/abs/2402.03300
 */

import { FulmarError } from '../core/index.js'
import type { Decoder, Optimizer } from '../model/index.js'
import { GRPOLoss } from '../objective/index.js'
import type { DecoderPolicy } from '../policy/index.js'
import {
  buildTrainingSamples,
  packTrainingBatch,
  type Rollouter,
  type RolloutGroup,
  type TrainingBatch,
} from '../rollout/index.js'
import { reduceMetrics } from '../telemetry/index.js'
import type { Schedule } from './schedule.js'
import { checkSignal, type TrainStepResult, trainStep } from './train-step.js'

/** Options of {@link grpo}. */
export interface GrpoOptions<Sample> {
  /** Whose decoder is trained; the rollouter samples from it. */
  readonly policy: DecoderPolicy
  /** Gives groups of scored rollouts. */
  readonly rollouter: Rollouter<Sample>
  /** Changes the weights. */
  readonly optimizer: Optimizer
  /**
   * @default new GRPOLoss()
   */
  readonly loss?: GRPOLoss
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
   * The learning rate of each step.
   * @default the optimiser's learningRate
   */
  readonly schedule?: Schedule
  /**
   * Gradients are scaled down to this L2 norm.
   * @default 1
   */
  readonly maxGradNorm?: number
  /** A frozen policy to measure the distance to, and to stay near if the loss has a `klToRef`. */
  readonly reference?: Decoder
  /** Called with each group before its ledgers are freed. */
  readonly onGroup?: (group: RolloutGroup<Sample>) => void
  /** Stops between steps and while sampling. */
  readonly signal?: AbortSignal
}

/** One step of {@link grpo}. */
export interface GrpoStep {
  /** Counts from 0. */
  readonly index: number
  /** Rewards of all scored rollouts of this step. */
  readonly reward: { readonly mean: number; readonly std: number }
  /** Mean over trained tokens of the k3 estimate of the distance to `reference`; without one, to the sampling policy. */
  readonly kl: number
  /** Sampled tokens. */
  readonly numTokens: number
  /** Everything measured, by name. */
  readonly metrics: Readonly<Record<string, number>>
  /** Loss and gradient; `null` where no group had anything to learn from. */
  readonly update: TrainStepResult | null
}

/** Steps in a row without anything to learn from, after which a run is given up. */
export const EMPTY_STEPS_MAX = 100

/**
 * Trains a policy on the rewards of its own rollouts, one optimiser step at a time.
 *
 * @throws {FulmarError} `ABORTED` if the signal fires; `EMPTY` after {@link EMPTY_STEPS_MAX} steps in a row in which no group
 * had two different rewards; what rollouter, decoder, loss and optimiser say.
 *
 * @example
 * ```ts
 * import { AdamW, CharTokenizer, createRenderer, Decoder, DecoderPolicy, grpo, Rollouter, sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const shape = { model_type: 'qwen2', hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed({ ...shape, vocab_size: tokenizer.vocabSize }, { seed: 1 })
 * using optimizer = new AdamW(decoder)
 * const policy = new DecoderPolicy(decoder)
 * const task = sumDigits({ prompt: 'short' })
 * const rollouter = new Rollouter({ policy, task, renderer, groupSize: 2, maxTokens: 4 })
 * for await (const step of grpo({ policy, rollouter, optimizer, promptsPerStep: 2, steps: 1 })) {
 *   assert.equal(step.reward.mean, 0) // an untrained policy says nothing right
 *   assert.equal(step.update, null) // so there is nothing to compare
 * }
 * ```
 */
export async function* grpo<Sample>(options: GrpoOptions<Sample>): AsyncGenerator<GrpoStep, void, undefined> {
  const { rollouter, promptsPerStep, steps, firstStep = 0, onGroup, signal } = options
  let emptySteps = 0
  for (let index = firstStep; index < steps; index++) {
    checkSignal(signal)
    const groups = await rollouter.runNextGroups(promptsPerStep, signal ? { signal } : {})
    for (const group of groups) onGroup?.(group)
    const built = groups.map((group) => buildTrainingSamples(group))
    for (const group of groups) group[Symbol.dispose]()
    const samples = built.flatMap((one) => one.samples)
    const metrics = reduceMetrics(built.flatMap((one) => one.metrics)).values
    const update = samples.length > 0 ? await updateOn(packTrainingBatch(samples), index, options) : null
    emptySteps = update ? 0 : emptySteps + 1
    if (emptySteps > EMPTY_STEPS_MAX) throw nothingToLearn(metrics)
    yield toStep(index, groups, metrics, update)
  }
}

async function updateOn<Sample>(
  batch: TrainingBatch,
  index: number,
  options: GrpoOptions<Sample>,
): Promise<TrainStepResult> {
  const {
    policy,
    optimizer,
    loss: objective = new GRPOLoss(),
    steps,
    schedule,
    maxGradNorm = 1,
    reference,
    signal,
  } = options
  const { mask, offsets, logProbs: oldLogProb, advantages: advantage } = batch
  const refLogProb = reference && (await reference.score(batch)).logProb
  return await trainStep({
    decoder: policy.decoder,
    optimizer,
    batch,
    loss: ({ logProb, entropy }) =>
      objective.forward({
        logProb,
        oldLogProb,
        entropy,
        advantage,
        mask,
        offsets,
        ...(refLogProb && { refLogProb }),
      }),
    maxGradNorm,
    ...(schedule && { learningRate: schedule(index, steps) }),
    ...(signal && { signal }),
  })
}

function toStep(
  index: number,
  groups: readonly RolloutGroup[],
  metrics: Readonly<Record<string, number>>,
  update: TrainStepResult | null,
): GrpoStep {
  const rollouts = groups.flatMap((group) => group.rollouts)
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / Math.max(1, rewards.length)
  const variance =
    rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / Math.max(1, rewards.length)
  const numTokens = rollouts
    .flatMap(({ turns }) => turns)
    .reduce((sum, { completionIds }) => sum + completionIds.length, 0)
  const kl = update?.metrics.klToRef ?? update?.metrics.kl ?? 0
  return {
    index,
    reward: { mean, std: Math.sqrt(variance) },
    kl,
    numTokens,
    metrics: { ...metrics, ...update?.metrics },
    update,
  }
}

function nothingToLearn(metrics: Readonly<Record<string, number>>): FulmarError {
  const reasons = Object.entries(metrics).filter(([name]) => name.includes('num_groups_dropped'))
  const worst = reasons.sort(([, a], [, b]) => b - a)[0]?.[0] ?? 'no group at all'
  return new FulmarError(
    'EMPTY',
    `groups must have different rewards within ${EMPTY_STEPS_MAX} steps: got ${worst}`,
  )
}
