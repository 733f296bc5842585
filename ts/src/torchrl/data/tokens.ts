/** The ids of prompts, responses and both. */

import { checkGiven, checkKnownKeys, FulmarError } from '../../core/index.js'
import { Ragged, Tensor, type TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer, PaddingOptions, TokenizerLike } from '../../tokenizer/index.js'
import { padId, toI64 } from './apply-chat-template.js'
import { nestedLike } from './batch.js'
import type { ChatHistory } from './chat-history.js'
import type { FromTextOptions, Nested } from './history.js'
import type { SequenceFields } from './log-probs.js'
import {
  type Parts,
  type SequenceSpec,
  Sequences,
  type SequencesOptions,
  type TokenField,
  zeroParts,
} from './sequences.js'
import { Text } from './text.js'

const NAMES = ['prompt', 'response', 'full'] as const

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
export class Tokens {
  readonly #columns: Sequences

  /**
   * @throws {FulmarError} `INCOMPATIBLE` for another dtype, or ragged rows that shall be padded; `SHAPE_MISMATCH` if a
   * field is not of the batch; `UNKNOWN_NAME` for an unknown field or option.
   */
  constructor(fields: SequenceFields = {}, options: SequencesOptions = {}) {
    this.#columns = new Sequences(NAMES, ['i64'], { ...fields }, options)
  }

  /**
   * One batch of containers of one batch, with the same fields.
   * @throws {FulmarError} `EMPTY` without containers; `SHAPE_MISMATCH` if batches differ; `INCOMPATIBLE` if fields differ
   * or one is padded.
   */
  static stack(all: readonly Tokens[]): Tokens {
    checkGiven('all', all)
    return Tokens.#of(Sequences.stack(all.map((one) => one.#columns)))
  }

  /** A plain description. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly (keyof SequenceFields)[] } = {},
  ): SequenceSpec<Tokens> {
    checkKnownKeys('options', options, ['shape', 'keys'])
    const { shape = [-1], keys = NAMES } = options
    const zero = () => Tokens.#of(zeroParts(shape, keys, (dims) => Tensor.zeros('i64', dims)))
    return {
      shape,
      keys,
      zero,
      contains: (value) => value instanceof Tokens && value.#columns.isOf(shape, keys),
    }
  }

  static #of({ fields, options }: Parts): Tokens {
    return new Tokens(fields, options)
  }

  /** Ids of the prompts: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent. */
  get prompt(): TokenField | undefined {
    return this.#columns.fields.prompt
  }

  /** Ids of the responses: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent. */
  get response(): TokenField | undefined {
    return this.#columns.fields.response
  }

  /**
   * Ids of prompts and responses together: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if
   * absent.
   */
  get full(): TokenField | undefined {
    return this.#columns.fields.full
  }

  /** The batch dimensions; `[]` for one sequence. */
  get batchSize(): readonly number[] {
    return this.#columns.batchSize
  }

  /** True if the fields are padded tensors. */
  get padded(): boolean {
    return this.#columns.padded
  }

  /** The rows of a field in order, the last batch dimension changing fastest; none if it is not there. */
  rows(name: keyof SequenceFields): Tensor[] {
    return this.#columns.rowsOf(name)
  }

  /** The rows of a field in lists nested as the batch is; padded rows with their padding. */
  toList(name: keyof SequenceFields): Nested<Tensor> | undefined {
    return this.#columns.listOf(name)
  }

  /**
   * Rows of one length.
   * @throws {FulmarError} `INCOMPATIBLE` if padded already, or if neither `value` nor a tokenizer with a padding token
   * says what pads.
   */
  toPadded(options: PaddingOptions & { readonly tokenizer?: NativeTokenizer }): Tokens {
    checkKnownKeys('options', options, ['side', 'value', 'multipleOf', 'tokenizer'])
    const { tokenizer, ...padding } = options
    return Tokens.#of(this.#columns.toPadded({ ...padding, value: padding.value ?? padId(tokenizer) }))
  }

  /** Rows without padding. @throws {FulmarError} `INCOMPATIBLE` if their lengths are not known. */
  toRagged(): Tokens {
    return Tokens.#of(this.#columns.toRagged())
  }

  /**
   * Returns an element of the first batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist.
   */
  at(index: number): Tokens {
    return Tokens.#of(this.#columns.at(index))
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
    const texts = Object.keys(this.#columns.fields).map((name) => {
      const rows = this.#columns.rowsOf(name)
      const decoded = rows.map((row) => tokenizer.decode(idsOf(row), { skipSpecial: skipSpecialTokens }))
      return [name, nestedLike(decoded, this.batchSize)]
    })
    return new Text(Object.fromEntries(texts))
  }

  /** The messages of the texts. @throws {FulmarError} As {@link Tokens.toText} and {@link Text.toHistory}. */
  toHistory(options: FromTextOptions & { readonly tokenizer: NativeTokenizer }): ChatHistory {
    return this.toText({ tokenizer: options.tokenizer }).toHistory(options)
  }

  /** The fields by name. @throws {FulmarError} `SHAPE_MISMATCH` for ragged rows of a batch of many dimensions. */
  toTensorDict(): TensorDict {
    return this.#columns.toTensorDict()
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
