/** Log-probabilities of prompts, responses and both, aligned with tokens. */

import { checkGiven, checkKnownKeys } from '../../core/index.js'
import { Tensor, type TensorDict } from '../../tensor/index.js'
import type { PaddingOptions } from '../../tokenizer/index.js'
import type { Nested } from './history.js'
import {
  type Parts,
  type SequenceSpec,
  Sequences,
  type SequencesOptions,
  type TokenField,
  zeroParts,
} from './sequences.js'

/** The fields of {@link Tokens} and {@link LogProbs}. */
export interface SequenceFields {
  readonly prompt?: TokenField | undefined
  readonly response?: TokenField | undefined
  readonly full?: TokenField | undefined
}

const NAMES = ['prompt', 'response', 'full'] as const

/**
 * Log-probabilities, `f32`, one for each token of {@link Tokens} of the same batch: ragged rows, or padded tensors whose
 * padding is 0 unless another value is said. A missing one is NaN, never 0.
 *
 * @example
 * ```ts
 * import { Ragged, Tensor } from 'fulmar/tensor'
 * import { LogProbs } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const response = Ragged.fromRows([Tensor.from([-0.5, -1]), Tensor.from([-2])])
 * const logProbs = new LogProbs({ response })
 * const padded = logProbs.toPadded({ side: 'right' })
 * assert.deepEqual([padded.batchSize, padded.padded], [[2], true])
 * assert.deepEqual(padded.rows('response')[1]?.data, Float32Array.of(-2, 0))
 * assert.deepEqual(padded.toRagged().rows('response')[1]?.data, Float32Array.of(-2))
 * ```
 */
export class LogProbs {
  readonly #columns: Sequences

  /**
   * @throws {FulmarError} `INCOMPATIBLE` for another dtype, or ragged rows that shall be padded; `SHAPE_MISMATCH` if a
   * field is not of the batch; `UNKNOWN_NAME` for an unknown field or option.
   */
  constructor(fields: SequenceFields = {}, options: SequencesOptions = {}) {
    this.#columns = new Sequences(NAMES, ['f32'], { ...fields }, options)
  }

  /** One batch of containers of one batch, with the same fields. @throws {FulmarError} As {@link Tokens.stack}. */
  static stack(all: readonly LogProbs[]): LogProbs {
    checkGiven('all', all)
    return LogProbs.#of(Sequences.stack(all.map((one) => one.#columns)))
  }

  /** A plain description. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly (keyof SequenceFields)[] } = {},
  ): SequenceSpec<LogProbs> {
    checkKnownKeys('options', options, ['shape', 'keys'])
    const { shape = [-1], keys = NAMES } = options
    const zero = () => LogProbs.#of(zeroParts(shape, keys, (dims) => Tensor.zeros('f32', dims)))
    return {
      shape,
      keys,
      zero,
      contains: (value) => value instanceof LogProbs && value.#columns.isOf(shape, keys),
    }
  }

  static #of({ fields, options }: Parts): LogProbs {
    return new LogProbs(fields, options)
  }

  /**
   * Log-probabilities of the prompts: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent.
   */
  get prompt(): TokenField | undefined {
    return this.#columns.fields.prompt
  }

  /**
   * Log-probabilities of the responses: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent.
   */
  get response(): TokenField | undefined {
    return this.#columns.fields.response
  }

  /**
   * Log-probabilities of prompts and responses together: `[L]`, ragged rows, or padded `[...batch, L]`;
   * `undefined` if absent.
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

  /** Rows of one length; 0 pads unless another value is said. @throws {FulmarError} `INCOMPATIBLE` if padded already. */
  toPadded(options: PaddingOptions): LogProbs {
    return LogProbs.#of(this.#columns.toPadded({ value: 0, ...options }))
  }

  /** Rows without padding. @throws {FulmarError} `INCOMPATIBLE` if their lengths are not known. */
  toRagged(): LogProbs {
    return LogProbs.#of(this.#columns.toRagged())
  }

  /**
   * Returns an element of the first batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist.
   */
  at(index: number): LogProbs {
    return LogProbs.#of(this.#columns.at(index))
  }

  /** The fields by name. @throws {FulmarError} `SHAPE_MISMATCH` for ragged rows of a batch of many dimensions. */
  toTensorDict(): TensorDict {
    return this.#columns.toTensorDict()
  }
}
