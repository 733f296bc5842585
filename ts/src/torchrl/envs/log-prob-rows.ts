/** Scores of a model for the tokens of finished turns. */

import type { MaskOptions } from '../../chat/index.js'
import { FulmarError } from '../../core/index.js'
import type { Policy } from '../../policy/index.js'
import { Ragged, Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import type { RenderingOptions } from '../data/apply-chat-template.js'
import { sizeOf } from '../data/batch.js'
import { ChatHistory } from '../data/chat-history.js'
import { History } from '../data/history.js'
import { idRowsAt } from './token-rows.js'

/** A policy that can score: `DecoderPolicy`, and whatever else has `score`. */
export type ScoringPolicy = Required<Pick<Policy, 'score'>>

/** Options of the tokens of an action, and their mask. */
export interface TokenScoringOptions {
  /** Encodes messages where the action holds no `tokens.full`. */
  readonly tokenizer?: NativeTokenizer
  /** Other inputs of the chat template. @default the tokenizer's template */
  readonly template?: Omit<RenderingOptions, 'tokenizer'>
  /** Mask of the assistant's tokens. */
  readonly mask?: MaskOptions
  /**
   * If true, only the assistant's tokens count: those of `masks.all_assistant_mask`, or after
   * `tokens.prompt`, or of the assistant's turns if there are only messages. Else all tokens after the first.
   * @default true
   */
  readonly assistantOnly?: boolean
}

/** One sequence, and for each token whether it counts. */
export interface MaskedIds {
  readonly ids: Uint32Array
  readonly mask: Uint8Array
}

/** The sequences of actions. */
export function maskedIdsOf(root: TensorDict, options: TokenScoringOptions): MaskedIds[] {
  const { tokenizer, template, mask: maskOptions, assistantOnly = true } = options
  const rows = idRowsAt(root, ['tokens', 'full'])
  if (rows) {
    const marks = assistantOnly ? marksOf(root, rows) : rows.map((ids) => new Uint8Array(ids.length).fill(1))
    return rows.map((ids, at) => ({ ids, mask: marks[at] ?? new Uint8Array(ids.length) }))
  }
  if (!root.has(['history', 'full'])) {
    throw new FulmarError(
      'UNKNOWN_NAME',
      'dict must have tokens.full or history.full to be scored: got neither',
    )
  }
  if (tokenizer === undefined) {
    throw new FulmarError(
      'INCOMPATIBLE',
      'tokenizer must be given where dict has no tokens.full: it is undefined',
    )
  }
  const full = History.fromChats(JSON.stringify(root.value(['history', 'full'])))
  const chat = new ChatHistory({ full })
  const rendering = { ...template, tokenizer }
  const idRows = chat.toTokens(rendering).rows('full')
  const masks = assistantOnly
    ? chat.toMasks({ ...rendering, ...(maskOptions && { mask: maskOptions }) }).rows('allAssistantMask')
    : undefined
  return idRows.map((row, at) => ({
    ids: Uint32Array.from(row.data, Number),
    mask: masks ? Uint8Array.from(masks[at]?.data ?? [], Number) : new Uint8Array(row.shape[0] ?? 0).fill(1),
  }))
}

/** Returns the assistant's tokens: those of a mask, or all after the prompt. */
function marksOf(root: TensorDict, rows: readonly Uint32Array[]): Uint8Array[] {
  const entry = root.get(['masks', 'all_assistant_mask'])
  if (entry instanceof Ragged) {
    return rows.map((ids, at) =>
      checkedLength('masks.all_assistant_mask', Uint8Array.from(entry.row(at).data, Number), ids),
    )
  }
  const prompts = idRowsAt(root, ['tokens', 'prompt'])
  if (prompts === undefined) {
    const detail =
      'dict must have masks.all_assistant_mask or tokens.prompt where assistantOnly is true: got neither'
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  return rows.map((ids, at) => Uint8Array.from(ids, (_, t) => Number(t >= (prompts[at]?.length ?? 0))))
}

/** The log-probabilities of the tokens that count, 0 elsewhere; a first token, which follows none, is 0, too. */
export async function scoreRows(
  model: ScoringPolicy,
  sequences: readonly MaskedIds[],
  signal?: AbortSignal,
): Promise<Float32Array[]> {
  const scored = sequences.map(async ({ ids, mask }, at) => {
    if (!mask.includes(1)) return new Float32Array(ids.length)
    const request = { requestId: `score-${at}`, ids, ...(signal && { signal }) }
    const { logProbs } = await model.score(request)
    checkedLength('logProbs', logProbs, ids)
    return Float32Array.from(ids, (_, t) => (mask[t] && t > 0 ? (logProbs[t] ?? Number.NaN) : 0))
  })
  return Promise.all(scored)
}

/** Returns the numbers of each element at `key`; `undefined` if absent. */
export function floatRowsAt(dict: TensorDict, key: TensorKey): Float32Array[] | undefined {
  const entry = dict.get(key)
  if (entry === undefined) return undefined
  if (entry instanceof Ragged) {
    return Array.from({ length: entry.numRows }, (_, row) => entry.row(row).toFloat32())
  }
  if (!(entry instanceof Tensor)) {
    throw new FulmarError('INCOMPATIBLE', `${JSON.stringify(key)} must hold numbers: got another entry`)
  }
  const flat = entry.reshape([
    sizeOf(dict.batchSize),
    entry.numElements / Math.max(sizeOf(dict.batchSize), 1),
  ])
  return Array.from({ length: sizeOf(dict.batchSize) }, (_, row) => flat.select(0, row).toFloat32())
}

/** Puts numbers at `key`, `f32`, a row for each element. */
export function setFloatRows(dict: TensorDict, key: TensorKey, rows: readonly Float32Array[]): TensorDict {
  return dict.set(key, Ragged.fromRows(rows.map((row) => Tensor.from(row))))
}

function checkedLength<A extends ArrayLike<number>>(name: string, values: A, ids: Uint32Array): A {
  if (values.length === ids.length) return values
  throw new FulmarError(
    'SHAPE_MISMATCH',
    `${name} must have one entry per token (${ids.length}): got ${values.length}`,
  )
}
