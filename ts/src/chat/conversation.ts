/** The tokens of one conversation as it grows, turn by turn. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import type { Message } from './message.js'
import { PromptStore } from './prompt-store.js'
import type {
  Bridge,
  BridgeOptions,
  JsonList,
  ParsedResponse,
  Rendered,
  Renderer,
  ToolSpec,
} from './renderer.js'

/** Options of {@link Conversation}. */
export type ConversationOptions = BridgeOptions

/** Result of {@link Conversation.turn}. */
export interface ConversationTurn {
  /** The completion, parsed. */
  readonly parsed: ParsedResponse
  /** The tokens that extend the prompt, or the reason why it was not extended. */
  readonly bridge: Bridge
}

/** @internal Holds the tokens of one conversation for a renderer. */
export interface ConversationCore {
  start(messages: JsonList<Message>): Rendered
  parse(completionIds: Uint32Array): ParsedResponse
  extend(completionIds: Uint32Array, messages: JsonList<Message>): Bridge
  free(): void
}

/** @internal The method by which a renderer makes a {@link ConversationCore} of its own. */
export const converse: unique symbol = Symbol('converse')

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
    const { tools = [] } = options
    const ownCore = converse in renderer ? renderer[converse] : undefined
    this.#core =
      typeof ownCore === 'function'
        ? ownCore.call(renderer, tools)
        : stepByStep(renderer, tools, () => this.#ids)
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
    if (bridge.ok) {
      const kept =
        bridge.numKept === completionIds.length ? completionIds : completionIds.subarray(0, bridge.numKept)
      this.#ids = this.#prompts.extend(kept, bridge.rendered.ids)
    }
    return bridge
  }

  /**
   * Parses a completion and extends the prompt by it and by the messages after it.
   * @throws {FulmarError} As {@link Conversation.parse} and {@link Conversation.extend}.
   */
  turn(completionIds: Uint32Array, messages: JsonList<Message>): ConversationTurn {
    const parsed = this.parse(completionIds)
    return { parsed, bridge: this.extend(completionIds, messages) }
  }

  /** Gives the native memory back. The ids stay. */
  [Symbol.dispose](): void {
    this.#core.free()
  }
}

/** Calls a renderer with the whole prompt in each step. */
function stepByStep(
  renderer: Renderer,
  tools: JsonList<ToolSpec>,
  promptIds: () => Uint32Array,
): ConversationCore {
  return {
    start: (messages) => renderer.render(messages, { tools, addGenerationPrompt: true }),
    parse: (completionIds) => renderer.parse(completionIds, { promptIds: promptIds(), tools }),
    extend: (completionIds, messages) => renderer.bridge(promptIds(), completionIds, messages, { tools }),
    free: () => undefined,
  }
}
