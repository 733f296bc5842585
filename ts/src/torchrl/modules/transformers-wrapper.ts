/** The wrapper of a model in this process. */

import { Decoder } from '../../model/index.js'
import { DecoderPolicy } from '../../policy/decoder.js'
import { DecodeStream } from '../../tokenizer/index.js'
import { LLMWrapperBase } from './llm-wrapper.js'
import type { LLMWrapperOptions } from './wrapper-options.js'

/**
 * An {@link LLMWrapperBase} over a {@link Decoder} in this process: TorchRL's `TransformersWrapper`. Requests join those that run, so
 * rows need no padding and a batch no minimum. Log-probs of what was drawn are, to the bit, those of the trainer's forward pass. The decoder
 * may be trained in between, and stays the caller's. Stop strings need a `tokenizer` (or a policy that has one).
 *
 * @example
 * ```ts
 * import { Decoder, Tensor, TensorDict } from 'fulmar'
 * import { TransformersWrapper } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'qwen2', vocab_size: 9, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const draw = new TransformersWrapper(decoder, { inputMode: 'tokens', generateKwargs: { maxNewTokens: 3 } })
 * const dict = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(1, 2)) }) })
 * await draw.forward(dict)
 * assert.deepEqual(dict.tensor(['tokens', 'full']).shape, [5])
 * const scored = await draw.newVersion({ generate: false, inPlace: false }).forward(dict)
 * const drawn = dict.tensor(['log_probs', 'response']).toFloat32()
 * assert.deepEqual(scored.tensor(['log_probs', 'full']).toFloat32().subarray(2), drawn)
 * ```
 */
export class TransformersWrapper extends LLMWrapperBase<DecoderPolicy> {
  /** @throws {FulmarError} As {@link LLMWrapperBase}. */
  constructor(model: Decoder | DecoderPolicy, options: LLMWrapperOptions = {}) {
    super(model instanceof Decoder ? policyOf(model, options) : model, options)
  }

  override newVersion(overrides: LLMWrapperOptions): TransformersWrapper {
    return new TransformersWrapper(this.policy, { ...this.options, ...overrides })
  }
}

function policyOf(decoder: Decoder, { tokenizer }: LLMWrapperOptions): DecoderPolicy {
  return new DecoderPolicy(decoder, tokenizer && { decodeStream: () => new DecodeStream(tokenizer) })
}
