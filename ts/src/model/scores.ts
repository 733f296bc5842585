/** Scores of the tokens of a batch, and options of the passes that compute them. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Decoder } from './decoder.js'
import type { TokenBatch } from './token-batch.js'

/** Scores of a {@link TokenBatch}; 0 where its mask is 0. */
export interface Scores {
  /** Natural log-prob of each token after those before it. Shape `[T]`. */
  readonly logProb: Float32Array
  /** Entropy in nats of the distribution of each token. Shape `[T]`. */
  readonly entropy: Float32Array
  /**
   * Logarithm of the sum of the squares of all probabilities in the place of each token, which `useWeighting` of `DPOLoss` weighs by.
   * Shape `[T]`.
   * @default not computed
   */
  readonly logSumSqProb?: Float32Array
}

/** Optional outputs of {@link Decoder.forward} besides log-probs and entropies, from the same logits. */
export interface ForwardPassOptions {
  /** If true, returns {@link Scores.logSumSqProb}. @default false */
  readonly logSumSqProb?: boolean
}

/** Optional outputs for each scored token besides log-prob and entropy, from the same pass. */
export interface ScoreOptions {
  /**
   * Number of most likely ids at its position to return, with their log-probs.
   * @default 0
   */
  readonly topK?: number
  /**
   * If true, applies the adapter. `false` scores the weights without it: the reference of a policy that is
   * trained by an adapter, without a second copy of the weights.
   * @default true
   */
  readonly adapter?: boolean
}

/** {@link Scores} with the likeliest ids in the place of each token, the likeliest first. */
export interface TopScores extends Scores {
  /** The ids; empty unless `topK` asks for them. Shape `[T, k]`. */
  readonly topIds: Uint32Array
  /** Their natural log-probs. Shape `[T, k]`. */
  readonly topLogProb: Float32Array
}

/** Checks the options of {@link Decoder.score}. @throws {FulmarError} `UNKNOWN_NAME`, `MALFORMED` or `INCOMPATIBLE`. */
export function checkScoreOptions(options: ScoreOptions): { topK: number | undefined; adapter: boolean } {
  checkKnownKeys('options', options, ['topK', 'adapter'])
  const { topK, adapter = true } = options
  if (typeof adapter !== 'boolean')
    throw new FulmarError('MALFORMED', `options.adapter must be true or false: got ${describeValue(adapter)}`)
  if (!adapter && topK !== undefined && topK !== 0)
    throw new FulmarError(
      'INCOMPATIBLE',
      `options.topK must be 0 where options.adapter is false: got ${topK}`,
    )
  return { topK, adapter }
}
