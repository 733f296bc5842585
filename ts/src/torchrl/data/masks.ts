/** Masks of tokens: real tokens, and those of the assistant. */

import type { PaddingOptions } from '../../tokenizer/index.js'
import {
  type SequenceKind,
  type SequenceSpec,
  Sequences,
  type SequencesOptions,
  type TokenField,
} from './sequences.js'

/** The fields of {@link Masks}. */
export interface MaskFields {
  readonly allAttentionMask?: TokenField | undefined
  readonly allAssistantMask?: TokenField | undefined
}

const KIND: SequenceKind<'bool'> = {
  dtype: 'bool',
  keys: { allAttentionMask: 'all_attention_mask', allAssistantMask: 'all_assistant_mask' },
}

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
export class Masks extends Sequences<keyof MaskFields, 'bool'> {
  /** @throws {FulmarError} As {@link LogProbs}. */
  constructor(fields: MaskFields = {}, options: SequencesOptions = {}) {
    super(KIND, { ...fields }, options)
  }

  /** One batch of containers of one batch, with the same fields. @throws {FulmarError} As {@link Tokens.stack}. */
  static stack(all: readonly Masks[]): Masks {
    return Sequences.stackOf(Masks, all)
  }

  /** A plain description. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly (keyof MaskFields)[] } = {},
  ): SequenceSpec<Masks> {
    return Sequences.specOf(Masks, KIND, options)
  }

  /** TorchRL's `all_attention_mask`: the tokens that are no padding. */
  get allAttentionMask(): TokenField | undefined {
    return this.fields.allAttentionMask
  }

  /** TorchRL's `all_assistant_mask`: the tokens that count as the assistant's. */
  get allAssistantMask(): TokenField | undefined {
    return this.fields.allAssistantMask
  }

  /** Rows of one length; false pads. @throws {FulmarError} `INCOMPATIBLE` if padded already. */
  toPadded(options: Omit<PaddingOptions, 'value'>): Masks {
    return this.paddedWith({ ...options, value: 0 })
  }
}
