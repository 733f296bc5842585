/**
 * A server that answers as `vllm serve` does, for tests: ids in, ids out, over HTTP on the loopback. Its language model is a function
 * of the last token; what it draws is a function of prompt, seed and options. Faults are scripted, or drawn from a seed.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'

/** Faults of an answer. */
export type Fault =
  | 'reset'
  | 'hang'
  | '429'
  | '500'
  | '503'
  | 'truncated'
  | 'cutOff'
  | 'notJson'
  | 'duplicate'
  | 'wrongCount'
  | 'foreignId'
  | 'lyingLogProb'
  | 'wrongReason'
  | 'otherPrompt'
  | StreamFault

/** Faults in the middle of a streamed answer, after its first token. */
export type StreamFault =
  | 'cutMidStream'
  | 'endMidStream'
  | 'hangMidStream'
  | 'badEvent'
  | 'errorEvent'
  | 'lateForeignId'
  | 'lateLogProb'
  | 'lateCount'
  | 'lateReason'
  | 'tokenAfterEnd'

export const STREAM_FAULTS: readonly StreamFault[] = [
  ...(['cutMidStream', 'endMidStream', 'hangMidStream', 'badEvent', 'errorEvent'] as const),
  ...(['lateForeignId', 'lateLogProb', 'lateCount', 'lateReason', 'tokenAfterEnd'] as const),
]

export const FAULTS: readonly Fault[] = [
  ...(['reset', 'hang', '429', '500', '503', 'truncated', 'cutOff', 'notJson'] as const),
  ...(['duplicate', 'wrongCount', 'foreignId', 'lyingLogProb', 'wrongReason', 'otherPrompt'] as const),
]

export interface FakeVllmOptions {
  readonly vocabSize?: number
  readonly contextLength?: number
  readonly logProbsMode?: 'raw' | 'processed'
  /** The fault of each completion, in order; none once they are used up. */
  readonly faults?: readonly (Fault | undefined)[]
  /** Share of the completions that get a fault, and what draws it. */
  readonly faultRate?: number
  readonly faultKinds?: readonly Fault[]
  readonly seed?: number
  /** Answers completions only once {@link FakeVllm.release} was called. */
  readonly holds?: boolean
  /** Paths that are refused with 500, and how often. */
  readonly broken?: Readonly<Record<string, number>>
  /** If true, the server is too old to return token ids. */
  readonly old?: boolean
}

interface CompletionBody {
  readonly model: string
  readonly prompt: readonly number[]
  readonly request_id: string
  readonly max_tokens: number
  readonly seed?: number
  readonly temperature: number
  readonly top_k?: number
  readonly stop_token_ids?: readonly number[]
  readonly stop?: readonly string[]
  readonly logprobs?: number
  readonly prompt_logprobs?: number
  readonly return_token_ids?: boolean
  readonly stream?: boolean
}

/** Streamed part of a choice. */
interface DrawnChoice {
  readonly token_ids?: readonly number[]
  readonly prompt_token_ids?: readonly number[]
  readonly logprobs?: { readonly token_logprobs: readonly number[] }
  readonly finish_reason: string
  readonly stop_reason: unknown
}

export class FakeVllm {
  readonly vocabSize: number
  /** Bodies of completions, in order. */
  readonly requests: CompletionBody[] = []
  /** Control routes, in order. */
  readonly events: string[] = []
  /** Faults that were dealt. */
  readonly dealt: Fault[] = []
  /** Connections that clients closed before their answer. */
  numClosed = 0
  /** Adapters that are loaded, each with the digits at the end of its path: they decide what it draws. */
  readonly adapters = new Map<string, number>()
  readonly #options: FakeVllmOptions
  readonly #server: Server
  readonly #broken: Map<string, number>
  readonly #random: () => number
  #faults: (Fault | undefined)[]
  #held: (() => void)[] = []
  #holds: boolean
  #lastAnswer = ''
  #weights = 0
  #baseWeights = 0
  readonly #known = new Map<number, readonly number[]>()
  url = ''

  private constructor(options: FakeVllmOptions) {
    this.#options = options
    this.vocabSize = options.vocabSize ?? 23
    this.#faults = [...(options.faults ?? [])]
    this.#broken = new Map(Object.entries(options.broken ?? {}))
    this.#random = mulberry(options.seed ?? 1)
    this.#holds = options.holds ?? false
    this.#server = createServer((request, response) => void this.#serve(request, response))
  }

  static async start(options: FakeVllmOptions = {}): Promise<FakeVllm> {
    const fake = new FakeVllm(options)
    await new Promise<void>((resolve) => fake.#server.listen(0, '127.0.0.1', resolve))
    const address = fake.#server.address()
    fake.url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`
    return fake
  }

  /** Holds completions from now on. */
  hold(): void {
    this.#holds = true
  }

  /** Lets held completions go. */
  release(): void {
    this.#holds = false
    for (const answer of this.#held.splice(0)) answer()
  }

  /** Faults for the completions that come next. */
  script(...faults: (Fault | undefined)[]): void {
    this.#faults = faults
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }

  /** Log-probs of the next token. */
  logProbs(last: number): readonly number[] {
    const known = this.#known.get(last)
    if (known) return known
    const logits = Array.from(
      { length: this.vocabSize },
      (_, id) => 3 * mulberry(last * 131 + id + 7919 * this.#weights)(),
    )
    const sum = logits.reduce((total, logit) => total + Math.exp(logit), 0)
    const logProbs = logits.map((logit) => logit - Math.log(sum))
    this.#known.set(last, logProbs)
    return logProbs
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
    let text = ''
    for await (const chunk of request) text += chunk
    const path = request.url ?? ''
    response.on('close', () => {
      if (!response.writableEnded) this.numClosed += 1
    })
    const left = this.#broken.get(path) ?? 0
    if (left > 0) {
      this.#broken.set(path, left - 1)
      return send(response, 500, { error: { message: `${path} is broken` } })
    }
    if (path === '/v1/models') return this.#models(response)
    if (path === '/v1/completions') {
      this.#complete(JSON.parse(text), response)
      return undefined
    }
    return this.#control(path, text, response)
  }

  #models(response: ServerResponse): unknown {
    const max_model_len = this.#options.contextLength ?? 64
    return send(response, 200, { object: 'list', data: [{ id: 'fake', object: 'model', max_model_len }] })
  }

  #control(path: string, text: string, response: ServerResponse): unknown {
    const body = text === '' ? {} : JSON.parse(text)
    this.events.push(path)
    if (path === '/finish_weight_update') this.#baseWeights = Number(body.weight_version)
    else if (path === '/v1/load_lora_adapter') {
      if (this.adapters.has(body.lora_name))
        return send(response, 400, { error: { message: `${body.lora_name} has already been loaded` } })
      this.adapters.set(body.lora_name, Number(/\d*$/.exec(body.lora_path)?.[0]))
    } else if (path === '/v1/unload_lora_adapter') this.adapters.delete(body.lora_name)
    else if (!/^\/(pause\?mode=|start_weight_update|update_weights|reset_prefix_cache|resume)/.test(path))
      return send(response, 404, { detail: 'Not Found' })
    return send(response, 200, {})
  }

  /** Draws with the weights of the base model or of an adapter from now on. */
  #useWeights(model: string): void {
    const weights = this.adapters.get(model) ?? this.#baseWeights
    if (weights === this.#weights) return
    this.#weights = weights
    this.#known.clear()
  }

  #complete(body: CompletionBody, response: ServerResponse): void {
    this.requests.push(body)
    const isProbe = body.request_id.startsWith('probe-')
    const fault = isProbe ? undefined : this.#nextFault()
    if (fault) this.dealt.push(fault)
    const answer = () => this.#answer(body, fault, response)
    if (this.#holds && !isProbe) this.#held.push(answer)
    else answer()
  }

  #nextFault(): Fault | undefined {
    if (this.#faults.length > 0) return this.#faults.shift()
    const { faultRate = 0, faultKinds = FAULTS } = this.#options
    if (this.#random() >= faultRate) return undefined
    return faultKinds[Math.floor(this.#random() * faultKinds.length)]
  }

  #answer(body: CompletionBody, fault: Fault | undefined, response: ServerResponse): unknown {
    const { contextLength = 64 } = this.#options
    const length = body.prompt.length + body.max_tokens
    if (length > contextLength)
      return send(response, 400, {
        error: { message: `This model's maximum context length is ${contextLength}, got ${length}` },
      })
    if (body.prompt.some((id) => id >= this.vocabSize))
      return send(response, 400, { error: { message: 'Token id is out of vocabulary' } })
    if (body.model !== 'fake' && !this.adapters.has(body.model))
      return send(response, 404, { error: { message: `The model ${body.model} does not exist.` } })
    this.#useWeights(body.model)
    const whole = this.#completion(body, fault)
    const text = JSON.stringify(whole)
    const earlier = this.#lastAnswer
    this.#lastAnswer = text
    if (fault === 'hang') return undefined
    if (fault === 'reset') return response.destroy()
    if (fault === '429')
      return send(response, 429, { error: { message: 'Too many requests' } }, { 'retry-after': '0' })
    if (fault === '500' || fault === '503')
      return send(response, Number(fault), { error: { message: 'Internal error' } })
    if (fault === 'truncated') return response.writeHead(200).end(text.slice(0, Math.floor(text.length / 2)))
    if (fault === 'notJson') return response.writeHead(200).end('<html>gateway</html>')
    if (fault === 'cutOff') {
      response.writeHead(200, { 'content-length': text.length }).write(text.slice(0, 10))
      return setImmediate(() => response.destroy())
    }
    if (body.stream) return this.#stream(whole as { id: string; choices: DrawnChoice[] }, fault, response)
    response.writeHead(200, { 'content-type': 'application/json' })
    return response.end(fault === 'duplicate' && earlier !== '' ? earlier : text)
  }

  /** As `vllm serve` streams: an event a token, the prompt's ids with the first, and a last word. */
  #stream(
    { id, choices }: { readonly id: string; readonly choices: readonly DrawnChoice[] },
    fault: Fault | undefined,
    response: ServerResponse,
  ): unknown {
    const [{ token_ids = [], prompt_token_ids, logprobs, finish_reason, stop_reason }] = choices as [
      DrawnChoice,
    ]
    const told = logprobs?.token_logprobs ?? []
    const events = token_ids.map((token, at) => {
      const isLast = at === token_ids.length - 1
      const isLate = at === 1
      const choice = {
        index: 0,
        text: letterOf(token),
        token_ids: [isLate && fault === 'lateForeignId' ? this.vocabSize + 4 : token],
        logprobs: {
          token_logprobs:
            isLate && fault === 'lateCount'
              ? []
              : isLate && fault === 'lateLogProb'
                ? [0.5]
                : told.slice(at, at + 1),
        },
        prompt_token_ids: at === 0 ? prompt_token_ids : null,
        finish_reason: isLast ? (fault === 'lateReason' ? 'tool_calls' : finish_reason) : null,
        stop_reason: isLast ? stop_reason : null,
      }
      return JSON.stringify({ id, object: 'text_completion', choices: [choice], usage: null })
    })
    if (fault === 'badEvent') events[1] = events[1]?.slice(0, 20) ?? ''
    if (fault === 'errorEvent')
      events.splice(1, events.length, '{"error":{"message":"engine is dead","code":500}}')
    if (fault === 'tokenAfterEnd') events.push(events[0] ?? '')
    const breaks = fault === 'cutMidStream' || fault === 'endMidStream' || fault === 'hangMidStream'
    const usage = JSON.stringify({ id, choices: [], usage: { completion_tokens: token_ids.length } })
    const sent = breaks ? events.slice(0, 1) : [...events, usage, '[DONE]']
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const next = (at: number): unknown => {
      if (at < sent.length) {
        // Events are cut anywhere on their way.
        const text = `data: ${sent[at]}\n\n`
        response.write(text.slice(0, 9))
        return setImmediate(() => response.write(text.slice(9), () => next(at + 1)))
      }
      if (fault === 'hangMidStream') return undefined
      return fault === 'cutMidStream' ? response.destroy() : response.end()
    }
    return next(0)
  }

  #completion(body: CompletionBody, fault: Fault | undefined): object {
    const { ids, told, reason, cause } = this.#draw(body)
    if (fault === 'wrongCount') told.pop()
    if (fault === 'foreignId') ids[0] = this.vocabSize + 4
    if (fault === 'lyingLogProb') told[0] = 0.5
    const prompt = fault === 'otherPrompt' ? [...body.prompt, 1] : body.prompt
    const choice = {
      index: 0,
      text: '',
      finish_reason: fault === 'wrongReason' ? 'tool_calls' : reason,
      stop_reason: cause,
      ...(body.logprobs !== undefined && { logprobs: { tokens: ids.map(String), token_logprobs: told } }),
      ...(body.prompt_logprobs !== undefined && {
        prompt_logprobs: this.#promptLogProbs(body.prompt, fault),
      }),
      ...(body.return_token_ids && !this.#options.old && { token_ids: ids, prompt_token_ids: prompt }),
    }
    return { id: `cmpl-${body.request_id}`, object: 'text_completion', model: body.model, choices: [choice] }
  }

  #promptLogProbs(prompt: readonly number[], fault: Fault | undefined): (object | null)[] {
    const all = prompt.map((id, at) => {
      if (at === 0) return null
      return { [id]: { logprob: this.logProbs(prompt[at - 1] ?? 0)[id], rank: 1, decoded_token: '' } }
    })
    return fault === 'wrongCount' ? all.slice(1) : all
  }

  #draw({
    prompt,
    max_tokens,
    seed = 0,
    temperature,
    top_k = 0,
    stop_token_ids = [],
    stop = [],
  }: CompletionBody) {
    const random = mulberry(seed % 2 ** 32)
    const [ids, told]: [number[], number[]] = [[], []]
    let last = prompt.at(-1) ?? 0
    while (ids.length < max_tokens) {
      const raw = this.logProbs(last)
      const drawn = distribution(raw, temperature, top_k)
      const id = pick(drawn, random())
      const processed = this.#options.logProbsMode === 'processed'
      told.push((processed ? Math.log(drawn[id] ?? 0) : raw[id]) ?? 0)
      ids.push(id)
      last = id
      const text = ids.map(letterOf).join('')
      const cause = stop_token_ids.find((one) => one === id) ?? stop.find((one) => text.includes(one))
      if (cause !== undefined) return { ids, told, reason: 'stop', cause }
    }
    return { ids, told, reason: 'length', cause: null }
  }
}

/** The text of an id: its tokens are letters. */
export function letterOf(id: number): string {
  return String.fromCharCode(97 + id)
}

/** Probabilities at a temperature among the `topK` likeliest. */
function distribution(logProbs: readonly number[], temperature: number, topK: number): number[] {
  const best = logProbs.indexOf(Math.max(...logProbs))
  if (temperature === 0) return logProbs.map((_, id) => (id === best ? 1 : 0))
  const kept = [...logProbs].sort((a, b) => b - a)[(topK || logProbs.length) - 1] ?? Number.NEGATIVE_INFINITY
  const weights = logProbs.map((value) => (value >= kept ? Math.exp(value / temperature) : 0))
  const sum = weights.reduce((total, weight) => total + weight, 0)
  return weights.map((weight) => weight / sum)
}

function pick(probabilities: readonly number[], at: number): number {
  let sum = 0
  for (const [id, probability] of probabilities.entries()) {
    sum += probability
    if (at < sum) return id
  }
  return probabilities.findLastIndex((probability) => probability > 0)
}

function send(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

/** Numbers in [0, 1) from a seed. */
function mulberry(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
