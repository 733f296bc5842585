/** Model at a URL of OpenAI's chat completions, known by its messages alone. */

import { aborted } from '../async/index.js'
import type { Message } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import { defaultHttpClient, type HttpClient } from '../native/index.js'
import type { MessagePolicy, MessageReply, MessageRequest } from '../policy/message-policy.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import { field, lie, readObject } from './vllm-protocol.js'
import { type ServerStats, Servers, type StreamReader } from './vllm-servers.js'

/** Options of {@link ChatEndpoint}. */
export interface ChatEndpointOptions {
  /** Name of the model on the server. */
  readonly model: string
  /** Token of the `Authorization: Bearer` header. @default none */
  readonly apiKey?: string
  /**
   * Further fields of each request, such as `{ top_p: 0.9 }`, as the server names them. They come before the fields of a
   * request, `max_completion_tokens`, `temperature` and `seed`.
   * @default none
   */
  readonly body?: Readonly<Record<string, unknown>>
  /**
   * If true, sends the seed of each request. Some servers refuse seeds, and few draw the same for one.
   * @default false
   */
  readonly sendSeeds?: boolean
  /** HTTP client. @default that of the runtime: connection pools in Node, else `fetch` */
  readonly client?: HttpClient
  /**
   * Maximum number of connections, for the default client, and of requests in flight; others wait.
   * @default 256
   */
  readonly maxConcurrency?: number
  /**
   * Deadline of a request in milliseconds, including retries and waits.
   * @default 1_800_000
   */
  readonly timeoutMs?: number
  /**
   * Deadline of one attempt in milliseconds.
   * @default 600_000
   */
  readonly attemptTimeoutMs?: number
  /**
   * Maximum number of attempts of a request: refusals for now, lost connections and invalid answers are retried.
   * @default 4
   */
  readonly maxAttempts?: number
  /**
   * Milliseconds before the first retry; doubled before each further one, up to 10 s, unless `Retry-After` is
   * given.
   * @default 250
   */
  readonly backoffMs?: number
  /** Clock of deadlines and pauses. @default systemClock */
  readonly clock?: Clock
}

const KEYS: readonly (keyof ChatEndpointOptions)[] = [
  ...(['model', 'apiKey', 'body', 'sendSeeds', 'client', 'maxConcurrency', 'timeoutMs'] as const),
  ...(['attemptTimeoutMs', 'maxAttempts', 'backoffMs', 'clock'] as const),
]

/** Fields of a request that are not the caller's to set. */
const OWN_FIELDS = ['model', 'messages', 'tools', 'n', 'stream']

/** Maximum number of characters of an answer. */
export const CHAT_ANSWER_CHARS_MAX = 16_777_216

/**
 * A {@link MessagePolicy} over any server with OpenAI's route `/chat/completions`. Sends the conversation and the
 * tools, and reads content, reasoning, tool calls and counts of tokens. Its rollouts cannot be trained on, as token
 * ids and log-probs are not known; for training use `AsyncVLLM`. Reasoning of earlier turns is not sent back.
 *
 * Refused, reset, cut off or invalid answers are retried with growing pauses. Each request ends once, with a message
 * or a typed error. Close it after use.
 *
 * @example
 * ```ts
 * import { fetchClient } from 'fulmar'
 * import { ChatEndpoint } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * // A server that repeats the last message, simulated by a `fetch` function.
 * const client = fetchClient(async (_, { body = '{}' }) => {
 *   const { messages } = JSON.parse(body)
 *   const message = { role: 'assistant', content: messages.at(-1).content }
 *   return Response.json({ choices: [{ message, finish_reason: 'stop' }], usage: { prompt_tokens: 3, completion_tokens: 1 } })
 * })
 * const endpoint = new ChatEndpoint('http://127.0.0.1:8000/v1', { model: 'echo', client })
 * const { message, numPromptTokens } = await endpoint.reply({ requestId: 'a', messages: [{ role: 'user', content: 'Hi' }], tools: [], seed: 0 })
 * assert.deepEqual(message, { role: 'assistant', content: 'Hi' })
 * assert.equal(numPromptTokens, 3)
 * await endpoint.close()
 * ```
 */
export class ChatEndpoint implements MessagePolicy {
  readonly #servers: Servers
  readonly #options: ChatEndpointOptions

  /**
   * `url` is the address before `/chat/completions`, such as `https://api.openai.com/v1`; `/v1` is added to one
   * without a path.
   * @throws {FulmarError} `MALFORMED` for a bad URL; `UNKNOWN_NAME`, `EMPTY` or `OUT_OF_RANGE` for an option;
   * `INCOMPATIBLE` for a field of `body` that is not yours to set.
   */
  constructor(url: string, options: ChatEndpointOptions) {
    checkKnownKeys('options', options, KEYS, ['model'])
    checkGiven('url', url)
    const { model, apiKey, body = {}, maxConcurrency = 256, maxAttempts = 4, clock = systemClock } = options
    const { timeoutMs = 1_800_000, attemptTimeoutMs = 600_000, backoffMs = 250 } = options
    if (typeof model !== 'string' || model === '')
      throw new FulmarError('EMPTY', 'options.model must be the name of a model: it is empty')
    const own = OWN_FIELDS.find((name) => Object.hasOwn(body, name))
    if (own !== undefined)
      throw new FulmarError('INCOMPATIBLE', `options.body must not set ${own}, which each request sets`)
    for (const [name, value] of Object.entries({ maxConcurrency, maxAttempts })) {
      if (!Number.isSafeInteger(value) || value < 1)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
    }
    for (const [name, value] of Object.entries({
      timeoutMs,
      attemptTimeoutMs,
      'backoffMs + 1': backoffMs + 1,
    })) {
      if (!(value >= 1 && Number.isFinite(value)))
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a number >= 1: got ${value}`)
    }
    const headers = {
      'content-type': 'application/json',
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
    }
    const client = options.client ?? defaultHttpClient({ numConnections: maxConcurrency })
    const limits = { maxConcurrency, timeoutMs, attemptTimeoutMs, maxAttempts, backoffMs }
    this.#servers = new Servers({ urls: [addressOf(url)], headers, client, clock, router: {}, ...limits }, 0)
    this.#options = options
  }

  /** Counts of requests, retries and failures. */
  get stats(): ServerStats {
    return this.#servers.stats
  }

  /**
   * Answers a conversation.
   * @throws {FulmarError} `UNAVAILABLE`, `TIMEOUT`, `MALFORMED` or `LIMIT_EXCEEDED` if no attempt gave a valid answer, by
   * the last attempt; `FORBIDDEN`, `UNKNOWN_NAME` or `INCOMPATIBLE` for a permanent refusal; `ABORTED`; `CLOSED`.
   */
  async reply(request: MessageRequest): Promise<MessageReply> {
    const { requestId, sessionId, signal } = request
    const text = JSON.stringify(this.#bodyOf(request))
    const answer = await this.#servers.request<MessageReply>({
      ...{ requestId, sessionId, signal, path: '/chat/completions', cost: 1 },
      body: () => text,
      read: readReply,
      makeReader: () => new AnswerReader(),
    })
    if (answer === undefined) throw aborted(signal)
    return answer.value
  }

  /** Closes the connections. Requests in flight fail with `CLOSED`. */
  async close(): Promise<void> {
    await this.#servers.close()
  }

  #bodyOf({ messages, tools, seed, maxTokens, temperature }: MessageRequest): object {
    const { model, body = {}, sendSeeds = false } = this.#options
    const limitsTokens = 'max_tokens' in body || 'max_completion_tokens' in body
    return {
      ...(maxTokens !== undefined && !limitsTokens && { max_completion_tokens: maxTokens }),
      ...(temperature !== undefined && { temperature }),
      ...(sendSeeds && { seed }),
      ...body,
      model,
      messages: messages.map(sentMessage),
      ...(tools.length > 0 && { tools }),
    }
  }
}

function addressOf(url: string): string {
  try {
    const { protocol, origin, pathname } = new URL(url)
    const path = pathname.replace(/(\/chat\/completions)?\/*$/, '')
    if (protocol === 'http:' || protocol === 'https:') return origin + (path === '' ? '/v1' : path)
  } catch {
    // Reported below.
  }
  throw new FulmarError('MALFORMED', `url must be an http: or https: URL: got ${url}`)
}

/** Servers refuse the reasoning of earlier turns, or drop it. */
function sentMessage(message: Message): object {
  const { reasoning_content: _, ...sent } = message as Readonly<Record<string, unknown>>
  return sent
}

/** Collects an answer up to its limit. */
class AnswerReader implements StreamReader<MessageReply> {
  readonly hasGiven = false
  readonly #parts: string[] = []
  #length = 0

  push(text: string): boolean {
    this.#length += text.length
    if (this.#length <= CHAT_ANSWER_CHARS_MAX) this.#parts.push(text)
    return this.#length <= CHAT_ANSWER_CHARS_MAX
  }

  end(): MessageReply {
    if (this.#length <= CHAT_ANSWER_CHARS_MAX) return readReply(this.#parts.join(''))
    const detail = `an answer must have at most ${CHAT_ANSWER_CHARS_MAX} characters: it has more`
    throw new FulmarError('LIMIT_EXCEEDED', detail)
  }
}

/**
 * Reads an answer.
 * @throws {FulmarError} `MALFORMED` for an answer that is cut off or not of OpenAI's form.
 */
function readReply(text: string): MessageReply {
  const { choices, usage } = readObject(text)
  if (!Array.isArray(choices) || choices.length !== 1) throw lie('choices must be one', choices)
  const { message, finish_reason: reason } = field(choices[0], 'choices[0]')
  const { prompt_tokens: prompt, completion_tokens: completion } =
    usage === undefined || usage === null ? {} : field(usage, 'usage')
  return {
    message: readMessage(field(message, 'message')),
    finishReason: readReason(reason),
    numPromptTokens: readCount(prompt),
    numCompletionTokens: readCount(completion),
  }
}

function readMessage(given: Readonly<Record<string, unknown>>): Message {
  const { content = null, tool_calls: calls, refusal, reasoning_content: reasoning = given.reasoning } = given
  const said = content ?? (typeof refusal === 'string' ? refusal : null)
  if (said !== null && typeof said !== 'string') throw lie('content must be a text or null', said)
  const hasCalls = calls !== undefined && calls !== null
  if (hasCalls && !Array.isArray(calls)) throw lie('tool_calls must be a list', calls)
  return {
    role: 'assistant',
    content: said,
    ...(typeof reasoning === 'string' && reasoning !== '' && { reasoning_content: reasoning }),
    ...(hasCalls && calls.length > 0 && { tool_calls: calls.map((call: unknown) => field(call, 'a call')) }),
  }
}

function readReason(reason: unknown): MessageReply['finishReason'] {
  if (reason === 'length') return 'length'
  if (reason === 'content_filter' || reason === 'abort') return 'abort'
  if (typeof reason === 'string') return 'stop'
  throw lie('finish_reason must be a text', reason)
}

function readCount(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}
