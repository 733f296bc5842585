/** The ids of prompts, responses and both. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Ragged, Tensor } from '../../tensor/index.js'
import type { NativeTokenizer, PaddingOptions, TokenizerLike } from '../../tokenizer/index.js'
import { padId, toI64 } from './apply-chat-template.js'
import { nestedLike } from './batch.js'
import type { ChatHistory } from './chat-history.js'
import type { FromTextOptions } from './history-options.js'
import type { SequenceFields } from './log-probs.js'
import {
  type SequenceKind,
  type SequenceSpec,
  Sequences,
  type SequencesOptions,
  type TokenField,
} from './sequences.js'
import { Text } from './text.js'

const KIND: SequenceKind<'i64'> = {
  dtype: 'i64',
  keys: { prompt: 'prompt', response: 'response', full: 'full' },
}

/**
 * Token ids, `i64`: ragged rows, or padded tensors. `full` is `prompt` with `response` behind it. Lengths of padded rows
 * are kept, never guessed from the id that pads, so that an end of sequence may pad.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { Text } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const tokens = new Text({ full: ['ab', 'c'] }).toTokens({ tokenizer })
 * assert.deepEqual([tokens.batchSize, tokens.padded], [[2], false])
 * const padded = tokens.toPadded({ side: 'left', value: 0 })
 * assert.equal(padded.rows('full')[1]?.data[0], 0n)
 * assert.deepEqual(padded.toRagged().toText({ tokenizer }).full, ['ab', 'c'])
 * assert.throws(() => padded.toText({ tokenizer }), { code: 'INCOMPATIBLE', message: /padded tokens/ })
 * ```
 */
export class Tokens extends Sequences<keyof SequenceFields, 'i64'> {
  /**
   * @throws {FulmarError} `INCOMPATIBLE` for another dtype, or ragged rows that shall be padded; `SHAPE_MISMATCH` if a
   * field is not of the batch; `UNKNOWN_NAME` for an unknown field or option.
   */
  constructor(fields: SequenceFields = {}, options: SequencesOptions = {}) {
    super(KIND, { ...fields }, options)
  }

  /**
   * One batch of containers of one batch, with the same fields.
   * @throws {FulmarError} `EMPTY` without containers; `SHAPE_MISMATCH` if batches differ; `INCOMPATIBLE` if fields differ
   * or one is padded.
   */
  static stack(all: readonly Tokens[]): Tokens {
    return Sequences.stackOf(Tokens, all)
  }

  /** A plain description. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly (keyof SequenceFields)[] } = {},
  ): SequenceSpec<Tokens> {
    return Sequences.specOf(Tokens, KIND, options)
  }

  /** Ids of the prompts: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent. */
  get prompt(): TokenField | undefined {
    return this.fields.prompt
  }

  /** Ids of the responses: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent. */
  get response(): TokenField | undefined {
    return this.fields.response
  }

  /**
   * Ids of prompts and responses together: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if
   * absent.
   */
  get full(): TokenField | undefined {
    return this.fields.full
  }

  /**
   * Rows of one length.
   * @throws {FulmarError} `INCOMPATIBLE` if padded already, or if neither `value` nor a tokenizer with a padding token
   * says what pads.
   */
  toPadded(options: PaddingOptions & { readonly tokenizer?: NativeTokenizer }): Tokens {
    checkKnownKeys('options', options, ['side', 'value', 'multipleOf', 'tokenizer'])
    const { tokenizer, ...padding } = options
    return this.paddedWith({ ...padding, value: padding.value ?? padId(tokenizer) })
  }

  /**
   * Decodes the ids, with special tokens by name unless `skipSpecialTokens`.
   * @throws {FulmarError} `INCOMPATIBLE` for padded tokens; errors of the decoding.
   */
  toText(options: { readonly tokenizer: TokenizerLike; readonly skipSpecialTokens?: boolean }): Text {
    checkKnownKeys('options', options, ['tokenizer', 'skipSpecialTokens'])
    const { tokenizer, skipSpecialTokens = false } = options
    if (this.padded)
      throw new FulmarError(
        'INCOMPATIBLE',
        'padded tokens must be made ragged before they become text: got padded ones',
      )
    const texts = Object.keys(this.fields).map((name) => {
      const rows = this.rows(name as keyof SequenceFields)
      const decoded = rows.map((row) => tokenizer.decode(idsOf(row), { skipSpecial: skipSpecialTokens }))
      return [name, nestedLike(decoded, this.batchSize)]
    })
    return new Text(Object.fromEntries(texts))
  }

  /** The messages of the texts. @throws {FulmarError} As {@link Tokens.toText} and {@link Text.toHistory}. */
  toHistory(options: FromTextOptions & { readonly tokenizer: NativeTokenizer }): ChatHistory {
    return this.toText({ tokenizer: options.tokenizer }).toHistory(options)
  }
}

/** Ids one behind the other, and where each row begins. */
export interface FlatRows {
  /** Shape `[T]`. */
  readonly ids: Uint32Array
  /** Row `i` has the ids `rows[i]` up to `rows[i + 1]`. Shape `[S + 1]`. */
  readonly rows: Uint32Array
}

/** The rows as a field of `batchSize`. */
export function fieldOf({ ids, rows }: FlatRows, batchSize: readonly number[]): TokenField {
  const values = Tensor.from(toI64(ids))
  return batchSize.length === 0 ? values : Ragged.from(values, rows)
}

/** Returns the part of each row of `full` after the same row of `prompt`. */
export function responsesOf(prompt: FlatRows, full: FlatRows): FlatRows {
  const rows = new Uint32Array(full.rows.length)
  const parts = Array.from({ length: rows.length - 1 }, (_, row) => {
    const [before, whole] = [prompt, full].map((flat) =>
      flat.ids.subarray(flat.rows[row], flat.rows[row + 1]),
    )
    const at = before?.findIndex((id, t) => id !== whole?.[t]) ?? -1
    if (at >= 0) {
      const got = `row ${row} parts at its token ${at}`
      throw new FulmarError('INCOMPATIBLE', `full must begin with the ids of prompt: got another, ${got}`)
    }
    const part = whole?.subarray(before?.length) ?? new Uint32Array()
    rows[row + 1] = (rows[row] ?? 0) + part.length
    return part
  })
  const ids = new Uint32Array(rows.at(-1) ?? 0)
  for (const [row, part] of parts.entries()) ids.set(part, rows[row])
  return { ids, rows }
}

function idsOf(row: Tensor): Uint32Array {
  return Uint32Array.from(row.as('i64').data, (id) => {
    if (id >= 0n && id < 2n ** 32n) return Number(id)
    throw new FulmarError('OUT_OF_RANGE', `ids must be integers from 0 below 2^32: got ${id}`)
  })
}
