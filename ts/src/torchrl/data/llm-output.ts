/** Answers of language models. */

import type { Tensor, TensorDict } from '../../tensor/index.js'
import {
  fieldsInDict,
  fieldsOfParts,
  type LLMFieldName,
  type LLMOutputFields,
  type LLMParts,
  LLMRecord,
} from './llm-record.js'
import type { LogProbs } from './log-probs.js'
import type { Nested } from './nested.js'
import type { SequencesOptions, TokenField } from './sequences.js'
import type { Text } from './text.js'

const NAMES: readonly LLMFieldName[] = ['tokens', 'tokensResponse', 'logProbs', 'logits', 'textResponse']

/**
 * Answers as ids, log-probabilities, logits and texts, with the ids of their prompts: the name of TorchRL's old documentation for the
 * `response` of {@link Tokens}, {@link LogProbs} and {@link Text}.
 *
 * @example
 * ```ts
 * import { Ragged, Tensor } from 'fulmar/tensor'
 * import { LLMOutput, LogProbs, Tokens } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const response = Ragged.fromRows([Tensor.from(BigInt64Array.of(5n, 6n)), Tensor.from(BigInt64Array.of(7n))])
 * const logProbs = Ragged.fromRows([Tensor.from([-1, -2]), Tensor.from([-3])])
 * const output = LLMOutput.from({ tokens: new Tokens({ response }), logProbs: new LogProbs({ response: logProbs }) })
 * assert.deepEqual([output.batchSize, output.tokens], [[2], undefined])
 * assert.deepEqual(output.toTensorDict().keys(), ['tokens_response', 'log_probs'])
 * assert.deepEqual(output.toLogProbs().rows('response')[1]?.data, Float32Array.of(-3))
 * ```
 */
export class LLMOutput extends LLMRecord {
  /** @throws {FulmarError} As {@link LLMInput}. */
  constructor(fields: LLMOutputFields = {}, options: SequencesOptions = {}) {
    super(NAMES, fields, options)
  }

  /** The answers of containers of one batch. @throws {FulmarError} As the constructor. */
  static from(
    parts: Pick<LLMParts, 'text' | 'tokens' | 'logProbs' | 'logits'> = {},
    options: SequencesOptions = {},
  ): LLMOutput {
    const fields = fieldsOfParts(['text', 'tokens', 'logProbs', 'logits'], parts)
    const { tokens, tokensResponse, logProbs, logits, textResponse } = fields
    return new LLMOutput({ tokens, tokensResponse, logProbs, logits, textResponse }, options)
  }

  /** Reads what {@link LLMOutput.toTensorDict} wrote. @throws {FulmarError} As the constructor. */
  static fromTensorDict(dict: TensorDict, options: SequencesOptions = {}): LLMOutput {
    return new LLMOutput(fieldsInDict(NAMES, dict), options)
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

  /** The texts, as `response`. */
  toText(): Text {
    return this.textParts()
  }

  /** The log-probabilities, as `response`. */
  toLogProbs(): LogProbs {
    return this.logProbParts()
  }
}
