/** Policy over a decoder in a worker thread. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import type { Decoder } from '../model/index.js'
import type { DrawMethod } from '../objective/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import { isExact, readSampler, SAMPLER } from './decoder.js'
import type { DecoderSource } from './policy-worker.js'
import {
  checkVersion,
  startThread,
  ThreadPolicy,
  type ThreadPolicyOptions,
  type WeightMessage,
  type WorkerThread,
} from './thread-policy.js'

/** Options of {@link WorkerPolicy.launch}. */
export interface WorkerPolicyOptions {
  /**
   * Name of the policy among the receivers of a `WeightSync`.
   * @default 'worker'
   */
  readonly name?: string
  /**
   * Initial policy version of the weights.
   * @default 0
   */
  readonly version?: number
  /** Decodes ids in the thread, which gets a copy. @default none: stop strings are rejected */
  readonly tokenizer?: NativeTokenizer
  /** As `weights` of `EngineOptions`. @default 'same' */
  readonly weights?: 'same' | 'q8'
  /** As `kvCacheDtype` of `EngineOptions`. @default 'same' */
  readonly kvCacheDtype?: 'same' | 'bf16'
  /** As `speculativeTokens` of `EngineOptions`. @default 0 */
  readonly speculativeTokens?: number
  /** As `drawMethod` of `DecoderPolicyOptions`. @default 'inverse' */
  readonly drawMethod?: DrawMethod
  /**
   * Thread that runs this package's `policy-worker.js` with `workerData: { kind: 'fulmar-decoder' }`.
   * @default a new one
   */
  readonly thread?: WorkerThread
}

/**
 * A {@link Policy} over a decoder in a worker thread, which does not block this thread's event loop. Weights
 * are replaced atomically: requests in flight finish with the old ones, later ones use the new. The thread has a copy of the
 * decoder and its adapter, on the device of the decoder. A thread that ends fails every call with `UNAVAILABLE`. Close it after use.
 *
 * @example
 * ```ts
 * import { Decoder, WorkerPolicy } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const policy = await WorkerPolicy.launch(decoder)
 * const request = { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 7, maxTokens: 4, stopIds: [] }
 * assert.equal((await policy.generate(request)).ids.length, 4)
 * await policy.pushWeights(decoder, { version: 1 })
 * assert.equal((await policy.generate(request)).minPolicyVersion, 1)
 * await policy.close()
 * ```
 */
export class WorkerPolicy extends ThreadPolicy<Decoder | string> {
  private constructor(thread: WorkerThread, options: ThreadPolicyOptions) {
    super(thread, options)
  }

  /**
   * Starts a thread with a copy of a decoder's weights, or with the model of a folder as `Decoder.fromFolder`
   * reads it.
   * @throws {FulmarError} Errors of the model; `UNAVAILABLE` if the thread cannot start, or the platform has
   * no threads.
   */
  static async launch(model: Decoder | string, options: WorkerPolicyOptions = {}): Promise<WorkerPolicy> {
    checkKnownKeys('options', options, ['name', 'version', 'tokenizer', 'thread', ...Object.keys(SAMPLER)])
    checkGiven('model', model)
    const { name = 'worker', tokenizer } = options
    const sampler = readSampler(options)
    const { version = typeof model === 'string' ? 0 : model.version } = options
    checkVersion(version)
    const thread = options.thread ?? (await startThread('policy-worker', 'fulmar-decoder'))
    const capabilities = { stopStrings: tokenizer !== undefined, exactLogProbs: isExact(sampler) }
    const policy = new WorkerPolicy(thread, { name, version, capabilities })
    try {
      const { source, transfer } = await policy.toMessage(model, version)
      const text = tokenizer && { tokenizer: JSON.stringify(tokenizer) }
      const first: DecoderSource = { ...source, ...text, sampler }
      await policy.stageMessage({ source: first, transfer }, version)
      await policy.commit(version)
      return policy
    } catch (error) {
      await policy.close()
      throw error
    }
  }

  /**
   * Replaces the weights of the thread atomically. `model` is copied; train it only after this has resolved.
   * @throws {FulmarError} `OUT_OF_RANGE` for a version that is not a non-negative safe integer; errors of the
   * model; the old weights then stay.
   */
  async pushWeights(model: Decoder | string, options: { readonly version: number }): Promise<void> {
    checkKnownKeys('options', options, ['version'], ['version'])
    checkGiven('model', model)
    await this.replace(model, options.version)
  }

  /** @internal */
  protected override async toMessage(
    model: Decoder | string,
    version: number,
  ): Promise<WeightMessage & { readonly source: DecoderSource }> {
    if (typeof model === 'string') return { source: { folder: model, version }, transfer: [] }
    const weights = Uint8Array.from(await model.toSafetensors())
    const adapter = model.hasAdapter
      ? { config: await model.loraConfig(), weights: Uint8Array.from(await model.loraToSafetensors()) }
      : undefined
    const { config, dtype, device, matmulPrecision } = model
    const transfer = [weights.buffer, ...(adapter ? [adapter.weights.buffer] : [])]
    const source = { config, weights, dtype, device, matmulPrecision, version, ...(adapter && { adapter }) }
    return { source, transfer }
  }
}
