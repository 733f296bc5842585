/** Samples of a dataset to dictionaries of ids of one length. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Ragged, Tensor, TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer, TruncationOptions } from '../../tokenizer/index.js'
import { padId, toI64 } from './apply-chat-template.js'
import { flatTexts } from './batch.js'
import { columnsOf } from './dict-text.js'

/** Options of {@link TensorDictTokenizer}. Neither side has a default. */
export interface TensorDictTokenizerOptions {
  /** Tokenizer of the texts. */
  readonly tokenizer: NativeTokenizer
  /** The length of every row, special tokens counted in. */
  readonly maxLength: number
  /** Side on which short rows are padded. */
  readonly side: 'left' | 'right'
  /** The end of long texts that is cut off; with `false` rows may be longer than `maxLength`. */
  readonly truncation: false | 'left' | 'right'
  /**
   * Key of a sample's text.
   * @default 'text'
   */
  readonly key?: string
  /**
   * If true, short rows are padded to `maxLength`; with `false` a batch stays ragged.
   * @default true
   */
  readonly padding?: boolean
  /**
   * The id that pads.
   * @default the tokenizer's `pad_token`
   */
  readonly value?: number
  /**
   * If true, names of special tokens in the texts become their ids.
   * @default true
   */
  readonly addedTokens?: boolean
  /**
   * If true, adds the special tokens of the tokenizer's file around the texts.
   * @default true
   */
  readonly addSpecialTokens?: boolean
}

const KEYS = [
  'tokenizer',
  'maxLength',
  'side',
  'truncation',
  'key',
  'padding',
  'value',
  'addedTokens',
  'addSpecialTokens',
]

/**
 * TorchRL's mapper of text samples: `input_ids` and `attention_mask`, `i64`, of `[maxLength]` for a text and
 * `[B, maxLength]` for a list of texts.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { TensorDictTokenizer } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
 * const map = new TensorDictTokenizer({ tokenizer, maxLength: 3, side: 'right', truncation: 'right', value: 0 })
 * const dict = map.apply({ text: ['ab', 'cccc'], label: 7 })
 * assert.deepEqual(dict.tensor('input_ids').data, BigInt64Array.of(1n, 2n, 0n, 3n, 3n, 3n))
 * assert.deepEqual(dict.tensor('attention_mask').data, BigInt64Array.of(1n, 1n, 0n, 1n, 1n, 1n))
 * assert.deepEqual(map.lists({ text: 'a' }), { input_ids: [1, 0, 0], attention_mask: [1, 0, 0] })
 * ```
 */
export class TensorDictTokenizer {
  readonly #options: TensorDictTokenizerOptions

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or side; `OUT_OF_RANGE` if `maxLength` is no integer from 1;
   * `INCOMPATIBLE` without an id for padding.
   */
  constructor(options: TensorDictTokenizerOptions) {
    checkKnownKeys('options', options, KEYS)
    const { maxLength, side, truncation, padding = true, value, tokenizer } = options
    if (!Number.isInteger(maxLength) || maxLength < 1)
      throw new FulmarError('OUT_OF_RANGE', `maxLength must be an integer from 1: got ${maxLength}`)
    checkSide('side', side)
    if (truncation !== false) checkSide('truncation', truncation)
    this.#options = { ...options, ...(padding && { value: value ?? padId(tokenizer) }) }
  }

  /**
   * Encodes a sample's text or texts.
   * @throws {FulmarError} `MALFORMED` without texts; errors of the encoding.
   */
  apply(sample: Readonly<Record<string, unknown>>): TensorDict {
    const { tokenizer, maxLength, side, truncation, key = 'text', padding = true, value = 0 } = this.#options
    const { addedTokens = true, addSpecialTokens = true } = this.#options
    const { flat, batchSize } = flatTexts(key, sample[key])
    const cut: false | TruncationOptions = truncation !== false && { maxLength, side: truncation }
    const batch = tokenizer.encodeBatch(flat, { addedTokens, addSpecialTokens, truncation: cut })
    const lengths = batch.rows.subarray(1).map((end, row) => end - (batch.rows[row] ?? 0))
    const isLong = lengths.some((length) => length > maxLength)
    if (!padding || (isLong && batchSize.length === 0))
      return dictOf(columnsOf(batch, batchSize, { padding: false, tokenizer }), batchSize)
    if (!isLong)
      return dictOf(
        columnsOf(batch, batchSize, { padding: { side, value }, length: maxLength, tokenizer }),
        batchSize,
      )
    const rows = Array.from(lengths, (length, row) => {
      const ids = batch.ids.subarray(batch.rows[row], batch.rows[row + 1])
      const at = side === 'left' ? Math.max(0, maxLength - length) : 0
      const padded = new Uint32Array(Math.max(length, maxLength)).fill(value)
      padded.set(ids, at)
      return { ids: padded, attentionMask: new Uint8Array(padded.length).fill(1, at, at + length) }
    })
    const column = (name: 'ids' | 'attentionMask') =>
      Ragged.fromRows(rows.map((row) => Tensor.from(toI64(row[name]))))
    return dictOf({ ids: column('ids'), attentionMask: column('attentionMask') }, batchSize)
  }

  /** As {@link TensorDictTokenizer.apply}, as plain lists: TorchRL's `return_tensordict=False`. */
  lists(sample: Readonly<Record<string, unknown>>): { input_ids: Ids; attention_mask: Ids } {
    const dict = this.apply(sample)
    const [input_ids, attention_mask] = ['input_ids', 'attention_mask'].map((key) => listOf(dict.get(key)))
    return { input_ids: input_ids ?? [], attention_mask: attention_mask ?? [] }
  }
}

/** The ids of a text, or of each of a list of texts. */
export type Ids = number[] | number[][]

function dictOf(columns: ReturnType<typeof columnsOf>, batchSize: readonly number[]): TensorDict {
  return TensorDict.from({ input_ids: columns.ids, attention_mask: columns.attentionMask }, { batchSize })
}

function listOf(entry: unknown): Ids {
  if (entry instanceof Ragged)
    return Array.from({ length: entry.numRows }, (_, row) => Array.from(entry.row(row).data, Number))
  if (!(entry instanceof Tensor)) return []
  const flat = Array.from(entry.data, Number)
  const [numRows, width] = entry.shape
  if (numRows === undefined || width === undefined) return flat
  return Array.from({ length: numRows }, (_, row) => flat.slice(row * width, (row + 1) * width))
}

function checkSide(name: string, side: unknown): void {
  if (side === 'left' || side === 'right') return
  throw new FulmarError('UNKNOWN_NAME', `${name} must be left or right: got ${String(side)}`)
}
