/** The one door to renderers. */

import { call, checkKnownKeys, checkTypedArray, Handle } from '../core/index.js'
import { type RawRendered, type RawRenderer, raw } from '../native/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import type { Message } from './message.js'
import type {
  Bridge,
  BridgeOptions,
  BridgeRefusal,
  ParsedResponse,
  ParseOptions,
  Rendered,
  Renderer,
  RenderOptions,
} from './renderer.js'

/** Plain ChatML: roles `system`, `user`, `assistant` and `tool`; no system message is made up; no tools. */
export interface ChatMlConfig {
  readonly name: 'chatml'
}

/** Which family, and its knobs. */
export type RendererConfig = ChatMlConfig

/** A {@link Renderer} that holds native memory: dispose it, or declare it with `using`. */
export interface DisposableRenderer extends Renderer {
  /** Gives the native memory back. */
  [Symbol.dispose](): void
}

/**
 * The renderer of a family over a tokenizer that has the family's special tokens.
 *
 * @throws {FulmarError} `INCOMPATIBLE` if `tokenizer` lacks a special token of the family; `UNKNOWN_NAME` for a family
 * or a knob that does not exist.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
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
export function createRenderer(tokenizer: NativeTokenizer, config: RendererConfig): DisposableRenderer {
  return new NativeRenderer(tokenizer, config)
}

class NativeRenderer implements DisposableRenderer {
  readonly #native: Handle<RawRenderer>
  readonly stopIds: readonly number[]

  constructor(tokenizer: NativeTokenizer, config: RendererConfig) {
    const make = () => tokenizer.withNative((native) => new raw.Renderer(native, JSON.stringify(config)))
    this.#native = new Handle('Renderer', make)
    this.stopIds = Object.freeze([...this.#native.call((native) => native.stopIds())])
  }

  render(messages: readonly Message[], options: RenderOptions = {}): Rendered {
    checkKnownKeys('options', options, ['addGenerationPrompt', 'tools'])
    const text = toText(messages)
    return columns(this.#native.call((native) => native.render(text, JSON.stringify(options))))
  }

  bridge(
    previousPromptIds: Uint32Array,
    previousCompletionIds: Uint32Array,
    newMessages: readonly Message[],
    options: BridgeOptions = {},
  ): Bridge {
    checkTypedArray('previousPromptIds', previousPromptIds, Uint32Array)
    checkTypedArray('previousCompletionIds', previousCompletionIds, Uint32Array)
    checkKnownKeys('options', options, ['tools'])
    const text = toText(newMessages)
    const tools = JSON.stringify(options.tools ?? [])
    const bridge = this.#native.call((native) =>
      native.bridge(previousPromptIds, previousCompletionIds, text, tools),
    )
    if (typeof bridge === 'string') return { ok: false, reason: bridge as BridgeRefusal }
    return { ok: true, rendered: columns(bridge) }
  }

  parse(ids: Uint32Array, options: ParseOptions = {}): ParsedResponse {
    checkTypedArray('ids', ids, Uint32Array)
    checkKnownKeys('options', options, ['promptIds', 'tools'])
    const { promptIds, tools } = options
    if (promptIds !== undefined) checkTypedArray('promptIds', promptIds, Uint32Array)
    const text = JSON.stringify({ promptIds: promptIds && [...promptIds], tools })
    return JSON.parse(this.#native.call((native) => native.parse(ids, text)))
  }

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
