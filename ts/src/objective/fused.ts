/** From logits, or from hidden states and a linear head, to log-probabilities and back. */

import { call, checkKnownKeys, type OnDevice, placeDevice } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray } from './argument.js'

/** Rows of logits and an id in each. */
export interface TokenLogitsOptions extends OnDevice {
  /** `[N, V]`, row after row; `-Infinity` for a token that cannot be. */
  readonly logits: Float32Array
  /** `[N]`, each below V. */
  readonly ids: Uint32Array
  /** Divides the logits; above 0. @default 1 */
  readonly temperature?: number
}

/** Hidden states, a linear head behind them, and an id for each. */
export interface LinearHeadOptions extends OnDevice {
  /** `[N, width]` */
  readonly hidden: Float32Array
  /** `[V, width]` */
  readonly weight: Float32Array
  /** `[V]` @default none */
  readonly bias?: Float32Array
  /** Floats of a hidden state. */
  readonly width: number
  /** `[N]`, each below V. */
  readonly ids: Uint32Array
  /** Divides the logits; above 0. @default 1 */
  readonly temperature?: number
}

/** What is told beside log-probabilities and entropies. */
export interface TokenSquares {
  /** Whether {@link TokenLogProbsResult.logSumSqProb} is told. @default false */
  readonly logSumSqProb?: boolean
}

/** What a loss says of each token. */
export interface TokenGradients {
  /** `[N]` by its log-probability. */
  readonly gradLogProb: Float32Array
  /** `[N]` by its entropy. @default none */
  readonly gradEntropy?: Float32Array
}

/** Of each id, `[N]`, in nats. */
export interface TokenLogProbsResult {
  /** At most 0. */
  readonly logProb: Float32Array
  /** Of the row's distribution, in `[0, ln V]`. */
  readonly entropy: Float32Array
  /**
   * The logarithm of the sum of the squares of the row's probabilities, in `[-ln V, 0]`: what `useWeighting` of `DPOLoss` weighs by.
   * @default not told
   */
  readonly logSumSqProb?: Float32Array
}

/** Derivatives by what went into a head. */
export interface HeadGradients {
  /** `[N, width]` */
  readonly hidden: Float32Array
  /** `[V, width]` */
  readonly weight: Float32Array
  /** `[V]`, if the head has a bias. */
  readonly bias?: Float32Array
}

const LOGITS_KEYS = ['logits', 'ids', 'temperature', 'device']
const HEAD_KEYS = ['hidden', 'weight', 'bias', 'width', 'ids', 'temperature', 'device']
const SQUARES_KEYS = ['logSumSqProb']
const GRADIENT_KEYS = ['gradLogProb', 'gradEntropy']

/**
 * The log-probabilities of ids under rows of logits, with the entropies of the rows: the same bits as in training.
 *
 * @throws {FulmarError} `EMPTY` without ids; `SHAPE_MISMATCH` if the logits are not as many rows; `OUT_OF_RANGE` for an id that is not
 * below V or a temperature that is not above 0; `NON_FINITE` if a row has a NaN or `Infinity`, or nothing but `-Infinity`;
 * `MALFORMED` for an array of another type; `UNKNOWN_NAME` for an unknown key.
 *
 * @example
 * ```ts
 * import { tokenLogProbs } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const { logProb, entropy } = tokenLogProbs({ logits: new Float32Array(2), ids: Uint32Array.of(1) })
 * assert.deepEqual([...logProb, ...entropy], [-Math.fround(Math.LN2), Math.fround(Math.LN2)])
 * ```
 */
export function tokenLogProbs(options: TokenLogitsOptions & TokenSquares): TokenLogProbsResult {
  checkKnownKeys('tokenLogProbs', options, [...LOGITS_KEYS, ...SQUARES_KEYS])
  checkLogits(options)
  const { logits, ids, temperature = 1, logSumSqProb = false } = options
  const device = placeDevice(options.device)
  const all = call(() => raw.tokenLogProbs(logits, ids, temperature, device, logSumSqProb))
  return partsOf(all, ids.length)
}

/**
 * The gradient by the logits `[N, V]` of a loss whose derivatives by {@link tokenLogProbs} are given. A new array.
 *
 * @throws {FulmarError} Those of {@link tokenLogProbs}; `SHAPE_MISMATCH` and `NON_FINITE` for gradients that are not `[N]` numbers.
 *
 * @example
 * ```ts
 * import { tokenLogProbsBackward } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const gradLogProb = Float32Array.of(-1) // loss = -log p
 * const gradLogits = tokenLogProbsBackward({ logits: new Float32Array(2), ids: Uint32Array.of(1), gradLogProb })
 * assert.deepEqual([...gradLogits], [0.5, -0.5])
 * ```
 */
export function tokenLogProbsBackward(options: TokenLogitsOptions & TokenGradients): Float32Array {
  checkKnownKeys('tokenLogProbsBackward', options, [...LOGITS_KEYS, ...GRADIENT_KEYS])
  checkLogits(options)
  const { logits, ids, temperature = 1 } = options
  const device = placeDevice(options.device)
  const gradients = joined(options)
  return call(() => raw.tokenLogProbsBackward(logits, ids, temperature, gradients, device))
}

/**
 * {@link tokenLogProbs} of the logits `(W h + b) / temperature`, which are computed some rows at a time: at most 4 MB of them exist at
 * once, whatever N and V.
 *
 * @throws {FulmarError} Those of {@link tokenLogProbs}, and `SHAPE_MISMATCH` for hidden states, weights or a bias of another length.
 *
 * @example
 * ```ts
 * import { headLogProbs } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const weight = Float32Array.of(1, 0, 0, 1)
 * const { logProb } = headLogProbs({ hidden: new Float32Array(2), weight, width: 2, ids: Uint32Array.of(0) })
 * assert.deepEqual([...logProb], [-Math.fround(Math.LN2)])
 * ```
 */
export function headLogProbs(options: LinearHeadOptions & TokenSquares): TokenLogProbsResult {
  checkKnownKeys('headLogProbs', options, [...HEAD_KEYS, ...SQUARES_KEYS])
  checkHead(options)
  const { hidden, weight, bias, width, ids, temperature = 1, logSumSqProb = false } = options
  const device = placeDevice(options.device)
  const all = call(() =>
    raw.headLogProbs(hidden, weight, bias, width, ids, temperature, device, logSumSqProb),
  )
  return partsOf(all, ids.length)
}

/**
 * The gradients by hidden states, weights and bias of a loss whose derivatives by {@link headLogProbs} are given. The logits are computed
 * again, some rows at a time. New arrays.
 *
 * @throws {FulmarError} Those of {@link headLogProbs}; `SHAPE_MISMATCH` and `NON_FINITE` for gradients that are not `[N]` numbers.
 *
 * @example
 * ```ts
 * import { headBackward } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const weight = Float32Array.of(1, 0, 0, 1)
 * const head = { hidden: new Float32Array(2), weight, width: 2, ids: Uint32Array.of(0) }
 * const gradients = headBackward({ ...head, gradLogProb: Float32Array.of(-1) })
 * assert.deepEqual([...gradients.hidden], [-0.5, 0.5])
 * ```
 */
export function headBackward(options: LinearHeadOptions & TokenGradients): HeadGradients {
  checkKnownKeys('headBackward', options, [...HEAD_KEYS, ...GRADIENT_KEYS])
  checkHead(options)
  const { hidden, weight, bias, width, ids, temperature = 1 } = options
  const device = placeDevice(options.device)
  const gradients = joined(options)
  const all = call(() => raw.headBackward(hidden, weight, bias, width, ids, temperature, gradients, device))
  const behind = hidden.length + weight.length
  return {
    hidden: all.slice(0, hidden.length),
    weight: all.slice(hidden.length, behind),
    ...(bias && { bias: all.slice(behind) }),
  }
}

function checkLogits(options: TokenLogitsOptions): void {
  checkArray(options, 'logits', 'Float32Array')
  checkArray(options, 'ids', 'Uint32Array')
}

function checkHead(options: LinearHeadOptions): void {
  for (const name of ['hidden', 'weight']) checkArray(options, name, 'Float32Array')
  checkArray(options, 'bias', 'Float32Array', true)
  checkArray(options, 'ids', 'Uint32Array')
}

function joined(options: TokenGradients): Float32Array {
  // Each is read once, and then checked: a getter may do anything.
  const { gradLogProb, gradEntropy } = options
  checkArray({ gradLogProb }, 'gradLogProb', 'Float32Array')
  checkArray({ gradEntropy }, 'gradEntropy', 'Float32Array', true)
  const both = new Float32Array(gradLogProb.length + (gradEntropy?.length ?? 0))
  both.set(gradLogProb)
  both.set(gradEntropy ?? [], gradLogProb.length)
  return both
}

function partsOf(all: Float32Array, numIds: number): TokenLogProbsResult {
  const part = (index: number) => all.slice(index * numIds, (index + 1) * numIds)
  const told = { logProb: part(0), entropy: part(1) }
  return all.length > 2 * numIds ? { ...told, logSumSqProb: part(2) } : told
}
