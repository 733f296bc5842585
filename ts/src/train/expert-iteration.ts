/**
 * Expert iteration: sample groups, keep the best of each, imitate them, repeat.
 *
 * ```text
 * each step: promptsPerStep samples -> groups of rollouts -> the topK of each by reward, none of equals
 *            -> forward -> supervised loss, near a reference if asked -> backward -> update
 * ```
 * T. Anthony et al., "Thinking Fast and Slow with Deep Learning and Tree Search", https://arxiv.org/abs/1705.08439
 */

import { checkKnownKeys } from '../core/index.js'
import { type Objective, type SFTBatch, SFTLoss, TopKRewardSelector } from '../objective/index.js'
import type { Rollout, RolloutGroup, TrainingSamples } from '../rollout/index.js'
import { metric } from '../telemetry/index.js'
import {
  ROLLOUT_TRAINING_KEYS,
  type RolloutTrainingOptions,
  type RolloutTrainingStep,
  trainOnRollouts,
} from './rollout-training.js'
import { checkObjective } from './train-step.js'

/** Options of {@link expertIteration}. */
export interface ExpertIterationOptions<Sample> extends RolloutTrainingOptions<Sample> {
  /** Rollouts that are kept of each group, at most its size. */
  readonly topK: number
  /**
   * One of this package or of your own.
   * @default new SFTLoss()
   */
  readonly loss?: Objective<SFTBatch>
}

/** One step of {@link expertIteration}. */
export type ExpertIterationStep = RolloutTrainingStep

/**
 * Trains a policy on the best of its own rollouts, one optimiser step at a time.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `topK` is not from 1 to the size of a group; else as {@link grpo}.
 *
 * @example
 * ```ts
 * import { AdamW, CharTokenizer, createRenderer, Decoder, DecoderPolicy, expertIteration, Rollouter, sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const shape = { model_type: 'qwen2', hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed({ ...shape, vocab_size: tokenizer.vocabSize }, { seed: 1 })
 * using optimizer = new AdamW(decoder)
 * const policy = new DecoderPolicy(decoder)
 * const rollouter = new Rollouter({ policy, task: sumDigits({ prompt: 'short' }), renderer, groupSize: 4, maxTokens: 4 })
 * for await (const step of expertIteration({ policy, rollouter, optimizer, topK: 1, promptsPerStep: 2, steps: 1 })) {
 *   assert.equal(step.update, null) // an untrained policy has no best answer
 * }
 * ```
 */
export function expertIteration<Sample>(
  options: ExpertIterationOptions<Sample>,
): AsyncGenerator<ExpertIterationStep, void, undefined> {
  const { known, required } = ROLLOUT_TRAINING_KEYS
  checkKnownKeys('options', options, [...known, 'topK', 'loss'], [...required, 'topK'])
  const { loss = new SFTLoss(), topK, ...shared } = options
  checkObjective(loss)
  const selection = { totalDialogTurns: shared.rollouter.groupSize, topkSize: topK }
  new TopKRewardSelector(selection)[Symbol.dispose]()
  return trainOnRollouts({
    ...shared,
    lossOf: ({ logProb }, { mask, offsets }, ref) =>
      loss.forward({ logProb, mask, offsets, ...(ref && { refLogProb: ref }) }),
    buildSamples: (group) => bestOf(group, selection),
  })
}

/** The samples of the best rollouts of a group; none if they are all worth the same, or one of them could not be scored. */
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
