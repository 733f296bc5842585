/** Dictionaries of turns as the batch that a decoder and a loss take. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Ragged, Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'
import { checkDict } from '../../tensor/tensor-dict.js'
import { sizeOf } from './batch.js'
import { nameOf } from './dict-text.js'

/** Options of {@link lossBatch}: keys, as an `LLMWrapperBase` and `MCAdvantage` write them. */
export interface LossBatchOptions {
  /** Ids of whole sequences. @default ['tokens', 'full'] */
  readonly tokensKey?: TensorKey
  /** Key of the mask of tokens that are not padding; read only for padded ids. @default ['masks', 'all_attention_mask'] */
  readonly attentionMaskKey?: TensorKey
  /** Key of the mask of trained tokens. @default ['masks', 'all_assistant_mask'] */
  readonly maskKey?: TensorKey
  /** Log-probabilities of the policy that drew them. @default ['log_probs', 'full'] */
  readonly logProbsKey?: TensorKey
  /** Advantages: one a sequence, or one a token. @default 'advantage' */
  readonly advantageKey?: TensorKey
}

/** Sequences of tokens without padding, for `Decoder.forward` and a loss. */
export interface LossBatchRows {
  /** `[T]` ids of all sequences, one behind the other. */
  readonly ids: Uint32Array<ArrayBuffer>
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array<ArrayBuffer>
  /** `[T]` 1 where a token is trained. */
  readonly mask: Uint8Array<ArrayBuffer>
  /** `[T]` log-probabilities of the policy that drew the tokens; 0 where none is trained. */
  readonly oldLogProb: Float32Array<ArrayBuffer>
  /** `[S]` or `[T]` advantages. */
  readonly advantage: Float32Array<ArrayBuffer>
}

const KEYS = ['tokensKey', 'attentionMaskKey', 'maskKey', 'logProbsKey', 'advantageKey'] as const

/**
 * Reads the columns of a loss out of `dict`, whose rows are ragged or padded on either side.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` without one of the columns; `SHAPE_MISMATCH` for columns of different
 * lengths; `OUT_OF_RANGE` for an id that is not an integer below 2^32; `NON_FINITE` for a trained token without a log-probability;
 * `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { GRPOLoss } from 'fulmar'
 * import { Ragged, Tensor, TensorDict } from 'fulmar/tensor'
 * import { lossBatch } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const rows = (...values: number[][]) => Ragged.fromRows(values.map((row) => Tensor.from(Float32Array.from(row))))
 * const full = Ragged.fromRows([[5, 6, 7], [5, 8]].map((row) => Tensor.from(Uint32Array.from(row))))
 * const dict = TensorDict.from({
 *   tokens: TensorDict.from({ full }, { batchSize: [2] }),
 *   masks: TensorDict.from({ all_assistant_mask: rows([0, 1, 1], [0, 1]) }, { batchSize: [2] }),
 *   log_probs: TensorDict.from({ full: rows([NaN, -1, -2], [NaN, -3]) }, { batchSize: [2] }),
 *   advantage: Tensor.from([1, -1]),
 * }, { batchSize: [2] })
 * const { ids, ...batch } = lossBatch(dict)
 * assert.deepEqual([[...ids], [...batch.offsets]], [[5, 6, 7, 5, 8], [0, 3, 5]])
 * const { loss } = new GRPOLoss().forward({ ...batch, logProb: batch.oldLogProb })
 * assert.equal(loss.toFixed(4), '-0.3333') // two tokens up, one down
 * ```
 */
export function lossBatch(dict: TensorDict, options: LossBatchOptions = {}): LossBatchRows {
  checkKnownKeys('options', options, KEYS)
  checkDict(dict)
  const { tokensKey = ['tokens', 'full'], maskKey = ['masks', 'all_assistant_mask'] } = options
  const { attentionMaskKey = ['masks', 'all_attention_mask'] } = options
  const { logProbsKey = ['log_probs', 'full'], advantageKey = 'advantage' } = options
  const tokens = entryAt(dict, tokensKey)
  const kept = tokens instanceof Ragged ? undefined : valuesOf(entryAt(dict, attentionMaskKey))
  const all = valuesOf(tokens)
  const rows = rowsOf(tokens, sizeOf(dict.batchSize))
  const column = (key: TensorKey) => {
    const values = valuesOf(entryAt(dict, key))
    checkLength(key, values.length, all.length)
    return unpadded(values, kept)
  }
  if (kept) checkLength(attentionMaskKey, kept.length, all.length)
  const ids = Uint32Array.from(unpadded(all, kept), (id) => checkedId(id, tokensKey))
  const mask = Uint8Array.from(column(maskKey), (flag) => Number(flag !== 0))
  const oldLogProb = Float32Array.from(column(logProbsKey), (value, at) => (mask[at] === 1 ? value : 0))
  const lost = oldLogProb.findIndex((value) => !Number.isFinite(value))
  if (lost >= 0) {
    const detail = `${nameOf(logProbsKey)} must be finite where tokens are trained: got ${oldLogProb[lost]} at token ${lost}`
    throw new FulmarError('NON_FINITE', detail)
  }
  const advantages = valuesOf(entryAt(dict, advantageKey))
  const isEach = advantages.length !== rows.length - 1
  if (isEach) checkLength(advantageKey, advantages.length, all.length)
  const advantage = Float32Array.from(isEach ? unpadded(advantages, kept) : advantages)
  return { ids, offsets: offsetsOf(rows, kept), mask, oldLogProb, advantage }
}

function entryAt(dict: TensorDict, key: TensorKey): Tensor | Ragged {
  const entry = dict.get(key)
  if (entry instanceof Tensor || entry instanceof Ragged) return entry
  throw new FulmarError('UNKNOWN_NAME', `dict must have a tensor at ${nameOf(key)}: got ${dict.keys()}`)
}

function valuesOf(entry: Tensor | Ragged): number[] {
  return Array.from((entry instanceof Ragged ? entry.values : entry).data, Number)
}

/** Bounds of the rows in the flat values, padding included. */
function rowsOf(tokens: Tensor | Ragged, size: number): number[] {
  if (tokens instanceof Ragged) return Array.from(tokens.offsets)
  const width = tokens.numElements / Math.max(size, 1)
  return Array.from({ length: size + 1 }, (_, row) => row * width)
}

function offsetsOf(rows: readonly number[], kept: readonly number[] | undefined): Uint32Array<ArrayBuffer> {
  if (kept === undefined) return Uint32Array.from(rows)
  const counts = new Uint32Array(kept.length + 1)
  for (const [at, flag] of kept.entries()) counts[at + 1] = (counts[at] ?? 0) + Number(flag !== 0)
  return Uint32Array.from(rows, (at) => counts[at] ?? 0)
}

function unpadded(values: readonly number[], kept: readonly number[] | undefined): readonly number[] {
  return kept ? values.filter((_, at) => kept[at] !== 0) : values
}

function checkLength(key: TensorKey, got: number, expected: number): void {
  if (got === expected) return
  throw new FulmarError(
    'SHAPE_MISMATCH',
    `${nameOf(key)} must have ${expected} values, one a token: got ${got}`,
  )
}

function checkedId(id: number, key: TensorKey): number {
  if (Number.isInteger(id) && id >= 0 && id < 2 ** 32) return id
  throw new FulmarError('OUT_OF_RANGE', `${nameOf(key)} must hold integers from 0 below 2^32: got ${id}`)
}
