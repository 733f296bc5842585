/**
 * Fault-tolerant requests to several servers: routing, retries, deadlines, and servers that are taken out for
 * a while.
 */

import { bounded, type CallContext } from '../async/index.js'
import { FulmarError, messageOf } from '../core/index.js'
import type { HttpClient, HttpRequest, HttpResponse } from '../native/index.js'
import type { Clock } from '../telemetry/index.js'
import { Gate } from './gate.js'
import { type Reservation, Router, type RouterOptions } from './router.js'
import { readObject } from './vllm-protocol.js'

/** Options of requests; every field is checked and set. */
export interface ServersConfig {
  readonly urls: readonly string[]
  readonly headers: Readonly<Record<string, string>>
  readonly client: HttpClient
  readonly clock: Clock
  readonly router: Omit<RouterOptions, 'numTargets'>
  readonly maxConcurrency: number
  readonly timeoutMs: number
  readonly attemptTimeoutMs: number
  readonly maxAttempts: number
  readonly backoffMs: number
}

/** A request to any server. */
export interface ServerRequest<T> {
  /** Key of the retry delays, so that retries of many requests spread. */
  readonly requestId: string
  readonly sessionId?: string | undefined
  readonly signal?: AbortSignal | undefined
  /** Load that it adds to a server. */
  readonly cost: number
  readonly path: string
  /** Builds the body of the attempt with that id. */
  readonly body: (wireId: string) => string
  /** Reads an answer. @throws {FulmarError} `MALFORMED` for an inconsistent answer, which is retried. */
  readonly read: (text: string, wireId: string) => T
  /** Reads the answer of one attempt as a stream, instead of `read`. */
  readonly makeReader?: (wireId: string) => StreamReader<T>
}

/** Reads a streamed answer. */
export interface StreamReader<T> {
  /** Reads the next part; `false` once no more is needed. */
  push(text: string): boolean
  /** Returns the result. @throws {FulmarError} As {@link ServerRequest.read}. */
  end(): T
  /** True if a part was passed on: a failure is then final. */
  readonly hasGiven: boolean
}

/** Request and reader of one attempt. */
interface Sent<T> {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: string
  readonly read: (text: string) => T
  readonly reader?: StreamReader<T> | undefined
}

/** An answer, and the policy versions of the server at the request and at the answer. */
export interface ServerAnswer<T> {
  readonly value: T
  readonly minVersion: number
  readonly maxVersion: number
}

/** Counts of requests, retries and failures. */
export interface ServerStats {
  /** Number of sent requests, including retries. */
  readonly numAttempts: number
  /** Number of attempts without an answer: refused, reset, cut off. */
  readonly numUnreachable: number
  /** Number of attempts that were answered with 408, 429 or 5xx. */
  readonly numRefused: number
  /** Number of attempts with an inconsistent answer. */
  readonly numMalformed: number
  /** Number of attempts that timed out. */
  readonly numTimeouts: number
  /** Number of times that a server was taken out after repeated failures. */
  readonly numTakenOut: number
}

interface Server {
  readonly url: string
  version: number
  numFailures: number
  quarantined: boolean
}

type Failure = { readonly error: FulmarError; readonly retries: boolean; readonly waitMs?: number }
type Outcome<T> = { readonly value: T } | Failure | 'aborted'

const BACKOFF_MS_MAX = 10_000
/** Number of consecutive failures that takes a server out, and for how long. */
const FAILURES_MAX = 8
const OUT_MS = 5_000

/** Servers of one model. */
export class Servers {
  readonly router: Router
  readonly #servers: readonly Server[]
  readonly #config: ServersConfig
  readonly #gate: Gate
  readonly #timers = new Set<() => void>()
  readonly #nonce = globalThis.crypto.randomUUID().slice(0, 8)
  #numWireIds = 0
  #closed = false
  #stats = {
    numAttempts: 0,
    numUnreachable: 0,
    numRefused: 0,
    numMalformed: 0,
    numTimeouts: 0,
    numTakenOut: 0,
  }

  constructor(config: ServersConfig, version: number) {
    this.#config = config
    this.#servers = config.urls.map((url) => ({ url, version, numFailures: 0, quarantined: false }))
    this.router = new Router({ ...config.router, numTargets: config.urls.length })
    this.#gate = new Gate(config.maxConcurrency)
  }

  get stats(): ServerStats {
    return { ...this.#stats }
  }

  /**
   * Id that no other attempt of this or another client has: a server may still be busy with the previous
   * attempt.
   */
  wireId(requestId: string): string {
    this.#numWireIds += 1
    return `${requestId}-${this.#nonce}-${this.#numWireIds}`
  }

  /** Policy version of each server. */
  get versions(): readonly number[] {
    return this.#servers.map(({ version }) => version)
  }

  /**
   * Sends the request to one of the servers until there is an answer; `undefined` if the signal fires first.
   */
  async request<T>(request: ServerRequest<T>): Promise<ServerAnswer<T> | undefined> {
    const { clock, timeoutMs } = this.#config
    const endMs = clock.nowMs() + timeoutMs
    const ticket = this.#gate.enter()
    try {
      const { ready } = ticket
      if (ready === undefined) return await this.#persist(request, endMs)
      const entered = await bounded({ clock, timeoutMs, signal: request.signal, run: () => ready })
      if (entered.kind === 'timeout') throw late(timeoutMs)
      return entered.kind === 'aborted' ? undefined : await this.#persist(request, endMs)
    } finally {
      ticket.leave()
    }
  }

  /** Sends an idempotent request to one server, with at most `maxAttempts` attempts. */
  async control(
    target: number,
    method: 'GET' | 'POST',
    path: string,
    {
      body,
      maxAttempts = this.#config.maxAttempts,
    }: { readonly body?: object | undefined; readonly maxAttempts?: number } = {},
  ): Promise<string> {
    const { clock, timeoutMs } = this.#config
    const endMs = clock.nowMs() + timeoutMs
    for (let count = 1; ; count++) {
      const sent = { method, path, ...(body && { body: JSON.stringify(body) }) } as const
      const outcome = await this.#attempt(target, { ...sent, read: (text: string) => text }, undefined, endMs)
      if (outcome === 'aborted') throw closed()
      if ('value' in outcome) return outcome.value
      if (!outcome.retries || count >= maxAttempts) throw outcome.error
      await this.#rest({ requestId: path, count, endMs, waitMs: outcome.waitMs })
    }
  }

  /** Records the new policy version of a server. */
  setVersion(target: number, version: number): void {
    const server = this.#servers[target]
    if (server) server.version = version
  }

  /** Takes a server out permanently, as its weights are unknown or others than those served. */
  quarantine(target: number): void {
    const server = this.#servers[target]
    if (server) server.quarantined = true
    this.router.setServing(target, false)
  }

  /** Puts a server back that {@link Servers.quarantine} took out. */
  readmit(target: number): void {
    const server = this.#servers[target]
    if (server) server.quarantined = false
    this.router.setServing(target, true)
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const stopTimer of this.#timers) stopTimer()
    this.#timers.clear()
    await this.#config.client.close()
  }

  async #persist<T>(request: ServerRequest<T>, endMs: number): Promise<ServerAnswer<T> | undefined> {
    let avoid: Set<number> | undefined
    const { requestId, sessionId, cost, signal } = request
    for (let count = 0; ; ) {
      const reservation = this.router.reserve({ sessionId, cost, avoid })
      const failure = reservation
        ? await this.#once(reservation, request, endMs)
        : {
            error: new FulmarError('UNAVAILABLE', 'a server must be available: all are taken out or closed'),
            retries: true,
          }
      if (failure === 'aborted') return undefined
      if ('value' in failure) return failure
      if (reservation) {
        count += 1
        avoid ??= new Set()
        avoid.add(reservation.target)
      }
      if (!failure.retries || count >= this.#config.maxAttempts) throw failure.error
      const rested = await this.#rest({
        requestId,
        count,
        endMs,
        waitMs: failure.waitMs,
        signal,
        error: failure.error,
      })
      if (!rested) return undefined
    }
  }

  async #once<T>(
    { target, release }: Reservation,
    { requestId, path, body, read, makeReader, signal }: ServerRequest<T>,
    endMs: number,
  ): Promise<ServerAnswer<T> | Failure | 'aborted'> {
    const minVersion = this.#servers[target]?.version ?? 0
    try {
      const wireId = this.wireId(requestId)
      const reader = makeReader?.(wireId)
      const sent = {
        method: 'POST',
        path,
        body: body(wireId),
        read: (text: string) => reader?.end() ?? read(text, wireId),
        reader,
      } as const
      const outcome = await this.#attempt(target, sent, signal, endMs)
      if (outcome === 'aborted' || !('value' in outcome)) return outcome
      return { value: outcome.value, minVersion, maxVersion: this.#servers[target]?.version ?? minVersion }
    } finally {
      release()
    }
  }

  async #attempt<T>(
    target: number,
    sent: Sent<T>,
    signal: AbortSignal | undefined,
    endMs: number,
  ): Promise<Outcome<T>> {
    if (this.#closed) return { error: closed(), retries: false }
    const { clock, headers, attemptTimeoutMs } = this.#config
    const server = this.#servers[target]
    if (server === undefined)
      throw new FulmarError('OUT_OF_RANGE', `target must be a server's: got ${target}`)
    const { method, path, body, read, reader } = sent
    const url = server.url + path
    const timeoutMs = Math.max(0, Math.min(attemptTimeoutMs, endMs - clock.nowMs()))
    this.#stats.numAttempts += 1
    const run = (context: CallContext) =>
      this.#send(
        { method, url, headers, signal: context.signal, ...(body !== undefined && { body }) },
        reader,
      )
    const result = await bounded({ clock, timeoutMs, signal, run })
    if (result.kind === 'aborted') return 'aborted'
    const outcome: Outcome<T> =
      result.kind === 'value'
        ? this.#judge(result.value, read)
        : this.#unanswered(
            server.url,
            result.kind === 'thrown' ? result.error : undefined,
            result.kind,
            timeoutMs,
          )
    this.#note(target, server, 'error' in outcome && outcome.retries)
    return 'error' in outcome && reader?.hasGiven ? { ...outcome, retries: false } : outcome
  }

  /** Sends a request; a streaming reader gets a good answer as it arrives. */
  async #send(request: HttpRequest, reader: StreamReader<unknown> | undefined): Promise<HttpResponse> {
    const { client } = this.#config
    if (reader === undefined) return await client.send(request)
    const { body, ...told } = await client.stream(request)
    const isGood = told.status >= 200 && told.status < 300
    let text = ''
    for await (const part of body) {
      // A late part has no reader.
      if (request.signal?.aborted) break
      if (isGood ? !reader.push(part) : text.length > REFUSAL_LENGTH_MAX) break
      if (!isGood) text += part
    }
    return { ...told, text }
  }

  #unanswered(url: string, cause: unknown, kind: 'thrown' | 'timeout', timeoutMs: number): Failure {
    if (this.#closed) return { error: closed(), retries: false }
    if (kind === 'timeout') {
      this.#stats.numTimeouts += 1
      return { error: late(timeoutMs), retries: true }
    }
    this.#stats.numUnreachable += 1
    const detail = `the server ${url} must answer: got ${messageOf(cause)}`
    return { error: new FulmarError('UNAVAILABLE', detail, { cause }), retries: true }
  }

  #judge<T>(response: HttpResponse, read: (text: string) => T): { readonly value: T } | Failure {
    const { status, text, retryAfter } = response
    if (status === 408 || status === 429 || status >= 500) {
      this.#stats.numRefused += 1
      const seconds = Number(retryAfter ?? Number.NaN)
      const error = new FulmarError(
        'UNAVAILABLE',
        `the server must answer with 200: got ${status} ${reasonOf(text)}`,
      )
      return { error, retries: true, ...(seconds >= 0 && { waitMs: seconds * 1000 }) }
    }
    if (status < 200 || status >= 300) return { error: refusal(status, reasonOf(text)), retries: false }
    try {
      return { value: read(text) }
    } catch (error) {
      this.#stats.numMalformed += 1
      const known = error instanceof FulmarError ? error : new FulmarError('MALFORMED', messageOf(error))
      return { error: known, retries: true }
    }
  }

  /** Takes out a server that fails repeatedly; a success resets its count. */
  #note(target: number, server: Server, failed: boolean): void {
    server.numFailures = failed ? server.numFailures + 1 : 0
    if (server.numFailures < FAILURES_MAX || !this.router.serving[target]) return
    this.#stats.numTakenOut += 1
    this.router.setServing(target, false)
    const stopTimer = this.#config.clock.startTimer(OUT_MS, () => {
      this.#timers.delete(stopTimer)
      // One more failure takes it out again.
      server.numFailures = FAILURES_MAX - 1
      if (!server.quarantined) this.router.setServing(target, true)
    })
    this.#timers.add(stopTimer)
  }

  /** Waits before a retry; false if the signal fires. @throws {FulmarError} `TIMEOUT` if no time is left for one. */
  async #rest(options: {
    readonly requestId: string
    readonly count: number
    readonly endMs: number
    readonly waitMs?: number | undefined
    readonly signal?: AbortSignal | undefined
    readonly error?: FulmarError
  }): Promise<boolean> {
    const { clock, backoffMs, timeoutMs } = this.#config
    const { requestId, count, endMs, waitMs = 0, signal, error } = options
    const doubled = Math.min(BACKOFF_MS_MAX, backoffMs * 2 ** Math.max(0, count - 1))
    const delayMs = Math.max(waitMs, doubled * (0.5 + 0.5 * share(`${requestId}/${count}`)))
    if (delayMs >= endMs - clock.nowMs()) throw late(timeoutMs, error)
    const rested = await bounded({
      clock,
      timeoutMs: delayMs,
      signal,
      run: () => new Promise<never>(() => {}),
    })
    return rested.kind === 'timeout'
  }
}

/** Hashes a text to a number in [0, 1) (FNV-1a): retries of many requests spread, and a run is repeatable. */
function share(text: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  return (hash >>> 0) / 2 ** 32
}

function late(timeoutMs: number, cause?: FulmarError): FulmarError {
  const why = cause === undefined ? '' : ` (at last: ${cause.message})`
  return new FulmarError('TIMEOUT', `a server must answer within ${timeoutMs} ms: got no answer${why}`, {
    cause,
  })
}

function closed(): FulmarError {
  return new FulmarError('CLOSED', 'AsyncVLLM must be open: it was closed')
}

/** Returns the error of a permanent refusal, under one of our codes. */
function refusal(status: number, reason: string): FulmarError {
  const code = /context length|max_model_len|longer than/i.test(reason)
    ? 'LIMIT_EXCEEDED'
    : /vocab/i.test(reason)
      ? 'OUT_OF_RANGE'
      : status === 401 || status === 403
        ? 'FORBIDDEN'
        : status === 404
          ? 'UNKNOWN_NAME'
          : 'INCOMPATIBLE'
  return new FulmarError(code, `the server must accept the request: got ${status} ${reason}`)
}

/** Returns the reason in an error answer, in the forms of vLLM's versions, shortened. */
function reasonOf(text: string): string {
  try {
    const answer = readObject(text)
    const inner = typeof answer.error === 'object' && answer.error !== null ? answer.error : answer
    const { message } = inner as { readonly message?: unknown }
    if (typeof message === 'string') return message.slice(0, REASON_LENGTH_MAX)
  } catch {
    // Not JSON: the text itself is the reason.
  }
  return text.slice(0, REASON_LENGTH_MAX)
}

const REASON_LENGTH_MAX = 500
/** Number of characters of a refusal after which no more of it is read. */
const REFUSAL_LENGTH_MAX = 65_536
