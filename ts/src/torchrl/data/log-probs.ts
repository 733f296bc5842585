/** Log-probabilities of prompts, responses and both, aligned with tokens. */

import type { PaddingOptions } from '../../tokenizer/index.js'
import {
  type SequenceKind,
  type SequenceSpec,
  Sequences,
  type SequencesOptions,
  type TokenField,
} from './sequences.js'

/** The fields of {@link Tokens} and {@link LogProbs}. */
export interface SequenceFields {
  readonly prompt?: TokenField | undefined
  readonly response?: TokenField | undefined
  readonly full?: TokenField | undefined
}

const KIND: SequenceKind<'f32'> = {
  dtype: 'f32',
  keys: { prompt: 'prompt', response: 'response', full: 'full' },
}

/**
 * Log-probabilities, `f32`, one for each token of {@link Tokens} of the same batch: ragged rows, or padded tensors whose
 * padding is 0 by default. A missing one is NaN, never 0.
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
export class LogProbs extends Sequences<keyof SequenceFields, 'f32'> {
  /**
   * @throws {FulmarError} `INCOMPATIBLE` for another dtype, or ragged rows that shall be padded; `SHAPE_MISMATCH` if a
   * field is not of the batch; `UNKNOWN_NAME` for an unknown field or option.
   */
  constructor(fields: SequenceFields = {}, options: SequencesOptions = {}) {
    super(KIND, { ...fields }, options)
  }

  /** One batch of containers of one batch, with the same fields. @throws {FulmarError} As {@link Tokens.stack}. */
  static stack(all: readonly LogProbs[]): LogProbs {
    return Sequences.stackOf(LogProbs, all)
  }

  /** A plain description. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly (keyof SequenceFields)[] } = {},
  ): SequenceSpec<LogProbs> {
    return Sequences.specOf(LogProbs, KIND, options)
  }

  /**
   * Log-probabilities of the prompts: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent.
   */
  get prompt(): TokenField | undefined {
    return this.fields.prompt
  }

  /**
   * Log-probabilities of the responses: `[L]`, ragged rows, or padded `[...batch, L]`; `undefined` if absent.
   */
  get response(): TokenField | undefined {
    return this.fields.response
  }

  /**
   * Log-probabilities of prompts and responses together: `[L]`, ragged rows, or padded `[...batch, L]`;
   * `undefined` if absent.
   */
  get full(): TokenField | undefined {
    return this.fields.full
  }

  /** Rows of one length; the default padding is 0. @throws {FulmarError} `INCOMPATIBLE` if padded already. */
  toPadded(options: PaddingOptions): LogProbs {
    return this.paddedWith({ value: 0, ...options })
  }
}
