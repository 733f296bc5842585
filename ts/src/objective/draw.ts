/** Drawing the next token from logits. */

import { call, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, type KnownKeys, optionsJson } from './argument.js'

/** The distribution to draw from; the defaults are those of the Rust core. */
export interface DrawOptions {
  /** `[V]`, all finite. Copied, not kept. */
  readonly logits: Float32Array
  /** Divides the logits; at 0 the likeliest token is taken, of equals the one with the lower id. @default 1 */
  readonly temperature?: number
  /** How many of the likeliest tokens stay, with all that tie with the last one; at least 1. @default all */
  readonly topK?: number
  /** The probability mass that stays, in `(0, 1]`. @default 1 */
  readonly topP?: number
}

/** Options of {@link drawToken}. */
export interface DrawTokenOptions extends DrawOptions {
  /** The request's seed, an integer from 0 to 2^53 - 1. */
  readonly seed: number
  /** Which draw of the request this is, from 0: a draw depends on (seed, drawIndex) and not on the draws before it. */
  readonly drawIndex: number
}

/** One drawn token. */
export interface Draw {
  /** The token. */
  readonly id: number
  /** Its log-probability under the model itself, to the bit what a loss sees. */
  readonly logProb: number
  /** Its log-probability under the distribution that it was drawn from; 0 at temperature 0. */
  readonly sampledLogProb: number
}

const DISTRIBUTION_KEYS = { temperature: true, topK: true, topP: true } as const

/**
 * Draws a token: temperature, then top-k, then top-p, in the order of `transformers`. The same token natively and in
 * WebAssembly. Costs O(V).
 *
 * @throws {FulmarError} `EMPTY` without logits; `NON_FINITE` if one is NaN or infinite; `OUT_OF_RANGE` for an option
 * outside its range; `UNKNOWN_NAME` for an unknown key; `MALFORMED` for a value of another type.
 *
 * @example
 * ```ts
 * import { drawToken } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const logits = Float32Array.of(0.5, 2, -1)
 * assert.equal(drawToken({ logits, temperature: 0, seed: 7, drawIndex: 0 }).id, 1)
 * const again = () => drawToken({ logits, topP: 0.9, seed: 7, drawIndex: 3 })
 * assert.deepEqual(again(), again())
 * ```
 */
export function drawToken(options: DrawTokenOptions): Draw {
  const { seed, drawIndex } = options
  const json = distributionJson('drawToken', options, { seed: true, drawIndex: true })
  const { id, logProb, sampledLogProb } = call(() => raw.drawToken(json, options.logits, seed, drawIndex))
  return { id, logProb, sampledLogProb }
}

/**
 * The distribution that {@link drawToken} draws from: `[V]`, summing to 1, 0 for tokens that were cut. A new array.
 *
 * @throws {FulmarError} As {@link drawToken}.
 *
 * @example
 * ```ts
 * import { drawProbabilities } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const probabilities = drawProbabilities({ logits: Float32Array.of(1, 3, 3, 0), topK: 2 })
 * assert.deepEqual([...probabilities], [0, 0.5, 0.5, 0])
 * ```
 */
export function drawProbabilities(options: DrawOptions): Float64Array {
  const json = distributionJson('drawProbabilities', options, {})
  return call(() => raw.drawProbabilities(json, options.logits))
}

function distributionJson(place: string, options: DrawOptions, more: KnownKeys): string {
  checkKnownKeys(place, options, Object.keys({ logits: true, ...DISTRIBUTION_KEYS, ...more }))
  checkArray(options, 'logits', 'Float32Array')
  const { temperature, topK, topP } = options
  return optionsJson(place, { temperature, topK, topP }, DISTRIBUTION_KEYS)
}
