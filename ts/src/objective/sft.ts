/** Supervised fine-tuning over ragged batches of log-probabilities. */

import { call, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, optionsJson } from './argument.js'
import { KL_PENALTY_KEYS, type KlPenalty, type LossResult, lossResult } from './loss.js'

/** Options of {@link SFTLoss}; the defaults are those of the Rust core. */
export interface SFTLossOptions {
  /**
   * How sequences become one number: their mean or sum, the mean over all trained tokens, or the sum over tokens
   * divided by a count of the caller's. @default 'mean'
   */
  readonly reduction?: 'mean' | 'sum' | 'tokenMean' | { readonly globalTokens: number }
  /** With `mean` and `sum`: whether a sequence counts by its mean over trained tokens, or by their sum. @default true */
  readonly normalizeBySeqLength?: boolean
  /** The penalty for leaving the reference; needs `refLogProb` when its coefficient is above 0. @default none */
  readonly klToRef?: Omit<KlPenalty, 'importanceWeighted'>
}

const OPTION_KEYS = {
  reduction: { globalTokens: true },
  normalizeBySeqLength: true,
  klToRef: KL_PENALTY_KEYS,
} as const

/** `S` sequences one after another, laid out as a `LossBatch`. The arrays are copied, not kept. */
export interface SFTBatch {
  /** `[T]` under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` under a frozen reference. */
  readonly refLogProb?: Float32Array
  /** `[T]` 1 where the token is trained, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

/** What {@link SFTLoss.forward} returns. */
export interface SFTLossResult extends LossResult {
  /** `[S]` the likelihood term of each sequence before they are joined. */
  readonly sequenceLoss: Float64Array
}

/**
 * Minus the log-probability of worked examples.
 *
 * @example
 * ```ts
 * import { SFTLoss } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const { loss, sequenceLoss, gradLogProb } = new SFTLoss().forward({
 *   logProb: Float32Array.of(-9, -1, -3, -0.5),
 *   mask: Uint8Array.of(0, 1, 1, 1),
 *   offsets: Uint32Array.of(0, 3, 4),
 * })
 * assert.equal(loss, 1.25)
 * assert.deepEqual([...sequenceLoss], [2, 0.5])
 * assert.deepEqual([...gradLogProb], [0, -0.25, -0.25, -0.5])
 * ```
 */
export class SFTLoss {
  readonly #optionsJson: string

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its
   * range; `MALFORMED` for one of another type.
   */
  constructor(options: SFTLossOptions = {}) {
    this.#optionsJson = optionsJson('SFTLoss', options, OPTION_KEYS)
    call(() => raw.checkSftOptions(this.#optionsJson))
  }

  /**
   * Value, metrics and gradient over `batch`. Costs O(T).
   *
   * @throws {FulmarError} As `GRPOLoss.forward`.
   */
  forward(batch: SFTBatch): SFTLossResult {
    checkKnownKeys('batch', batch, ['logProb', 'refLogProb', 'mask', 'offsets'])
    checkArray(batch, 'logProb', 'Float32Array')
    checkArray(batch, 'refLogProb', 'Float32Array', true)
    checkArray(batch, 'mask', 'Uint8Array')
    checkArray(batch, 'offsets', 'Uint32Array')
    const { logProb, refLogProb, mask, offsets } = batch
    const output = call(() => raw.sftLoss(this.#optionsJson, logProb, refLogProb, mask, offsets))
    return { ...lossResult(output), sequenceLoss: output.sequenceLoss ?? new Float64Array() }
  }
}
