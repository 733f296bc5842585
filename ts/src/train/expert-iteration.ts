/**
 * Expert iteration: sample groups, keep the best of each, imitate them, repeat.
 *
 * ```text
 * each step: promptsPerStep samples -> groups of rollouts -> the numExperts of each by reward, none of equals
 *            -> forward -> supervised loss, near a reference if asked -> backward -> update
 * ```
 * T. Anthony et al., "Thinking Fast and Slow with Deep Learning and Tree Search", https://arxiv.org/abs/1705.08439
 */

import { checkKnownKeys } from '../core/index.js'
import { type Objective, type SFTBatch, SFTLoss, TopKRewardSelector } from '../objective/index.js'
import type { Rollout, RolloutGroup, TrainingSamples } from '../rollout/index.js'
import { metric } from '../telemetry/index.js'
import { EXAMPLE_RATES } from './default-rates.js'
import { isOfModel, type ModelRolloutOptions, trainModelOnRollouts } from './model-training.js'
import {
  ROLLOUT_TRAINING_KEYS,
  type RolloutTrainingOptions,
  type RolloutTrainingStep,
  trainOnRollouts,
} from './rollout-training.js'
import { checkObjective } from './train-step.js'

/** Options of {@link expertIteration}. */
export interface ExpertIterationOptions<Sample> extends RolloutTrainingOptions<Sample> {
  /** Number of rollouts to keep of each group, at most its size. */
  readonly numExperts: number
  /**
   * Loss of the kept rollouts, from this package or custom.
   * @default new SFTLoss()
   */
  readonly loss?: Objective<SFTBatch>
}

/** Options of {@link expertIteration} with a model. */
export interface ExpertIterationModelOptions<Sample>
  extends ModelRolloutOptions<Sample>,
    Pick<ExpertIterationOptions<Sample>, 'numExperts' | 'loss'> {}

/** One step of {@link expertIteration}. */
export type ExpertIterationStep = RolloutTrainingStep

/**
 * Trains a policy on the best of its own rollouts, one optimizer step at a time. Takes a model and a task, or
 * the parts, as {@link grpo}.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `numExperts` is not from 1 to the size of a group; else as {@link grpo}.
 *
 * @example
 * ```ts
 * import { createModel, expertIteration, sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const task = sumDigits({ prompt: 'short' })
 * for await (const step of expertIteration({ model, task, numExperts: 1, groupSize: 4, promptsPerStep: 2, maxTokens: 4, steps: 1 })) {
 *   assert.equal(step.update, null) // an untrained policy has no best answer
 * }
 * ```
 */
export function expertIteration<Sample>(
  options: ExpertIterationModelOptions<Sample> | ExpertIterationOptions<Sample>,
): AsyncGenerator<ExpertIterationStep, void, undefined> {
  if (isOfModel(options)) {
    const { numExperts } = options
    const recipe = { ownKeys: ['numExperts', 'loss'], rates: EXAMPLE_RATES }
    return trainModelOnRollouts(options, recipe, (parts) => expertIteration({ ...parts, numExperts }))
  }
  const { known, required } = ROLLOUT_TRAINING_KEYS
  checkKnownKeys('options', options, [...known, 'numExperts', 'loss'], [...required, 'numExperts'])
  const { loss = new SFTLoss(), numExperts, ...shared } = options
  checkObjective(loss)
  const selection = { totalDialogTurns: shared.rollouter.groupSize, topkSize: numExperts }
  new TopKRewardSelector(selection)[Symbol.dispose]()
  return trainOnRollouts({
    ...shared,
    lossOf: ({ logProb }, { mask, offsets }, ref) =>
      loss.forward({ logProb, mask, offsets, ...(ref && { refLogProb: ref }) }),
    buildSamples: (group) => bestOf(group, selection),
  })
}

/**
 * Returns the samples of the best rollouts of a group; none if all rewards are equal, or a rollout has no
 * score.
 */
function bestOf(
  { rollouts, metrics }: RolloutGroup,
  selection: { readonly totalDialogTurns: number; readonly topkSize: number },
): TrainingSamples {
  using selector = new TopKRewardSelector<Rollout>(selection)
  const drop = (reason: string): TrainingSamples => {
    const dropped = metric(`training_sample_builder/num_groups_dropped_${reason}`, 'sum', 1)
    return { samples: [], metrics: [...metrics, dropped] }
  }
  let best: readonly Rollout[] | undefined
  for (const rollout of rollouts) {
    if (rollout.reward === null) return drop('unscored')
    best = selector.push('group', rollout.reward, rollout)
  }
  if (best === undefined || best.length === 0) return drop('zero_std')
  const samples = best.flatMap(({ ledger }) => ledger.trainingSamples(1))
  const kept = metric('training_sample_builder/num_training_samples', 'sum', samples.length)
  return { samples, metrics: [...metrics, kept] }
}
