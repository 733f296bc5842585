/** Policy over a model in another thread, called by message. */

import { onAbort } from '../async/index.js'
import { checkGiven, FulmarError } from '../core/index.js'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type GenerateRequest,
  type Policy,
  type PolicyCapabilities,
  type PolicyReport,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
import type { WorkerCall, WorkerMessage, WorkerReply } from './serve-policy.js'
import type { WeightReceiver } from './weight-receiver.js'

/** Maximum number of waiting calls of one thread. */
export const WORKER_CALLS_MAX = 65_536

/** A thread: a `Worker` of `node:worker_threads`, or an object with the same members, such as a process. */
export interface WorkerThread {
  postMessage(message: WorkerMessage, transfer?: readonly ArrayBuffer[]): void
  on(event: 'message', listener: (reply: WorkerReply) => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'exit', listener: (code: number) => void): unknown
  terminate(): Promise<unknown>
}

interface Waiting {
  readonly resolve: (value: never) => void
  readonly reject: (error: FulmarError) => void
  readonly stopListening: () => void
}

/** Weights in the form of a message. */
export interface WeightMessage {
  readonly source: unknown
  /** Memory that the thread takes over. */
  readonly transfer: readonly ArrayBuffer[]
}

/** Options of {@link ThreadPolicy}. */
export interface ThreadPolicyOptions {
  readonly name: string
  readonly version: number
  readonly capabilities: PolicyCapabilities
}

/**
 * Shared part of policies in threads, which take `Weights` in the phases of a {@link WeightReceiver}. A thread that
 * ends fails every call with `UNAVAILABLE`.
 */
export abstract class ThreadPolicy<Weights> implements Policy, WeightReceiver<Weights> {
  /** Name among the receivers of a `WeightSync`. */
  readonly name: string
  readonly capabilities: PolicyCapabilities
  readonly #thread: WorkerThread
  readonly #waiting = new Map<number, Waiting>()
  #numCalls = 0
  #numRollbacks = 0
  #version: number
  #ended: FulmarError | undefined

  /** Creates a policy over a thread without a model. */
  protected constructor(thread: WorkerThread, { name, version, capabilities }: ThreadPolicyOptions) {
    checkGiven('thread', thread)
    checkGiven('name', name)
    checkVersion(version)
    this.name = name
    this.capabilities = capabilities
    this.#thread = thread
    this.#version = version
    thread.on('message', (reply) => this.#take(reply))
    thread.on('error', (cause) => this.#end(`an error: ${cause.message}`, cause))
    thread.on('exit', () => this.#end('its end'))
  }

  /** Version of the weights of later requests. */
  get version(): number {
    return this.#version
  }

  /** Samples one completion. @throws {FulmarError} As {@link DecoderPolicy.generate}; `UNAVAILABLE` if the thread has ended; `CLOSED`. */
  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    const { signal, ...plain } = request
    // A message would share shared memory: the thread gets its own copy of the ids.
    const own = { ...plain, promptIds: Uint32Array.from(plain.promptIds) }
    return await this.#call<Completion>(
      { kind: 'generate', request: own, isAborted: signal?.aborted === true },
      { signal },
    )
  }

  /** Scores one sequence. @throws {FulmarError} As {@link DecoderPolicy.score}; as {@link WorkerPolicy.generate}. */
  async score(request: ScoreRequest): Promise<TokenScores> {
    checkScoreRequest(request)
    const { signal, ...plain } = request
    const own = { ...plain, ids: Uint32Array.from(plain.ids) }
    return await this.#call<TokenScores>({ kind: 'score', request: own }, { signal })
  }

  /**
   * Returns the version of the weights, and the memory of the GPU of the thread's decoder if it is on one.
   * @throws {FulmarError} `UNAVAILABLE` if the thread has ended; `CLOSED`.
   */
  async report(): Promise<PolicyReport> {
    return await this.#call<PolicyReport>({ kind: 'report' }, {})
  }

  /** Terminates the thread. Waiting calls fail with `CLOSED`. */
  async close(): Promise<void> {
    this.#end(undefined)
    await this.#thread.terminate()
  }

  /**
   * Loads weights into the thread, next to those in use.
   * @throws {FulmarError} `OUT_OF_RANGE` for a version that is not a non-negative safe integer; `ABORTED` if a rollback came
   * first; errors of the model.
   */
  async stage(weights: Weights, version: number): Promise<void> {
    checkVersion(version)
    const before = this.#numRollbacks
    const message = await this.toMessage(weights, version)
    if (this.#numRollbacks !== before)
      throw new FulmarError('ABORTED', 'weights must be sent before a rollback: they were discarded')
    await this.stageMessage(message, version)
  }

  /**
   * Serves the staged weights: requests in flight finish with the old ones.
   * @throws {FulmarError} `CLOSED` if nothing of this version was staged.
   */
  async commit(version: number): Promise<void> {
    checkVersion(version)
    await this.#call({ kind: 'commit', version }, {})
    this.#version = version
  }

  /** Discards the staged weights; after a commit that was not settled it serves the previous ones of `version`. */
  async rollback(version: number): Promise<void> {
    checkVersion(version)
    this.#numRollbacks += 1
    await this.#call({ kind: 'rollback' }, {})
    this.#version = version
  }

  /** Frees the previous weights once no request uses them. */
  settle(): void {
    // A thread that has ended has freed them.
    this.#call({ kind: 'settle' }, {}).catch(() => {})
  }

  /** @internal Returns weights in the form that the thread loads. */
  protected abstract toMessage(weights: Weights, version: number): Promise<WeightMessage>

  /** @internal Sends weights to the thread. */
  protected async stageMessage({ source, transfer }: WeightMessage, version: number): Promise<void> {
    await this.#call({ kind: 'stage', version, source }, { transfer })
  }

  /** @internal Replaces the weights at once, in all phases. @throws {FulmarError} As `stage`; the old weights then stay. */
  protected async replace(weights: Weights, version: number): Promise<void> {
    await this.stage(weights, version)
    await this.commit(version)
    this.settle()
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
      const rule = `waiting calls must be at most ${WORKER_CALLS_MAX}`
      return Promise.reject(new FulmarError('LIMIT_EXCEEDED', `${rule}: there are more`))
    }
    const id = this.#numCalls++
    return new Promise<T>((resolve, reject) => {
      const abort = () => this.#thread.postMessage({ kind: 'abort', id })
      const stopListening = onAbort(signal, abort)
      this.#waiting.set(id, { resolve, reject, stopListening })
      this.#thread.postMessage({ ...call, id } as WorkerCall, transfer)
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

  /** Fails waiting and later calls; `got` is how the thread ended, if by itself. */
  #end(got: string | undefined, cause?: Error): void {
    if (this.#ended) return
    this.#ended =
      got === undefined
        ? new FulmarError('CLOSED', 'the policy must be open: it was closed')
        : new FulmarError('UNAVAILABLE', `the thread of the model must answer: got ${got}`, { cause })
    const waiting = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const { reject, stopListening } of waiting) {
      stopListening()
      reject(this.#ended)
    }
  }
}

/** Rejects invalid versions. */
export function checkVersion(version: number): void {
  if (!Number.isSafeInteger(version) || version < 0)
    throw new FulmarError('OUT_OF_RANGE', `version must be a non-negative safe integer: got ${version}`)
}

/** Starts a thread that runs a file of this folder. */
export async function startThread(file: string, kind: string): Promise<WorkerThread> {
  try {
    const { Worker } = await import('node:worker_threads')
    return new Worker(new URL(`./${file}.js`, import.meta.url), { workerData: { kind } })
  } catch (cause) {
    throw new FulmarError('UNAVAILABLE', 'worker threads must be available: this platform has none', {
      cause,
    })
  }
}

/**
 * Starts a process that runs a file of this folder, with the interface of a thread: for libraries that end
 * the whole process if their thread is terminated.
 */
export async function startProcess(url: URL, kind: string): Promise<WorkerThread> {
  try {
    const [{ fork }, { fileURLToPath }] = await Promise.all([
      import('node:child_process'),
      import('node:url'),
    ])
    const child = fork(fileURLToPath(url), [kind], { serialization: 'advanced' })
    const exited = new Promise((resolve) => child.once('exit', resolve))
    return {
      // A message that cannot be sent is answered by the end of the process.
      postMessage: (message) => void child.send(message, () => {}),
      on: (event: string, listener: (value: never) => void) =>
        child.on(event, (value: unknown) => listener(value as never)),
      terminate: async () => {
        child.kill('SIGKILL')
        await exited
      },
    }
  } catch (cause) {
    throw new FulmarError('UNAVAILABLE', 'processes must be available: this platform has none', { cause })
  }
}
