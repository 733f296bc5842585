/** A policy whose model lives in a worker thread. */

import { FulmarError } from '../core/index.js'
import type { Decoder } from '../model/index.js'
import { onAbort } from './attempt.js'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type GenerateRequest,
  type Policy,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
import type { DecoderSource } from './policy-worker.js'
import type { WorkerCall, WorkerMessage, WorkerReply } from './serve-policy.js'

/** Most calls of one thread that wait for an answer. */
export const WORKER_CALLS_MAX = 65_536

/** A thread: a `Worker` of `node:worker_threads`, or what behaves like one. */
export interface WorkerThread {
  postMessage(message: WorkerMessage, transfer?: readonly ArrayBuffer[]): void
  on(event: 'message', listener: (reply: WorkerReply) => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'exit', listener: (code: number) => void): unknown
  terminate(): Promise<unknown>
}

/** Options of {@link WorkerPolicy.launch}. */
export interface WorkerPolicyOptions {
  /**
   * What the weights count as.
   * @default 0
   */
  readonly version?: number
  /** The thread, which runs this package's `policy-worker.js` with `workerData: { kind: 'fulmar-decoder' }`. @default a new one */
  readonly thread?: WorkerThread
}

interface Waiting {
  readonly resolve: (value: never) => void
  readonly reject: (error: FulmarError) => void
  readonly stopListening: () => void
}

/**
 * A {@link Policy} over a decoder in a worker thread of its own: nothing that it does holds up this thread's event loop. Other weights come
 * as a whole or not at all: requests that run end with those that they began with, later ones have the new. A thread that ends fails
 * every call with `UNAVAILABLE`. Close it when it is done.
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
export class WorkerPolicy implements Policy {
  readonly #thread: WorkerThread
  readonly #waiting = new Map<number, Waiting>()
  #numCalls = 0
  #version: number
  #ended: FulmarError | undefined

  /** @internal A policy over a thread; {@link WorkerPolicy.launch} gives it its model. */
  constructor(thread: WorkerThread, version: number) {
    this.#thread = thread
    this.#version = version
    thread.on('message', (reply) => this.#take(reply))
    thread.on('error', (cause) => this.#end(`an error: ${cause.message}`, cause))
    thread.on('exit', () => this.#end('its end'))
  }

  /**
   * Starts a thread with a copy of a decoder's weights, or with the model of a folder as `Decoder.fromFolder` reads it.
   * @throws {FulmarError} What the model says; `UNAVAILABLE` if the thread cannot start, or there are none on this platform.
   */
  static async launch(model: Decoder | string, options: WorkerPolicyOptions = {}): Promise<WorkerPolicy> {
    const { version = typeof model === 'string' ? 0 : model.version } = options
    const policy = new WorkerPolicy(
      options.thread ?? (await startThread('policy-worker', 'fulmar-decoder')),
      version,
    )
    try {
      await policy.pushWeights(model, { version })
      return policy
    } catch (error) {
      await policy.close()
      throw error
    }
  }

  /** The version of the weights that later requests have. */
  get version(): number {
    return this.#version
  }

  /** Samples one completion. @throws {FulmarError} As {@link DecoderPolicy.generate}; `UNAVAILABLE` if the thread has ended; `CLOSED`. */
  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    const { signal, ...plain } = request
    return await this.#call<Completion>({ kind: 'generate', request: plain }, { signal })
  }

  /** Scores one sequence. @throws {FulmarError} As {@link DecoderPolicy.score}; as {@link WorkerPolicy.generate}. */
  async score(request: ScoreRequest): Promise<TokenScores> {
    checkScoreRequest(request)
    const { signal, ...plain } = request
    return await this.#call<TokenScores>({ kind: 'score', request: plain }, { signal })
  }

  /**
   * Gives the thread other weights, whole or not at all. `model` is copied; it may be trained on meanwhile only after this has resolved.
   * @throws {FulmarError} `OUT_OF_RANGE` for a version that is no non-negative safe integer; what the model says; the weights before it
   * stay then.
   */
  async pushWeights(model: Decoder | string, { version }: { readonly version: number }): Promise<void> {
    if (!Number.isSafeInteger(version) || version < 0)
      throw new FulmarError('OUT_OF_RANGE', `version must be a non-negative safe integer: got ${version}`)
    if (typeof model === 'string') {
      const source: DecoderSource = { folder: model, version }
      await this.#call({ kind: 'load', source }, {})
    } else {
      const weights = Uint8Array.from(await model.toSafetensors())
      const source: DecoderSource = { config: model.config, weights, version }
      await this.#call({ kind: 'load', source }, { transfer: [weights.buffer] })
    }
    this.#version = version
  }

  /** Ends the thread. Calls that wait fail with `CLOSED`. */
  async close(): Promise<void> {
    this.#end(undefined)
    await this.#thread.terminate()
  }

  #call<T>(
    call: Readonly<Record<string, unknown>> & { readonly kind: WorkerCall['kind'] },
    {
      signal,
      transfer,
    }: { readonly signal?: AbortSignal | undefined; readonly transfer?: readonly ArrayBuffer[] },
  ): Promise<T> {
    if (this.#ended) return Promise.reject(this.#ended)
    if (this.#waiting.size >= WORKER_CALLS_MAX) {
      const rule = `calls that wait must be at most ${WORKER_CALLS_MAX}`
      return Promise.reject(new FulmarError('LIMIT_EXCEEDED', `${rule}: got more`))
    }
    const id = this.#numCalls++
    return new Promise<T>((resolve, reject) => {
      const abort = () => this.#thread.postMessage({ kind: 'abort', id })
      const stopListening = onAbort(signal, abort)
      this.#waiting.set(id, { resolve, reject, stopListening })
      this.#thread.postMessage({ ...call, id } as WorkerCall, transfer)
      if (signal?.aborted) abort()
    })
  }

  #take(reply: WorkerReply): void {
    const waiting = this.#waiting.get(reply.id)
    if (waiting === undefined) return
    this.#waiting.delete(reply.id)
    waiting.stopListening()
    if (reply.ok) waiting.resolve(reply.value as never)
    else waiting.reject(new FulmarError(reply.code, reply.message))
  }

  /** Fails what waits and what comes; `got` is how the thread ended, if it did so by itself. */
  #end(got: string | undefined, cause?: Error): void {
    if (this.#ended) return
    this.#ended =
      got === undefined
        ? new FulmarError('CLOSED', 'WorkerPolicy must be open: got a closed one')
        : new FulmarError('UNAVAILABLE', `the worker thread must answer: got ${got}`, { cause })
    const waiting = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const { reject, stopListening } of waiting) {
      stopListening()
      reject(this.#ended)
    }
  }
}

/** A thread that runs a file beside this one. */
export async function startThread(file: string, kind: string): Promise<WorkerThread> {
  try {
    const { Worker } = await import('node:worker_threads')
    return new Worker(new URL(`./${file}.js`, import.meta.url), { workerData: { kind } })
  } catch (cause) {
    throw new FulmarError('UNAVAILABLE', 'worker threads must be there: got none', { cause })
  }
}
