/**
 * A renderer that can be checked by eye: content is a list of token numbers, a message is `[role, content..., 9, 8]`
 * with roles 1 user, 2 assistant, 3 tool; 9 closes, 8 is the newline behind it, `[2]` opens the policy's turn.
 */

import type {
  Bridge,
  BridgeRefusal,
  Message,
  ParsedResponse,
  PrefixStability,
  Rendered,
  Renderer,
  ThinkingRetention,
} from '../../src/chat/index.js'

const ROLES: Readonly<Record<string, number>> = { user: 1, assistant: 2, tool: 3 }
const CLOSE = 9
const NEWLINE = 8

/** Options of a {@link ToyRenderer}. */
export interface ToyOptions {
  /** Refuses every bridge for this reason. */
  readonly refusal?: BridgeRefusal
  /** Encodes the content of assistant messages like this, as a template that rewrites history does. */
  readonly rewrite?: readonly number[]
  /** Throws instead of parsing. */
  readonly parseError?: Error
}

export class ToyRenderer implements Renderer {
  readonly stopIds = [CLOSE]
  readonly #options: ToyOptions

  constructor(options: ToyOptions = {}) {
    this.#options = options
  }

  render(messages: readonly Message[], { addGenerationPrompt = false } = {}): Rendered {
    const body = messages.flatMap((message) => this.#encode(message))
    return rendered([...body, ...(addGenerationPrompt ? [2] : [])])
  }

  renderText(messages: readonly Message[], options = {}): string {
    return this.render(messages, options).ids.join(' ')
  }

  prefixStability(): PrefixStability {
    return this.#options.rewrite ? 'never' : 'always'
  }

  thinkingRetention(): ThinkingRetention {
    return 'all'
  }

  bridge(_: Uint32Array, completionIds: Uint32Array, newMessages: readonly Message[]): Bridge {
    if (this.#options.refusal) return { ok: false, reason: this.#options.refusal }
    if (newMessages.length === 0) return { ok: false, reason: 'empty_extension' }
    const close = completionIds.at(-1) === CLOSE ? [] : [CLOSE]
    const body = newMessages.flatMap((message) => this.#encode(message))
    return { ok: true, numKept: completionIds.length, rendered: rendered([...close, NEWLINE, ...body, 2]) }
  }

  parse(ids: Uint32Array): ParsedResponse {
    if (this.#options.parseError) throw this.#options.parseError
    const close = ids.indexOf(CLOSE)
    const content = ids.slice(0, close < 0 ? ids.length : close).join(' ')
    return {
      content,
      reasoningContent: null,
      reasoningComplete: true,
      toolCalls: [],
      finished: close >= 0,
      overran: false,
    }
  }

  #encode({ role, content }: Message): number[] {
    const { rewrite } = this.#options
    const spoken = role === 'assistant' && rewrite ? rewrite : String(content).split(' ').map(Number)
    return [ROLES[role] ?? 0, ...spoken, CLOSE, NEWLINE]
  }
}

function rendered(ids: readonly number[]): Rendered {
  const { length } = ids
  return {
    ids: Uint32Array.from(ids),
    messageIndices: new Int32Array(length).fill(-1),
    sampledMask: new Uint8Array(length),
    isContent: new Uint8Array(length),
    origins: new Uint8Array(length),
  }
}
