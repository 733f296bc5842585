/** The loss of reward models. */

import type { OnDevice } from '../core/index.js'
import { type RawBradleyTerryLoss, raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import { CoreLoss, checkColumns, type LossResult } from './loss.js'

/** Options of {@link BradleyTerryLoss}; the defaults are those of the Rust core. */
export interface BradleyTerryLossOptions extends OnDevice {
  /** Weight of the squared sum of a pair, which keeps rewards around 0; at least 0. @default 0 */
  readonly centerCoefficient?: number
  /** Divisor of sums over pairs: the number of pairs of a whole optimizer step. @default that of the batch */
  readonly numPairs?: number
}

const OPTION_KEYS = { device: true, centerCoefficient: true, numPairs: true } as const

/** Rewards of pairs of answers. The arrays are read, not kept. */
export interface RewardPairs {
  /** `[P]` rewards of the preferred answers. */
  readonly chosen: Float32Array
  /** `[P]` rewards of the rejected answers. */
  readonly rejected: Float32Array
  /** `[P]` required lead of the chosen reward. @default 0 */
  readonly margin?: Float32Array
  /**
   * `[P + 1]` bounds of the pairs, if the arrays above hold rewards of tokens that are compared one by one. A
   * pair counts by its mean; a pair without tokens (of equal answers) does not count.
   * @default each entry is a pair
   */
  readonly offsets?: Uint32Array
}

/** Result of {@link BradleyTerryLoss.forward}. */
export interface RewardLossResult extends Pick<LossResult, 'loss' | 'metrics' | 'denominators'> {
  /** Gradient of the loss with respect to `chosen`. A new array. */
  readonly gradChosen: Float32Array
  /** Gradient of the loss with respect to `rejected`. A new array. */
  readonly gradRejected: Float32Array
}

const COLUMNS = {
  needed: { chosen: 'Float32Array', rejected: 'Float32Array' },
  optional: { margin: 'Float32Array', offsets: 'Uint32Array' },
} as const

/**
 * Trains the chosen of two answers to one prompt to get the higher reward: the mean over pairs of `-log
 * sigmoid(chosen - rejected - margin) + centerCoefficient (chosen + rejected)^2`.
 * [Reward models](https://arxiv.org/abs/1706.03741), [centring](https://arxiv.org/abs/2312.09244).
 *
 * Metrics: `accuracy` (share of entries in which the chosen answer has the higher reward), `margin`,
 * `meanReward`, `numPairs`.
 *
 * @example
 * ```ts
 * import { BradleyTerryLoss } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const chosen = Float32Array.of(1, 3)
 * const rejected = Float32Array.of(1, 0)
 * const { loss, gradChosen, gradRejected, metrics } = new BradleyTerryLoss().forward({ chosen, rejected })
 * assert.equal(loss, (Math.log(2) + Math.log1p(Math.exp(-3))) / 2)
 * assert.deepEqual([gradChosen[0], gradRejected[0]], [-0.25, 0.25])
 * assert.deepEqual([metrics.accuracy, metrics.margin], [0.5, 1.5])
 * ```
 */
export class BradleyTerryLoss {
  readonly #loss: CoreLoss<RawBradleyTerryLoss>

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its range;
   * `MALFORMED` for one of another type.
   */
  constructor(options: BradleyTerryLossOptions = {}) {
    const json = optionsJson('BradleyTerryLoss', options, OPTION_KEYS)
    this.#loss = new CoreLoss('BradleyTerryLoss', () => raw.BradleyTerryLoss.create(json))
  }

  /**
   * Computes value, metrics and gradients over `pairs`; without pairs everything is 0. Costs O(P).
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if lengths differ; `NON_FINITE` if a reward or margin is not finite; `OUT_OF_RANGE` for
   * decreasing offsets; `EMPTY` for offsets without a bound; `MALFORMED` for an array of another type.
   */
  forward(pairs: RewardPairs): RewardLossResult {
    checkColumns(pairs, COLUMNS)
    const { chosen, rejected, margin, offsets } = pairs
    const output = this.#loss.call((loss) => loss.forward(chosen, rejected, margin, offsets))
    const { loss, gradChosen, gradRejected } = output
    return { loss, ...this.#loss.metrics(output), gradChosen, gradRejected }
  }
}
