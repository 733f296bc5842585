/** Tokens by message and by role, and what is built from them. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  attributeTextSegments,
  buildTrainingSample,
  buildTrajectoryStep,
  contentMaskForRoles,
  contentTokenSpansByRole,
  createRenderer,
  type DisposableRenderer,
  extendPrompt,
  extractMessageToolNames,
  type Message,
  messageTokenSpans,
  type RendererConfig,
  roleTokenSpans,
  type TrainingSampleOptions,
  tokensByRole,
  tokensPerMessage,
  trimToTurnClose,
} from '../../src/chat/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const specialTokens =
  `<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> [gMASK] <sop>
  <|system|> <|user|> <|assistant|> <|observation|>`.split(/\s+/)

function withRenderer(
  config: RendererConfig,
  body: (renderer: DisposableRenderer, tokenizer: CharTokenizer) => void,
): void {
  using tokenizer = new CharTokenizer({ specialTokens })
  using renderer = createRenderer(tokenizer, config)
  body(renderer, tokenizer)
}

const chat: Message[] = [
  { role: 'user', content: '1+1?' },
  { role: 'assistant', content: 'Let me' },
  { role: 'tool', content: '2' },
  { role: 'assistant', content: 'two' },
]

const anyChat = fc.array(
  fc.record({
    role: fc.constantFrom('user', 'assistant', 'tool', 'system'),
    content: fc.string({ unit: 'grapheme-ascii', maxLength: 9 }),
  }),
  { minLength: 1, maxLength: 6 },
)

describe('tokens by message and role', () => {
  it('count every token of a conversation once', () => {
    withRenderer({ name: 'chatml' }, (renderer) => {
      const check = (messages: Message[]) => {
        const rendered = renderer.render(messages, { addGenerationPrompt: true })
        const counts = tokensPerMessage(rendered, messages.length)
        const numPrompt = rendered.messageIndices.filter((index) => index < 0).length
        expect(counts.reduce((sum, count) => sum + count, numPrompt)).toBe(rendered.ids.length)
        const byRole = [...tokensByRole(rendered, messages).values()]
        expect(byRole.reduce((sum, count) => sum + count, numPrompt)).toBe(rendered.ids.length)
        expect(messageTokenSpans(rendered, messages.length).map((span) => span && span[1] - span[0])).toEqual(
          counts,
        )
        const spans = roleTokenSpans(rendered, messages)
        expect([...spans.values()].flat().length).toBe(messages.length)
      }
      fc.assert(fc.property(anyChat, check), { seed: 7 })
    })
  })

  it('tell content from frame', () => {
    withRenderer({ name: 'chatml' }, (renderer, tokenizer) => {
      const check = (messages: Message[]) => {
        const rendered = renderer.render(messages)
        const spans = contentTokenSpansByRole(rendered, messages)
        for (const role of ['user', 'tool', 'system']) {
          const said = messages.filter((message) => message.role === role && message.content !== '')
          const texts = (spans.get(role) ?? []).map(([start, end]) =>
            tokenizer.decode(rendered.ids.slice(start, end)),
          )
          expect(texts).toEqual(said.map(({ content }) => content))
          const mask = contentMaskForRoles(rendered, messages, [role])
          expect(tokenizer.decode(rendered.ids.filter((_, t) => mask[t] === 1))).toBe(texts.join(''))
        }
      }
      fc.assert(fc.property(anyChat, check), { seed: 8 })
    })
  })

  it('leave messages without tokens out', () => {
    withRenderer({ name: 'chatml' }, (renderer) => {
      const rendered = renderer.render(chat)
      expect(messageTokenSpans(rendered, 6).slice(3)).toEqual([
        [expect.any(Number), rendered.ids.length],
        null,
        null,
      ])
      expect(tokensPerMessage(rendered, 6, { sampledOnly: true })).toEqual([0, 7, 0, 4, 0, 0])
      const broken = { ...rendered, isContent: new Uint8Array(1) }
      expect(() => tokensPerMessage(broken, 4)).toThrow(failing('SHAPE_MISMATCH'))
      const options = { sampledOny: true } as never
      expect(() => tokensPerMessage(rendered, 4, options)).toThrow(failing('UNKNOWN_NAME'))
    })
  })
})

describe('buildTrainingSample', () => {
  const trained = (config: RendererConfig, options: TrainingSampleOptions = {}): string => {
    let text = ''
    withRenderer(config, (renderer, tokenizer) => {
      const { ids, lossMask } = buildTrainingSample(renderer, chat, options)
      expect(lossMask).toHaveLength(ids.length)
      text = tokenizer.decode(ids.filter((_, t) => lossMask[t] === 1))
    })
    return text
  }

  it('trains what an assistant samples, and words that are asked for', () => {
    const chatMl = { name: 'chatml' } as const
    expect(trained(chatMl)).toBe('Let me<|im_end|>two<|im_end|>')
    expect(trained(chatMl, { contentSftRoles: ['tool'] })).toBe('Let me<|im_end|>2two<|im_end|>')
    expect(trained(chatMl, { roleToMask: ({ content }) => content === 'two' })).toBe('two<|im_end|>')
  })

  it('closes a final turn that the family leaves open', () => {
    const glm = { name: 'glm4_5' } as const
    expect(trained(glm, { ensureFinalStop: true })).toBe(`${trained(glm)}<|endoftext|>`)
    const chatMl = { name: 'chatml' } as const
    expect(trained(chatMl, { ensureFinalStop: true })).toBe(trained(chatMl))
  })

  it('refuses samples that would teach nothing', () => {
    withRenderer({ name: 'chatml' }, (renderer) => {
      expect(() => buildTrainingSample(renderer, [])).toThrow(failing('EMPTY'))
      expect(() => buildTrainingSample(renderer, chat.slice(0, 1))).toThrow(failing('EMPTY'))
      expect(() => buildTrainingSample(renderer, chat, { roles: [] } as never)).toThrow(
        failing('UNKNOWN_NAME'),
      )
    })
    const template = '{{ messages | length }}{% for m in messages %} {{ m.content }}<|im_end|>{% endfor %}'
    withRenderer({ name: 'opaque', template, stopTokens: ['<|im_end|>'] }, (renderer) => {
      expect(() => buildTrainingSample(renderer, chat)).toThrow(failing('INCOMPATIBLE'))
    })
  })
})

describe('buildTrajectoryStep', () => {
  it('parts a conversation where the completion begins', () => {
    withRenderer({ name: 'chatml' }, (renderer) => {
      const step = buildTrajectoryStep(renderer, chat.slice(0, 1), chat.slice(1))
      const whole = renderer.render(chat)
      expect(Uint32Array.of(...step.promptIds, ...step.completionIds)).toEqual(whole.ids)
      expect(step.completionMask).toEqual(whole.sampledMask.slice(step.promptIds.length))
      expect(() => buildTrajectoryStep(renderer, chat, [])).toThrow(failing('EMPTY'))
    })
    withRenderer({ name: 'qwen3', enableThinking: false }, (renderer) => {
      const said = [{ role: 'assistant', content: 'a', reasoning_content: 'b' }]
      expect(() => buildTrajectoryStep(renderer, chat.slice(0, 1), said)).toThrow(failing('INCOMPATIBLE'))
    })
  })
})

describe('helpers of renderers', () => {
  it('name tools by their answers and by the calls before them', () => {
    const calls = [{ id: 'a', function: { name: 'add' } }, { id: 'b', name: 'sub' }, { id: 3 }, null]
    const names = extractMessageToolNames([
      { role: 'assistant', content: null, tool_calls: calls },
      { role: 'tool', content: '1', tool_call_id: 'b' },
      { role: 'tool', content: '1', tool_call_id: 'a', name: 'plus' },
      { role: 'tool', content: '1', tool_call_id: '?' },
      { role: 'user', content: '1', name: 'Ada' },
    ])
    expect(names).toEqual([null, 'sub', 'plus', null, null])
  })

  it('attribute segments in bytes of the text that they make', () => {
    using tokenizer = new CharTokenizer({ alphabet: 'aé😀b' })
    const parts = fc.array(
      fc.record({ text: fc.constantFrom('', 'a', 'é😀', 'bé'), isContent: fc.boolean() }),
    )
    const check = (segments: { text: string; isContent: boolean }[]) => {
      const expected = segments.flatMap(({ text, isContent }) => [...text].map(() => Number(isContent)))
      for (const overlapIsContent of [false, true]) {
        const { ids, isContent } = attributeTextSegments(tokenizer, segments, { overlapIsContent })
        expect([...isContent]).toEqual(expected)
        expect(tokenizer.decode(ids)).toBe(segments.map(({ text }) => text).join(''))
      }
    }
    fc.assert(fc.property(parts, check), { seed: 9 })
  })

  it('cut a completion behind its last stop', () => {
    const ids = fc.array(fc.nat(5))
    const check = (completion: number[]) => {
      const cut = trimToTurnClose(Uint32Array.from(completion), [0, 1])
      const rest = completion.slice(cut.length)
      expect([...cut, ...rest]).toEqual(completion)
      expect(rest.some((id) => id < 2)).toBe(false)
      const last = cut.at(-1) ?? 0
      expect(last < 2 || cut.length === completion.length).toBe(true)
    }
    fc.assert(fc.property(ids, check), { seed: 10 })
  })

  it('put the next prompt together without what was sampled past the end of a turn', () => {
    withRenderer({ name: 'chatml' }, (renderer, tokenizer) => {
      const ask = (content: string) => [{ role: 'user', content }]
      const { ids } = renderer.render(ask('Q'), { addGenerationPrompt: true })
      const [stop = 0] = renderer.stopIds
      const answer = Uint32Array.of(...tokenizer.encode('A').ids, stop)
      const overrun = Uint32Array.of(...answer, ...tokenizer.encode('xyz').ids)
      const bridge = renderer.bridge(ids, overrun, ask('R'))
      if (!bridge.ok) throw new Error(bridge.reason)
      expect(bridge.numKept).toBe(answer.length)
      const chat = [...ask('Q'), { role: 'assistant', content: 'A' }, ...ask('R')]
      const whole = renderer.render(chat, { addGenerationPrompt: true }).ids
      expect(extendPrompt(ids, overrun, bridge)).toEqual(whole)
    })
  })

  it('put no next prompt together of a completion that is not the one that was bridged', () => {
    withRenderer({ name: 'chatml' }, (renderer, tokenizer) => {
      const chat = [{ role: 'user', content: 'Q' }]
      const { ids } = renderer.render(chat, { addGenerationPrompt: true })
      const answer = tokenizer.encode('A').ids
      const bridge = renderer.bridge(ids, answer, chat)
      if (!bridge.ok) throw new Error(bridge.reason)
      expect(() => extendPrompt(ids, new Uint32Array(0), bridge)).toThrow(failing('SHAPE_MISMATCH'))
      for (const numKept of [-1, 0.5, Number.NaN])
        expect(() => extendPrompt(ids, answer, { ...bridge, numKept })).toThrow(failing('SHAPE_MISMATCH'))
      expect(() => extendPrompt([...ids] as never, answer, bridge)).toThrow(failing('MALFORMED'))
    })
  })
})
