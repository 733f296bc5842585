/** Streamed completion of a vLLM server: server-sent events, validated like a complete answer. */

import { FulmarError } from '../core/index.js'
import type { GenerateRequest } from '../policy/policy.js'
import type { CompletionPart } from '../policy/token-stream.js'
import {
  bothKinds,
  checkEcho,
  checkId,
  field,
  lie,
  readEnd,
  readIds,
  readLogProbs,
  readObject,
  type ServedCompletion,
  type ServedModel,
} from './vllm-protocol.js'

/** Maximum number of characters of one event. */
export const EVENT_CHARS_MAX = 1024 * 1024

/**
 * Assembles text into the data of server-sent events. Ignores comments and fields other than `data`.
 * @throws {FulmarError} `LIMIT_EXCEEDED` for an event of more than 1,048,576 characters.
 */
export class EventReader {
  #rest = ''
  #data: string[] = []
  #numChars = 0

  /** Returns the events that `text` completes. */
  push(text: string): string[] {
    const events: string[] = []
    if (!/[\r\n]/.test(text) && !this.#rest.endsWith('\r')) {
      // Each part is scanned once, even if a long line arrives in many.
      this.#rest += text
      this.#check(this.#rest.length)
      return events
    }
    // A final carriage return may be half of a line end.
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/)
    this.#rest = lines.pop() ?? ''
    for (const line of lines) {
      this.#numChars += line.length
      this.#check(0)
      if (line.startsWith('data:')) this.#data.push(line.slice(line.startsWith('data: ') ? 6 : 5))
      if (line !== '') continue
      if (this.#data.length > 0) events.push(this.#data.join('\n'))
      this.#data = []
      this.#numChars = 0
    }
    this.#check(this.#rest.length)
    return events
  }

  #check(numMore: number): void {
    const got = this.#numChars + numMore
    if (got > EVENT_CHARS_MAX) {
      const detail = `characters of an event must be <= ${EVENT_CHARS_MAX}: got at least ${got}`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
  }
}

/** Options of a {@link CompletionReader}. */
export interface CompletionReaderOptions {
  readonly wireId: string
  readonly request: GenerateRequest
  readonly served: ServedModel
  /** Receives tokens as soon as they are checked. */
  readonly onPart: (part: CompletionPart) => void
}

/** Reads and validates one streamed answer. */
export class CompletionReader {
  readonly #options: CompletionReaderOptions
  readonly #events = new EventReader()
  readonly #ids: number[] = []
  readonly #told: number[] = []
  #echoed = false
  #end: Readonly<Record<string, unknown>> | undefined
  #error: unknown

  constructor(options: CompletionReaderOptions) {
    this.#options = options
  }

  /** True if tokens were passed on: the request can then no longer be retried. */
  get hasGiven(): boolean {
    return this.#ids.length > 0
  }

  /** Valid tokens so far. */
  get soFar(): CompletionPart {
    return this.#partOf(Uint32Array.from(this.#ids), Float32Array.from(this.#told))
  }

  /** Reads more of the answer; `false` once it is complete or invalid. */
  push(text: string): boolean {
    try {
      for (const data of this.#events.push(text)) {
        if (data === '[DONE]') return false
        this.#take(readObject(data))
      }
      return true
    } catch (error) {
      this.#error = error
      return false
    }
  }

  /**
   * Returns the completion.
   * @throws {FulmarError} As `readCompletion`; `UNAVAILABLE` if the server reports a failure.
   */
  end(): ServedCompletion {
    const { request } = this.#options
    if (this.#error !== undefined) throw this.#error
    if (this.#end === undefined)
      throw lie('stream must end with a reason', `one cut off after ${this.#ids.length} tokens`)
    const part = this.soFar
    return { requestId: request.requestId, ...part, ...readEnd(this.#end, part.ids, request) }
  }

  #take(event: Readonly<Record<string, unknown>>): void {
    const { wireId, request, served, onPart } = this.#options
    const { id, choices, error } = event
    if (error !== undefined && error !== null) throw failure(error)
    checkId(id, wireId)
    // The usage may come at the end, with no choice.
    if (Array.isArray(choices) && choices.length === 0) return
    if (!Array.isArray(choices) || choices.length !== 1) throw lie('choices must be one', choices)
    const choice = field(choices[0], 'choices[0]')
    if (!this.#echoed) checkEcho(choice, request.promptIds)
    this.#echoed = true
    const ids = readIds(choice.token_ids, 'token_ids', served.vocabSize)
    const told = ids.length === 0 ? new Float32Array(0) : readLogProbs(choice, ids.length)
    this.#checkOrder(ids)
    this.#ids.push(...ids)
    this.#told.push(...told)
    if (choice.finish_reason !== null && choice.finish_reason !== undefined) this.#end = choice
    if (ids.length > 0) onPart(this.#partOf(ids, told))
  }

  /** Rejects tokens after the end and after a stop token. */
  #checkOrder(ids: Uint32Array): void {
    const { maxTokens, stopIds } = this.#options.request
    const all = [...this.#ids.slice(-1), ...ids]
    if (ids.length > 0 && this.#end !== undefined) throw lie('token_ids must end with finish_reason', ids[0])
    const early = all.slice(0, -1).find((id) => stopIds.includes(id))
    if (early !== undefined) throw lie('token_ids must end with the first stop id', early)
    const length = this.#ids.length + ids.length
    if (length > maxTokens) throw lie(`token_ids must be at most ${maxTokens}`, length)
  }

  #partOf(ids: Uint32Array, told: Float32Array): CompletionPart {
    const { request, served } = this.#options
    return { ids, ...bothKinds(told, request, served.logProbsMode) }
  }
}

function failure(error: unknown): FulmarError {
  const { message } = (typeof error === 'object' ? error : {}) as { readonly message?: unknown }
  const said = (typeof message === 'string' ? message : JSON.stringify(error)).slice(0, 500)
  return new FulmarError('UNAVAILABLE', `the server must complete the stream: got ${said}`)
}
