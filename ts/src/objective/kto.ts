/** Losses of single answers labelled good or bad, without pairs. */

import type { OnDevice } from '../core/index.js'
import { type RawKtoLoss, raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import { CoreLoss, checkColumns, LAYOUT, type LossResult } from './loss.js'

/** Options of {@link KTOLoss}; the defaults are those of the Rust core. */
export interface KTOLossOptions extends OnDevice {
  /**
   * Reference point of the reward: the divergence of the policy from the reference (`kto`) or 0.
   * @default 'kto'
   */
  readonly lossType?: 'kto' | 'apoZeroUnpaired'
  /** Strength of the penalty for leaving the reference, above 0. @default 0.1 */
  readonly beta?: number
  /** Weight of a desirable answer, at least 0. @default 1 */
  readonly desirableWeight?: number
  /** Weight of an undesirable answer, at least 0. @default 1 */
  readonly undesirableWeight?: number
  /**
   * Divisor of sums over answers: the number of answers of a whole optimizer step.
   * @default that of the batch
   */
  readonly numSequences?: number
}

const OPTION_KEYS = {
  device: true,
  lossType: true,
  beta: true,
  desirableWeight: true,
  undesirableWeight: true,
  numSequences: true,
} as const

/** `S` answers one after another, laid out as a `LossBatch`. The arrays are read, not kept. */
export interface KTOBatch {
  /** `[T]` log-probabilities under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` log-probabilities under a frozen reference. */
  readonly refLogProb: Float32Array
  /** `[S]` 1 where the answer is desirable, else 0. */
  readonly desirable: Uint8Array
  /**
   * Log-ratios of whole answers paired with prompts of other answers, for the whole optimizer step; for
   * `kto`.
   */
  readonly klLogRatio?: Float32Array
  /** `[T]` 1 for tokens of answers, else 0; each sequence needs one. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

const COLUMNS = {
  needed: { logProb: 'Float32Array', refLogProb: 'Float32Array', desirable: 'Uint8Array', ...LAYOUT },
  optional: { klLogRatio: 'Float32Array' },
} as const

/**
 * Trains desirable answers up and others down, relative to the reference: with the log-ratio `c` of an answer
 * and `z = max(0, mean(klLogRatio))` (0 for `apoZeroUnpaired`), the mean of `w sigmoid(-beta (c - z))` for
 * desirable ones and `w sigmoid(beta (c - z))` for others.
 * [KTO](https://arxiv.org/abs/2402.01306), [APO](https://arxiv.org/abs/2408.06266).
 *
 * Metrics: `kl` (`z` above), `rewardChosen`, `rewardRejected` (means of `beta c` over desirable and other
 * answers), `logProbChosen`,
 * `logProbRejected`, `numSequences`, `numTokens`.
 *
 * @example
 * ```ts
 * import { KTOLoss } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const { loss, gradLogProb } = new KTOLoss({ beta: 0.5 }).forward({
 *   logProb: Float32Array.of(-1, -2),
 *   refLogProb: Float32Array.of(-1, -2),
 *   desirable: Uint8Array.of(1, 0),
 *   klLogRatio: Float32Array.of(-0.3, 0.1), // on average below 0, which counts as 0
 *   mask: Uint8Array.of(1, 1),
 *   offsets: Uint32Array.of(0, 1, 2),
 * })
 * assert.equal(loss, 0.5)
 * assert.deepEqual([...gradLogProb], [-0.0625, 0.0625])
 * ```
 */
export class KTOLoss {
  readonly #loss: CoreLoss<RawKtoLoss>

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its range;
   * `MALFORMED` for one of another type.
   */
  constructor(options: KTOLossOptions = {}) {
    const json = optionsJson('KTOLoss', options, OPTION_KEYS)
    this.#loss = new CoreLoss('KTOLoss', () => raw.KtoLoss.create(json))
  }

  /**
   * Computes value, metrics and gradient over `batch`. Costs O(T).
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if two lengths disagree; `EMPTY` if a sequence has no trained token or `klLogRatio` is
   * missing; `NON_FINITE` if a trained position or a log-ratio is a NaN or an infinity; `OUT_OF_RANGE` for decreasing offsets, or a
   * mask or a label that is not 0 or 1; `MALFORMED` for an array of another type.
   */
  forward(batch: KTOBatch): LossResult {
    checkColumns(batch, COLUMNS)
    const { logProb, refLogProb, desirable, klLogRatio, mask, offsets } = batch
    return this.#loss.result((loss) =>
      loss.forward(logProb, refLogProb, desirable, klLogRatio, mask, offsets),
    )
  }
}
