/** Prompts and answers of language models. */

import type { Tensor, TensorDict } from '../../tensor/index.js'
import { LLMInput } from './llm-input.js'
import { LLMOutput } from './llm-output.js'
import {
  fieldsInDict,
  fieldsOfParts,
  type LLMDataFields,
  type LLMFieldName,
  type LLMParts,
  LLMRecord,
} from './llm-record.js'
import type { LogProbs } from './log-probs.js'
import type { Masks } from './masks.js'
import type { Nested } from './nested.js'
import type { SequencesOptions, TokenField } from './sequences.js'
import type { Text } from './text.js'

const NAMES: readonly LLMFieldName[] = [
  ...(['tokens', 'attentionMask', 'text'] as const),
  ...(['tokensResponse', 'logProbs', 'logits', 'textResponse'] as const),
]

/**
 * Prompts with their answers: the fields of {@link LLMInput} and {@link LLMOutput}, and the name of TorchRL's old documentation for both.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { LLMData, Text } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const text = new Text({ prompt: ['1+1=', '2+3='], response: ['2', '5'] })
 * const data = LLMData.from({ text, tokens: text.toTokens({ tokenizer }) })
 * assert.deepEqual([data.text, data.textResponse], [['1+1=', '2+3='], ['2', '5']])
 * assert.deepEqual(data.toOutput().textResponse, ['2', '5'])
 * assert.deepEqual(LLMData.fromTensorDict(data.toTensorDict()).toText().full, ['1+1=2', '2+3=5'])
 * ```
 */
export class LLMData extends LLMRecord {
  readonly #options: SequencesOptions

  /** @throws {FulmarError} As {@link LLMInput}. */
  constructor(fields: LLMDataFields = {}, options: SequencesOptions = {}) {
    super(NAMES, fields, options)
    this.#options = options
  }

  /** The prompts and answers of containers of one batch. @throws {FulmarError} As the constructor. */
  static from(parts: LLMParts = {}, options: SequencesOptions = {}): LLMData {
    return new LLMData(fieldsOfParts(['text', 'tokens', 'masks', 'logProbs', 'logits'], parts), options)
  }

  /** Reads what {@link LLMData.toTensorDict} wrote. @throws {FulmarError} As the constructor. */
  static fromTensorDict(dict: TensorDict, options: SequencesOptions = {}): LLMData {
    return new LLMData(fieldsInDict(NAMES, dict), options)
  }

  /** True where the tokens of the prompts are no padding. */
  get attentionMask(): TokenField | undefined {
    return this.fields.attentionMask
  }

  /** Texts of the prompts. */
  get text(): Nested<string> | undefined {
    return this.fields.text
  }

  /** Ids of the answers. */
  get tokensResponse(): TokenField | undefined {
    return this.fields.tokensResponse
  }

  /** Log-probabilities of the answers. */
  get logProbs(): TokenField | undefined {
    return this.fields.logProbs
  }

  /** Logits of the answers, `[...batch, R, V]`. */
  get logits(): Tensor | undefined {
    return this.fields.logits
  }

  /** Texts of the answers. */
  get textResponse(): Nested<string> | undefined {
    return this.fields.textResponse
  }

  /** The prompts alone. */
  toInput(): LLMInput {
    const { tokens, attentionMask, text } = this.fields
    return new LLMInput({ tokens, attentionMask, text }, this.#options)
  }

  /** The answers alone, with the ids of their prompts. */
  toOutput(): LLMOutput {
    const { tokens, tokensResponse, logProbs, logits, textResponse } = this.fields
    return new LLMOutput({ tokens, tokensResponse, logProbs, logits, textResponse }, this.#options)
  }

  /** The texts, as `prompt` and `response`. */
  toText(): Text {
    return this.textParts()
  }

  /** The mask, as `allAttentionMask`. */
  toMasks(): Masks {
    return this.maskParts()
  }

  /** The log-probabilities, as `response`. */
  toLogProbs(): LogProbs {
    return this.logProbParts()
  }
}
