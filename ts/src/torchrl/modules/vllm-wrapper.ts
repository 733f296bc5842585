/** The wrapper of vLLM servers. */

import type { AsyncVLLM } from '../../vllm/async-vllm.js'
import { logitBiasOf } from '../../vllm/vllm-protocol.js'
import { LLMWrapperBase } from './llm-wrapper.js'
import type { LLMWrapperOptions } from './wrapper-options.js'

/**
 * An {@link LLMWrapperBase} over {@link AsyncVLLM}: TorchRL's `vLLMWrapper`, with the same fields as every other wrapper. Scores come from
 * the servers' prompt log-probs; there are no distributions and no gradients.
 *
 * @example
 * ```ts
 * import { AsyncVLLM, fetchClient, Tensor, TensorDict } from 'fulmar'
 * import { vLLMWrapper } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * // In place of servers, a `fetch` function that always samples 7.
 * const client = fetchClient(async (url, { body = '{}' }) => {
 *   const { prompt, request_id, max_tokens } = JSON.parse(body)
 *   const token_ids = new Array(max_tokens).fill(7)
 *   const logprobs = { token_logprobs: token_ids.map(() => -0.5) }
 *   const choice = { token_ids, prompt_token_ids: prompt, logprobs, finish_reason: 'length' }
 *   return Response.json(url.endsWith('/v1/models') ? { data: [{ id: 'tiny', max_model_len: 64 }] } : { id: `cmpl-${request_id}`, choices: [choice] })
 * })
 * const policy = await AsyncVLLM.connect(['http://127.0.0.1:8000', 'http://127.0.0.1:8001'], { client })
 * const wrapper = new vLLMWrapper(policy, { inputMode: 'tokens', generateKwargs: { maxNewTokens: 2 } })
 * const dict = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(1, 2)) }) })
 * await wrapper.forward(dict)
 * assert.deepEqual(Array.from(dict.tensor(['tokens', 'full']).data, Number), [1, 2, 7, 7])
 * await policy.close()
 * ```
 */
export class vLLMWrapper extends LLMWrapperBase<AsyncVLLM> {
  /**
   * @throws {FulmarError} As {@link LLMWrapperBase}; `UNAVAILABLE` for `generateKwargs` that vLLM cannot draw by, naming the option.
   */
  constructor(policy: AsyncVLLM, options: LLMWrapperOptions = {}) {
    super(policy, options)
    logitBiasOf(options.generateKwargs ?? {})
  }

  override newVersion(overrides: LLMWrapperOptions): vLLMWrapper {
    return new vLLMWrapper(this.policy, { ...this.options, ...overrides })
  }
}
