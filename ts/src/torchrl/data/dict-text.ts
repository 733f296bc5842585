/** Texts and ids as entries of dictionaries. */

import { FulmarError } from '../../core/index.js'
import {
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  type TensorDict,
  type TensorKey,
} from '../../tensor/index.js'
import {
  type EncodingBatch,
  type NativeTokenizer,
  type PaddingOptions,
  padBatch,
} from '../../tokenizer/index.js'
import { padId, toI64 } from './apply-chat-template.js'
import { checkBatch, flatTexts, nestedLike, sizeOf } from './batch.js'
import type { TokenField } from './sequences.js'

/** The texts at `key`, one for each element of the batch; one that all share comes as often as there are elements. */
export function textsAt(dict: TensorDict, key: TensorKey): string[] {
  const name = nameOf(key)
  const value = dict.value(key)
  const { flat, batchSize } = flatTexts(name, value)
  const [first] = flat
  if (batchSize.length === 0 && first !== undefined) return new Array(sizeOf(dict.batchSize)).fill(first)
  checkBatch(name, batchSize, dict.batchSize)
  return flat
}

/** Puts values at `key`, one for each element of the batch. */
export function setEach(dict: TensorDict, key: TensorKey, values: readonly unknown[]): void {
  const nested = nestedLike(values, dict.batchSize)
  // The dictionary checks that it is JSON.
  dict.set(
    key,
    dict.batchSize.length === 0 ? new NonTensorData(nested as never) : new NonTensorStack(nested as never),
  )
}

/** The ids of a batch, and which of them are no padding: ragged without `padding`. */
export function columnsOf(
  batch: EncodingBatch,
  batchSize: readonly number[],
  { padding, length, tokenizer }: ColumnOptions,
): { readonly ids: TokenField; readonly attentionMask: TokenField } {
  if (padding !== false) {
    const value = padding.value ?? padId(tokenizer)
    const padded = padBatch(batch, { ...padding, value, ...(length !== undefined && { length }) })
    const shape = [...batchSize, padded.length]
    return {
      ids: Tensor.from(toI64(padded.ids), { shape }),
      attentionMask: Tensor.from(toI64(padded.attentionMask), { shape }),
    }
  }
  const column = (values: BigInt64Array<ArrayBuffer>) =>
    batchSize.length === 0 ? Tensor.from(values) : Ragged.from(Tensor.from(values), batch.rows)
  return {
    ids: column(toI64(batch.ids)),
    attentionMask: column(new BigInt64Array(batch.ids.length).fill(1n)),
  }
}

/** Options of the padding of {@link columnsOf}. */
export interface ColumnOptions {
  readonly padding: false | PaddingOptions
  readonly length?: number
  readonly tokenizer: NativeTokenizer
}

/** The rows of ids at `key`, without those that the mask at `maskKey` calls padding. */
export function idsAt(dict: TensorDict, key: TensorKey, maskKey: TensorKey): Uint32Array[] {
  const [rows, marks] = [key, maskKey].map((at) => (dict.has(at) ? rowsAt(dict, at) : undefined))
  if (rows === undefined) throw new FulmarError('UNKNOWN_NAME', `${nameOf(key)} must be there: it is absent`)
  return rows.map((row, at) => {
    const mark = marks?.[at]
    const kept = mark === undefined ? row : row.filter((_, t) => mark[t] !== 0)
    const wrong = kept.find((id) => !Number.isInteger(id) || id < 0 || id >= 2 ** 32)
    if (wrong === undefined) return Uint32Array.from(kept)
    throw new FulmarError('OUT_OF_RANGE', `${nameOf(key)} must hold integers from 0 below 2^32: got ${wrong}`)
  })
}

function rowsAt(dict: TensorDict, key: TensorKey): number[][] {
  const entry = dict.get(key)
  if (entry instanceof Ragged) {
    return Array.from({ length: entry.numRows }, (_, row) => Array.from(entry.row(row).data, Number))
  }
  if (!(entry instanceof Tensor) || entry.shape.length !== dict.batchSize.length + 1)
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `${nameOf(key)} must be ids of one dimension beside the batch's: got another entry`,
    )
  const width = entry.shape.at(-1) ?? 0
  const flat = Array.from(entry.data, Number)
  return Array.from({ length: sizeOf(dict.batchSize) }, (_, row) =>
    flat.slice(row * width, (row + 1) * width),
  )
}

/** The key of the attention mask of the ids at `key`. */
export function maskKeyOf(key: TensorKey): TensorKey {
  return typeof key === 'string' ? 'attention_mask' : [...key.slice(0, -1), 'attention_mask']
}

/** A key in a message. */
export function nameOf(key: TensorKey): string {
  return typeof key === 'string' ? key : key.join('.')
}
