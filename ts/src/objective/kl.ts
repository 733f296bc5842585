/** Estimates of the KL divergence between a policy and a reference. */

import { call, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray } from './argument.js'
import type { KlEstimator } from './loss.js'

/** Options of {@link klEstimate}. */
export interface KlEstimateOptions {
  /** `[T]` of tokens drawn from the policy, under the policy. */
  readonly logProb: Float32Array
  /** `[T]` under the reference. */
  readonly refLogProb: Float32Array
  /** `[T]` 1 where the token counts, else 0; what stands at a 0 is not looked at. */
  readonly mask: Uint8Array
  /** @default 'k3' */
  readonly estimator?: KlEstimator
}

/** A KL divergence over masked tokens. */
export interface KlEstimateResult {
  /** Mean over the masked tokens, in nats; 0 if there are none. */
  readonly mean: number
  /** How many tokens the mean is over. */
  readonly numTokens: number
  /** `[T]` the estimate at each token, 0 off the mask. */
  readonly kl: Float32Array
  /** `[T]` derivative of `mean` by `logProb`, 0 off the mask. */
  readonly gradLogProb: Float32Array
}

/**
 * Estimates `KL(policy || reference)` from tokens that the policy drew.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` for unequal lengths; `NON_FINITE` for a NaN or an infinity where the mask is 1;
 * `OUT_OF_RANGE` for a mask that is not 0 or 1; `UNKNOWN_NAME` for an unknown key or estimator; `MALFORMED` for an
 * array of another type.
 *
 * @example
 * ```ts
 * import { klEstimate } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const { mean, numTokens } = klEstimate({
 *   logProb: Float32Array.of(-1, -2, Number.NaN),
 *   refLogProb: Float32Array.of(-1.5, -1, 0),
 *   mask: Uint8Array.of(1, 1, 0),
 *   estimator: 'k1',
 * })
 * assert.deepEqual([mean, numTokens], [-0.25, 2])
 * ```
 */
export function klEstimate(options: KlEstimateOptions): KlEstimateResult {
  checkKnownKeys('klEstimate', options, ['logProb', 'refLogProb', 'mask', 'estimator'])
  checkArray(options, 'logProb', 'Float32Array')
  checkArray(options, 'refLogProb', 'Float32Array')
  checkArray(options, 'mask', 'Uint8Array')
  const { logProb, refLogProb, mask, estimator } = options
  const result = call(() => raw.klEstimate(JSON.stringify(estimator), logProb, refLogProb, mask))
  return { mean: result.mean, numTokens: result.numTokens, kl: result.kl, gradLogProb: result.gradLogProb }
}
