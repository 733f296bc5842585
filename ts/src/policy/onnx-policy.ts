/** Policy over an exported model. */

import { checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import type { OnnxSource } from './onnx-process.js'
import {
  checkVersion,
  startProcess,
  ThreadPolicy,
  type WeightMessage,
  type WorkerThread,
} from './thread-policy.js'

/** Options of {@link OnnxPolicy.launch}. */
export interface OnnxPolicyOptions {
  /**
   * Name of the policy among the receivers of a `WeightSync`.
   * @default 'onnx'
   */
  readonly name?: string
  /**
   * Initial policy version of the weights.
   * @default 0
   */
  readonly version?: number
  /**
   * Maximum number of tokens of a sequence, which the file does not contain.
   * @default 4096
   */
  readonly contextLength?: number
  /**
   * Number of threads of a step; 0 for the default of ONNX Runtime.
   * @default 0
   */
  readonly numThreads?: number
  /** Decodes ids in the process, which gets a copy. @default none: stop strings are rejected */
  readonly tokenizer?: NativeTokenizer
  /**
   * Process that runs this package's `onnx-process.js` with the argument `fulmar-onnx`.
   * @default a new process
   */
  readonly thread?: WorkerThread
}

/**
 * A {@link Policy} over an ONNX model, run by `onnxruntime-node` in a separate process: terminating a worker
 * thread during a computation would end this process too. Install that package yourself
 * (`ONNXRUNTIME_NODE_INSTALL=skip npm install onnxruntime-node` downloads nothing else). The model takes
 * `input_ids`, optionally `attention_mask`, `position_ids` and an empty `past_key_values`, and returns
 * `logits` in f32.
 *
 * Tokens are drawn by seed and position, as in all policies; a completion does not depend on concurrent
 * requests. Each step recomputes its sequence without a KV cache: for small models and for checks of exports,
 * not for long completions. Close it after use.
 *
 * @example
 * ```ts no-run
 * import { OnnxPolicy } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * const policy = await OnnxPolicy.launch('./model.onnx', { contextLength: 512 })
 * const { logProbs } = await policy.score({ requestId: 'a', ids: Uint32Array.of(3, 1, 4) })
 * assert.ok(Number.isNaN(logProbs[0]) && logProbs[1] <= 0)
 * await policy.close()
 * ```
 */
export class OnnxPolicy extends ThreadPolicy<string | Uint8Array> {
  readonly #contextLength: number
  readonly #numThreads: number

  private constructor(
    thread: WorkerThread,
    options: Required<Omit<OnnxPolicyOptions, 'thread' | 'tokenizer'>>,
    hasTokenizer: boolean,
  ) {
    const { name, version } = options
    super(thread, { name, version, capabilities: { stopStrings: hasTokenizer } })
    this.#contextLength = options.contextLength
    this.#numThreads = options.numThreads
  }

  /**
   * Starts a process with a model: the path of a file, or its bytes, which are copied.
   * @throws {FulmarError} `UNAVAILABLE` without `onnxruntime-node` or processes; `CORRUPT` or `INCOMPATIBLE` for the model; `OUT_OF_RANGE` or
   * `UNKNOWN_NAME` for an option.
   */
  static async launch(model: string | Uint8Array, options: OnnxPolicyOptions = {}): Promise<OnnxPolicy> {
    checkKnownKeys('options', options, [
      ...['name', 'version', 'contextLength', 'numThreads', 'tokenizer', 'thread'],
    ])
    const { name = 'onnx', version = 0, contextLength = 4096, numThreads = 0, tokenizer } = options
    checkVersion(version)
    if (typeof model !== 'string') checkTypedArray('model', model, Uint8Array)
    for (const [option, value, least] of [
      ['contextLength', contextLength, 1],
      ['numThreads', numThreads, 0],
    ] as const) {
      if (!Number.isSafeInteger(value) || value < least)
        throw new FulmarError('OUT_OF_RANGE', `${option} must be an integer >= ${least}: got ${value}`)
    }
    const thread =
      options.thread ?? (await startProcess(new URL('./onnx-process.js', import.meta.url), 'fulmar-onnx'))
    const limits = { contextLength, numThreads }
    const policy = new OnnxPolicy(thread, { name, version, ...limits }, tokenizer !== undefined)
    try {
      const { source, transfer } = await policy.toMessage(model, version)
      const first: OnnxSource = { ...source, ...(tokenizer && { tokenizer: JSON.stringify(tokenizer) }) }
      await policy.stageMessage({ source: first, transfer }, version)
      await policy.commit(version)
      return policy
    } catch (error) {
      await policy.close()
      throw error
    }
  }

  /**
   * Replaces the model atomically: requests in flight finish with the old one.
   * @throws {FulmarError} As {@link OnnxPolicy.launch}; the old model then stays.
   */
  async pushModel(model: string | Uint8Array, options: { readonly version: number }): Promise<void> {
    checkKnownKeys('options', options, ['version'], ['version'])
    if (typeof model !== 'string') checkTypedArray('model', model, Uint8Array)
    await this.replace(model, options.version)
  }

  /** @internal */
  protected override async toMessage(
    model: string | Uint8Array,
    version: number,
  ): Promise<WeightMessage & { readonly source: OnnxSource }> {
    const limits = { contextLength: this.#contextLength, numThreads: this.#numThreads }
    return { source: { model, version, ...limits }, transfer: [] }
  }
}
