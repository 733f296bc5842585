/** Texts and what a reward model makes of them, as records. */

import { type TensorClass, type TensorClassInstance, tensorClass } from '../../tensor/index.js'

/** Fields of {@link RewardData}. */
export type RewardDataFields = {
  readonly input_ids: 'i64'
  readonly attention_mask: 'i64'
  readonly rewards: 'f32?'
  readonly end_scores: 'f32?'
}

/** Texts of `[B, L]`, with the `rewards` of their tokens, `[B, L]`, and their `end_scores`, `[B]`, once a model gave them. */
export type RewardData = TensorClassInstance<RewardDataFields>

/**
 * Texts as ids, and the rewards of their tokens and of the whole.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar/tensor'
 * import { RewardData } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const ids = Tensor.from(BigInt64Array.of(1n, 2n), { shape: [1, 2] })
 * const data = RewardData.from({ input_ids: ids, attention_mask: ids }, { batchSize: [1] })
 * data.end_scores = Tensor.from([0.5])
 * assert.deepEqual([data.rewards, data.end_scores?.toFloat32()], [undefined, Float32Array.of(0.5)])
 * ```
 */
export const RewardData: TensorClass<RewardDataFields> = tensorClass<RewardDataFields>({
  input_ids: 'i64',
  attention_mask: 'i64',
  rewards: 'f32?',
  end_scores: 'f32?',
})
