/**
 * An HTTP server in front of policies, for agents that speak to OpenAI's endpoints: each open rollout has a key, and the
 * agent needs no other change than its address and its key.
 *
 * ```text
 * POST /v1/chat/completions   POST /v1/responses   POST /v1/fulmar/reward   GET /v1/models
 * request -> key -> rollout -> body -> dialect -> turns -> answer, whole or as a stream
 * ```
 *
 * Node's own `http`: sockets have limits of time, headers and bodies, and each answer tells if its client got it.
 */

import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import { Pacer } from '../rollout/pacer.js'
import { checkOpenOptions, type OpenOptions } from './agent-limits.js'
import { AgentRollout } from './agent-rollout.js'
import { AgentTurns, type RequestIdentity } from './agent-turns.js'
import { ApiKeys } from './api-keys.js'
import { type Json, numberField, textField } from './body-field.js'
import { chatDialect } from './chat-dialect.js'
import type { Dialect } from './dialect.js'
import { generateFailure, invalid, ProviderError } from './provider-error.js'
import { type ClientAnswer, RequestAnswer } from './request-answer.js'
import { jsonOf, readBody } from './request-body.js'
import { responsesDialect } from './responses-dialect.js'
import type { TokenText } from './token-text.js'

/** Options of {@link InterceptionServer.listen}. */
export interface InterceptionServerOptions {
  /**
   * Address to bind. Whoever reaches another address than the loopback's needs a key, but sees the traffic of others.
   * @default '127.0.0.1'
   */
  readonly host?: string
  /**
   * Port to bind; 0 for any that is free.
   * @default 0
   */
  readonly port?: number
  /**
   * Maximum number of bytes of a request's body.
   * @default 33_554_432
   */
  readonly bodyBytesMax?: number
  /**
   * Milliseconds that a client may take to send a request.
   * @default 60_000
   */
  readonly requestTimeoutMs?: number
  /**
   * Maximum number of requests of one rollout at a time.
   * @default 256
   */
  readonly requestsMax?: number
  /**
   * Maximum number of open connections; others wait for the system's queue.
   * @default 16_384
   */
  readonly connectionsMax?: number
  /**
   * Returns the text of one token, for `logprobs`; `null` if it is not known, as for half a character.
   * @default tokens are named `token_id:7`
   */
  readonly tokenText?: (id: number) => string | null
}

const KEYS: readonly (keyof InterceptionServerOptions)[] = [
  ...(['host', 'port', 'bodyBytesMax', 'requestTimeoutMs', 'requestsMax', 'connectionsMax'] as const),
  'tokenText',
]

type Settings = Required<Omit<InterceptionServerOptions, 'host' | 'port'>>

/** Dialects by their path. */
const DIALECTS: ReadonlyMap<string, Dialect> = new Map(
  [chatDialect as Dialect, responsesDialect as Dialect].map((dialect) => [`/v1${dialect.path}`, dialect]),
)

/** Maximum number of bytes of the headers of a request. */
const HEADER_BYTES_MAX = 16_384

/** Milliseconds that an idle connection is kept. */
const KEEP_ALIVE_MS = 65_000

/** Milliseconds between two checks of slow clients. */
const CHECK_MS = 500

/**
 * An endpoint for agents. Any policy and renderer can be behind it, other ones for each rollout. It keeps the tokens
 * that were sampled: a request that repeats an answer continues its tokens, though clients drop reasoning, reorder keys
 * or write JSON anew. Binds to the loopback address by default. Node only.
 *
 * Agents set the environment variables `OPENAI_BASE_URL` and `OPENAI_API_KEY`. What the engine cannot do, such as
 * `response_format: json_schema`, `tool_choice: required` or images for a text model, is a 400 that names the field.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer } from 'fulmar'
 * import { InterceptionServer } from 'fulmar/agent'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const policy = new ScriptedPolicy({ reply: () => [...tokenizer.encode('Oslo').ids, renderer.stopIds[0] ?? 0] })
 * const server = await InterceptionServer.listen()
 * const rollout = server.open({ policy, renderer })
 * const answer = await fetch(`${rollout.baseURL}/chat/completions`, {
 *   method: 'POST',
 *   headers: { authorization: `Bearer ${rollout.apiKey}` },
 *   body: JSON.stringify({ model: 'any', messages: [{ role: 'user', content: 'Capital of Norway?' }] }),
 * })
 * assert.match(await answer.text(), /"content":"Oslo"/)
 * const { turns, ledger } = await rollout.end()
 * assert.equal(ledger.numTurns, turns.length)
 * ledger[Symbol.dispose]()
 * await server.close()
 * ```
 */
export class InterceptionServer {
  /** Address of the server, such as `http://127.0.0.1:41234`. */
  readonly url: string
  readonly #server: Server
  readonly #options: Settings
  readonly #rollouts = new ApiKeys<AgentRollout>()
  readonly #sockets = new Set<Socket>()
  readonly #pacer = new Pacer()
  readonly #numRequests = new Map<AgentRollout, number>()
  #numOpened = 0
  #numAnswered = 0
  #isClosed = false

  private constructor(server: Server, options: Settings) {
    this.#server = server
    this.#options = options
    const { address, port, family } = server.address() as AddressInfo
    this.url = `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
  }

  /**
   * Starts a server.
   * @throws {FulmarError} `UNKNOWN_NAME` for an option; `OUT_OF_RANGE` for a number; `UNAVAILABLE` if the address
   * cannot be bound.
   */
  static async listen(options: InterceptionServerOptions = {}): Promise<InterceptionServer> {
    checkKnownKeys('options', options, KEYS)
    const { host = '127.0.0.1', port = 0, tokenText = () => null } = options
    const { bodyBytesMax = 33_554_432, requestTimeoutMs = 60_000 } = options
    const { requestsMax = 256, connectionsMax = 16_384 } = options
    const counts = { bodyBytesMax, requestTimeoutMs, requestsMax, connectionsMax }
    for (const [name, value] of Object.entries({ ...counts, 'port + 1': port + 1 })) {
      if (!Number.isSafeInteger(value) || value < 1)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
    }
    const server = createServer({
      ...{ maxHeaderSize: HEADER_BYTES_MAX, keepAliveTimeout: KEEP_ALIVE_MS },
      ...{ headersTimeout: requestTimeoutMs, requestTimeout: requestTimeoutMs },
      connectionsCheckingInterval: Math.min(CHECK_MS, requestTimeoutMs),
    })
    server.maxConnections = connectionsMax
    await bind(server, host, port)
    const listening = new InterceptionServer(server, { ...counts, tokenText })
    listening.#serve()
    return listening
  }

  /** Number of rollouts that are open. */
  get numOpen(): number {
    return this.#rollouts.size
  }

  /**
   * Opens a rollout: one agent, with a key of its own.
   * @throws {FulmarError} `CLOSED` if the server is closed; `UNKNOWN_NAME`, `MALFORMED` or `OUT_OF_RANGE` for an option.
   */
  open(options: OpenOptions): AgentRollout {
    const checked = checkOpenOptions(options)
    if (this.#isClosed) throw new FulmarError('CLOSED', 'server must be open to open a rollout: it is closed')
    const settings = { name: `rollout=${this.#numOpened}`, ...checked }
    this.#numOpened += 1
    return this.#rollouts.issue((key) => {
      const end = () => this.#rollouts.revoke(key)
      return new AgentRollout(`${this.url}/v1`, key, new AgentTurns(settings), end)
    })
  }

  /** Closes the server and its connections. Rollouts that are open get no more requests, and can still be ended. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  /** Closes the server, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #serve(): void {
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
    })
    this.#server.on('clientError', refuseBrokenRequest)
    this.#server.on('request', (request, response) => void this.#handle(request, response))
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const answer = new RequestAnswer(response)
    try {
      await this.#route(request, answer)
    } catch (error) {
      answer.refuse(generateFailure(error))
    }
  }

  async #route(request: IncomingMessage, answer: ClientAnswer): Promise<void> {
    const path = (request.url ?? '').split('?', 1)[0] ?? ''
    const rollout = this.#rolloutOf(request)
    const dialect = DIALECTS.get(path)
    const isKnown = dialect !== undefined || path === '/v1/fulmar/reward' || path === '/v1/models'
    if (!isKnown)
      throw refusal(404, 'unknown_url', `the path must be one of this server: got ${path.slice(0, 64)}`)
    const method = path === '/v1/models' ? 'GET' : 'POST'
    if (request.method !== method)
      throw refusal(
        405,
        'method_not_supported',
        `the method of ${path} must be ${method}: got ${request.method}`,
      )
    if (path === '/v1/models') return answer.whole({ object: 'list', data: [MODEL] })
    await this.#counted(rollout, async () => {
      const bytes = await readBody(request, this.#options.bodyBytesMax)
      const pause = this.#pacer.pass()
      if (pause) await pause
      const body = jsonOf(bytes)
      if (dialect === undefined) return answer.whole(takeReward(rollout, body))
      await this.#complete(rollout, dialect, body, identityOf(request, path, bytes), answer)
    })
  }

  /** Returns the rollout of a key. @throws {ProviderError} 401 without a valid key. */
  #rolloutOf({ headers: { authorization = '' } }: IncomingMessage): AgentRollout {
    const key = /^Bearer +(\S{1,256})$/i.exec(authorization)?.[1]
    const rollout = key === undefined ? undefined : this.#rollouts.ownerOf(key)
    if (rollout) return rollout
    const message =
      key === undefined
        ? 'the header authorization must hold a key: it does not'
        : 'the key must be that of an open rollout: it is not'
    throw new ProviderError(401, 'authentication_error', 'invalid_api_key', message)
  }

  async #counted(rollout: AgentRollout, body: () => Promise<void> | void): Promise<void> {
    const number = (this.#numRequests.get(rollout) ?? 0) + 1
    if (number > this.#options.requestsMax) {
      const detail = `a rollout must have at most ${this.#options.requestsMax} requests at a time: it has more`
      throw new ProviderError(429, 'invalid_request_error', 'rate_limit_exceeded', detail, { canRetry: true })
    }
    this.#numRequests.set(rollout, number)
    try {
      await body()
    } finally {
      const left = (this.#numRequests.get(rollout) ?? 1) - 1
      if (left === 0) this.#numRequests.delete(rollout)
      else this.#numRequests.set(rollout, left)
    }
  }

  async #complete(
    rollout: AgentRollout,
    dialect: Dialect,
    body: Json,
    identity: RequestIdentity,
    answer: ClientAnswer,
  ): Promise<void> {
    const { turns } = rollout
    const request = dialect.read(body, (id) => turns.isMadeId(id))
    turns.checkTopLogProbs(request)
    const created = Math.floor(Date.now() / 1_000)
    const textOf: TokenText = this.#options.tokenText
    const context = { request, id: `${++this.#numAnswered}`, created, textOf }
    if (!request.streams) {
      const exchange = turns.begin(request, identity)
      answer.watch(exchange)
      return answer.whole(dialect.whole(context, exchange, await exchange.answers))
    }
    const events = dialect.events(context)
    const exchange = turns.begin(request, identity, (part) => {
      answer.events(events.part(part))
    })
    answer.watch(exchange)
    try {
      const answers = await exchange.answers
      answer.events(events.end(answers, exchange))
      answer.endEvents()
    } catch (error) {
      const failure = generateFailure(error)
      if (!answer.hasBegun) throw failure
      answer.events(events.fail(failure))
      answer.endEvents()
    }
  }
}

const MODEL = { id: 'fulmar', object: 'model', created: 0, owned_by: 'fulmar' }

/** @throws {FulmarError} `UNAVAILABLE` if the address is taken or is not of this machine. */
async function bind(server: Server, host: string, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) => {
      const detail = `host and port must be free to bind: got ${host}:${port} (${messageOf(cause)})`
      reject(new FulmarError('UNAVAILABLE', detail, { cause }))
    })
    server.listen({ host, port }, resolve)
  })
}

/** Keeps the reward that an agent posts: the last one counts. */
function takeReward(rollout: AgentRollout, body: Json): object {
  const unknown = Object.keys(body).find((name) => name !== 'reward' && name !== 'unscored')
  if (unknown !== undefined)
    throw invalid(unknown.slice(0, 64), 'must be reward or unscored', 'unknown_parameter')
  const max = Number.MAX_VALUE
  const reward = numberField(body, 'reward', { min: -max, max })
  if ((reward === undefined) === (body.unscored === undefined))
    throw invalid('reward', `must be a number, or unscored its reason: got ${describeValue(body.reward)}`)
  rollout.reward = reward ?? { unscored: textField('unscored', body.unscored).slice(0, 1_024) }
  return { object: 'fulmar.reward', reward: rollout.reward }
}

/** Returns what a request has in common with another attempt of it. */
function identityOf({ headers }: IncomingMessage, path: string, body: Buffer): RequestIdentity {
  const { 'idempotency-key': key, 'x-stainless-retry-count': count } = headers
  const hash = createHash('sha256').update(path).update('\0')
  const digest = hash
    .update(typeof key === 'string' ? key : '')
    .update('\0')
    .update(body)
    .digest('base64')
  return { hash: digest, isRetry: typeof key === 'string' || Number(count) > 0 }
}

function refusal(status: number, code: string, message: string): ProviderError {
  return new ProviderError(status, 'invalid_request_error', code, message)
}

/** Answers bytes that are no request, or come too slowly. */
function refuseBrokenRequest(error: Error & { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return
  const isLate = error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
  const isLong = error.code === 'HPE_HEADER_OVERFLOW'
  const status = isLate
    ? '408 Request Timeout'
    : isLong
      ? '431 Request Header Fields Too Large'
      : '400 Bad Request'
  const code = isLate ? 'request_timeout' : isLong ? 'headers_too_large' : 'invalid_http'
  const body = JSON.stringify(
    refusal(Number.parseInt(status, 10), code, `the request must be HTTP in time: ${code}`),
  )
  const head = `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`
  socket.end(`${head}\r\nconnection: close\r\n\r\n${body}`)
}
