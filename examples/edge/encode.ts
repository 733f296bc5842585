/** A conversation to tokens and masks, with the files of a model that the request brings along. */

import { createRenderer, type Message, Template, tokenMasks } from 'fulmar/chat'
import { HfTokenizer, offsetsIn } from 'fulmar/tokenizer'
import { History } from 'fulmar/torchrl'

/** A model's `tokenizer.json` and its configuration, and a conversation for it. */
export interface EncodeRequest {
  readonly tokenizer: unknown
  readonly config: unknown
  /** The source of a chat template in Jinja. */
  readonly template: string
  readonly messages: readonly Message[]
}

/** The conversation in both ways: through the template, and through the renderer of ChatML. */
export interface EncodeResponse {
  readonly text: string
  /** Text of the template's `generation` blocks. */
  readonly spoken: readonly string[]
  readonly ids: readonly number[]
  /** The text of each id. */
  readonly tokens: readonly string[]
  readonly assistantMask: string
  readonly decoded: string
  readonly rendered: { readonly ids: readonly number[]; readonly mask: string; readonly content: string }
}

/** Renders, tokenises and masks. */
export function encodeChat({
  tokenizer: file,
  config,
  template: source,
  messages,
}: EncodeRequest): EncodeResponse {
  using tokenizer = HfTokenizer.fromJson(file, config, source)
  using template = new Template(source)
  const { specialTokens } = tokenizer
  const { text, assistantSpans = new Uint32Array() } = template.render({ messages, specialTokens })
  const { ids, offsets } = tokenizer.encode(text, { addedTokens: true })
  const places = offsetsIn(text, offsets, 'utf16')
  const pairs = (list: Uint32Array) =>
    Array.from({ length: list.length / 2 }, (_, index) => text.slice(list[2 * index], list[2 * index + 1]))
  const dict = History.fromChats(messages).applyChatTemplate({
    tokenizer,
    addGenerationPrompt: false,
    mask: { preset: 'torchrl' },
  })
  using renderer = createRenderer(tokenizer, { name: 'chatml' })
  const rendered = renderer.render(messages)
  const { assistant } = tokenMasks(rendered, renderer.stopIds, { preset: 'trl' })
  const spoken = rendered.ids.filter((_, at) => assistant[at] === 1)
  return {
    text,
    spoken: pairs(assistantSpans),
    ids: [...ids],
    tokens: pairs(places),
    assistantMask: [...dict.tensor('assistant_masks').data].join(''),
    decoded: tokenizer.decode(ids),
    rendered: {
      ids: [...rendered.ids],
      mask: assistant.join(''),
      content: renderer.parse(spoken).content,
    },
  }
}
