/** Policy over unmodified vLLM servers, by HTTP. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import { defaultHttpClient, type HttpClient } from '../native/index.js'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type GenerateRequest,
  type PolicyCapabilities,
  type ScoreRequest,
  type TokenScores,
} from '../policy/policy.js'
import {
  type CompletionPart,
  type StreamingPolicy,
  type TokenStream,
  tokenStream,
} from '../policy/token-stream.js'
import type { WeightContext, WeightReceiver } from '../policy/weight-receiver.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import type { Router, RouterOptions } from './router.js'
import { Adapters, type InUse, type NamedModel } from './vllm-adapters.js'
import { probeServer } from './vllm-probe.js'
import {
  completionBody,
  type LogProbsMode,
  logitBiasOf,
  readCompletion,
  readScores,
  type ServedModel,
  scoreBody,
} from './vllm-protocol.js'
import { type ServerAnswer, type ServerRequest, type ServerStats, Servers } from './vllm-servers.js'
import { CompletionReader } from './vllm-stream.js'
import { updateServers, type WeightUpdate, type WeightUpdateResult } from './vllm-weights.js'

/** Options of {@link AsyncVLLM.connect}. */
export interface AsyncVLLMOptions {
  /**
   * Name of the policy among the receivers of a `WeightSync`.
   * @default 'vllm'
   */
  readonly name?: string
  /** Name of the model on the servers. @default the first model of the first server */
  readonly model?: string
  /**
   * Vocabulary size of the model: larger ids are rejected in requests and in answers.
   * @default not checked
   */
  readonly vocabSize?: number
  /** Token of the `Authorization: Bearer` header. @default none */
  readonly apiKey?: string
  /** HTTP client. @default that of the runtime: connection pools in Node, else `fetch` */
  readonly client?: HttpClient
  /**
   * Maximum number of connections to each server, for the default client.
   * @default 256
   */
  readonly numConnections?: number
  /**
   * Maximum number of requests in flight; others wait.
   * @default 1024
   */
  readonly maxConcurrency?: number
  /** Routing of requests to servers. @default sticky sessions, else the least loaded */
  readonly router?: Omit<RouterOptions, 'numTargets'>
  /**
   * Deadline of a request in milliseconds, including retries and waits.
   * @default 600_000
   */
  readonly timeoutMs?: number
  /**
   * Deadline of one attempt in milliseconds. At its end the connection is closed, which makes vLLM abort the
   * request.
   * @default 120_000
   */
  readonly attemptTimeoutMs?: number
  /**
   * Maximum number of attempts of a request. Retries go to another server, if there is one.
   * @default 10
   */
  readonly maxAttempts?: number
  /**
   * Milliseconds before the first retry; doubled before each further one, up to 10 s, unless `Retry-After` is
   * given.
   * @default 250
   */
  readonly backoffMs?: number
  /** Meaning of the servers' log-probs (`--logprobs-mode`). @default probed */
  readonly logProbsMode?: LogProbsMode
  /** Initial policy version of the weights. @default 0 */
  readonly version?: number
  /** Clock of deadlines and pauses. @default systemClock */
  readonly clock?: Clock
}

const KEYS: readonly (keyof AsyncVLLMOptions)[] = [
  ...(['name', 'model', 'vocabSize', 'apiKey', 'client'] as const),
  ...(['numConnections', 'maxConcurrency', 'router'] as const),
  ...([
    'timeoutMs',
    'attemptTimeoutMs',
    'maxAttempts',
    'backoffMs',
    'logProbsMode',
    'version',
    'clock',
  ] as const),
]

/** Maximum number of servers of one policy. */
const SERVERS_MAX = 4096

/**
 * A {@link Policy} over one or several `vllm serve` processes. Sends and receives token ids, and sets every
 * sampling field. A request goes to the server of its session, else to the least loaded. Refused, reset, cut
 * off or invalid answers are retried with growing pauses, on another server if there is one. An answer is
 * accepted only if its prompt is the one that was sent and its ids, log-probs and finish reason agree. Each
 * request ends once, with a completion or a typed error.
 *
 * An abort closes the connection; tokens drawn by then are lost. vLLM does not promise the same draws for a
 * seed in another batch. At another temperature or with a filter it returns only one kind of log-prob: see
 * {@link AsyncVLLM.capabilities}. Close it after use.
 *
 * @example
 * ```ts
 * import { AsyncVLLM, fetchClient } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * // A server that always samples 7, simulated by a `fetch` function.
 * const client = fetchClient(async (url, { body = '{}' }) => {
 *   const { prompt, request_id, max_tokens } = JSON.parse(body)
 *   const token_ids = new Array(max_tokens).fill(7)
 *   const logprobs = { token_logprobs: token_ids.map(() => -0.5) }
 *   const choice = { token_ids, prompt_token_ids: prompt, logprobs, finish_reason: 'length' }
 *   return Response.json(url.endsWith('/v1/models') ? { data: [{ id: 'tiny', max_model_len: 64 }] } : { id: `cmpl-${request_id}`, choices: [choice] })
 * })
 * const policy = await AsyncVLLM.connect(['http://127.0.0.1:8000'], { client })
 * const request = { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 0, maxTokens: 2, stopIds: [] }
 * assert.deepEqual([...(await policy.generate(request)).ids], [7, 7])
 * await policy.close()
 * ```
 */
export class AsyncVLLM implements StreamingPolicy, WeightReceiver<string> {
  /** Name among the receivers of a `WeightSync`. */
  readonly name: string
  readonly #servers: Servers
  readonly #urls: readonly string[]
  readonly #live = new Set<string>()
  readonly #adapters: Adapters

  private constructor(servers: Servers, urls: readonly string[], name: string, served: NamedModel) {
    this.name = name
    this.#servers = servers
    this.#urls = urls
    this.#adapters = new Adapters(servers, name, served)
  }

  /**
   * Checks the model and the features of each server. `urls` is one address or several, with or without
   * `/v1`.
   * @throws {FulmarError} `EMPTY` or `MALFORMED` for a bad list of URLs; `UNKNOWN_NAME` or `OUT_OF_RANGE` for an option; `UNAVAILABLE` or
   * `INCOMPATIBLE` with everything that is missing, server by server.
   */
  static async connect(urls: string | readonly string[], options: AsyncVLLMOptions = {}): Promise<AsyncVLLM> {
    checkKnownKeys('options', options, KEYS)
    checkGiven('urls', urls)
    if (typeof urls !== 'string' && !Array.isArray(urls))
      throw new FulmarError('MALFORMED', `urls must be an address or a list: got ${describeValue(urls)}`)
    const bases = [urls].flat().map(baseUrl)
    if (bases.length === 0) throw new FulmarError('EMPTY', 'urls must hold a server: the list is empty')
    if (bases.length > SERVERS_MAX)
      throw new FulmarError('LIMIT_EXCEEDED', `urls must be at most ${SERVERS_MAX}: got ${bases.length}`)
    const {
      apiKey,
      clock = systemClock,
      router = {},
      numConnections = 256,
      maxConcurrency = 1024,
      vocabSize,
    } = options
    const {
      timeoutMs = 600_000,
      attemptTimeoutMs = 120_000,
      maxAttempts = 10,
      backoffMs = 250,
      version = 0,
    } = options
    const counts = { numConnections, maxConcurrency, maxAttempts, vocabSize: vocabSize ?? 1 }
    for (const [name, value] of Object.entries(counts))
      checkAtLeast(name, value, 1, Number.isSafeInteger(value))
    for (const [name, value] of Object.entries({ timeoutMs, attemptTimeoutMs }))
      checkAtLeast(name, value, 1, true)
    checkAtLeast('backoffMs', backoffMs, 0, true)
    checkAtLeast('version', version, 0, Number.isSafeInteger(version))
    const headers = {
      'content-type': 'application/json',
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
    }
    const client = options.client ?? defaultHttpClient({ numConnections })
    const limits = { maxConcurrency, timeoutMs, attemptTimeoutMs, maxAttempts, backoffMs }
    const servers = new Servers({ urls: bases, headers, client, clock, router, ...limits }, version)
    try {
      return new AsyncVLLM(servers, bases, options.name ?? 'vllm', await probeAll(servers, bases, options))
    } catch (error) {
      await servers.close()
      throw error
    }
  }

  /** URLs of the servers. */
  get urls(): readonly string[] {
    return this.#urls
  }

  /** Properties of the model. `contextLength` counts prompt and completion. */
  get served(): ServedModel & { readonly contextLength: number | undefined } {
    return this.#adapters.served.model
  }

  /** Routing: load of each server, and servers to take out or put back. */
  get router(): Router {
    return this.#servers.router
  }

  /** Counts of requests, retries and failures. */
  get stats(): ServerStats {
    return this.#servers.stats
  }

  /** Oldest policy version of the servers in use. */
  get version(): number {
    const { versions, router } = this.#servers
    const serving = versions.filter((_, target) => router.serving[target])
    return Math.min(...(serving.length > 0 ? serving : versions))
  }

  get capabilities(): PolicyCapabilities {
    return { seeds: false, logProbs: this.served.logProbsMode === 'raw', sampledLogProbs: false }
  }

  /**
   * Samples one completion.
   * @throws {FulmarError} As {@link Policy.generate}: `UNAVAILABLE` for a {@link RequestRule} other than
   * biases of single ids from -100 to 100; `OUT_OF_RANGE` for an id outside the vocabulary; `LIMIT_EXCEEDED`
   * past the context length; `INCOMPATIBLE` if the request id is in flight; `TIMEOUT`, `UNAVAILABLE` or
   * `MALFORMED` if no attempt gave a valid answer, by the last attempt; the error of a permanent refusal;
   * `CLOSED`.
   */
  async generate(given: GenerateRequest): Promise<Completion> {
    return await this.#draw(given, undefined)
  }

  /**
   * Samples one completion and streams its tokens; each is checked like a complete answer. Failures are
   * retried before the first tokens, and end the stream afterwards.
   * @throws {FulmarError} From the loop and from `result`, as {@link AsyncVLLM.generate}.
   *
   * @example
   * ```ts
   * import { AsyncVLLM, fetchClient } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * // A server that samples 7 and then 8, in an event each.
   * const client = fetchClient(async (url, { body = '{}' }) => {
   *   const { prompt, request_id, stream } = JSON.parse(body)
   *   const part = (token_ids: number[], finish_reason: string | null) => {
   *     const logprobs = { token_logprobs: token_ids.map(() => -0.5) }
   *     return { id: `cmpl-${request_id}`, choices: [{ token_ids, prompt_token_ids: prompt, logprobs, finish_reason }] }
   *   }
   *   if (url.endsWith('/v1/models')) return Response.json({ data: [{ id: 'tiny', max_model_len: 64 }] })
   *   if (!stream) return Response.json(part([7], 'length'))
   *   const events = [part([7], null), part([8], 'length')].map((event) => `data: ${JSON.stringify(event)}\n\n`)
   *   return new Response(`${events.join('')}data: [DONE]\n\n`)
   * })
   * const policy = await AsyncVLLM.connect(['http://127.0.0.1:8000'], { client })
   * const stream = policy.stream({ requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 0, maxTokens: 2, stopIds: [] })
   * const parts: number[][] = []
   * for await (const { ids } of stream) parts.push([...ids])
   * assert.deepEqual(parts, [[7], [8]])
   * assert.equal((await stream.result).finishReason, 'length')
   * await policy.close()
   * ```
   */
  stream(given: GenerateRequest): TokenStream<CompletionPart, Completion> {
    return tokenStream(given.signal, (push, signal) => this.#draw({ ...given, signal }, push))
  }

  async #draw(
    given: GenerateRequest,
    onPart: ((part: CompletionPart) => void) | undefined,
  ): Promise<Completion> {
    checkGenerateRequest(given)
    logitBiasOf(given)
    // Attempts start later than the call.
    const request = { ...given, promptIds: given.promptIds.slice() }
    const { requestId, promptIds, maxTokens, sessionId, signal } = request
    const { served } = this
    this.#checkIds(promptIds, maxTokens)
    let reader: CompletionReader | undefined
    const makeReader = (wireId: string) => {
      reader = new CompletionReader({ wireId, request, served, onPart: onPart ?? (() => {}) })
      return reader
    }
    const answer = await this.#once(requestId, () =>
      this.#request((name) => ({
        ...{ requestId, sessionId, signal, path: '/v1/completions', cost: promptIds.length + maxTokens },
        body: (wireId) => completionBody(wireId, request, name(), { streams: onPart !== undefined }),
        read: (text, wireId) => readCompletion(text, wireId, request, served),
        ...(onPart && { makeReader }),
      })),
    )
    if (answer)
      return { ...answer.value, minPolicyVersion: answer.minVersion, maxPolicyVersion: answer.maxVersion }
    const nothing = {
      ids: new Uint32Array(0),
      logProbs: new Float32Array(0),
      sampledLogProbs: new Float32Array(0),
    }
    const { version } = this
    return {
      requestId,
      ...(reader?.soFar ?? nothing),
      finishReason: 'abort',
      stoppedBy: null,
      minPolicyVersion: version,
      maxPolicyVersion: version,
    }
  }

  /**
   * Scores one sequence by its prompt log-probs; NaN where the server returned none.
   * @throws {FulmarError} As {@link Policy.score} and {@link AsyncVLLM.generate}.
   */
  async score(given: ScoreRequest): Promise<TokenScores> {
    checkScoreRequest(given)
    const request = { ...given, ids: given.ids.slice() }
    const { requestId, ids, signal } = request
    this.#checkIds(ids, 1)
    const answer = await this.#request((name) => ({
      ...{ requestId, signal, path: '/v1/completions', cost: ids.length },
      body: (wireId) => scoreBody(wireId, request, name()),
      read: (text, wireId) => readScores(text, wireId, request),
    }))
    if (answer) return { requestId, logProbs: answer.value, policyVersion: answer.minVersion }
    throw new FulmarError('ABORTED', 'signal must not fire during the call: it did')
  }

  /**
   * Updates the weights of the servers, by all phases of vLLM's protocol: pause, start, update during
   * `transfer`, finish, reset of the prefix cache, and always resume. A server that fails is taken out, as
   * its weights are unknown; the others continue. The servers must run with `VLLM_SERVER_DEV_MODE=1`. Its
   * routes have no authentication: keep them off public networks.
   *
   * @throws {FulmarError} Errors of `transfer`; `UNAVAILABLE` with each server's error if no server was
   * updated.
   */
  async updateWeights(update: WeightUpdate): Promise<WeightUpdateResult[]> {
    return await updateServers(this.#servers, update)
  }

  /**
   * Loads a LoRA adapter from a folder that the servers can read, and uses it from the next request on. Use a
   * new name for each version: the servers keep their prefix caches by name. They must run with
   * `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`. A server that is out at that time lacks the adapter and stays out:
   * load it there and put it back by `router.setServing`.
   * @throws {FulmarError} Error of the first server that refuses; `UNAVAILABLE` if all are out. Later requests are then unchanged.
   */
  async loadAdapter(adapter: {
    readonly name: string
    readonly path: string
    readonly version: number
  }): Promise<void> {
    checkKnownKeys('adapter', adapter, ['name', 'path', 'version'], ['name', 'path', 'version'])
    const { name, path, version } = adapter
    this.#adapters.serve(await this.#adapters.load(name, path, version), { isOwn: false })
  }

  /**
   * Loads the adapter in `folder`, which the servers can read, under a name of its own. They serve it from
   * {@link AsyncVLLM.commit} on.
   * @throws {FulmarError} As {@link AsyncVLLM.loadAdapter}; `ABORTED` if the signal fired.
   *
   * @example
   * ```ts no-run
   * import { AsyncVLLM, loadModel, WeightSync } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const model = await loadModel('Qwen/Qwen3-0.6B')
   * await model.decoder.addLora({ r: 16 }, { seed: 0 })
   * const vllm = await AsyncVLLM.connect('http://gpu-1:8000')
   * const capture = async (version: number) => {
   *   const folder = `/shared/adapters/v${version}`
   *   await model.save(folder, { adapter: 'alone' })
   *   return folder
   * }
   * const sync = new WeightSync({ capture, receivers: [vllm] })
   * sync.start(model.decoder.version)
   * await sync.waitServed()
   * assert.deepEqual(sync.served, { vllm: model.decoder.version })
   * ```
   */
  async stage(folder: string, version: number, { signal }: WeightContext): Promise<void> {
    await this.#adapters.stage(folder, version, signal)
  }

  /**
   * Serves the staged adapter: requests in flight finish with what they began with. A server that lacks it is taken
   * out.
   * @throws {FulmarError} `CLOSED` if nothing of this version was staged.
   */
  commit(version: number): void {
    this.#adapters.commit(version)
  }

  /** Unloads the staged adapter; after a commit that was not settled, the servers serve what they served before. */
  rollback(): void {
    this.#adapters.rollback()
  }

  /** Unloads the adapter before the served one, after its last request. */
  settle(): void {
    this.#adapters.settle()
  }

  /**
   * Unloads an adapter. Requests in flight that use it fail: wait for them first.
   * @throws {FulmarError} Error of a server.
   */
  async unloadAdapter(name: string): Promise<void> {
    const body = { lora_name: name }
    await Promise.all(
      this.#urls.map((_, target) =>
        this.#servers.control(target, 'POST', '/v1/unload_lora_adapter', { body }),
      ),
    )
  }

  /** Closes the connections. Requests in flight fail with `CLOSED`. */
  async close(): Promise<void> {
    await this.#servers.close()
  }

  /**
   * Sends a request that names the model which is served when it is sent: an adapter may be loaded while it waits. The
   * versions of the answer are those of that model.
   */
  async #request<T>(
    make: (name: () => NamedModel) => ServerRequest<T>,
  ): Promise<ServerAnswer<T> | undefined> {
    const used = new Set<InUse>()
    let last = this.#adapters.served
    const name = () => {
      last = this.#adapters.served
      if (!used.has(last)) last.enter()
      used.add(last)
      return last.model
    }
    try {
      const answer = await this.#servers.request(make(name))
      if (answer === undefined) return undefined
      const { minVersion, maxVersion } = answer
      return { ...answer, maxVersion: Math.max(minVersion, Math.min(maxVersion, last.endVersion)) }
    } finally {
      for (const use of used) use.leave()
    }
  }

  /** Runs `body` as the only request of that id. */
  async #once<T>(requestId: string, body: () => Promise<T>): Promise<T> {
    if (this.#live.has(requestId))
      throw new FulmarError('INCOMPATIBLE', `requestId must not be in flight already: got ${requestId}`)
    this.#live.add(requestId)
    try {
      return await body()
    } finally {
      this.#live.delete(requestId)
    }
  }

  #checkIds(ids: Uint32Array, maxTokens: number): void {
    const { vocabSize, contextLength } = this.served
    const wrong = vocabSize === undefined ? undefined : ids.find((id) => id >= vocabSize)
    if (wrong !== undefined)
      throw new FulmarError('OUT_OF_RANGE', `ids must be below ${vocabSize}: got ${wrong}`)
    const length = ids.length + maxTokens
    if (contextLength === undefined || length <= contextLength) return
    const rule = `prompt and maxTokens together must be at most ${contextLength}`
    throw new FulmarError('LIMIT_EXCEEDED', `${rule}: got ${length}`)
  }
}

async function probeAll(
  servers: Servers,
  urls: readonly string[],
  options: AsyncVLLMOptions,
): Promise<NamedModel> {
  const ended = await Promise.allSettled(urls.map((_, target) => probeServer(servers, target, options)))
  const problems = ended.flatMap((one, target) =>
    one.status === 'rejected' ? [{ error: one.reason as unknown, url: urls[target] }] : [],
  )
  const found = ended.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const [first] = found
  if (first === undefined || problems.length > 0) {
    const said = problems.map(({ url, error }) => `${url}: ${messageOf(error)}`).join('; ')
    const codes = problems.map(({ error }) => (error instanceof FulmarError ? error.code : undefined))
    const code = codes.includes('INCOMPATIBLE') ? 'INCOMPATIBLE' : (codes[0] ?? 'UNAVAILABLE')
    throw new FulmarError(code, `each server must serve a policy: got ${said}`)
  }
  const modes = new Set(found.map(({ logProbsMode }) => logProbsMode))
  if (modes.size > 1)
    throw new FulmarError(
      'INCOMPATIBLE',
      'servers must return the same kind of log-probs: got raw and processed',
    )
  const lengths = found.flatMap(({ contextLength }) => contextLength ?? [])
  return { ...first, contextLength: lengths.length > 0 ? Math.min(...lengths) : undefined }
}

function baseUrl(url: string): string {
  try {
    const { protocol, origin, pathname } = new URL(url)
    if (protocol === 'http:' || protocol === 'https:') return origin + pathname.replace(/(\/v1)?\/*$/, '')
  } catch {
    // Reported below.
  }
  throw new FulmarError('MALFORMED', `urls must be http: or https: URLs: got ${url}`)
}

function checkAtLeast(name: string, value: number, least: number, holds: boolean): void {
  if (holds && value >= least && Number.isFinite(value)) return
  throw new FulmarError('OUT_OF_RANGE', `${name} must be a number >= ${least}: got ${value}`)
}
