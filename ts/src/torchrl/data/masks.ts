/** Which tokens there are, and which are the assistant's. */

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

/** The fields of {@link Masks}. */
export interface MaskFields {
  readonly allAttentionMask?: TokenField | undefined
  readonly allAssistantMask?: TokenField | undefined
}

const NAMES = ['allAttentionMask', 'allAssistantMask'] as const
/** Their names in dictionaries. */
const KEYS = { allAttentionMask: 'all_attention_mask', allAssistantMask: 'all_assistant_mask' }

/**
 * Masks over the tokens of {@link Tokens} `full`, `bool`: ragged rows, or padded tensors whose padding is false.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { ChatHistory, History } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const full = History.fromChats([{ role: 'assistant', content: 'Yo' }])
 * const masks = new ChatHistory({ full }).toMasks({ tokenizer, templateName: 'chatml_format' })
 * const [marks] = masks.rows('allAssistantMask')
 * assert.deepEqual([...(marks?.data ?? [])].filter((mark) => mark === 1), [1, 1])
 * assert.deepEqual(masks.toTensorDict().keys(), ['all_attention_mask', 'all_assistant_mask'])
 * ```
 */
export class Masks {
  readonly #columns: Sequences

  /** @throws {FulmarError} As {@link LogProbs}. */
  constructor(fields: MaskFields = {}, options: SequencesOptions = {}) {
    this.#columns = new Sequences(NAMES, ['bool'], { ...fields }, options)
  }

  /** One batch of containers of one batch, with the same fields. @throws {FulmarError} As {@link Tokens.stack}. */
  static stack(all: readonly Masks[]): Masks {
    checkGiven('all', all)
    return Masks.#of(Sequences.stack(all.map((one) => one.#columns)))
  }

  /** A plain description. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly (keyof MaskFields)[] } = {},
  ): SequenceSpec<Masks> {
    checkKnownKeys('options', options, ['shape', 'keys'])
    const { shape = [-1], keys = NAMES } = options
    const zero = () => Masks.#of(zeroParts(shape, keys, (dims) => Tensor.zeros('bool', dims)))
    return {
      shape,
      keys,
      zero,
      contains: (value) => value instanceof Masks && value.#columns.isOf(shape, keys),
    }
  }

  static #of({ fields, options }: Parts): Masks {
    return new Masks(fields, options)
  }

  /** TorchRL's `all_attention_mask`: the tokens that are no padding. */
  get allAttentionMask(): TokenField | undefined {
    return this.#columns.fields.allAttentionMask
  }

  /** TorchRL's `all_assistant_mask`: the tokens that count as the assistant's. */
  get allAssistantMask(): TokenField | undefined {
    return this.#columns.fields.allAssistantMask
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
  rows(name: keyof MaskFields): Tensor[] {
    return this.#columns.rowsOf(name)
  }

  /** The rows of a field in lists nested as the batch is; padded rows with their padding. */
  toList(name: keyof MaskFields): Nested<Tensor> | undefined {
    return this.#columns.listOf(name)
  }

  /** Rows of one length; false pads. @throws {FulmarError} `INCOMPATIBLE` if padded already. */
  toPadded(options: Omit<PaddingOptions, 'value'>): Masks {
    return Masks.#of(this.#columns.toPadded({ ...options, value: 0 }))
  }

  /** Rows without padding. @throws {FulmarError} `INCOMPATIBLE` if their lengths are not known. */
  toRagged(): Masks {
    return Masks.#of(this.#columns.toRagged())
  }

  /**
   * Returns an element of the first batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist.
   */
  at(index: number): Masks {
    return Masks.#of(this.#columns.at(index))
  }

  /** The fields, by TorchRL's names. @throws {FulmarError} As {@link LogProbs.toTensorDict}. */
  toTensorDict(): TensorDict {
    return this.#columns.toTensorDict(KEYS)
  }
}
