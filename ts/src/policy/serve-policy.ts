/** The worker's side of a policy in a thread: what is asked comes by message, what is answered goes by message. */

import { type ErrorCode, FulmarError, messageOf } from '../core/index.js'
import { CharTokenizer, DecodeStream, HfTokenizer, TiktokenTokenizer } from '../tokenizer/index.js'
import type { Completion, GenerateRequest, Policy, ScoreRequest, TokenScores } from './policy.js'

/** What a thread is asked. `id` names the answer; a signal crosses as a message of its own. */
export type WorkerCall = { readonly id: number } & (
  | {
      readonly kind: 'generate'
      readonly request: Omit<GenerateRequest, 'signal'>
      /** Whether the signal had fired before the call. */
      readonly isAborted: boolean
    }
  | { readonly kind: 'score'; readonly request: Omit<ScoreRequest, 'signal'> }
  | { readonly kind: 'load'; readonly source: unknown }
)

/** What is said to a thread: a call, or that nobody waits for one any more. */
export type WorkerMessage = WorkerCall | { readonly kind: 'abort'; readonly id: number }

/** What a thread answers. */
export type WorkerReply = { readonly id: number } & (
  | { readonly ok: true; readonly value: Completion | TokenScores | { readonly version: number } }
  | { readonly ok: false; readonly code: ErrorCode; readonly message: string }
)

/** A model of a thread, and how its memory goes back. */
export interface WorkerModel {
  readonly policy: Policy
  close(): void
}

/** The part of a port that is needed. */
export interface ReplyPort {
  on(event: 'message', listener: (message: WorkerMessage) => void): unknown
  postMessage(reply: WorkerReply): void
}

/** A model with the calls that it still answers: it is closed once another is there and none is left. */
class Held {
  readonly #model: WorkerModel
  #numCalls = 0
  #isReplaced = false

  constructor(model: WorkerModel) {
    this.#model = model
  }

  async use<T>(body: (policy: Policy) => Promise<T>): Promise<T> {
    this.#numCalls += 1
    try {
      return await body(this.#model.policy)
    } finally {
      this.#numCalls -= 1
      this.#closeIfIdle()
    }
  }

  replace(): void {
    this.#isReplaced = true
    this.#closeIfIdle()
  }

  #closeIfIdle(): void {
    if (this.#isReplaced && this.#numCalls === 0) this.#model.close()
  }
}

/**
 * Answers calls. `load` makes a model of what a call brings; until it has, and if it fails, the model before it answers. Requests that run
 * end with the weights that they began with.
 */
export function servePolicy(port: ReplyPort, load: (source: unknown) => Promise<WorkerModel>): void {
  const running = new Map<number, AbortController>()
  let current: Held | undefined
  const loadNext = async (source: unknown) => {
    const model = await load(source)
    current?.replace()
    current = new Held(model)
    return { version: model.policy.version }
  }
  const answer = async (call: WorkerCall, signal: AbortSignal) => {
    if (call.kind === 'load') return await loadNext(call.source)
    if (current === undefined) throw new FulmarError('CLOSED', 'the thread must have a model: there is none')
    if (call.kind === 'generate')
      return await current.use((policy) => policy.generate({ ...call.request, signal }))
    return await current.use(async (policy) => {
      if (policy.score) return await policy.score({ ...call.request, signal })
      throw new FulmarError('INCOMPATIBLE', 'policy must be able to score: got one without')
    })
  }
  port.on('message', (message) => {
    const { id } = message
    if (message.kind === 'abort') {
      running.get(id)?.abort()
      return
    }
    const controller = new AbortController()
    running.set(id, controller)
    if (message.kind === 'generate' && message.isAborted) controller.abort()
    answer(message, controller.signal)
      .then(
        (value) => port.postMessage({ id, ok: true, value }),
        (error: unknown) => port.postMessage({ id, ok: false, ...toPlain(error) }),
      )
      .finally(() => running.delete(id))
  })
}

/**
 * What makes streams that decode ids, from the JSON of a tokenizer: its tables cannot cross.
 * @throws {FulmarError} What the tokenizer of that kind says.
 */
export function decodeStreamsOf(json: string): () => DecodeStream {
  const { kind } = JSON.parse(json)
  const tokenizer =
    kind === 'char'
      ? CharTokenizer.fromJSON(json)
      : kind === 'tiktoken'
        ? TiktokenTokenizer.fromJSON(json)
        : HfTokenizer.fromJson(json)
  return () => new DecodeStream(tokenizer)
}

function toPlain(error: unknown): { readonly code: ErrorCode; readonly message: string } {
  return { code: error instanceof FulmarError ? error.code : 'USER_CODE', message: messageOf(error) }
}
