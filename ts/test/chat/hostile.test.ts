/** Adversarial messages that must not break a renderer, as they come from JavaScript. */

import { describe, expect, it } from 'vitest'
import { createRenderer, type Message, type RendererConfig } from '../../src/chat/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { History } from '../../src/torchrl/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const template = `{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}
  {%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}`
const configs: readonly RendererConfig[] = [
  { name: 'chatml' },
  { name: 'qwen3' },
  { name: 'opaque', template, stopTokens: ['<|im_end|>'] },
]
const specialTokens = '<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call>'.split(
  ' ',
)
const odd = 'a\u0001b\u05E9\u05DC\u202Eabc\u202C\u200F👩‍👩‍👧‍👦\u0301\uE000\uFEFF\u2028\r'
const ascii = String.fromCharCode(...Array.from({ length: 95 }, (_, index) => 32 + index))
const alphabet = [...new Set(`\n${ascii}${odd}\0\u{100000}`)].join('')

describe('a renderer given hostile messages', () => {
  it('refuses halves of surrogate pairs wherever they stand', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    for (const config of configs) {
      using renderer = createRenderer(tokenizer, config)
      for (const half of ['\uD83D', 'a\uDE00b', '\uDE00\uD83D']) {
        const chats: Message[][] = [
          [{ role: 'user', content: half }],
          [{ role: half, content: 'a' }],
          [{ role: 'user', content: [{ type: 'text', text: half }] }],
          [{ role: 'user', content: 'a', [half]: 1 }],
          [{ role: 'assistant', content: 'a', reasoning_content: half }],
        ]
        for (const chat of chats) {
          expect(() => renderer.render(chat)).toThrow(failing('MALFORMED'))
          expect(() => renderer.renderText(chat)).toThrow(failing('MALFORMED'))
          expect(() => renderer.bridge(Uint32Array.of(1), Uint32Array.of(1), chat)).toThrow(
            failing('MALFORMED'),
          )
        }
      }
    }
  })

  it('says which message holds half a surrogate pair', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const good = { role: 'user', content: 'a' }
    const bad = { role: 'assistant', content: 'b', reasoning_content: 'c\uD83D' }
    const message = 'messages[2] must hold well-formed text: it has half a surrogate pair'
    expect(() => renderer.render([good, good, bad])).toThrow(
      expect.objectContaining({ code: 'MALFORMED', message }),
    )
    expect(() => History.fromChats([good, good, { role: 'user', content: '\uDE00' }])).toThrow(message)
  })

  it('takes odd characters, markers and templates for text', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    for (const config of configs) {
      using renderer = createRenderer(tokenizer, config)
      for (const content of [
        odd,
        `\0`,
        `x${specialTokens.join('')}x`,
        "{{ raise_exception('x') }}{% for %}",
      ]) {
        const chat = [{ role: 'user', content }]
        const { ids } = renderer.render(chat, { addGenerationPrompt: true })
        const frame = renderer.render([{ role: 'user', content: 'x' }], { addGenerationPrompt: true })
        const numSpecial = (list: Uint32Array) => list.filter((id) => tokenizer.isSpecial(id)).length
        expect(numSpecial(ids)).toBe(numSpecial(frame.ids))
        expect(tokenizer.decode(ids)).toBe(renderer.renderText(chat, { addGenerationPrompt: true }))
        expect(renderer.renderText(chat)).toContain(content)
      }
    }
  })

  it('takes long messages and long conversations', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    const long = 'ab<|im_end|>'.repeat(833_334)
    const many = Array.from({ length: 20_000 }, (_, index) => ({
      role: index % 2 === 0 ? 'user' : 'assistant',
      content: 'a',
    }))
    for (const config of configs) {
      using renderer = createRenderer(tokenizer, config)
      expect(renderer.render([{ role: 'user', content: long }]).ids.length).toBeGreaterThan(long.length)
      const { messageIndices, sampledMask } = renderer.render(many)
      expect(messageIndices.at(-1)).toBe(19_999)
      expect(sampledMask.reduce((sum, bit) => sum + bit, 0)).toBeGreaterThanOrEqual(20_000)
    }
  })

  it('refuses JSON text that is no list of messages', () => {
    using tokenizer = new CharTokenizer({ alphabet, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'qwen3' })
    const chat = [{ role: 'user', content: 'a' }]
    for (const text of ['', '[', '{}', '"a"', '[1]', '[{"role":"user"}] x', '['.repeat(100_000)])
      expect(() => renderer.render(text), text.slice(0, 9)).toThrow(failing('MALFORMED'))
    for (const tools of ['', '[', '[]}', '{}', '[],"addGenerationPrompt":true', '[],"x":[]'])
      expect(() => renderer.render(chat, { tools }), tools).toThrow(failing('MALFORMED'))
    for (const addGenerationPrompt of ['yes', 1, null])
      expect(() => renderer.render(chat, { addGenerationPrompt: addGenerationPrompt as never })).toThrow(
        failing('MALFORMED'),
      )
  })
})
