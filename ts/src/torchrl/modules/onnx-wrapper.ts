/** The wrapper of an exported model. */

import { checkKnownKeys } from '../../core/index.js'
import { OnnxPolicy, type OnnxPolicyOptions } from '../../policy/onnx-policy.js'
import { LLMWrapperBase } from './llm-wrapper.js'
import { type LLMWrapperOptions, WRAPPER_KEYS } from './wrapper-options.js'

/**
 * An {@link LLMWrapperBase} over an {@link OnnxPolicy}: scoring and generation of exported models, with the fields of every other wrapper.
 *
 * @example
 * ```ts no-run
 * import { Tensor, TensorDict } from 'fulmar'
 * import { OnnxWrapper } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const wrapper = await OnnxWrapper.launch('./model.onnx', { inputMode: 'tokens', generate: false })
 * const dict = TensorDict.from({ tokens: TensorDict.from({ full: Tensor.from(Uint32Array.of(1, 2, 3)) }) })
 * await wrapper.forward(dict)
 * assert.deepEqual(dict.tensor(['log_probs', 'full']).shape, [3])
 * await wrapper.policy.close()
 * ```
 */
export class OnnxWrapper extends LLMWrapperBase<OnnxPolicy> {
  /**
   * Starts a process with a model and puts a wrapper around it. Close its `policy` at the end.
   * @throws {FulmarError} As {@link OnnxPolicy.launch} and {@link LLMWrapperBase}.
   */
  static async launch(
    model: string | Uint8Array,
    options: LLMWrapperOptions & { readonly onnx?: OnnxPolicyOptions } = {},
  ): Promise<OnnxWrapper> {
    checkKnownKeys('options', options, [...WRAPPER_KEYS, 'onnx'])
    const { onnx, ...own } = options
    const { tokenizer } = own
    const policy = await OnnxPolicy.launch(model, { ...(tokenizer && { tokenizer }), ...onnx })
    try {
      return new OnnxWrapper(policy, own)
    } catch (error) {
      await policy.close()
      throw error
    }
  }

  override newVersion(overrides: LLMWrapperOptions): OnnxWrapper {
    return new OnnxWrapper(this.policy, { ...this.options, ...overrides })
  }
}
