import { describe, expect, it, vi } from 'vitest'
import { createRenderer } from '../../src/chat/index.js'
import { fromText } from '../../src/chat/parsed-text.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { alphabet, specialTokens } from './families.js'

const call = {
  raw: '<tool_call>x</tool_call>',
  status: 'ok',
  name: 'add',
  arguments: '{"a":1}',
  id: null,
  tokenSpan: [3, 9],
}
const plain = {
  content: '',
  reasoningContent: null,
  reasoningComplete: true,
  toolCalls: [],
  finished: false,
  overran: false,
}

describe('fromText', () => {
  it('reads each form', () => {
    const cases = [
      ['0', {}],
      ['1{"content":"a"}', { content: '{"content":"a"}', finished: true }],
      ['2a,b', { content: 'a,b', overran: true }],
      ['4', { reasoningComplete: false }],
      ['<0,4,so, ', { reasoningContent: 'so, ', reasoningComplete: false }],
      ['80,0,', { reasoningContent: '' }],
      ['92,3,🙂a🙂', { content: '🙂', reasoningContent: 'a🙂', finished: true }],
      [`A3,0,1,2${JSON.stringify([call])}`, { content: '1,2', toolCalls: [call], finished: true }],
      [
        `K1,2,a,,${JSON.stringify([call, call])}`,
        { content: 'a', reasoningContent: ',,', toolCalls: [call, call], finished: true, overran: true },
      ],
    ] as const
    for (const [text, parts] of cases) expect(fromText(text), text).toEqual({ ...plain, ...parts })
  })

  it('reads calls on their first use, once', () => {
    const parse = vi.spyOn(JSON, 'parse')
    try {
      const parsed = fromText(`A1,0,a${JSON.stringify([call])}`)
      expect([parsed.content, parsed.finished, parse.mock.calls.length]).toEqual(['a', true, 0])
      const first = parsed.toolCalls
      expect(parsed.toolCalls).toBe(first)
      expect(parse.mock.calls.length).toBe(1)
    } finally {
      parse.mockRestore()
    }
  })

  it('has calls in every copy', () => {
    const parsed = fromText(`A1,0,a${JSON.stringify([call])}`)
    const whole = { ...plain, content: 'a', toolCalls: [call], finished: true }
    expect([{ ...parsed }, structuredClone(parsed), JSON.parse(JSON.stringify(parsed))]).toEqual([
      whole,
      whole,
      whole,
    ])
    expect(Object.keys(parsed)).toEqual(Object.keys(plain))
  })

  it('reads what a family parsed, in every character', () => {
    using tokenizer = new CharTokenizer({ alphabet: `${alphabet}日🙂`, specialTokens })
    using renderer = createRenderer(tokenizer, { name: 'qwen3' })
    const arguments_ = '{"query": "日🙂\\n"}'
    const called = `<tool_call>{"name": "add", "arguments": ${arguments_}}</tool_call>`
    const text = `<think>1,2 🙂</think>4,5 日${called}<|im_end|>`
    const { ids } = tokenizer.encode(text, { addedTokens: true })
    const start = [...ids].indexOf(tokenizer.idOf('<tool_call>') ?? -1)
    expect(renderer.parse(ids)).toEqual({
      content: '4,5 日',
      reasoningContent: '1,2 🙂',
      reasoningComplete: true,
      toolCalls: [
        {
          raw: called,
          status: 'ok',
          name: 'add',
          arguments: arguments_,
          id: null,
          tokenSpan: [start, ids.length - 1],
        },
      ],
      finished: true,
      overran: false,
    })
  })
})
