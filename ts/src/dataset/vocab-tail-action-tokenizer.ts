/** Action tokens at the end of a language model's vocabulary. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Tensor } from '../tensor/index.js'
import {
  ActionTokenizerBase,
  checkCountOf,
  mapActions,
  mapTokens,
  numbersOfOption,
  type Rounding,
} from './action-tokenizer.js'

/** Options of {@link VocabTailActionTokenizer}. */
export interface VocabTailActionTokenizerOptions {
  /** Edges of bins, from 2. @default 256 */
  readonly numBins?: number
  /** Size of the model's vocabulary: tokens are its last ids. @default `numBins`: tokens are from 0 */
  readonly fullVocabSize?: number
  /** Action that becomes -1, for each dimension, such as the 1st percentile. @default actions are not scaled */
  readonly normLow?: readonly number[]
  /** Action that becomes 1, for each dimension, such as the 99th percentile. */
  readonly normHigh?: readonly number[]
  /** Dimensions that are scaled; the others are of the gripper. @default all */
  readonly normMask?: readonly boolean[]
  /** Makes the gripper -1 or 1 when decoding. @default false */
  readonly gripperBinarize?: boolean
  /** The gripper is 1 above it. @default 0 */
  readonly gripperBinarizeThreshold?: number
  /** Changes the sign of the gripper when decoding. @default false */
  readonly gripperInvert?: boolean
}

/** Statistics of actions as OpenVLA publishes them. */
export type NormStats = Readonly<
  Record<
    string,
    {
      readonly action: {
        readonly q01: readonly number[]
        readonly q99: readonly number[]
        readonly mask?: readonly boolean[]
      }
    }
  >
>

const OPTIONS = [
  'numBins',
  'fullVocabSize',
  'normLow',
  'normHigh',
  'normMask',
  'gripperBinarize',
  'gripperBinarizeThreshold',
  'gripperInvert',
] as const

/** Keeps a range of width 0 from dividing by it. */
const EPSILON = 1e-8

/**
 * OpenVLA's action tokens: actions in [-1, 1] fall between `numBins` edges, and the id counts back from the end of the
 * vocabulary, `fullVocabSize - (number of edges at or below the action)`. With `normLow` and `normHigh` actions are scaled to
 * [-1, 1] first.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { VocabTailActionTokenizer } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const tokenizer = new VocabTailActionTokenizer({ fullVocabSize: 32000 })
 * const tokens = tokenizer.encode(Tensor.from([-1, 0, 1]))
 * assert.deepEqual(tokens.data, BigInt64Array.of(31999n, 31872n, 31744n))
 * assert.equal(tokenizer.decode(tokens).data[1], 0)
 * ```
 */
export class VocabTailActionTokenizer extends ActionTokenizerBase {
  /** Edges of bins. */
  readonly numBins: number
  /** Size of the model's vocabulary, if tokens are its last ids. */
  readonly fullVocabSize: number | undefined
  readonly #scale: Scale | undefined
  readonly #gripper: { readonly binarize: boolean; readonly threshold: number; readonly invert: boolean }
  readonly #edges: Float32Array

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `numBins` is less than 2, or `fullVocabSize` less than `numBins`; `INCOMPATIBLE` for
   *   one of `normLow` and `normHigh` alone, a mask without them, or options of the gripper without a mask that finds it;
   *   `SHAPE_MISMATCH` if they differ in length; `MALFORMED` for other types; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(options: VocabTailActionTokenizerOptions = {}) {
    super()
    checkKnownKeys('options', options, OPTIONS)
    const { numBins = 256, fullVocabSize } = options
    checkCountOf('options.numBins', numBins, 2)
    if (fullVocabSize !== undefined) checkCountOf('options.fullVocabSize', fullVocabSize, numBins)
    this.numBins = numBins
    this.fullVocabSize = fullVocabSize
    this.#scale = scaleOf(options)
    this.#gripper = gripperOf(options)
    this.#edges = singleEdges(numBins)
  }

  /**
   * A tokenizer with the statistics of one data set, `stats[key].action`.
   * @throws {FulmarError} `UNKNOWN_NAME` for a key that the statistics lack, with the nearest; those of the constructor.
   */
  static fromNormStats(
    stats: NormStats,
    key: string,
    options: Omit<VocabTailActionTokenizerOptions, 'normLow' | 'normHigh' | 'normMask'> = {},
  ): VocabTailActionTokenizer {
    checkKnownKeys(
      'options',
      options,
      OPTIONS.filter((name) => !name.startsWith('norm')),
    )
    checkKnownKeys('stats', { [key]: 0 }, Object.keys(stats ?? {}))
    const { action } = stats[key] ?? {}
    if (action === undefined)
      throw new FulmarError('MALFORMED', `stats.${key} must have an action: got ${describeValue(stats[key])}`)
    const { q01: normLow, q99: normHigh, mask: normMask } = action
    return new VocabTailActionTokenizer({ ...options, normLow, normHigh, ...(normMask && { normMask }) })
  }

  override get vocabSize(): number {
    return this.fullVocabSize ?? this.numBins
  }

  /**
   * The ids of actions `[..., actionDim]`; those outside the range become its ends.
   * @throws {FulmarError} `INCOMPATIBLE` for other than f32 and f64; `SHAPE_MISMATCH` for another last dimension than the
   *   statistics have; `NON_FINITE` for NaN.
   */
  override encode(actions: Tensor): Tensor<'i64'> {
    return mapActions(actions, this.#scale?.low.length, (action, at, round) => {
      const scaled = this.#scale ? normalized(action, at, this.#scale, round) : action
      return this.vocabSize - numAtOrBelow(this.#edges, Math.min(Math.max(scaled, -1), 1))
    })
  }

  /**
   * The middles between edges, scaled back in double precision. An id before those of actions is the largest action.
   * @throws {FulmarError} `INCOMPATIBLE` for other than integers; `SHAPE_MISMATCH` for another last dimension than the
   *   statistics have; `OUT_OF_RANGE` for an id outside the vocabulary.
   */
  override decode(tokens: Tensor): Tensor<'f32'> {
    const { vocabSize, numBins } = this
    const [scale, edges] = [this.#scale, this.#edges]
    return mapTokens(tokens, { vocabSize, width: scale?.low.length }, (token, at) => {
      const bin = Math.min(Math.max(vocabSize - token - 1, 0), numBins - 2)
      if (scale === undefined) return Math.fround((edges[bin] ?? 0) + (edges[bin + 1] ?? 0)) / 2
      const middle = (doubleEdge(bin, numBins) + doubleEdge(bin + 1, numBins)) / 2
      return scale.mask[at] ? restored(middle, at, scale) : this.#gripperOf(middle)
    })
  }

  #gripperOf(value: number): number {
    const { binarize, threshold, invert } = this.#gripper
    const binary = value > threshold ? 1 : -1
    const held = binarize ? binary : value
    return invert ? -held : held
  }
}

interface Scale {
  readonly low: readonly number[]
  readonly high: readonly number[]
  readonly mask: readonly boolean[]
}

function normalized(action: number, at: number, { low, high, mask }: Scale, round: Rounding): number {
  if (!mask[at]) return action
  const [least, most] = [round(low[at] ?? 0), round(high[at] ?? 0)]
  const width = round(round(most - least) + round(EPSILON))
  return round(round(round(2 * round(action - least)) / width) - 1)
}

function restored(action: number, at: number, { low, high }: Scale): number {
  const [least = 0, most = 0] = [low[at], high[at]]
  return 0.5 * (action + 1) * (most - least + EPSILON) + least
}

/** The edges of bins in single precision: from both ends, as PyTorch's `linspace`. */
function singleEdges(numBins: number): Float32Array {
  const step = Math.fround(2 / (numBins - 1))
  return Float32Array.from({ length: numBins }, (_, at) =>
    at < Math.floor(numBins / 2) ? -1 + Math.fround(step * at) : 1 - Math.fround(step * (numBins - 1 - at)),
  )
}

/** An edge in double precision, as NumPy's `linspace`. */
function doubleEdge(at: number, numBins: number): number {
  return at === numBins - 1 ? 1 : -1 + at * (2 / (numBins - 1))
}

/** Counts the edges at or below a value by halving. */
function numAtOrBelow(edges: Float32Array, value: number): number {
  let [start, end] = [0, edges.length]
  while (start < end) {
    const middle = (start + end) >>> 1
    if ((edges[middle] ?? 0) <= value) start = middle + 1
    else end = middle
  }
  return start
}

function scaleOf({ normLow, normHigh, normMask }: VocabTailActionTokenizerOptions): Scale | undefined {
  if (normLow === undefined && normHigh === undefined && normMask === undefined) return undefined
  if (normLow === undefined || normHigh === undefined) {
    const detail = 'options.normLow and options.normHigh must be given together: one is undefined'
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  const low = numbersOfOption('options.normLow', normLow)
  const high = numbersOfOption('options.normHigh', normHigh)
  const mask: unknown = normMask ?? low.map(() => true)
  if (!Array.isArray(mask) || !mask.every((one) => typeof one === 'boolean'))
    throw new FulmarError('MALFORMED', `options.normMask must be booleans: got ${describeValue(mask)}`)
  if (low.length === high.length && low.length === mask.length) return { low, high, mask }
  const got = `${low.length}, ${high.length} and ${mask.length}`
  throw new FulmarError(
    'SHAPE_MISMATCH',
    `options.normLow, normHigh and normMask must be equally long: got ${got}`,
  )
}

function gripperOf(options: VocabTailActionTokenizerOptions) {
  const { gripperBinarize: binarize = false, gripperBinarizeThreshold: threshold = 0 } = options
  const { gripperInvert: invert = false, normMask } = options
  for (const [name, value] of Object.entries({ gripperBinarize: binarize, gripperInvert: invert })) {
    if (typeof value !== 'boolean')
      throw new FulmarError('MALFORMED', `options.${name} must be a boolean: got ${describeValue(value)}`)
    if (value && normMask === undefined)
      throw new FulmarError(
        'INCOMPATIBLE',
        `options.${name} must come with normMask, which finds the gripper`,
      )
  }
  if (typeof threshold === 'number' && Number.isFinite(threshold)) return { binarize, threshold, invert }
  const got = describeValue(threshold)
  throw new FulmarError('MALFORMED', `options.gripperBinarizeThreshold must be a finite number: got ${got}`)
}
