/** Bins of equal width for each number of an action. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Tensor } from '../tensor/index.js'
import {
  ActionTokenizerBase,
  checkCountOf,
  mapActions,
  mapTokens,
  numbersOfOption,
} from './action-tokenizer.js'
import { RobotDatasetMetadata } from './robot-dataset-metadata.js'

/** Options of {@link UniformActionTokenizer}. */
export interface UniformActionTokenizerOptions {
  /** Least action: one number, or one for each dimension. */
  readonly low: number | readonly number[]
  /** Largest action, above `low` in each dimension. */
  readonly high: number | readonly number[]
  /** Dimensions of an action, for bounds that are one number. @default the length of the bounds */
  readonly actionDim?: number
}

/**
 * Divides the range of each dimension of an action into bins of equal width. An action becomes the number of its bin,
 * `floor((a - low) / (high - low) * numBins)`, and those outside the range the nearest; a token becomes the middle of its bin.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { UniformActionTokenizer } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const tokenizer = new UniformActionTokenizer(256, { low: -1, high: 1 })
 * const tokens = tokenizer.encode(Tensor.from([-1, 0, 1]))
 * assert.deepEqual(tokens.data, BigInt64Array.of(0n, 128n, 255n))
 * assert.deepEqual(tokenizer.decode(tokens).data, Float32Array.of(-0.99609375, 0.00390625, 0.99609375))
 * ```
 */
export class UniformActionTokenizer extends ActionTokenizerBase {
  /** Bins of each dimension. */
  readonly numBins: number
  /** Dimensions of an action; undefined if the bounds hold for any number of them. */
  readonly actionDim: number | undefined
  readonly #low: Float32Array
  readonly #high: Float32Array

  /**
   * @param numBins From 1 to 2^31 - 1.
   * @throws {FulmarError} `OUT_OF_RANGE` if `numBins` or `actionDim` is less than 1, or a bound is not below the other;
   *   `SHAPE_MISMATCH` if the bounds differ in length, or from `actionDim`; `MALFORMED` for bounds that are not numbers;
   *   `UNKNOWN_NAME` for an unknown option.
   */
  constructor(numBins: number, options: UniformActionTokenizerOptions) {
    super()
    checkKnownKeys('options', options, ['low', 'high', 'actionDim'], ['low', 'high'])
    checkCountOf('numBins', numBins, 1)
    const { low, high, actionDim } = options
    if (actionDim !== undefined) checkCountOf('options.actionDim', actionDim, 1)
    this.numBins = numBins
    this.#low = boundsOf('options.low', low, actionDim)
    this.#high = boundsOf('options.high', high, actionDim)
    if (this.#low.length !== this.#high.length || Array.isArray(low) !== Array.isArray(high)) {
      const detail = `options.low must have the length of options.high: got ${this.#low.length} and ${this.#high.length}`
      if (actionDim === undefined) throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    this.#low.forEach((least, at) => {
      const most = this.#high[at] ?? Number.NaN
      if (least < most) return
      throw new FulmarError(
        'OUT_OF_RANGE',
        `options.low must be below options.high: got ${least} and ${most}`,
      )
    })
    this.actionDim = actionDim ?? (Array.isArray(low) ? this.#low.length : undefined)
  }

  /**
   * A tokenizer with the bounds of a data set.
   * @throws {FulmarError} `MALFORMED` if the metadata has no bounds; those of the constructor.
   */
  static fromMetadata(metadata: RobotDatasetMetadata, numBins: number): UniformActionTokenizer {
    if (!(metadata instanceof RobotDatasetMetadata))
      throw new FulmarError(
        'MALFORMED',
        `metadata must be a RobotDatasetMetadata: got ${describeValue(metadata)}`,
      )
    const { actionLow: low, actionHigh: high, datasetId } = metadata
    if (low !== undefined && high !== undefined) return new UniformActionTokenizer(numBins, { low, high })
    throw new FulmarError(
      'MALFORMED',
      `metadata must have actionLow and actionHigh: those of ${datasetId} are not given`,
    )
  }

  override get vocabSize(): number {
    return this.numBins
  }

  /**
   * The bins of actions `[..., actionDim]`, each from 0 to `numBins - 1`.
   * @throws {FulmarError} `INCOMPATIBLE` for other than f32 and f64; `SHAPE_MISMATCH` for another last dimension;
   *   `NON_FINITE` for NaN.
   */
  override encode(actions: Tensor): Tensor<'i64'> {
    return mapActions(actions, this.actionDim, (action, at, round) => {
      const [low = 0, high = 1] = [this.#low[at], this.#high[at]]
      const scaled = round(round(action - low) / Math.fround(high - low))
      const bin = Math.floor(round(scaled * this.numBins))
      return Math.min(Math.max(bin, 0), this.numBins - 1)
    })
  }

  /**
   * The middles of bins `[..., actionDim]`.
   * @throws {FulmarError} `INCOMPATIBLE` for other than integers; `SHAPE_MISMATCH` for another last dimension; `OUT_OF_RANGE`
   *   for a token outside the vocabulary.
   */
  override decode(tokens: Tensor): Tensor<'f32'> {
    const { vocabSize, actionDim: width } = this
    return mapTokens(tokens, { vocabSize, width }, (token, at) => {
      const [low = 0, high = 1] = [this.#low[at], this.#high[at]]
      const center = Math.fround(Math.fround(token + 0.5) / this.numBins)
      return low + Math.fround(center * Math.fround(high - low))
    })
  }
}

function boundsOf(name: string, value: unknown, actionDim: number | undefined): Float32Array {
  const numbers = numbersOfOption(name, value)
  if (actionDim === undefined || numbers.length === actionDim) return Float32Array.from(numbers)
  if (!Array.isArray(value)) return new Float32Array(actionDim).fill(numbers[0] ?? 0)
  const detail = `${name} must have options.actionDim numbers, ${actionDim}: got ${numbers.length}`
  throw new FulmarError('SHAPE_MISMATCH', detail)
}
