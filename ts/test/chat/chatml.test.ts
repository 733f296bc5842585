/** The plain family, and what every renderer promises of it. */

import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  createRenderer,
  type DisposableRenderer,
  extendPrompt,
  type Message,
  ORIGINS,
  type Rendered,
} from '../../src/chat/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const CLOSE = 98

function withRenderer(body: (renderer: DisposableRenderer, tokenizer: CharTokenizer) => void): void {
  using tokenizer = new CharTokenizer()
  using renderer = createRenderer(tokenizer, { name: 'chatml' })
  body(renderer, tokenizer)
}

/** The text of the tokens that `keep` marks. */
function textOf(tokenizer: CharTokenizer, rendered: Rendered, keep: (t: number) => boolean): string {
  return tokenizer.decode(rendered.ids.filter((_, t) => keep(t)))
}

interface GoldenRow {
  case: string
  chat: Message[]
  add_generation_prompt: boolean
  text?: string
  masked_text?: string
}

function goldenRows(): GoldenRow[] {
  const file = new URL('../../../tests/golden/chat/chatml.jsonl', import.meta.url)
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean)
  return lines.map((line) => JSON.parse(line))
}

describe('the chatml renderer', () => {
  it('renders and masks as TorchRL does', () => {
    const rows = goldenRows().filter((row) => row.case !== 'D')
    expect(rows.length).toBeGreaterThan(10)
    withRenderer((renderer, tokenizer) => {
      for (const { chat, add_generation_prompt: addGenerationPrompt, text, masked_text } of rows) {
        const rendered = renderer.render(chat, { addGenerationPrompt })
        if (text !== undefined) expect(tokenizer.decode(rendered.ids)).toBe(text)
        const sampled = textOf(tokenizer, rendered, (t) => rendered.sampledMask[t] === 1)
        if (masked_text !== undefined) expect(sampled.replaceAll('<|im_end|>', '')).toBe(masked_text)
      }
    })
  })

  it('says of each token where it came from', () => {
    withRenderer((renderer, tokenizer) => {
      const chat = [
        { role: 'user', content: 'Q' },
        { role: 'assistant', content: 'A' },
      ]
      const rendered = renderer.render(chat, { addGenerationPrompt: true })
      const { ids, messageIndices, sampledMask, isContent, origins } = rendered
      for (const column of [messageIndices, sampledMask, isContent, origins])
        expect(column).toHaveLength(ids.length)
      expect(textOf(tokenizer, rendered, (t) => sampledMask[t] === 1)).toBe('A<|im_end|>')
      expect(textOf(tokenizer, rendered, (t) => isContent[t] === 1)).toBe('QA<|im_end|>')
      expect(textOf(tokenizer, rendered, (t) => ORIGINS[origins[t] ?? 0] === 'user')).toBe('Q')
      expect(textOf(tokenizer, rendered, (t) => messageIndices[t] === -1)).toBe('<|im_start|>assistant\n')
    })
  })

  it('extends sampled tokens as they are and closes a truncated turn once', () => {
    withRenderer((renderer, tokenizer) => {
      const prompt = renderer.render([{ role: 'user', content: 'Q' }], { addGenerationPrompt: true }).ids
      const reply = [{ role: 'tool', content: 'R' }]
      const tail = '<|im_end|>\n<|im_start|>tool\nR<|im_end|>\n<|im_start|>assistant\n'
      const cases = [tokenizer.encode('A').ids, Uint32Array.of(...tokenizer.encode('A').ids, CLOSE)]
      for (const completion of cases) {
        const bridge = renderer.bridge(prompt, completion, reply)
        if (!bridge.ok) throw new Error(bridge.reason)
        const { origins, sampledMask } = bridge.rendered
        const next = extendPrompt(prompt, completion, bridge)
        expect(tokenizer.decode(next.subarray(prompt.length))).toBe(`A${tail}`)
        expect(sampledMask.includes(1)).toBe(false)
        const synthetic = origins.filter((code) => ORIGINS[code] === 'synthetic')
        expect(synthetic).toHaveLength(completion.length === 1 ? 1 : 0)
      }
    })
  })

  it('says why it cannot extend', () => {
    withRenderer((renderer) => {
      const [none, some] = [new Uint32Array(0), Uint32Array.of(1)]
      const reason = (prompt: Uint32Array, messages: Message[]) => {
        const bridge = renderer.bridge(prompt, some, messages)
        return bridge.ok ? 'ok' : bridge.reason
      }
      const say = (role: string) => [{ role, content: 'x' }]
      expect(reason(none, say('user'))).toBe('empty_prompt')
      expect(reason(some, [])).toBe('empty_extension')
      expect(reason(some, say('assistant'))).toBe('assistant_in_extension')
      expect(reason(some, say('robot'))).toBe('unknown_role')
      expect(reason(some, say('user'))).toBe('ok')
    })
  })

  it('equals a full render when a conversation is played over bridges', () => {
    const text = fc.string({ unit: 'grapheme-ascii', maxLength: 20 })
    const turns = fc.array(fc.tuple(text, fc.constantFrom('user', 'tool', 'system'), text), {
      minLength: 1,
      maxLength: 5,
    })
    withRenderer((renderer, tokenizer) => {
      const play = (opening: string, exchanges: [string, string, string][]) => {
        const chat: Message[] = [{ role: 'user', content: opening }]
        let prompt = renderer.render(chat, { addGenerationPrompt: true }).ids
        for (const [answer, role, content] of exchanges) {
          const completion = Uint32Array.of(...tokenizer.encode(answer).ids, CLOSE)
          const parsed = renderer.parse(completion)
          expect(parsed).toEqual({
            content: answer,
            reasoningContent: null,
            reasoningComplete: true,
            toolCalls: [],
            finished: true,
            overran: false,
          })
          const bridge = renderer.bridge(prompt, completion, [{ role, content }])
          if (!bridge.ok) throw new Error(bridge.reason)
          chat.push({ role: 'assistant', content: parsed.content }, { role, content })
          prompt = extendPrompt(prompt, completion, bridge)
          expect(prompt).toEqual(renderer.render(chat, { addGenerationPrompt: true }).ids)
        }
      }
      fc.assert(fc.property(text, turns, play))
    })
  })

  it('parses whatever was sampled, cut anywhere', () => {
    withRenderer((renderer) => {
      const ids = fc.array(fc.nat(98), { maxLength: 40 })
      const parses = (sampled: number[]) =>
        typeof renderer.parse(Uint32Array.from(sampled)).content === 'string'
      fc.assert(fc.property(ids, parses))
      expect(renderer.parse(new Uint32Array(0))).toMatchObject({ content: '', finished: false })
      expect(renderer.parse(Uint32Array.of(34, 97, 34))).toMatchObject({
        content: 'A<|im_start|>A',
        overran: true,
      })
      expect(() => renderer.parse(Uint32Array.of(99))).toThrow(failing('OUT_OF_RANGE'))
    })
  })

  it('refuses what it cannot render, by code and place', () => {
    withRenderer((renderer) => {
      const render = (...chat: unknown[]) => {
        return () => renderer.render(chat as Message[])
      }
      expect(render()).toThrow(failing('EMPTY'))
      expect(render({ role: 'user', content: 'a' }, { role: 'robot', content: 'b' })).toThrow(
        expect.objectContaining({
          code: 'UNKNOWN_NAME',
          message: expect.stringMatching(/^messages\[1\]: role/),
        }),
      )
      expect(render({ role: 'user', content: 'é' })).toThrow(failing('UNKNOWN_TEXT'))
      expect(render({ role: 'user', content: 'a\0' })).toThrow(failing('UNKNOWN_TEXT'))
      expect(render({ role: 'user', content: '\uD83D' })).toThrow(failing('MALFORMED'))
      expect(render({ role: 'user', content: 7 })).toThrow(failing('MALFORMED'))
      expect(render({ role: 'user', content: [{ type: 'image_url' }] })).toThrow(failing('UNKNOWN_NAME'))
      expect(render({ role: 'assistant', content: '', tool_calls: [{}] })).toThrow(failing('MALFORMED'))
      const call = { function: { name: 'add', arguments: {} } }
      expect(render({ role: 'assistant', content: '', tool_calls: [call] })).toThrow(failing('INCOMPATIBLE'))
      const options = { addGenerationPromt: true } as never
      expect(() => renderer.render([{ role: 'user', content: 'a' }], options)).toThrow(
        failing('UNKNOWN_NAME'),
      )
      expect(() => renderer.parse([1] as unknown as Uint32Array)).toThrow(failing('MALFORMED'))
    })
  })

  it('needs the two markers as special tokens', () => {
    using tokenizer = new CharTokenizer({ specialTokens: ['<|im_start|>'] })
    expect(() => createRenderer(tokenizer, { name: 'chatml' })).toThrow(failing('INCOMPATIBLE'))
  })

  it('outlives its tokenizer and says when it is closed itself', () => {
    const tokenizer = new CharTokenizer()
    const renderer = createRenderer(tokenizer, { name: 'chatml' })
    tokenizer[Symbol.dispose]()
    expect(renderer.stopIds).toEqual([98, 96])
    expect(renderer.render([{ role: 'user', content: 'a' }]).ids).toHaveLength(9)
    renderer[Symbol.dispose]()
    expect(() => renderer.parse(Uint32Array.of(1))).toThrow(failing('CLOSED'))
    expect(() => createRenderer(tokenizer, { name: 'chatml' })).toThrow(failing('CLOSED'))
  })
})
