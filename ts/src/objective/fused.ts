/** Log-probabilities and their gradients, from logits or from hidden states and a linear head. */

import { call, checkKnownKeys, type OnDevice, placeDevice } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray } from './argument.js'

/** Rows of logits with an id for each. */
export interface TokenLogitsOptions extends OnDevice {
  /** `[N, V]`, row after row; `-Infinity` for an impossible token. */
  readonly logits: Float32Array
  /** `[N]`, each below V. */
  readonly ids: Uint32Array
  /** Divisor of the logits; above 0. @default 1 */
  readonly temperature?: number
}

/** Hidden states, a linear head, and an id for each state. */
export interface LinearHeadOptions extends OnDevice {
  /** `[N, width]` */
  readonly hidden: Float32Array
  /** `[V, width]` */
  readonly weight: Float32Array
  /** `[V]` @default none */
  readonly bias?: Float32Array
  /** Number of floats of a hidden state. */
  readonly width: number
  /** `[N]`, each below V. */
  readonly ids: Uint32Array
  /** Divisor of the logits; above 0. @default 1 */
  readonly temperature?: number
}

/** Optional outputs besides log-probabilities and entropies. */
export interface TokenSquares {
  /** If true, returns {@link TokenLogProbsResult.logSumSqProb}. @default false */
  readonly logSumSqProb?: boolean
}

/** Gradients of a loss at each token. */
export interface TokenGradients {
  /** `[N]` with respect to its log-probability. */
  readonly gradLogProb: Float32Array
  /** `[N]` with respect to its entropy. @default none */
  readonly gradEntropy?: Float32Array
}

/** Results for each id, `[N]`, in nats. */
export interface TokenLogProbsResult {
  /** Log-probability of the id, at most 0. */
  readonly logProb: Float32Array
  /** Entropy of the row's distribution, in `[0, ln V]`. */
  readonly entropy: Float32Array
  /**
   * Logarithm of the sum of the squares of the row's probabilities, in `[-ln V, 0]`: the weight of
   * `useWeighting` of `DPOLoss`.
   * @default absent
   */
  readonly logSumSqProb?: Float32Array
}

/** Gradients with respect to the inputs of a head. */
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
 * Computes log-probabilities of ids under rows of logits, and the entropies of the rows: the same bits as in
 * training.
 *
 * @throws {FulmarError} `EMPTY` without ids; `SHAPE_MISMATCH` if the logits have another number of rows;
 * `OUT_OF_RANGE` for an id that is not below V or a temperature that is not above 0; `NON_FINITE` if a row
 * has a NaN or `Infinity`, or only `-Infinity`;
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
 * Computes the gradient with respect to the logits `[N, V]` from a loss's gradients at {@link tokenLogProbs}.
 * A new array.
 *
 * @throws {FulmarError} The errors of {@link tokenLogProbs}; `SHAPE_MISMATCH` and `NON_FINITE` for gradients that are not `[N]` numbers.
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
 * Computes {@link tokenLogProbs} of the logits `(W h + b) / temperature` in blocks of rows: at most 4 MB of
 * logits exist at once, for any N and V.
 *
 * @throws {FulmarError} The errors of {@link tokenLogProbs}, and `SHAPE_MISMATCH` for hidden states, weights or a bias of another length.
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
 * Computes the gradients with respect to hidden states, weights and bias from a loss's gradients at
 * {@link headLogProbs}. Recomputes the logits in blocks of rows. New arrays.
 *
 * @throws {FulmarError} The errors of {@link headLogProbs}; `SHAPE_MISMATCH` and `NON_FINITE` for gradients that are not `[N]` numbers.
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
  // Each is read once and then checked, as a getter may return another value.
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
