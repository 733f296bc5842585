/**
 * One rollout whose client holds the conversation: requests in, answers out, and a ledger of the sampled tokens.
 *
 * ```text
 * begin(request): the same request again? -> its answers
 *                 limits -> place the history -> draw numAnswers completions -> turns
 * delivered() / dropped(): the client got the answers, or went away
 * end():          ledger of the turns that were delivered
 * ```
 */

import { type BoundedResult, bounded, type CallContext } from '../async/index.js'
import type { Message } from '../chat/index.js'
import { Ledger } from '../chat/index.js'
import { messageOf } from '../core/index.js'
import type { RolloutStatus } from '../env/index.js'
import type { Completion, CompletionPart, GenerateRequest, StreamingPolicy } from '../policy/index.js'
import { causeOf, type RolloutCause, type RolloutTurn } from '../rollout/rollout.js'
import { record } from '../rollout/rollout-loop.js'
import type { RolloutSettings } from './agent-limits.js'
import type { AgentRequest } from './agent-request.js'
import { type Answer, deliveredMessage, sentCalls, storedMessage, textsOf } from './answer.js'
import { AnswerStream, type TextPart } from './answer-stream.js'
import { CallStop } from './call-stop.js'
import { Conversation, type PlacedPrompt } from './conversation.js'
import { drawNumber } from './draw-number.js'
import { Exchange } from './exchange.js'
import {
  generateFailure,
  overLimit,
  ProviderError,
  renderFailure,
  tooLong,
  unsupported,
} from './provider-error.js'
import { hasDistribution, topTokens } from './top-tokens.js'

/** Identifies a request that a client may send again. */
export interface RequestIdentity {
  /** Hash of the body. */
  readonly hash: string
  /** True if the client says that it sent the request before. */
  readonly isRetry: boolean
}

/** New text of an answer, and its new tokens. */
export interface AnswerPart extends TextPart {
  readonly index: number
  readonly tokens: CompletionPart
}

/** A rollout that has ended. */
export interface AgentRecord {
  /** `completed`, or the first limit that a request met, or the failure of the last one. */
  readonly status: RolloutStatus
  readonly cause: RolloutCause | null
  /** Turns in the order of their requests. */
  readonly turns: readonly RolloutTurn[]
  /** Tokens of the delivered turns; the caller disposes it. */
  readonly ledger: Ledger
}

/** A turn until the rollout ends. */
interface Drawn {
  readonly turnId: number
  readonly prompt: PlacedPrompt
  readonly completion: Completion
  readonly message: Message | null
  untrained: RolloutTurn['untrained']
  envMessages: readonly Message[]
}

/** Form of the ids of `sentCalls`. */
const MADE_ID = /^call_\d+_\d+$/

/** Milliseconds that the end waits for requests after it stopped their policy. */
const SETTLE_MS = 1_000

/** Tokens between two parts of a stream: each is parsed from the beginning of the answer. */
const TOKENS_PER_PART = 16

/** Draws and keeps the turns of one rollout. */
export class AgentTurns {
  readonly settings: RolloutSettings
  readonly #conversation: Conversation
  readonly #turns = new Map<number, Drawn>()
  readonly #exchanges = new Map<string, Exchange>()
  readonly #running = new Set<Promise<unknown>>()
  readonly #closing = new CallStop()
  #numStarted = 0
  #numTurns = 0
  #numTokens = 0
  #limit: RolloutStatus | undefined
  #failure: RolloutCause | null = null

  constructor(settings: RolloutSettings) {
    this.settings = settings
    this.#conversation = new Conversation(settings.renderer)
  }

  /** Reason why the last request failed; `null` if it did not. */
  get failure(): RolloutCause | null {
    return this.#failure
  }

  /** First limit that a request met, as a status. */
  get limit(): RolloutStatus | undefined {
    return this.#limit
  }

  /**
   * Answers a request. `onPart` gets the text as it is sampled, if the policy streams.
   * @throws {ProviderError} If it cannot begin.
   */
  begin(request: AgentRequest, identity: RequestIdentity, onPart?: (part: AnswerPart) => void): Exchange {
    if (this.#closing.isAborted) throw overLimit('the rollout has ended: it takes no more requests')
    const known = this.#exchanges.get(identity.hash)
    if (known && !known.isStopped && (identity.isRetry || known.wasDropped)) return known
    const { numAnswers } = request
    this.#checkLimits(numAnswers)
    const prompt = this.#place(request)
    const times = prompt.turnIds.size
    const turnIds = Array.from({ length: numAnswers }, () => this.#numStarted++)
    for (const turnId of turnIds) prompt.turnIds.add(turnId)
    if (prompt.after) this.#setAnswer(prompt.after)
    const stop = new CallStop()
    const draws = turnIds.map(async (turnId, index) => {
      // A sibling in the same request departs from the first.
      const fork = index === 0 ? prompt.fork : ({ turnId: turnIds[0] ?? 0, reason: 'sibling' } as const)
      const draw = { request, prompt: { ...prompt, fork }, turnId, index, times: times + index }
      return await this.#draw(draw, stop, onPart)
    })
    const answers = this.#track(Promise.all(draws))
    const exchange = new Exchange({ id: turnIds[0] ?? 0, prompt, answers, stop, streams: request.streams })
    exchange.onSettled = (state) => {
      for (const turnId of turnIds) this.#mark(turnId, state)
      if (state === 'failed' && this.#exchanges.get(identity.hash) === exchange)
        this.#exchanges.delete(identity.hash)
    }
    this.#exchanges.set(identity.hash, exchange)
    return exchange
  }

  /** Returns true for the id of a call that the endpoint made, as the model's family has none. */
  isMadeId(id: string): boolean {
    return MADE_ID.test(id)
  }

  /** @throws {ProviderError} If alternatives are asked for that the policy cannot tell. */
  checkTopLogProbs({ topLogProbs }: AgentRequest): void {
    if (topLogProbs === null || topLogProbs === 0 || hasDistribution(this.settings.policy)) return
    throw unsupported('top_logprobs', 'must be 0, as this policy tells the log-probs of sampled tokens alone')
  }

  /** Stops all requests and returns the turns. Call it once. */
  async end(): Promise<AgentRecord> {
    this.#closing.abort()
    await this.#settle()
    const turns = [...this.#turns.values()].sort((a, b) => a.turnId - b.turnId)
    const ledger = new Ledger()
    let cause = this.#failure
    for (const { prompt, completion, untrained } of turns) {
      if (untrained) continue
      cause = record(ledger, prompt, completion, prompt.bridgeRefusal, prompt.branchReason) ?? cause
    }
    const status = this.#limit ?? (cause === null ? 'completed' : statusOf(cause))
    return { status, cause: this.#limit ? null : cause, turns: turns.map(toTurn), ledger }
  }

  async #settle(): Promise<void> {
    const { clock } = this.settings
    const run = () => Promise.allSettled(this.#running)
    await bounded({ clock, timeoutMs: SETTLE_MS, signal: undefined, run })
  }

  #track<T>(promise: Promise<T>): Promise<T> {
    this.#running.add(promise)
    const forget = () => void this.#running.delete(promise)
    promise.then(forget, forget)
    return promise
  }

  #checkLimits(numAnswers: number): void {
    const { maxTurns, maxTotalTokens } = this.settings
    if (this.#numTurns + numAnswers > maxTurns) {
      this.#limit ??= 'truncated_max_turns'
      throw overLimit(`the rollout has used its turns: it may have ${maxTurns}`)
    }
    if (this.#numTokens >= maxTotalTokens) {
      this.#limit ??= 'truncated_total_tokens'
      throw overLimit(`the rollout has used its tokens: it may sample ${maxTotalTokens}`)
    }
    this.#numTurns += numAnswers
  }

  #place({ history, tools, numAnswers }: AgentRequest): PlacedPrompt {
    const { maxRolloutTokens } = this.settings
    try {
      const prompt = this.#conversation.place(history, tools)
      if (prompt.ids.length < maxRolloutTokens) return prompt
      this.#limit ??= 'truncated_prompt_too_long'
      const detail = `the prompt has ${prompt.ids.length} tokens, and prompt and answer may have ${maxRolloutTokens}`
      throw tooLong(`messages leave no room for an answer: ${detail}`)
    } catch (error) {
      this.#numTurns -= numAnswers
      throw error instanceof ProviderError ? error : renderFailure(error)
    }
  }

  #setAnswer({ turnId, messages }: { readonly turnId: number; readonly messages: readonly Message[] }): void {
    const before = this.#turns.get(turnId)
    if (before?.envMessages.length === 0) before.envMessages = messages
    // A client that continues an answer has it, whatever its connection did.
    if (before?.untrained === 'undelivered') before.untrained = undefined
  }

  #mark(turnId: number, state: Exchange['state']): void {
    const turn = this.#turns.get(turnId)
    if (turn === undefined || turn.untrained === 'aborted' || turn.untrained === 'failed') return
    turn.untrained = state === 'delivered' ? undefined : 'undelivered'
  }

  async #draw(draw: Draw, stop: CallStop, onPart?: (part: AnswerPart) => void): Promise<Answer> {
    const { request, prompt, turnId, index } = draw
    const stream = new AnswerStream({
      stop: request.stop,
      mayCall: request.allowsCalls && request.tools.length > 0,
    })
    let drawn: Completion | undefined
    try {
      drawn = await this.#generate(draw, stop, (sofar) => {
        const parsed = this.#parse(prompt, sofar.ids)
        onPart?.({ index, ...stream.part(textsOf(parsed, request)), tokens: sofar })
      })
      if (drawn.finishReason === 'abort')
        throw new ProviderError(503, 'server_error', 'aborted', 'the answer was cut off', { canRetry: true })
      return await this.#finish(draw, drawn, stream)
    } catch (error) {
      prompt.turnIds.delete(turnId)
      this.#numTurns -= 1
      const cut = drawn ?? (error instanceof PartlyDrawn ? error.completion : undefined)
      if (cut && cut.ids.length > 0 && !this.#turns.has(turnId)) {
        const untrained = stop.isAborted || this.#closing.isAborted ? 'aborted' : 'failed'
        this.#keep(draw, cut, this.#messageOf(prompt, cut.ids), untrained)
      }
      const cause = error instanceof PartlyDrawn ? error.cause : error
      this.#failure ??= stop.isAborted ? null : causeOf('generate', cause)
      throw generateFailure(cause)
    }
  }

  async #finish(draw: Draw, completion: Completion, stream: AnswerStream): Promise<Answer> {
    const { request, prompt, turnId, index } = draw
    const parsed = this.#parse(prompt, completion.ids)
    const { content, reasoning, calls } = textsOf(parsed, request)
    const top = await topTokens(this.settings.policy, prompt.ids, completion, request.topLogProbs)
    const thought = parsed.reasoningContent === null && stream.reasoning === '' ? null : reasoning
    const answer: Answer = {
      ...{ index, completion, top, calls: sentCalls(calls, turnId) },
      // The client keeps what it was sent, also if the whole answer reads otherwise than its beginning did.
      content: content.startsWith(stream.content) ? content : stream.content,
      reasoning: thought === null || thought.startsWith(stream.reasoning) ? thought : stream.reasoning,
      finishReason:
        completion.finishReason === 'length' ? 'length' : calls.length > 0 ? 'tool_calls' : 'stop',
    }
    const stored = storedMessage(parsed)
    // Undelivered until the client has it.
    this.#keep(draw, completion, stored, 'undelivered')
    const delivered = deliveredMessage(answer)
    this.#conversation.add({ prompt, turnId, completionIds: completion.ids, stored, delivered })
    this.#failure = null
    return answer
  }

  #keep(
    { prompt, turnId }: Draw,
    completion: Completion,
    message: Message | null,
    untrained: RolloutTurn['untrained'],
  ): void {
    this.#numTokens += completion.ids.length
    this.#turns.set(turnId, { turnId, prompt, completion, message, untrained, envMessages: [] })
  }

  #parse(prompt: PlacedPrompt, ids: Uint32Array) {
    return this.settings.renderer.parse(ids, { promptIds: prompt.ids, tools: prompt.tools })
  }

  #messageOf(prompt: PlacedPrompt, ids: Uint32Array): Message | null {
    try {
      return storedMessage(this.#parse(prompt, ids))
    } catch {
      return null
    }
  }

  async #generate(draw: Draw, stop: CallStop, onPart: (sofar: CompletionPart) => void): Promise<Completion> {
    const { generateTimeoutMs: timeoutMs, clock } = this.settings
    const run = async (context: CallContext) => {
      const remove = [stop.add(context), this.#closing.add(context)]
      try {
        const request = this.#requestFor(draw, context.signal)
        return await this.#sample(request, draw.request.streams ? onPart : undefined)
      } finally {
        for (const end of remove) end()
      }
    }
    const result: BoundedResult<Completion> = await bounded({ clock, timeoutMs, signal: undefined, run })
    if (result.kind === 'value') {
      if (result.value) return result.value
      throw new ProviderError(500, 'server_error', 'server_error', 'the policy gave no completion')
    }
    if (result.kind === 'thrown') throw result.error
    throw new ProviderError(503, 'server_error', 'timeout', 'the policy must answer in time: it did not', {
      canRetry: true,
    })
  }

  async #sample(
    request: GenerateRequest,
    onPart: ((sofar: CompletionPart) => void) | undefined,
  ): Promise<Completion> {
    const policy: Partial<StreamingPolicy> & RolloutSettings['policy'] = this.settings.policy
    if (onPart === undefined || policy.stream === undefined) return await policy.generate(request)
    const stream = policy.stream(request)
    const sofar = new PartSum()
    try {
      for await (const part of stream) {
        if (sofar.add(part)) onPart(sofar.all())
      }
      return await stream.result
    } catch (error) {
      const versions = { minPolicyVersion: policy.version, maxPolicyVersion: policy.version }
      const { requestId } = request
      throw new PartlyDrawn({ requestId, ...sofar.all(), ...versions, finishReason: 'abort' }, error)
    }
  }

  #requestFor({ request, prompt, turnId, times }: Draw, signal: AbortSignal): GenerateRequest {
    const { settings } = this
    const { name, maxRolloutTokens, maxTotalTokens, stopStrings = [], renderer, seedOf } = settings
    const { maxTokens = settings.maxTokens, seed, temperature = 1, topP = 1, topK = 0 } = request.sampling
    const room = Math.min(maxRolloutTokens - prompt.ids.length, maxTotalTokens - this.#numTokens)
    return {
      ...request.penalties,
      ...{ requestId: `${name}/turn=${turnId}`, sessionId: name, promptIds: prompt.ids },
      seed: seedOf(drawNumber(prompt.ids, seed, times)),
      maxTokens: Math.max(1, Math.min(settings.maxTokens, maxTokens, room)),
      temperature: settings.temperature ?? temperature,
      topP: settings.topP ?? topP,
      topK: settings.topK ?? topK,
      ...{ stopIds: renderer.stopIds, stopStrings: [...stopStrings, ...request.stop], signal },
    }
  }
}

/** One completion of a request. */
interface Draw {
  readonly request: AgentRequest
  readonly prompt: PlacedPrompt
  readonly turnId: number
  /** Index among the answers to the request. */
  readonly index: number
  /** Number of earlier draws from the prompt. */
  readonly times: number
}

/** A failure after some tokens. */
class PartlyDrawn extends Error {
  readonly completion: Completion

  constructor(completion: Completion, cause: unknown) {
    super(messageOf(cause), { cause })
    this.completion = completion
  }
}

/** Tokens of a stream so far. */
class PartSum {
  readonly #parts: CompletionPart[] = []
  #numTokens = 0
  #numTold = 0

  /** Returns true if enough is new to be read. */
  add(part: CompletionPart): boolean {
    this.#parts.push(part)
    this.#numTokens += part.ids.length
    const isDue = this.#numTokens - this.#numTold >= Math.min(TOKENS_PER_PART, 1 + (this.#numTokens >> 2))
    if (isDue) this.#numTold = this.#numTokens
    return isDue
  }

  all(): CompletionPart {
    const ids = new Uint32Array(this.#numTokens)
    const [logProbs, sampledLogProbs] = [new Float32Array(ids.length), new Float32Array(ids.length)]
    let at = 0
    for (const part of this.#parts) {
      ids.set(part.ids, at)
      logProbs.set(part.logProbs, at)
      sampledLogProbs.set(part.sampledLogProbs, at)
      at += part.ids.length
    }
    return { ids, logProbs, sampledLogProbs }
  }
}

function statusOf({ kind }: RolloutCause): RolloutStatus {
  return kind === 'deadline' ? 'error_timeout' : kind === 'abort' ? 'error_abort' : 'error'
}

function toTurn({ turnId, prompt, completion, message, untrained, envMessages }: Drawn): RolloutTurn {
  return {
    id: { groupId: 0, rolloutId: 0, turnId },
    ...{ promptIds: prompt.ids, completionIds: completion.ids, completionLogProbs: completion.logProbs },
    finishReason: completion.finishReason,
    ...{ minPolicyVersion: completion.minPolicyVersion, maxPolicyVersion: completion.maxPolicyVersion },
    ...{ promptMessages: prompt.messages, completionMessage: message, envMessages, envRewards: {} },
    bridgeRefusal: prompt.bridgeRefusal,
    ...(prompt.fork && { fork: prompt.fork }),
    ...(untrained && { untrained }),
  }
}
