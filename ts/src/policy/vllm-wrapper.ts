/** The wrapper of vLLM servers. */

import type { AsyncVLLM } from './async-vllm.js'
import { LLMWrapperBase } from './llm-wrapper.js'
import type { LLMWrapperOptions } from './wrapper-options.js'

/**
 * An {@link LLMWrapperBase} over {@link AsyncVLLM}: TorchRL's `vLLMWrapper`, with the same fields as every other wrapper. Scores come from
 * the servers' prompt log-probs; there are no distributions and no gradients.
 *
 * @example
 * ```ts no-run
 * import { AsyncVLLM, HfTokenizer, NonTensorStack, TensorDict, vLLMWrapper } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const policy = await AsyncVLLM.connect(['http://127.0.0.1:8000', 'http://127.0.0.1:8001'])
 * using tokenizer = await HfTokenizer.fromFolder('./Qwen2.5-0.5B-Instruct')
 * const wrapper = new vLLMWrapper(policy, { tokenizer, generateKwargs: { maxNewTokens: 64 } })
 * const prompt = new NonTensorStack([[{ role: 'user', content: '2+2?' }]])
 * const dict = TensorDict.from({ history: TensorDict.from({ prompt }, { batchSize: [1] }) }, { batchSize: [1] })
 * await wrapper.forward(dict)
 * assert.equal(dict.ragged(['tokens', 'response']).numRows, 1)
 * await policy.close()
 * ```
 */
export class vLLMWrapper extends LLMWrapperBase<AsyncVLLM> {
  override newVersion(overrides: LLMWrapperOptions): vLLMWrapper {
    return new vLLMWrapper(this.policy, { ...this.options, ...overrides })
  }
}
