/** The policy of an exported model. */

import { checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import type { OnnxSource } from './onnx-process.js'
import { checkVersion, startProcess, ThreadPolicy, type WorkerThread } from './thread-policy.js'

/** Options of {@link OnnxPolicy.launch}. */
export interface OnnxPolicyOptions {
  /**
   * What the weights count as.
   * @default 0
   */
  readonly version?: number
  /**
   * Most tokens of a sequence: a file does not say it.
   * @default 4096
   */
  readonly contextLength?: number
  /**
   * Threads that one step computes with; 0 leaves it to ONNX Runtime.
   * @default 0
   */
  readonly numThreads?: number
  /** Makes text of ids in the process, which gets a copy. @default none: stop strings are refused */
  readonly tokenizer?: NativeTokenizer
  /** What runs this package's `onnx-process.js` with the argument `fulmar-onnx`. @default a new process */
  readonly thread?: WorkerThread
}

/**
 * A {@link Policy} over a model in ONNX form, run by `onnxruntime-node` in a process of its own: a worker thread that is ended while
 * it computes would take this process along. That package is yours to install
 * (`ONNXRUNTIME_NODE_INSTALL=skip npm install onnxruntime-node` downloads nothing besides). The model takes `input_ids`, and `attention_mask`,
 * `position_ids` and an empty `past_key_values` if it wants them, and gives `logits` in single precision.
 *
 * Tokens are drawn as everywhere here, by seed and position; a completion does not depend on what runs beside it. Each step computes its
 * sequence anew, without a cache: for small models and for checking exports, not for long completions. Close it when it is done.
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
export class OnnxPolicy extends ThreadPolicy {
  readonly #contextLength: number
  readonly #numThreads: number

  private constructor(
    thread: WorkerThread,
    options: Required<Omit<OnnxPolicyOptions, 'thread' | 'tokenizer'>>,
    hasTokenizer: boolean,
  ) {
    super(thread, options.version, { stopStrings: hasTokenizer })
    this.#contextLength = options.contextLength
    this.#numThreads = options.numThreads
  }

  /**
   * Starts a process with a model: the path of a file, or its bytes, which are copied.
   * @throws {FulmarError} `UNAVAILABLE` without `onnxruntime-node` or processes; `CORRUPT` or `INCOMPATIBLE` for the model; `OUT_OF_RANGE` or
   * `UNKNOWN_NAME` for an option.
   */
  static async launch(model: string | Uint8Array, options: OnnxPolicyOptions = {}): Promise<OnnxPolicy> {
    checkKnownKeys('options', options, ['version', 'contextLength', 'numThreads', 'tokenizer', 'thread'])
    const { version = 0, contextLength = 4096, numThreads = 0, tokenizer } = options
    checkVersion(version)
    if (typeof model !== 'string') checkTypedArray('model', model, Uint8Array)
    for (const [name, value, least] of [
      ['contextLength', contextLength, 1],
      ['numThreads', numThreads, 0],
    ] as const) {
      if (!Number.isSafeInteger(value) || value < least)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be an integer >= ${least}: got ${value}`)
    }
    const thread =
      options.thread ?? (await startProcess(new URL('./onnx-process.js', import.meta.url), 'fulmar-onnx'))
    const limits = { contextLength, numThreads }
    const policy = new OnnxPolicy(thread, { version, ...limits }, tokenizer !== undefined)
    try {
      const text = tokenizer && { tokenizer: JSON.stringify(tokenizer) }
      const source: OnnxSource = { model, version, ...limits, ...text }
      await policy.load(source, version, [])
      return policy
    } catch (error) {
      await policy.close()
      throw error
    }
  }

  /**
   * Gives the process another model, whole or not at all: requests that run end with the one that they began with.
   * @throws {FulmarError} As {@link OnnxPolicy.launch}; the model before it stays then.
   */
  async pushModel(model: string | Uint8Array, options: { readonly version: number }): Promise<void> {
    checkKnownKeys('options', options, ['version'], ['version'])
    const { version } = options
    const limits = { contextLength: this.#contextLength, numThreads: this.#numThreads }
    const source: OnnxSource = { model, version, ...limits }
    await this.load(source, version, [])
  }
}
