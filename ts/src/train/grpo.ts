/**
 * Group relative policy optimisation: sample groups, compare siblings, step, repeat; in turn, or with rollouts that run
 * ahead of training.
 *
 * ```text
 * each step: promptsPerStep samples -> groups of rollouts -> advantages -> one batch of ledger samples
 *            -> forward -> GRPO loss -> backward -> update -> the policy that samples next
 * ```
 * Z. Shao et al., "DeepSeekMath", https://arxiv.org/abs/2402.03300
 */

import { checkKnownKeys } from '../core/index.js'
import { GRPOLoss, type LossBatch, type Objective } from '../objective/index.js'
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
   * One of this package or of your own: it is given log-probs, advantages and masks, and gives back its value and gradient.
   * @default new GRPOLoss()
   */
  readonly loss?: Objective<LossBatch>
}

/** One step of {@link grpo}. */
export type GrpoStep = RolloutTrainingStep

/**
 * Trains a policy on the rewards of its own rollouts, one optimiser step at a time.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` without one that must be given, or for a loss without
 * `forward`; `ABORTED` if the signal fires; `EMPTY` after {@link EMPTY_STEPS_MAX} steps in a row in which no group
 * had two different rewards; `NON_FINITE` after `maxSkippedSteps` steps in a row without a finite loss and gradient; what rollouter, decoder, loss and optimiser say.
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
export function grpo<Sample>(options: GrpoOptions<Sample>): AsyncGenerator<GrpoStep, void, undefined> {
  const { known, required } = ROLLOUT_TRAINING_KEYS
  checkKnownKeys('options', options, [...known, 'loss'], required)
  const { loss = new GRPOLoss(), ...shared } = options
  checkObjective(loss)
  return trainOnRollouts({
    ...shared,
    lossOf: ({ logProb, entropy }, { mask, offsets, logProbs: oldLogProb, advantages: advantage }, ref) => {
      const columns = { logProb, oldLogProb, entropy, advantage, mask, offsets }
      return loss.forward({ ...columns, ...(ref && { refLogProb: ref }) })
    },
  })
}
