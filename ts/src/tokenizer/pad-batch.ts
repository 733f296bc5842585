/** Padding and truncation of texts of unequal length. The side is always explicit. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { EncodingBatch } from './tokenizer-like.js'

/** Options of padding. */
export interface PaddingOptions {
  /**
   * Side on which short rows are padded: `left` for prompts that generation continues, `right` for training.
   */
  readonly side: 'left' | 'right'
  /**
   * The id that pads.
   * @default the tokenizer's `pad_token`
   */
  readonly value?: number
  /**
   * The length is a multiple of this.
   * @default 1
   */
  readonly multipleOf?: number
}

/** Options of truncation. */
export interface TruncationOptions {
  /** The most tokens that are kept. */
  readonly maxLength: number
  /**
   * The end that is cut off.
   * @default 'right'
   */
  readonly side?: 'left' | 'right'
}

/** Options of {@link padBatch}. */
export interface PadBatchOptions extends PaddingOptions {
  readonly value: number
  /**
   * The length of every row, before it is rounded up to `multipleOf`.
   * @default that of the longest row
   */
  readonly length?: number
}

/** Rows of one length. */
export interface PaddedBatch {
  /** Shape `[N, L]`, row-major. */
  readonly ids: Uint32Array
  /** 1 for a token of the text, 0 for padding. Shape of `ids`. */
  readonly attentionMask: Uint8Array
  /** `L`. */
  readonly length: number
}

/**
 * The rows of a batch at one length, and which of their ids are padding. A copy.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if a row is longer than `length` (truncate it before), or for invalid ids
 * and lengths; `UNKNOWN_NAME` for another side or an unknown option.
 *
 * @example
 * ```ts
 * import { CharTokenizer, padBatch } from 'fulmar/tokenizer'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
 * const batch = tokenizer.encodeBatch(['abc', 'c'], { truncation: { maxLength: 2, side: 'left' } })
 * const { ids, attentionMask, length } = padBatch(batch, { side: 'left', value: 0, multipleOf: 3 })
 * assert.equal(length, 3)
 * assert.deepEqual([...ids], [0, 2, 3, 0, 0, 3])
 * assert.deepEqual([...attentionMask], [0, 1, 1, 0, 0, 1])
 * ```
 */
export function padBatch(batch: EncodingBatch, options: PadBatchOptions): PaddedBatch {
  checkGiven('batch', batch)
  const { ids, rows } = batch
  checkKnownKeys('options', options, ['side', 'value', 'multipleOf', 'length'])
  const { side, value, multipleOf = 1 } = options
  checkSide('options.side', side)
  checkInteger('options.value', value, 0)
  checkInteger('options.multipleOf', multipleOf, 1)
  const numRows = rows.length - 1
  const ends = rows.subarray(1)
  const longest = ends.reduce((most, end, row) => Math.max(most, end - (rows[row] ?? 0)), 0)
  const wanted = options.length ?? longest
  checkInteger('options.length', wanted, 0)
  if (longest > wanted) {
    throw new FulmarError(
      'OUT_OF_RANGE',
      `options.length must be at least ${longest}, as a row is: got ${wanted}`,
    )
  }
  const length = Math.ceil(wanted / multipleOf) * multipleOf
  checkInteger('the number of padded ids', numRows * length, 0)
  const padded = new Uint32Array(numRows * length).fill(value)
  const attentionMask = new Uint8Array(numRows * length)
  for (let row = 0; row < numRows; row += 1) {
    const part = ids.subarray(rows[row], rows[row + 1])
    const at = row * length + (side === 'left' ? length - part.length : 0)
    padded.set(part, at)
    attentionMask.fill(1, at, at + part.length)
  }
  return { ids: padded, attentionMask, length }
}

/** @internal A batch with every row cut, and `before` and `after` around what is left: both within `maxLength`. */
export function rearrangeBatch(
  batch: EncodingBatch,
  [before, after]: readonly [readonly number[], readonly number[]],
  truncation: false | TruncationOptions = false,
): EncodingBatch {
  const numAround = before.length + after.length
  const { most, side } = cutOf(truncation, numAround)
  const rows = new Uint32Array(batch.rows.length)
  const pieces: [number, number][] = []
  for (let row = 0; row + 1 < rows.length; row += 1) {
    const [start = 0, end = 0] = batch.rows.subarray(row, row + 2)
    const kept = Math.min(end - start, most)
    pieces.push(side === 'left' ? [end - kept, end] : [start, start + kept])
    rows[row + 1] = (rows[row] ?? 0) + kept + numAround
  }
  const ids = new Uint32Array(rows.at(-1) ?? 0)
  const offsets = new Uint32Array(2 * ids.length)
  for (const [row, [start, end]] of pieces.entries()) {
    const at = (rows[row] ?? 0) + before.length
    ids.set(before, rows[row])
    ids.set(batch.ids.subarray(start, end), at)
    ids.set(after, at + end - start)
    offsets.set(batch.offsets.subarray(2 * start, 2 * end), 2 * at)
  }
  return { ids, offsets, rows }
}

/** Returns the number of tokens of a text that stay, and the side that is cut. */
function cutOf(truncation: false | TruncationOptions, numAround: number) {
  if (truncation === false) return { most: Number.POSITIVE_INFINITY, side: 'right' }
  checkKnownKeys('options.truncation', truncation, ['maxLength', 'side'])
  const { maxLength, side = 'right' } = truncation
  checkSide('options.truncation.side', side)
  checkInteger('options.truncation.maxLength', maxLength, numAround)
  return { most: maxLength - numAround, side }
}

function checkSide(name: string, side: unknown): void {
  if (side === 'left' || side === 'right') return
  throw new FulmarError('UNKNOWN_NAME', `${name} must be left or right: got ${describeValue(side)}`)
}

function checkInteger(name: string, value: unknown, min: number): void {
  if (Number.isInteger(value) && Number(value) >= min && Number(value) < 2 ** 32) return
  const rule = `must be an integer from ${min} to ${2 ** 32 - 1}`
  throw new FulmarError('OUT_OF_RANGE', `${name} ${rule}: got ${describeValue(value)}`)
}
