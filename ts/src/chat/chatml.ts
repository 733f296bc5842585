/** ChatML, the frame of Qwen2 and many others: `<|im_start|>role\ncontent<|im_end|>\n`. */

import { call, checkKnownKeys, checkTypedArray, Handle } from '../core/index.js'
import { type RawChatMlRenderer, type RawRendered, raw } from '../native/index.js'
import type { CharTokenizer } from '../tokenizer/index.js'
import type { Message } from './message.js'
import type { Bridge, ParsedResponse, Rendered, Renderer, RenderOptions } from './renderer.js'

/**
 * The ChatML {@link Renderer}. Roles are `system`, `user`, `assistant` and `tool`; no system message is made up.
 * Messages with `tool_calls` are refused (`INCOMPATIBLE`): plain ChatML has no form for them.
 * Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { CharTokenizer, ChatMlRenderer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = new ChatMlRenderer(tokenizer)
 * const prompt = renderer.render([{ role: 'user', content: '1+1?' }], { addGenerationPrompt: true })
 * const sampled = Uint32Array.of(...tokenizer.encode('2').ids, renderer.stopIds[0])
 * assert.equal(renderer.parse(sampled).content, '2')
 *
 * const next = renderer.bridge(prompt.ids, sampled, [{ role: 'user', content: '2+2?' }])
 * assert.ok(next.ok)
 * assert.deepEqual(next.rendered.ids.subarray(0, prompt.ids.length), prompt.ids)
 * const refused = renderer.bridge(prompt.ids, sampled, [])
 * assert.deepEqual(refused, { ok: false, reason: 'empty_extension' })
 * ```
 */
export class ChatMlRenderer implements Renderer {
  readonly #native: Handle<RawChatMlRenderer>
  readonly stopIds: readonly number[]

  /** @throws {FulmarError} `INCOMPATIBLE` if `tokenizer` has no special tokens `<|im_start|>` and `<|im_end|>`. */
  constructor(tokenizer: CharTokenizer) {
    const make = () => tokenizer.withNative((native) => new raw.ChatMlRenderer(native))
    this.#native = new Handle('ChatMlRenderer', make)
    this.stopIds = Object.freeze([...this.#native.call((native) => native.stopIds())])
  }

  render(messages: readonly Message[], options: RenderOptions = {}): Rendered {
    checkKnownKeys('options', options, ['addGenerationPrompt'])
    const text = toText(messages)
    return columns(this.#native.call((native) => native.render(text, JSON.stringify(options))))
  }

  bridge(
    previousPromptIds: Uint32Array,
    previousCompletionIds: Uint32Array,
    newMessages: readonly Message[],
  ): Bridge {
    checkTypedArray('previousPromptIds', previousPromptIds, Uint32Array)
    checkTypedArray('previousCompletionIds', previousCompletionIds, Uint32Array)
    const text = toText(newMessages)
    const bridge = this.#native.call((native) =>
      native.bridge(previousPromptIds, previousCompletionIds, text),
    )
    if (typeof bridge === 'string') return { ok: false, reason: bridge }
    return { ok: true, rendered: columns(bridge) }
  }

  parse(ids: Uint32Array): ParsedResponse {
    checkTypedArray('ids', ids, Uint32Array)
    return JSON.parse(this.#native.call((native) => native.parse(ids)))
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

function toText(messages: readonly Message[]): string {
  return call(() => String(JSON.stringify(messages)))
}

/** A plain object: in WebAssembly the answer's properties are copied at each access. */
function columns({ ids, messageIndices, sampledMask, isContent, origins }: RawRendered): Rendered {
  return { ids, messageIndices, sampledMask, isContent, origins }
}
