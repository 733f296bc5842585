/** The one door to renderers. */

import { checkGiven, checkKnownKeys, checkList, checkTypedArray, FulmarError, Handle } from '../core/index.js'
import { type RawRenderer, raw } from '../native/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import { type ConversationCore, converse } from './conversation.js'
import { checkContentPlace, type Message } from './message.js'
import { NativeConversations } from './native-conversations.js'
import { withMessages } from './packed-messages.js'
import { CONVERSATION_KEYS, packTexts } from './packed-texts.js'
import { fromText } from './parsed-text.js'
import { checkedOptions, NO_TOOLS } from './render-options.js'
import { fromWords } from './rendered-words.js'
import type {
  Bridge,
  BridgeOptions,
  BridgeRefusal,
  ConversationText,
  JsonList,
  ParsedResponse,
  ParseOptions,
  PrefixStability,
  Rendered,
  Renderer,
  RenderOptions,
  ToolSpec,
} from './renderer.js'
import type { RendererConfig, ThinkingRetention } from './renderer-config.js'
import { toolsText } from './tools-text.js'

/** A {@link Renderer} that holds native memory: dispose it, or declare it with `using`. */
export interface DisposableRenderer extends Renderer {
  /** The name of its configuration, such as `qwen3` or `opaque`; for `auto` the one that was chosen. */
  readonly name: Exclude<RendererConfig['name'], 'auto'>
  /** Reason for the choice, a sentence. */
  readonly reason: string
  /**
   * Returns the texts of {@link Renderer.renderText} for many conversations, which takes less time than one by one.
   * Texts of a few conversations share memory: one that is kept keeps the others.
   * @throws {FulmarError} As {@link Renderer.renderText}, with the index of the conversation.
   *
   * @example
   * ```ts
   * import { CharTokenizer } from 'fulmar'
   * import { createRenderer } from 'fulmar/chat'
   * import assert from 'node:assert/strict'
   *
   * using tokenizer = new CharTokenizer()
   * using renderer = createRenderer(tokenizer, { name: 'chatml' })
   * const texts = renderer.renderTexts([
   *   { messages: [{ role: 'user', content: 'Hi' }] },
   *   { messages: [{ role: 'user', content: 'Ho' }], addGenerationPrompt: true },
   * ])
   * assert.deepEqual(texts, [
   *   '<|im_start|>user\nHi<|im_end|>\n',
   *   '<|im_start|>user\nHo<|im_end|>\n<|im_start|>assistant\n',
   * ])
   * ```
   */
  renderTexts(conversations: readonly ConversationText[]): string[]
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
  #conversations: NativeConversations | undefined
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
    const { addGenerationPrompt, tools } = checkedOptions(options)
    return this.#native.call((native) =>
      withMessages(
        messages,
        (list, numPacked) => fromWords(native.render(list, numPacked, addGenerationPrompt, tools)).rendered,
        this.#check,
      ),
    )
  }

  renderText(messages: JsonList<Message>, options: RenderOptions = {}): string {
    const { addGenerationPrompt, tools } = checkedOptions(options)
    return this.#native.call((native) =>
      withMessages(
        messages,
        (list, numPacked) => native.renderText(list, numPacked, addGenerationPrompt, tools),
        this.#check,
      ),
    )
  }

  renderTexts(conversations: readonly ConversationText[]): string[] {
    checkList('conversations', conversations)
    const texts: string[] = []
    while (texts.length < conversations.length) this.#appendTexts(conversations, texts)
    return texts
  }

  /** Appends the texts of the next conversations, in one call of the core if they can be packed. */
  #appendTexts(conversations: readonly ConversationText[], texts: string[]): void {
    const first = texts.length
    const packed = packTexts(conversations, first, this.#check)
    if (packed !== undefined) {
      try {
        const { text, ends } = this.#native.call((native) =>
          native.renderTexts(packed.text, packed.numRecords),
        )
        let start = 0
        for (const end of ends) {
          texts.push(text.slice(start, end))
          start = end
        }
        return
      } catch {
        // Below each is rendered alone, which reports errors better and accepts what cannot be packed.
        texts.length = first
      }
    }
    const end = packed?.end ?? first + 1
    for (const conversation of conversations.slice(first, end))
      texts.push(this.#textOf(conversation, texts.length))
  }

  #textOf(conversation: ConversationText, index: number): string {
    try {
      checkGiven('conversation', conversation)
      checkKnownKeys('conversation', conversation, CONVERSATION_KEYS, ['messages'])
      const { messages, ...options } = conversation
      return this.renderText(messages, options)
    } catch (error) {
      if (!(error instanceof FulmarError)) throw error
      throw new FulmarError(error.code, `conversations[${index}]: ${error.message}`, { cause: error })
    }
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
    const tools = toolsText(options.tools ?? NO_TOOLS)
    const bridge = this.#native.call((native) =>
      withMessages(
        newMessages,
        (list, numPacked) => native.bridge(previousPromptIds, previousCompletionIds, list, numPacked, tools),
        this.#check,
      ),
    )
    return bridgeOf(bridge)
  }

  [converse](tools: JsonList<ToolSpec>): ConversationCore {
    // A disposed renderer opens no more conversations; those that are open keep working.
    return this.#native.call((native) => {
      this.#conversations ??= new NativeConversations(native, this.#check)
      return this.#conversations.open(tools)
    })
  }

  parse(ids: Uint32Array, options: ParseOptions = {}): ParsedResponse {
    checkTypedArray('ids', ids, Uint32Array)
    checkKnownKeys('options', options, ['promptIds', 'tools'])
    const { promptIds, tools } = options
    if (promptIds !== undefined) checkTypedArray('promptIds', promptIds, Uint32Array)
    const text = toolsText(tools ?? NO_TOOLS)
    return fromText(this.#native.call((native) => native.parse(ids, promptIds, text)))
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

function bridgeOf(bridge: Uint32Array | string): Bridge {
  if (typeof bridge === 'string') return { ok: false, reason: bridge as BridgeRefusal }
  return { ok: true, ...fromWords(bridge) }
}

/** The configuration as JSON text; a clock shows UTC. */
function configText(config: RendererConfig): string {
  const isTimed = config.name === 'opaque' && config.now instanceof Date
  return JSON.stringify(isTimed ? { ...config, now: config.now.toISOString().slice(0, -1) } : config)
}
