/** Worker side of a policy in a thread: calls and answers by message. */

import { type ErrorCode, FulmarError, messageOf } from '../core/index.js'
import { CharTokenizer, DecodeStream, HfTokenizer, TiktokenTokenizer } from '../tokenizer/index.js'
import type {
  Completion,
  GenerateRequest,
  Policy,
  PolicyReport,
  ScoreRequest,
  TokenScores,
} from './policy.js'
import { Replaceable } from './replaceable.js'

/** Call of a thread. `id` identifies the answer; a signal is a separate message. */
export type WorkerCall = { readonly id: number } & (
  | {
      readonly kind: 'generate'
      readonly request: Omit<GenerateRequest, 'signal'>
      /** True if the signal had fired before the call. */
      readonly isAborted: boolean
    }
  | { readonly kind: 'score'; readonly request: Omit<ScoreRequest, 'signal'> }
  | { readonly kind: 'stage'; readonly version: number; readonly source: unknown }
  | { readonly kind: 'commit'; readonly version: number }
  | { readonly kind: 'report' | 'rollback' | 'settle' }
)

/** Message to a thread: a call, or the cancellation of one. */
export type WorkerMessage = WorkerCall | { readonly kind: 'abort'; readonly id: number }

/** Answer of a thread. */
export type WorkerReply = { readonly id: number } & (
  | { readonly ok: true; readonly value: Completion | TokenScores | PolicyReport | undefined }
  | { readonly ok: false; readonly code: ErrorCode; readonly message: string }
)

/** Model of a thread, and a function that frees it. */
export interface WorkerModel {
  readonly policy: Policy
  close(): void
}

/** Required members of a port. */
export interface ReplyPort {
  on(event: 'message', listener: (message: WorkerMessage) => void): unknown
  postMessage(reply: WorkerReply): void
}

/**
 * Answers calls. `load` makes a model from a call; the model before it answers until the commit. Requests in
 * flight finish with the weights that they began with.
 */
export function servePolicy(port: ReplyPort, load: (source: unknown) => Promise<WorkerModel>): void {
  const running = new Map<number, AbortController>()
  const models = new Replaceable<WorkerModel>((model) => model.close())
  const answer = async (call: WorkerCall, signal: AbortSignal) => {
    if (call.kind === 'stage') await models.stage(call.version, () => load(call.source))
    else if (call.kind === 'commit') models.commit(call.version)
    else if (call.kind === 'generate')
      return await models.use(({ policy }) => policy.generate({ ...call.request, signal }))
    else if (call.kind === 'score')
      return await models.use(async ({ policy }) => {
        if (policy.score) return await policy.score({ ...call.request, signal })
        throw new FulmarError('INCOMPATIBLE', 'policy must be able to score: got one without')
      })
    else if (call.kind === 'report')
      return await models.use(async ({ policy }) => {
        return (await policy.report?.()) ?? { policyVersion: policy.version }
      })
    else models[call.kind]()
    return undefined
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
 * Creates decode streams from the JSON of a tokenizer, as its tables cannot be sent.
 * @throws {FulmarError} Errors of the tokenizer of that kind.
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
