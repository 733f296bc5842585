/** Rows that a generator of one batch leaves: padding on both sides, and logits of each step. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { tokenLogProbs } from '../../objective/index.js'
import { Tensor } from '../../tensor/index.js'
import { checkShape } from './rollout-steps.js'

/** Id of GPT-2's end of text. */
const END_ID = 50_256

/**
 * Mirrors the places of the padding of each row, so that it moves from the right to the left; the tokens keep their order. TorchRL's
 * `RolloutFromModel._padded_right_to_left`. Copies.
 * @throws {FulmarError} `SHAPE_MISMATCH` for ids that have not two dimensions; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar/tensor'
 * import { paddedRightToLeft } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const ids = Tensor.from(BigInt64Array.of(4n, 5n, 0n, 6n, 0n, 0n), { shape: [2, 3] })
 * assert.deepEqual(paddedRightToLeft(ids, { endId: 0 }).data, BigInt64Array.of(0n, 4n, 5n, 0n, 0n, 6n))
 * ```
 */
export function paddedRightToLeft(
  ids: Tensor<'i64'>,
  options: { readonly endId?: number } = {},
): Tensor<'i64'> {
  checkKnownKeys('options', options, ['endId'])
  const { endId = END_ID } = options
  const rows = idRows(ids).map((row) => {
    const tokens = row.filter((id) => id !== BigInt(endId)).values()
    return Array.from(row.toReversed(), (id) => (id === BigInt(endId) ? id : (tokens.next().value ?? id)))
  })
  return Tensor.from(BigInt64Array.from(rows.flat()), { shape: ids.shape })
}

/**
 * Removes the padding at the left of each row, and pads it on the right to `sequenceLength`, by default the width: TorchRL's
 * `RolloutFromModel._padded_left_to_right`. Copies.
 * @throws {FulmarError} `SHAPE_MISMATCH` for ids that have not two dimensions; `OUT_OF_RANGE` for a length that a row exceeds;
 *   `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar/tensor'
 * import { paddedLeftToRight } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const ids = Tensor.from(BigInt64Array.of(0n, 4n, 5n), { shape: [1, 3] })
 * const padded = paddedLeftToRight(ids, { endId: 0, sequenceLength: 4 })
 * assert.deepEqual(padded.data, BigInt64Array.of(4n, 5n, 0n, 0n))
 * ```
 */
export function paddedLeftToRight(
  ids: Tensor<'i64'>,
  options: { readonly endId?: number; readonly sequenceLength?: number } = {},
): Tensor<'i64'> {
  checkKnownKeys('options', options, ['endId', 'sequenceLength'])
  const rows = idRows(ids)
  const { endId = END_ID, sequenceLength: width = ids.shape[1] ?? 0 } = options
  const owned = rows.map((row) => {
    const start = row.findIndex((id) => id !== BigInt(endId))
    return start < 0 ? row.subarray(row.length) : row.subarray(start)
  })
  const least = Math.max(0, ...owned.map((row) => row.length))
  if (!Number.isSafeInteger(width) || width < least || rows.length * width > IDS_MAX) {
    const rule = `an integer from ${least}, with at most ${IDS_MAX} ids in all rows`
    const got = describeValue(width)
    throw new FulmarError('OUT_OF_RANGE', `options.sequenceLength must be ${rule}: got ${got}`)
  }
  const moved = new BigInt64Array(rows.length * width).fill(BigInt(endId))
  for (const [at, row] of owned.entries()) moved.set(row, at * width)
  return Tensor.from(moved, { shape: [rows.length, width] })
}

/** Most ids of padded rows. */
const IDS_MAX = 2 ** 27

/** Options of {@link generatedLogProbs}. */
export interface GeneratedLogProbsOptions {
  /** Gives the most likely token of each step in place of the generated one. @default false */
  readonly useMax?: boolean
}

/**
 * Log-probabilities of generated ids, `i64` `[B, N]`, under the logits of each step, `f32` `[B, V]`: `f32` `[B, N]`, NaN for steps without
 * logits, which a generator that ended early leaves. TorchRL's `RolloutFromModel._get_scores`.
 * @throws {FulmarError} `SHAPE_MISMATCH` for logits of another batch, or of more steps than ids; the errors of `tokenLogProbs`.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar/tensor'
 * import { generatedLogProbs } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const logits = [Tensor.from([0, 0], { shape: [1, 2] })]
 * const generated = Tensor.from(BigInt64Array.of(1n, 0n), { shape: [1, 2] })
 * assert.deepEqual(generatedLogProbs(logits, generated).data, Float32Array.of(-Math.LN2, NaN))
 * ```
 */
export function generatedLogProbs(
  logits: readonly Tensor<'f32'>[],
  generated: Tensor<'i64'>,
  options: GeneratedLogProbsOptions = {},
): Tensor<'f32'> {
  checkKnownKeys('options', options, ['useMax'])
  checkGiven('logits', logits)
  const rows = idRows(generated)
  const steps = generated.shape[1] ?? 0
  if (logits.length > steps)
    throw new FulmarError('SHAPE_MISMATCH', `logits must be of at most ${steps} steps: got ${logits.length}`)
  const logProbs = new Float32Array(rows.length * steps).fill(Number.NaN)
  for (const [step, part] of logits.entries()) {
    checkShape(`logits[${step}]`, part, [rows.length, part.shape[1] ?? 0])
    const drawn = rows.map((row) => Number(row[step]))
    const ids = Uint32Array.from(options.useMax ? largestOf(part) : drawn)
    const { logProb } = tokenLogProbs({ logits: part.data, ids })
    for (const [row, one] of logProb.entries()) logProbs[row * steps + step] = one
  }
  return Tensor.from(logProbs, { shape: [rows.length, steps] })
}

/** The position of the largest number of each row. */
function largestOf({ data, shape }: Tensor<'f32'>): number[] {
  const [numRows = 0, width = 0] = shape
  return Array.from({ length: numRows }, (_, row) => {
    const own = data.subarray(row * width, (row + 1) * width)
    return own.reduce((best, value, at) => (value > (own[best] ?? Number.NEGATIVE_INFINITY) ? at : best), 0)
  })
}

function idRows(ids: Tensor<'i64'>): BigInt64Array[] {
  checkIds(ids)
  const [numRows = 0, width = 0] = ids.shape
  checkShape('ids', ids, [numRows, width])
  return Array.from({ length: numRows }, (_, row) => ids.data.subarray(row * width, (row + 1) * width))
}

function checkIds(ids: unknown): void {
  if (ids instanceof Tensor && ids.dtype === 'i64') return
  const got = ids instanceof Tensor ? ids.dtype : describeValue(ids)
  throw new FulmarError('MALFORMED', `ids must be a tensor of i64: got ${got}`)
}
