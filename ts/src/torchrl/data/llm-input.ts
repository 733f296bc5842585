/** Prompts of language models. */

import type { TensorDict } from '../../tensor/index.js'
import {
  fieldsInDict,
  fieldsOfParts,
  type LLMFieldName,
  type LLMInputFields,
  type LLMParts,
  LLMRecord,
} from './llm-record.js'
import type { Masks } from './masks.js'
import type { Nested } from './nested.js'
import type { SequencesOptions, TokenField } from './sequences.js'
import type { Text } from './text.js'

const NAMES: readonly LLMFieldName[] = ['tokens', 'attentionMask', 'text']

/**
 * Prompts as ids, their mask, and texts: the name of TorchRL's old documentation for the `prompt` of {@link Tokens} and {@link Text}.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { LLMInput, Text } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const text = new Text({ prompt: ['ab', 'c'] })
 * const input = LLMInput.from({ text, tokens: text.toTokens({ tokenizer }) })
 * assert.deepEqual([input.batchSize, input.text], [[2], ['ab', 'c']])
 * assert.deepEqual(input.toTensorDict().keys(), ['tokens', 'text'])
 * assert.deepEqual(input.toTokens().toText({ tokenizer }).prompt, input.text)
 * ```
 */
export class LLMInput extends LLMRecord {
  /**
   * @throws {FulmarError} `INCOMPATIBLE` for another dtype; `SHAPE_MISMATCH` if batches or lengths of rows differ; `UNKNOWN_NAME` for an
   * unknown field or option; `MALFORMED` for what is no text.
   */
  constructor(fields: LLMInputFields = {}, options: SequencesOptions = {}) {
    super(NAMES, fields, options)
  }

  /** The prompts of containers of one batch. @throws {FulmarError} As the constructor. */
  static from(
    parts: Pick<LLMParts, 'text' | 'tokens' | 'masks'> = {},
    options: SequencesOptions = {},
  ): LLMInput {
    const { tokens, attentionMask, text } = fieldsOfParts(['text', 'tokens', 'masks'], parts)
    return new LLMInput({ tokens, attentionMask, text }, options)
  }

  /** Reads what {@link LLMInput.toTensorDict} wrote. @throws {FulmarError} As the constructor. */
  static fromTensorDict(dict: TensorDict, options: SequencesOptions = {}): LLMInput {
    return new LLMInput(fieldsInDict(NAMES, dict), options)
  }

  /** True where the tokens are no padding. */
  get attentionMask(): TokenField | undefined {
    return this.fields.attentionMask
  }

  /** Texts of the prompts. */
  get text(): Nested<string> | undefined {
    return this.fields.text
  }

  /** The texts, as `prompt`. */
  toText(): Text {
    return this.textParts()
  }

  /** The mask, as `allAttentionMask`. */
  toMasks(): Masks {
    return this.maskParts()
  }
}
