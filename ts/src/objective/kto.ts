/** Losses of answers that are good or bad by themselves, not in pairs. */

import { call, type OnDevice } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, optionsJson } from './argument.js'
import { type LossResult, lossResult, withColumns } from './loss.js'

/** Options of {@link KTOLoss}; the defaults are those of the Rust core. */
export interface KTOLossOptions extends OnDevice {
  /** Where an answer is as good as the reference: at the divergence of the policy (`kto`) or at 0. @default 'kto' */
  readonly lossType?: 'kto' | 'apoZeroUnpaired'
  /** How dear leaving the reference is, above 0. @default 0.1 */
  readonly beta?: number
  /** What a desirable answer counts, at least 0. @default 1 */
  readonly desirableWeight?: number
  /** What another counts, at least 0. @default 1 */
  readonly undesirableWeight?: number
  /** What sums over answers are divided by: the answers of a whole optimiser step. @default those of the batch */
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

/** `S` answers one after another, laid out as a `LossBatch`. The arrays are copied, not kept. */
export interface KTOBatch {
  /** `[T]` under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` under a frozen reference. */
  readonly refLogProb: Float32Array
  /** `[S]` 1 where the answer is desirable, else 0. */
  readonly desirable: Uint8Array
  /** Log-ratios of whole answers put behind prompts that they do not belong to, those of the whole optimiser step; for `kto`. */
  readonly klLogRatio?: Float32Array
  /** `[T]` 1 for tokens of answers, of which each sequence needs one, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

const COLUMNS = {
  needed: ['logProb', 'refLogProb'],
  optional: ['klLogRatio'],
  others: ['desirable'],
} as const

/**
 * Desirable answers should gain on the reference, others lose: with the log-ratio `c` of an answer and `z = max(0, mean(klLogRatio))`
 * (0 for `apoZeroUnpaired`), the mean of `w sigmoid(-beta (c - z))` for desirable ones and `w sigmoid(beta (c - z))` for others.
 * [KTO](https://arxiv.org/abs/2402.01306), [APO](https://arxiv.org/abs/2408.06266).
 *
 * Metrics: `kl` (that `z`), `rewardChosen`, `rewardRejected` (means of `beta c` over desirable and other answers), `logProbChosen`,
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
  readonly #optionsJson: string

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its range;
   * `MALFORMED` for one of another type.
   */
  constructor(options: KTOLossOptions = {}) {
    this.#optionsJson = optionsJson('KTOLoss', options, OPTION_KEYS)
    call(() => raw.checkLossOptions('KTOLoss', this.#optionsJson))
  }

  /**
   * Value, metrics and gradient over `batch`. Costs O(T).
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if two lengths disagree; `EMPTY` if a sequence has no trained token or `klLogRatio` is
   * missing; `NON_FINITE` if a trained position or a log-ratio is a NaN or an infinity; `OUT_OF_RANGE` for offsets that fall, or a
   * mask or a label that is not 0 or 1; `MALFORMED` for an array of another type.
   */
  forward(batch: KTOBatch): LossResult {
    const output = withColumns(batch, COLUMNS, (columns) => {
      checkArray(batch, 'desirable', 'Uint8Array')
      columns.label(batch.desirable)
      return columns.kto(this.#optionsJson)
    })
    return lossResult(output)
  }
}
