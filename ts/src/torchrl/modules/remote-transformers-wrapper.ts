/** The wrapper of a model in a worker thread. */

import { checkGiven, checkKnownKeys } from '../../core/index.js'
import type { Decoder } from '../../model/index.js'
import { WorkerPolicy, type WorkerPolicyOptions } from '../../policy/worker-policy.js'
import { LLMWrapperBase } from './llm-wrapper.js'
import { type LLMWrapperOptions, WRAPPER_KEYS } from './wrapper-options.js'

/**
 * An {@link LLMWrapperBase} over a decoder in a worker thread: TorchRL's `RemoteTransformersWrapper`, whose actor is a thread here. The same
 * draws and bits as `TransformersWrapper`.
 *
 * @example
 * ```ts
 * import { Decoder, Tensor, TensorDict } from 'fulmar'
 * import { RemoteTransformersWrapper } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const wrapper = await RemoteTransformersWrapper.launch(decoder, { inputMode: 'tokens', generateKwargs: { maxNewTokens: 3 } })
 * const dict = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(1, 2)) }) })
 * await wrapper.forward(dict)
 * assert.deepEqual(dict.tensor(['tokens', 'response']).shape, [3])
 * await wrapper.policy.close()
 * ```
 */
export class RemoteTransformersWrapper extends LLMWrapperBase<WorkerPolicy> {
  /**
   * Starts a thread with a copy of a decoder, or with the model of a folder, and puts a wrapper around it. Close its `policy` at the end.
   * @throws {FulmarError} As {@link WorkerPolicy.launch} and {@link LLMWrapperBase}.
   */
  static async launch(
    model: Decoder | string,
    options: LLMWrapperOptions & { readonly worker?: WorkerPolicyOptions } = {},
  ): Promise<RemoteTransformersWrapper> {
    checkKnownKeys('options', options, [...WRAPPER_KEYS, 'worker'])
    checkGiven('model', model)
    const { worker, ...own } = options
    const { tokenizer } = own
    const policy = await WorkerPolicy.launch(model, { ...(tokenizer && { tokenizer }), ...worker })
    try {
      return new RemoteTransformersWrapper(policy, own)
    } catch (error) {
      await policy.close()
      throw error
    }
  }

  override newVersion(overrides: LLMWrapperOptions): RemoteTransformersWrapper {
    return new RemoteTransformersWrapper(this.policy, { ...this.options, ...overrides })
  }
}
