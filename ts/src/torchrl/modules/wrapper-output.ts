/** Output of a wrapper: TorchRL's fields, the same for every engine and input mode. */

import type { Message } from '../../chat/index.js'
import type { Completion, TokenScores } from '../../policy/policy.js'
import {
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  type TensorDict,
} from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import type { InputRow } from './wrapper-input.js'
import type { WrapperConfig } from './wrapper-options.js'

/** A prompt and what was drawn after it. */
export interface GeneratedRow {
  readonly prompt: InputRow
  readonly completion: Completion
}

/** A sequence and its scores. */
export interface ScoredRow {
  readonly row: InputRow
  readonly scores: TokenScores
}

/** Puts what was drawn into `dict`, whose batch has one element a row. */
export function writeGenerated(dict: TensorDict, rows: readonly GeneratedRow[], config: WrapperConfig): void {
  const { roots, tokenizer, inputMode, padId, returnLogProbs } = config
  const columns = new Columns(dict, config.padOutput)
  const [prompts, responses] = [
    rows.map(({ prompt }) => prompt.ids),
    rows.map(({ completion }) => completion.ids),
  ]
  if (inputMode !== 'tokens' && tokenizer) writeTexts(dict, rows, tokenizer, roots.text)
  const marks = (mark: number, all: readonly Uint32Array[]) => all.map(({ length }) => filled(length, mark))
  const mask = (prompt: number) => columns.both(marks(prompt, prompts), marks(1, responses), 0)
  columns.set([...roots.masks, 'all_attention_mask'], 'bool', mask(1))
  columns.set([...roots.masks, 'all_assistant_mask'], 'bool', mask(0))
  columns.set([...roots.tokens, 'prompt'], 'i64', columns.padded(prompts, 'left', padId))
  columns.set([...roots.tokens, 'response'], 'i64', columns.padded(responses, 'right', padId))
  columns.set([...roots.tokens, 'full'], 'i64', columns.both(prompts, responses, padId))
  if (returnLogProbs) {
    const drawn = rows.map(({ completion }) => completion.logProbs)
    columns.set([...roots.logProbs, 'response'], 'f32', columns.padded(drawn, 'right', 0))
    // Of the prompt nothing is known, which is not a probability of 1.
    columns.set([...roots.logProbs, 'full'], 'f32', columns.both(marks(Number.NaN, prompts), drawn, 0))
  }
  if (inputMode === 'history') writeChats(dict, rows, config)
}

/** Puts scores into `dict`, whose batch has one element a row. */
export function writeScored(dict: TensorDict, rows: readonly ScoredRow[], config: WrapperConfig): void {
  const { roots, inputMode, padId } = config
  const columns = new Columns(dict, config.padOutput)
  const ids = rows.map(({ row }) => row.ids)
  const put = (
    root: readonly string[],
    name: string,
    dtype: ColumnDtype,
    values: readonly Values[],
    fill: number,
  ) => columns.set([...root, name], dtype, columns.padded(values, 'left', fill))
  if (inputMode !== 'tokens')
    dict.set(
      [...roots.text, 'full'],
      valuesOf(
        rows.map(({ row }) => row.text ?? ''),
        dict,
      ),
    )
  const attended = ids.map(({ length }) => filled(length, 1))
  put(roots.masks, 'all_attention_mask', 'bool', attended, 0)
  const assistant = rows.map(({ row }) => row.assistantMask)
  const known = assistant.filter((mask) => mask !== undefined)
  if (known.length === rows.length && rows.length > 0)
    put(roots.masks, 'all_assistant_mask', 'bool', known, 0)
  put(roots.tokens, 'full', 'i64', ids, padId)
  put(
    roots.logProbs,
    'full',
    'f32',
    rows.map(({ scores }) => scores.logProbs),
    0,
  )
  if (inputMode === 'history') {
    const chats = rows.map(({ row }) => row.chat as unknown as Json)
    dict.set([...roots.history, 'full'], valuesOf(chats, dict))
  }
}

function writeTexts(
  dict: TensorDict,
  rows: readonly GeneratedRow[],
  tokenizer: NativeTokenizer,
  root: readonly string[],
): void {
  const prompt = rows.map((row) => row.prompt.text ?? '')
  const response = rows.map(({ completion }) => tokenizer.decode(completion.ids))
  const full = prompt.map((text, row) => text + response[row])
  for (const [name, texts] of Object.entries({ prompt, response, full }))
    dict.set([...root, name], valuesOf(texts, dict))
}

function writeChats(dict: TensorDict, rows: readonly GeneratedRow[], config: WrapperConfig): void {
  const messages = rows.map(({ completion }) => messageOf(completion, config) as unknown as Json)
  const prompts = rows.map(({ prompt }) => prompt.chat as unknown as readonly Json[])
  const chats = {
    prompt: prompts,
    response: messages.map((message) => [message]),
    full: messages.map((message, row) => [...(prompts[row] ?? []), message]),
  }
  for (const [name, values] of Object.entries(chats))
    dict.set([...config.roots.history, name], valuesOf(values, dict))
}

/** The message without the token that ends a turn: a template would write it a second time. */
function messageOf({ ids }: Completion, { tokenizer, parseResponse, stopIds }: WrapperConfig): Message {
  if (parseResponse) return parseResponse(ids)
  const said = stopIds.includes(ids.at(-1) ?? -1) ? ids.subarray(0, -1) : ids
  return { role: 'assistant', content: tokenizer?.decode(said, { skipSpecial: true }) ?? '' }
}

type Values = ArrayLike<number>
type ColumnDtype = 'i64' | 'f32' | 'bool'

/** Rows of numbers as entries of one dictionary: ragged, or padded to the longest. Of a dictionary without a batch the one row. */
class Columns {
  readonly #dict: TensorDict
  readonly #pads: boolean

  constructor(dict: TensorDict, padOutput: boolean) {
    this.#dict = dict
    this.#pads = padOutput && dict.batchSize.length > 0
  }

  /** Rows with padding on one side, if there is to be padding. */
  padded(rows: readonly Values[], side: 'left' | 'right', fill: number): Values[] {
    if (!this.#pads) return [...rows]
    const width = rows.reduce((most, { length }) => Math.max(most, length), 0)
    return rows.map((row) => {
      const padding = filled(width - row.length, fill)
      return side === 'left' ? concat(padding, row) : concat(row, padding)
    })
  }

  /** Prompts padded at the left with responses padded at the right behind them. */
  both(prompts: readonly Values[], responses: readonly Values[], fill: number): Values[] {
    const after = this.padded(responses, 'right', fill)
    return this.padded(prompts, 'left', fill).map((prompt, row) => concat(prompt, after[row] ?? []))
  }

  set(key: readonly string[], dtype: ColumnDtype, rows: readonly Values[]): void {
    const { batchSize } = this.#dict
    if (batchSize.length === 0) {
      this.#dict.set(key, tensorOf(rows[0] ?? [], dtype))
      return
    }
    const flat = tensorOf(
      rows.flatMap((row) => Array.from(row)),
      dtype,
    )
    if (this.#pads) {
      this.#dict.set(key, flat.reshape([...batchSize, rows[0]?.length ?? 0]))
      return
    }
    const offsets = new Uint32Array(rows.length + 1)
    for (const [row, { length }] of rows.entries()) offsets[row + 1] = (offsets[row] ?? 0) + length
    this.#dict.set(key, Ragged.from(flat, offsets))
  }
}

function tensorOf(values: Values, dtype: ColumnDtype): Tensor {
  if (dtype === 'i64') return Tensor.from(Uint32Array.from(values)).to('i64')
  if (dtype === 'bool') return Tensor.from(Uint8Array.from(values), { dtype: 'bool' })
  return Tensor.from(Float32Array.from(values))
}

/** JSON values, one a row, as an entry of `dict`. */
function valuesOf(values: readonly Json[], { batchSize }: TensorDict): NonTensorData | NonTensorStack {
  const [length, inner] = batchSize
  if (length === undefined) return new NonTensorData(values[0] ?? null)
  if (inner === undefined) return new NonTensorStack(values)
  const rows = Array.from({ length }, (_, row) => values.slice(row * inner, (row + 1) * inner))
  return new NonTensorStack(rows)
}

function filled(length: number, value: number): number[] {
  return new Array<number>(length).fill(value)
}

function concat(left: Values, right: Values): number[] {
  return [...Array.from(left), ...Array.from(right)]
}
