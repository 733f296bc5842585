/** The tokens of one conversation as it grows, turn by turn. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import { Ledger } from './ledger.js'
import type { Message } from './message.js'
import { PromptStore } from './prompt-store.js'
import { NO_TOOLS } from './render-options.js'
import type {
  Bridge,
  BridgeOptions,
  BridgeRefusal,
  JsonList,
  ParsedResponse,
  Rendered,
  Renderer,
  ToolSpec,
} from './renderer.js'
import type { Turn } from './turn.js'

/** Options of {@link Conversation}. */
export type ConversationOptions = BridgeOptions

/** Result of {@link Conversation.turn}. */
export interface ConversationTurn {
  /** The completion, parsed. */
  readonly parsed: ParsedResponse
  /** The tokens that extend the prompt, or the reason why it was not extended. */
  readonly bridge: Bridge
}

/** @internal A completion for the ledger of a conversation. */
export type Sampled = Pick<Turn, 'completionIds' | 'logProbs' | 'sampledLogProbs' | 'policyVersion'>

/** @internal A recorded and parsed completion, or the part that failed. */
export type Answered =
  | { readonly ok: true; readonly parsed: ParsedResponse }
  | { readonly ok: false; readonly part: 'record' | 'parse'; readonly error: unknown }

/** @internal A {@link Bridge} whose tokens are made into columns on request. */
export type Extended =
  | Extract<Bridge, { ok: false }>
  | {
      readonly ok: true
      readonly numKept: number
      readonly ids: Uint32Array
      readonly rendered: () => Rendered
    }

/** @internal Holds the tokens of one conversation for a renderer. */
export interface ConversationCore {
  start(messages: JsonList<Message>): Rendered
  parse(completionIds: Uint32Array): ParsedResponse
  extend(completionIds: Uint32Array, messages: JsonList<Message>): Bridge
  turn(completionIds: Uint32Array, messages: JsonList<Message>): ConversationTurn
  /** Records a completion and parses it, together with those of other conversations. */
  answerSoon(sampled: Sampled): Promise<Answered>
  /** As `extend`, together with those of other conversations. */
  extendSoon(completionIds: Uint32Array, messages: JsonList<Message>): Promise<Extended>
  /** Returns the ledger of what was recorded, which begins an empty one. */
  takeLedger(): Ledger
  free(): void
}

/** @internal The method by which a renderer makes a {@link ConversationCore} of its own. */
export const converse: unique symbol = Symbol('converse')

/** @internal The methods by which rollouts run steps together with those of other conversations, and take the ledger. */
export const answerSoon: unique symbol = Symbol('answerSoon')
/** @internal */
export const extendSoon: unique symbol = Symbol('extendSoon')
/** @internal */
export const takeLedger: unique symbol = Symbol('takeLedger')

/**
 * A prompt that grows by the completions of a policy and the messages that follow them. Each turn costs its own tokens,
 * for any length of the conversation. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { Conversation, createRenderer } from 'fulmar/chat'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * using conversation = new Conversation(renderer)
 * conversation.start([{ role: 'user', content: '1+1?' }])
 * const sampled = Uint32Array.of(...tokenizer.encode('2').ids, renderer.stopIds[0] ?? 0)
 * const { parsed, bridge } = conversation.turn(sampled, [{ role: 'user', content: '2+2?' }])
 * assert.deepEqual([parsed.content, bridge.ok], ['2', true])
 * assert.match(tokenizer.decode(conversation.ids), /assistant\n2<\|im_end\|>\n<\|im_start\|>user\n2\+2\?/)
 * ```
 */
export class Conversation {
  readonly #core: ConversationCore
  readonly #prompts = new PromptStore()
  #ids: Uint32Array = new Uint32Array(0)

  /**
   * A conversation without tokens. A renderer of one's own is called step by step.
   * @throws {FulmarError} `MALFORMED` if `tools` is not a list of JSON; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(renderer: Renderer, options: ConversationOptions = {}) {
    checkGiven('renderer', renderer)
    checkKnownKeys('options', options, ['tools'])
    const { tools = NO_TOOLS } = options
    const ownCore = converse in renderer ? renderer[converse] : undefined
    this.#core =
      typeof ownCore === 'function'
        ? ownCore.call(renderer, tools)
        : new StepByStep(renderer, tools, () => this.#ids)
  }

  /** Tokens of the prompt; empty before {@link Conversation.start}. Later turns leave the array unchanged. */
  get ids(): Uint32Array {
    return this.#ids
  }

  /**
   * Replaces the prompt by that of `messages`, with a generation prompt.
   * @throws {FulmarError} As {@link Renderer.render}; then the prompt is unchanged.
   */
  start(messages: JsonList<Message>): Rendered {
    const rendered = this.#core.start(messages)
    this.#ids = this.#prompts.start(rendered.ids)
    return rendered
  }

  /**
   * Parses a completion of the prompt.
   * @throws {FulmarError} As {@link Renderer.parse}.
   */
  parse(completionIds: Uint32Array): ParsedResponse {
    return this.#core.parse(completionIds)
  }

  /**
   * Extends the prompt by what {@link Renderer.bridge} keeps of a completion and what it adds. A refusal leaves it unchanged.
   * @throws {FulmarError} As {@link Renderer.bridge}; then the prompt is unchanged.
   */
  extend(completionIds: Uint32Array, messages: JsonList<Message>): Bridge {
    const bridge = this.#core.extend(completionIds, messages)
    if (bridge.ok) this.#append(completionIds, bridge.numKept, bridge.rendered.ids)
    return bridge
  }

  /**
   * Parses a completion and extends the prompt by it and by the messages after it.
   * @throws {FulmarError} As {@link Conversation.parse} and {@link Conversation.extend}.
   */
  turn(completionIds: Uint32Array, messages: JsonList<Message>): ConversationTurn {
    const turn = this.#core.turn(completionIds, messages)
    const { bridge } = turn
    if (bridge.ok) this.#append(completionIds, bridge.numKept, bridge.rendered.ids)
    return turn
  }

  /** @internal Records a completion in the ledger and parses it. One without tokens is only parsed. */
  [answerSoon](sampled: Sampled): Promise<Answered> {
    return this.#core.answerSoon(sampled)
  }

  /** @internal As {@link Conversation.extend}. */
  async [extendSoon](completionIds: Uint32Array, messages: JsonList<Message>): Promise<Extended> {
    const extended = await this.#core.extendSoon(completionIds, messages)
    if (extended.ok) this.#append(completionIds, extended.numKept, extended.ids)
    return extended
  }

  /** @internal Returns the ledger of the recorded completions, which begins an empty one. */
  [takeLedger](): Ledger {
    return this.#core.takeLedger()
  }

  /** Gives the native memory back. The ids stay. */
  [Symbol.dispose](): void {
    this.#core.free()
  }

  #append(completionIds: Uint32Array, numKept: number, ids: Uint32Array): void {
    const kept = numKept === completionIds.length ? completionIds : completionIds.subarray(0, numKept)
    this.#ids = this.#prompts.extend(kept, ids)
  }
}

/** Calls a renderer with the whole prompt in each step. */
class StepByStep implements ConversationCore {
  readonly #renderer: Renderer
  readonly #tools: JsonList<ToolSpec>
  readonly #promptIds: () => Uint32Array
  #ledger: Ledger | undefined
  /** The origins of the last tokens of the prompt. */
  #tail: Pick<Turn, 'origins' | 'messageIndices' | 'messageOffset' | 'bridgeRefusal'> = {}
  #numMessages = 0
  #refusal: BridgeRefusal | undefined

  constructor(renderer: Renderer, tools: JsonList<ToolSpec>, promptIds: () => Uint32Array) {
    this.#renderer = renderer
    this.#tools = tools
    this.#promptIds = promptIds
  }

  start(messages: JsonList<Message>): Rendered {
    const rendered = this.#renderer.render(messages, { tools: this.#tools, addGenerationPrompt: true })
    this.#setTail(rendered, 0)
    if (this.#refusal) this.#tail = { ...this.#tail, bridgeRefusal: this.#refusal }
    this.#refusal = undefined
    this.#numMessages = messages.length
    return rendered
  }

  parse(completionIds: Uint32Array): ParsedResponse {
    return this.#renderer.parse(completionIds, { promptIds: this.#promptIds(), tools: this.#tools })
  }

  extend(completionIds: Uint32Array, messages: JsonList<Message>): Bridge {
    const tools = this.#tools
    const bridge = this.#renderer.bridge(this.#promptIds(), completionIds, messages, { tools })
    if (bridge.ok) {
      this.#numMessages += 1
      this.#setTail(bridge.rendered, this.#numMessages)
      this.#numMessages += messages.length
      this.#refusal = undefined
    } else {
      this.#refusal = bridge.reason
    }
    return bridge
  }

  turn(completionIds: Uint32Array, messages: JsonList<Message>): ConversationTurn {
    const parsed = this.parse(completionIds)
    return { parsed, bridge: this.extend(completionIds, messages) }
  }

  async answerSoon(sampled: Sampled): Promise<Answered> {
    try {
      this.#ledger ??= new Ledger()
      if (sampled.completionIds.length > 0)
        this.#ledger.recordTurn({ promptIds: this.#promptIds(), ...sampled, ...this.#tail })
    } catch (error) {
      return { ok: false, part: 'record', error }
    }
    try {
      return { ok: true, parsed: this.parse(sampled.completionIds) }
    } catch (error) {
      return { ok: false, part: 'parse', error }
    }
  }

  async extendSoon(completionIds: Uint32Array, messages: JsonList<Message>): Promise<Extended> {
    const bridge = this.extend(completionIds, messages)
    if (!bridge.ok) return bridge
    const { numKept, rendered } = bridge
    return { ok: true, numKept, ids: rendered.ids, rendered: () => rendered }
  }

  takeLedger(): Ledger {
    const ledger = this.#ledger ?? new Ledger()
    this.#ledger = undefined
    return ledger
  }

  free(): void {
    this.#ledger?.[Symbol.dispose]()
  }

  #setTail({ origins, messageIndices }: Rendered, messageOffset: number): void {
    this.#tail = { origins, messageIndices, messageOffset }
  }
}
