/**
 * Group relative policy optimization: sample groups, compare their members, update, repeat; synchronously, or
 * with rollouts ahead of training.
 *
 * ```text
 * each step: promptsPerStep samples -> groups of rollouts -> advantages -> one batch of ledger samples
 *            -> forward -> GRPO loss -> backward -> update -> the policy that samples next
 * ```
 * Z. Shao et al., "DeepSeekMath", https://arxiv.org/abs/2402.03300
 */

import { checkKnownKeys } from '../core/index.js'
import { type Correction, GRPOLoss, type LossBatch, type Objective } from '../objective/index.js'
import { COMPARISON_RATES } from './default-rates.js'
import { isOfModel, type ModelRolloutOptions, trainModelOnRollouts } from './model-training.js'
import {
  ROLLOUT_TRAINING_KEYS,
  type RolloutTrainingOptions,
  type RolloutTrainingStep,
  trainOnRollouts,
} from './rollout-training.js'
import { checkObjective } from './train-step.js'

/** Options of {@link grpo}. */
export interface GrpoOptions<Sample> extends RolloutTrainingOptions<Sample> {
  /**
   * Loss of the rollouts, from this package or custom: takes log-probs, advantages and masks, returns its
   * value and gradient.
   * @default new GRPOLoss()
   */
  readonly loss?: Objective<LossBatch>
  /**
   * True for rollouts whose log-probs are not those of the trainer's forward pass. The loss then gets the log-probs of the
   * weights before the update as `oldLogProb`, and those of the rollouts as `samplerLogProb`. The default loss
   * multiplies each token by the ratio of both, at most 2 ({@link SAMPLER_CORRECTION}); a loss of your own needs such
   * `corrections`.
   * @default true if the policy samples with weights of 8 bits or a cache of 16 bits, else false
   */
  readonly correctSampler?: boolean
}

/** Truncated importance sampling, for rollouts of a sampler whose log-probs differ from the trainer's. */
export const SAMPLER_CORRECTION: Correction = { level: 'token', rule: 'truncate', max: 2 }

/** Options of {@link grpo} with a model. */
export interface GrpoModelOptions<Sample>
  extends ModelRolloutOptions<Sample>,
    Pick<GrpoOptions<Sample>, 'loss' | 'correctSampler'> {}

/** One step of {@link grpo}. */
export type GrpoStep = RolloutTrainingStep

/**
 * Trains a policy on the rewards of its own rollouts, one optimizer step at a time. Takes a model and a task
 * and makes the other parts; or takes the parts: a policy, a rollouter and an optimizer.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` for a missing option or a loss
 * without `forward`; `ABORTED` if the signal fires; `EMPTY` after 100 consecutive steps in which no group had
 * two different rewards; `NON_FINITE` after `maxSkippedSteps` consecutive steps without a finite loss and
 * gradient; errors of rollouter, decoder, loss and optimizer.
 *
 * @example
 * ```ts
 * import { createModel, grpo, sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const task = sumDigits({ prompt: 'short' })
 * for await (const step of grpo({ model, task, lora: { rank: 4 }, groupSize: 2, promptsPerStep: 2, maxTokens: 4, steps: 1 })) {
 *   assert.equal(step.reward.mean, 0) // an untrained policy has no right answer
 *   assert.equal(step.update, null) // so there is nothing to compare
 * }
 * ```
 */
export function grpo<Sample>(
  options: GrpoModelOptions<Sample> | GrpoOptions<Sample>,
): AsyncGenerator<GrpoStep, void, undefined> {
  if (isOfModel(options))
    return trainModelOnRollouts(
      options,
      { ownKeys: ['loss', 'correctSampler'], rates: COMPARISON_RATES },
      grpo,
    )
  const { known, required } = ROLLOUT_TRAINING_KEYS
  checkKnownKeys('options', options, [...known, 'loss', 'correctSampler'], required)
  const { correctSampler = options.policy.capabilities?.exactLogProbs === false, ...others } = options
  const { loss = new GRPOLoss(correctSampler ? { corrections: [SAMPLER_CORRECTION] } : {}), ...shared } =
    others
  checkObjective(loss)
  return trainOnRollouts({
    ...shared,
    lossOf: ({ logProb, entropy }, { mask, offsets, logProbs, advantages: advantage }, ref) => {
      // A batch is trained once, so the log-probs before the update are those of its forward pass.
      const old = correctSampler
        ? { oldLogProb: logProb, samplerLogProb: logProbs }
        : { oldLogProb: logProbs }
      const columns = { logProb, ...old, entropy, advantage, mask, offsets }
      return loss.forward({ ...columns, ...(ref && { refLogProb: ref }) })
    },
  })
}
