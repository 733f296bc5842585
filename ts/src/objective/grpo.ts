/** Group relative policy optimisation over ragged batches of log-probabilities. */

import { call, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, optionsJson } from './argument.js'
import { KL_PENALTY_KEYS, type KlPenalty, type LossResult, lossResult, type Normalization } from './loss.js'

/** Options of {@link GRPOLoss}; the defaults are those of the Rust core. */
export interface GRPOLossOptions {
  /** How far the ratio may leave 1 before its gradient stops: both sides, or `[low, high]`. @default 0.2 */
  readonly clipEpsilon?: number | readonly [low: number, high: number]
  /** The largest ratio that still pushes down a token with a negative advantage; above `1 + high`. @default off */
  readonly dualClip?: number
  /** @default 'tokenMean' */
  readonly normalization?: Normalization
  /** The penalty for leaving the reference; needs `refLogProb` when its coefficient is above 0. @default none */
  readonly klToRef?: KlPenalty
  /** The penalty for leaving the policy that drew the tokens. @default none */
  readonly klToInference?: KlPenalty
  /** Drops tokens whose `(logProb - oldLogProb)^2 / 2` exceeds it. @default off */
  readonly klMaskThreshold?: number
  /** Drops tokens whose `|logProb - oldLogProb|` exceeds it, in nats, in `(0, 700]`. @default 20 */
  readonly logRatioMax?: number
  /** Weight of the entropy bonus; needs `entropy` when above 0. @default 0 */
  readonly entropyCoefficient?: number
}

const OPTION_KEYS = {
  clipEpsilon: true,
  dualClip: true,
  normalization: { fixedLength: true, globalTokens: true },
  klToRef: KL_PENALTY_KEYS,
  klToInference: KL_PENALTY_KEYS,
  klMaskThreshold: true,
  logRatioMax: true,
  entropyCoefficient: true,
} as const

/**
 * `S` sequences one after another, `T` tokens in all: sequence `s` is `offsets[s]..offsets[s + 1]`. Nothing is padded;
 * what stands where the mask is 0 is never looked at. The arrays are copied, not kept.
 */
export interface LossBatch {
  /** `[T]` under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` under the policy that drew the tokens; on-policy the same array. Not finite: the token is dropped and counted. */
  readonly oldLogProb: Float32Array
  /** `[T]` under a frozen reference. */
  readonly refLogProb?: Float32Array
  /** `[T]` entropy of the current distribution, in nats. */
  readonly entropy?: Float32Array
  /** `[S]` one value a sequence, or `[T]` one a token. */
  readonly advantage: Float32Array
  /** `[T]` 1 where the token is trained, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

const BATCH_KEYS = ['logProb', 'oldLogProb', 'refLogProb', 'entropy', 'advantage', 'mask', 'offsets']

/**
 * The clipped policy gradient of GRPO and DAPO: per trained token `-min(r A, clip(r) A)` with
 * `r = exp(logProb - oldLogProb)`, plus KL penalties, minus an entropy bonus, all under one denominator. The core's
 * documentation of `GrpoLoss` has the formulas, the papers and the list of metrics.
 *
 * @example
 * ```ts
 * import { GRPOLoss } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const logProb = Float32Array.of(-1, -0.5, -2)
 * const { loss, metrics, gradLogProb } = new GRPOLoss({ clipEpsilon: 0.2 }).forward({
 *   logProb,
 *   oldLogProb: logProb, // on-policy: every ratio is 1
 *   advantage: Float32Array.of(1, -1),
 *   mask: Uint8Array.of(0, 1, 1),
 *   offsets: Uint32Array.of(0, 2, 3),
 * })
 * assert.equal(loss, 0)
 * assert.equal(metrics.ratioMean, 1)
 * assert.deepEqual([...gradLogProb], [0, -0.5, 0.5])
 * ```
 */
export class GRPOLoss {
  readonly #optionsJson: string

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its
   * range; `MALFORMED` for one of another type.
   */
  constructor(options: GRPOLossOptions = {}) {
    this.#optionsJson = optionsJson('GRPOLoss', options, OPTION_KEYS)
    call(() => raw.checkGrpoOptions(this.#optionsJson))
  }

  /**
   * Value, metrics and gradient over `batch`. Costs O(T); equal inputs give equal bits on every backend.
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if two lengths disagree; `EMPTY` if the mask trains nothing or a term lacks
   * its input; `NON_FINITE` if a trained position holds a NaN or an infinity; `OUT_OF_RANGE` for offsets that fall or a
   * mask that is not 0 or 1; `MALFORMED` for an array of another type.
   */
  forward(batch: LossBatch): LossResult {
    checkKnownKeys('batch', batch, BATCH_KEYS)
    for (const field of ['logProb', 'oldLogProb', 'advantage']) checkArray(batch, field, 'Float32Array')
    for (const field of ['refLogProb', 'entropy']) checkArray(batch, field, 'Float32Array', true)
    checkArray(batch, 'mask', 'Uint8Array')
    checkArray(batch, 'offsets', 'Uint32Array')
    const { logProb, oldLogProb, refLogProb, entropy, advantage, mask, offsets } = batch
    const output = call(() =>
      raw.grpoLoss(this.#optionsJson, logProb, oldLogProb, refLogProb, entropy, advantage, mask, offsets),
    )
    return lossResult(output)
  }
}
