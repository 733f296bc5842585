/** The one door to renderers. */

import { call, checkKnownKeys, checkTypedArray, Handle } from '../core/index.js'
import { type RawRenderer, raw } from '../native/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import { checkContentPlace, type Message } from './message.js'
import { withMessages } from './packed-messages.js'
import { fromWords } from './rendered-words.js'
import type {
  Bridge,
  BridgeOptions,
  BridgeRefusal,
  JsonList,
  ParsedResponse,
  ParseOptions,
  PrefixStability,
  Rendered,
  Renderer,
  RenderOptions,
} from './renderer.js'
import type { RendererConfig, ThinkingRetention } from './renderer-config.js'

/** A {@link Renderer} that holds native memory: dispose it, or declare it with `using`. */
export interface DisposableRenderer extends Renderer {
  /** The name of its configuration, such as `qwen3` or `opaque`; for `auto` the one that was chosen. */
  readonly name: Exclude<RendererConfig['name'], 'auto'>
  /** Reason for the choice, a sentence. */
  readonly reason: string
  /** Gives the native memory back. */
  [Symbol.dispose](): void
}

/**
 * Creates the renderer of a family over a tokenizer that has the family's special tokens. Its `name` and `reason` are the
 * family and why it was chosen.
 *
 * @throws {FulmarError} `INCOMPATIBLE` if `tokenizer` lacks a special token of the family, for knobs that contradict each
 * other, and for `auto` if there is neither a known model nor a chat template or the two are of different families;
 * `UNKNOWN_NAME` for a family or a knob that does not exist, and for a model whose name is a known one but for the case of
 * its letters.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { createRenderer, extendPrompt } from 'fulmar/chat'
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
 * const ids = extendPrompt(prompt.ids, sampled, next)
 * assert.deepEqual(ids.subarray(0, prompt.ids.length + sampled.length), Uint32Array.of(...prompt.ids, ...sampled))
 * const refused = renderer.bridge(prompt.ids, sampled, [])
 * assert.deepEqual(refused, { ok: false, reason: 'empty_extension' })
 *
 * using known = createRenderer(tokenizer, { name: 'chatml' })
 * assert.deepEqual([known.name, known.reason], ['chatml', 'it was asked for by its name'])
 * ```
 */
export function createRenderer(tokenizer: NativeTokenizer, config: RendererConfig): DisposableRenderer {
  return new NativeRenderer(tokenizer, config)
}

/** Constant properties of a renderer. */
interface Facts extends Pick<DisposableRenderer, 'name' | 'reason'> {
  readonly stopIds: readonly number[]
  readonly prefixStability: PrefixStability
  readonly thinkingRetention: ThinkingRetention
}

class NativeRenderer implements DisposableRenderer {
  readonly #native: Handle<RawRenderer>
  readonly #facts: Facts
  readonly name: DisposableRenderer['name']
  readonly reason: string
  readonly stopIds: readonly number[]

  /** A template of the caller's own may read any key; a family reads the keys of {@link Message}. */
  get #check(): typeof checkContentPlace | undefined {
    return this.name === 'opaque' ? undefined : checkContentPlace
  }

  constructor(tokenizer: NativeTokenizer, config: RendererConfig) {
    const make = () => tokenizer.withNative((native) => new raw.Renderer(native, configText(config)))
    this.#native = new Handle('Renderer', make)
    this.#facts = JSON.parse(this.#native.call((native) => native.facts()))
    this.name = this.#facts.name
    this.reason = this.#facts.reason
    this.stopIds = Object.freeze(this.#facts.stopIds)
  }

  render(messages: JsonList<Message>, options: RenderOptions = {}): Rendered {
    const asked = toOptionsText(options)
    return this.#native.call((native) =>
      withMessages(
        messages,
        (list, contents) => fromWords(native.render(list, contents, asked)).rendered,
        this.#check,
      ),
    )
  }

  renderText(messages: JsonList<Message>, options: RenderOptions = {}): string {
    const asked = toOptionsText(options)
    return this.#native.call((native) =>
      withMessages(messages, (list, contents) => native.renderText(list, contents, asked), this.#check),
    )
  }

  bridge(
    previousPromptIds: Uint32Array,
    previousCompletionIds: Uint32Array,
    newMessages: JsonList<Message>,
    options: BridgeOptions = {},
  ): Bridge {
    checkTypedArray('previousPromptIds', previousPromptIds, Uint32Array)
    checkTypedArray('previousCompletionIds', previousCompletionIds, Uint32Array)
    checkKnownKeys('options', options, ['tools'])
    const tools = toText(options.tools ?? [])
    const bridge = this.#native.call((native) =>
      withMessages(
        newMessages,
        (list, contents) => native.bridge(previousPromptIds, previousCompletionIds, list, contents, tools),
        this.#check,
      ),
    )
    if (typeof bridge === 'string') return { ok: false, reason: bridge as BridgeRefusal }
    return { ok: true, ...fromWords(bridge) }
  }

  parse(ids: Uint32Array, options: ParseOptions = {}): ParsedResponse {
    checkTypedArray('ids', ids, Uint32Array)
    checkKnownKeys('options', options, ['promptIds', 'tools'])
    const { promptIds, tools } = options
    if (promptIds !== undefined) checkTypedArray('promptIds', promptIds, Uint32Array)
    const text = toText(tools ?? [])
    return JSON.parse(this.#native.call((native) => native.parse(ids, promptIds, text)))
  }

  prefixStability(): PrefixStability {
    return this.#facts.prefixStability
  }

  thinkingRetention(): ThinkingRetention {
    return this.#facts.thinkingRetention
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** The configuration as JSON text; a clock shows UTC. */
function configText(config: RendererConfig): string {
  const isTimed = config.name === 'opaque' && config.now instanceof Date
  return JSON.stringify(isTimed ? { ...config, now: config.now.toISOString().slice(0, -1) } : config)
}

/** A list as JSON text; text is taken for such. */
function toText(list: JsonList<unknown>): string {
  return typeof list === 'string' ? list : call(() => String(JSON.stringify(list)))
}

function toOptionsText(options: RenderOptions): string {
  checkKnownKeys('options', options, ['addGenerationPrompt', 'tools'])
  const { addGenerationPrompt = false, tools = [] } = options
  return `{"addGenerationPrompt":${JSON.stringify(addGenerationPrompt)},"tools":${toText(tools)}}`
}
