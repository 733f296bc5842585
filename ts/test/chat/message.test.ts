/** Messages as the packages `openai` and `ai` type them: assignable, and rendered right or refused. */

import { afterAll, describe, expect, expectTypeOf, it } from 'vitest'
import { createRenderer, type Message, type RendererConfig } from '../../src/chat/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string, message?: RegExp) =>
  expect.objectContaining({ code, ...(message && { message: expect.stringMatching(message) }) })

/** The shapes of `ChatCompletionMessageParam` of `openai` 6: interfaces, so without an index signature. */
interface OpenAiText {
  text: string
  type: 'text'
}
interface OpenAiImage {
  image_url: { url: string; detail?: 'auto' | 'low' | 'high' }
  type: 'image_url'
}
interface OpenAiCall {
  id: string
  function: { arguments: string; name: string }
  type: 'function'
}
interface OpenAiSystem {
  content: string | OpenAiText[]
  role: 'system' | 'developer'
  name?: string
}
interface OpenAiUser {
  content: string | (OpenAiText | OpenAiImage)[]
  role: 'user'
  name?: string
}
interface OpenAiAssistant {
  role: 'assistant'
  audio?: { id: string } | null
  content?: string | (OpenAiText | { refusal: string; type: 'refusal' })[] | null
  function_call?: { arguments: string; name: string } | null
  name?: string
  refusal?: string | null
  tool_calls?: OpenAiCall[]
}
interface OpenAiTool {
  content: string | OpenAiText[]
  role: 'tool'
  tool_call_id: string
}
type OpenAiMessage = OpenAiSystem | OpenAiUser | OpenAiAssistant | OpenAiTool

/** The shapes of `ModelMessage` and `UIMessage` of `ai` 6. */
interface AiText {
  type: 'text'
  text: string
  providerOptions?: Record<string, unknown>
}
interface AiImage {
  type: 'image'
  image: string | Uint8Array | URL
}
interface AiCall {
  type: 'tool-call'
  toolCallId: string
  toolName: string
  input: unknown
}
interface AiResult {
  type: 'tool-result'
  toolCallId: string
  toolName: string
  output: { type: 'text'; value: string }
}
type AiMessage =
  | { role: 'system'; content: string; providerOptions?: Record<string, unknown> }
  | { role: 'user'; content: string | (AiText | AiImage)[] }
  | { role: 'assistant'; content: string | (AiText | { type: 'reasoning'; text: string } | AiCall)[] }
  | { role: 'tool'; content: AiResult[] }
interface AiUiMessage {
  id: string
  role: 'system' | 'user' | 'assistant'
  metadata?: unknown
  parts: AiText[]
}

const specialTokens = ['<|im_start|>', '<|im_end|>', '<|endoftext|>']
const qwen = ['<think>', '</think>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>']
const alphabet = `\n${String.fromCharCode(...Array.from({ length: 95 }, (_, index) => 32 + index))}`
const tokenizer = new CharTokenizer({ alphabet, specialTokens: [...specialTokens, ...qwen] })
const renderers: (typeof renderer)[] = []
const made = (config: RendererConfig) => {
  const one = createRenderer(tokenizer, config)
  renderers.push(one)
  return one
}
const renderer = createRenderer(tokenizer, { name: 'qwen3' })
afterAll(() => {
  for (const held of [renderer, ...renderers, tokenizer]) held[Symbol.dispose]()
})

const question: OpenAiUser = { role: 'user', content: [{ type: 'text', text: 'One and one?' }] }
const call: OpenAiCall = { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } }

describe('Message', () => {
  it('is what openai and ai call a message', () => {
    expectTypeOf<OpenAiMessage[]>().toExtend<readonly Message[]>()
    expectTypeOf<AiMessage[]>().toExtend<readonly Message[]>()
    expectTypeOf<OpenAiMessage[]>().toExtend<Message[]>()
    // Messages of a user interface have no content, so they are no messages.
    expectTypeOf<AiUiMessage>().not.toExtend<Message>()
    expectTypeOf<{ role: 'user'; content: number }>().not.toExtend<Message>()
    expectTypeOf<{ content: 'no role' }>().not.toExtend<Message>()
    // A literal may have keys of its own, and known keys can be read at once.
    const message: Message = { role: 'user', content: 'Hi', thinking: 'own key' }
    expectTypeOf(message.tool_calls).toBeUnknown()
    expectTypeOf<Message['content']>().toExtend<
      string | null | undefined | readonly { readonly type: string; readonly text?: unknown }[]
    >()
  })

  it('renders text parts, absent contents and calls of openai', () => {
    const messages: OpenAiMessage[] = [
      question,
      { role: 'assistant', refusal: null, audio: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c1', content: [{ type: 'text', text: '2' }] },
      { role: 'assistant', content: 'Two', refusal: null },
    ]
    const plain: Message[] = [
      { role: 'user', content: 'One and one?' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', content: '2' },
      { role: 'assistant', content: 'Two' },
    ]
    const text = renderer.renderText(messages)
    expect(text).toBe(renderer.renderText(plain))
    expect(text).toContain('{"name": "add", "arguments": {"a":1}}')
    expect(text).toContain('<tool_response>\n2\n</tool_response>')
  })

  it('renders texts of ai, and refuses its parts that are no text', () => {
    const messages: AiMessage[] = [
      { role: 'system', content: 'Be brief.', providerOptions: {} },
      { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
    ]
    expect(renderer.renderText(messages)).toContain('user\nHi<|im_end|>')
    const parts: AiMessage[] = [
      { role: 'user', content: [{ type: 'image', image: 'aGk=' }] },
      { role: 'assistant', content: [{ type: 'reasoning', text: 'Hm' }] },
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'c', toolName: 'add', input: {} }] },
      {
        role: 'tool',
        content: [
          { type: 'tool-result', toolCallId: 'c', toolName: 'add', output: { type: 'text', value: '2' } },
        ],
      },
    ]
    for (const message of parts)
      expect(() => renderer.renderText([...messages, message])).toThrow(
        failing('UNKNOWN_NAME', /content\[0\]\.type must be "text"/),
      )
  })

  it('refuses content in a key that a family does not read, in every call of a renderer', () => {
    const parts: AiUiMessage = { id: '1', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }
    const calls = [{ id: '1', type: 'function', function: { name: 'add', arguments: '{}' } }]
    const elsewhere: readonly (readonly [string, OpenAiMessage | AiUiMessage | Message])[] = [
      ['refusal', { role: 'assistant', content: null, refusal: 'No.' }],
      ['function_call', { role: 'assistant', function_call: { name: 'add', arguments: '{}' } }],
      ['audio', { role: 'assistant', audio: { id: 'a1' } }],
      ['parts', parts],
      ['toolCalls', { role: 'assistant', content: 'So:', toolCalls: calls }],
      ['toolCallId', { role: 'tool', content: '3', toolCallId: '1' }],
      ['reasoningContent', { role: 'assistant', content: '3', reasoningContent: 'one and two' }],
    ]
    for (const [key, message] of elsewhere) {
      const given = [question, message as Message]
      const error = failing('INCOMPATIBLE', new RegExp(`messages\\[1\\]\\.${key} must be absent`))
      expect(() => renderer.render(given)).toThrow(error)
      expect(() => renderer.renderText(given)).toThrow(error)
      expect(() => renderer.bridge(new Uint32Array(1), new Uint32Array(1), given)).toThrow(error)
    }
  })

  it('leaves unknown keys to a template', () => {
    const template =
      '{% for m in messages %}{{ m.refusal or m.content }}{% if loop.last %}<|im_end|>{% endif %}{% endfor %}'
    const opaque = made({ name: 'opaque', template })
    expect(opaque.renderText([{ role: 'assistant', content: null, refusal: 'No.' }])).toBe('No.<|im_end|>')
  })
})
