import { describe, expect, it } from 'vitest'
import { toolCallsOf, XMLBlockParser } from '../../src/chat-env/index.js'

const callsOf = (toolCalls: unknown) =>
  toolCallsOf({ role: 'assistant', content: null, tool_calls: toolCalls })

describe('toolCallsOf', () => {
  it("reads a message's own calls, with arguments as text or as they are, and its id", () => {
    expect(
      callsOf([
        { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } },
        { name: 'add', arguments: { a: 1 } },
        { function: { name: 'now' } },
      ]),
    ).toEqual([
      { tool: 'add', args: { a: 1 }, tag: null, id: 'c1' },
      { tool: 'add', args: { a: 1 }, tag: null },
      { tool: 'now', args: {}, tag: null },
    ])
  })

  it('says what is no object of JSON, and throws at nothing', () => {
    const cycle: unknown[] = []
    cycle.push(cycle)
    for (const wrong of ['{', '[1]', [1], 1n, cycle, () => 1, null, '['.repeat(100_000)]) {
      const [call] = callsOf([{ name: 'add', arguments: wrong }])
      expect(call?.problem).toMatch(/^arguments must be an object of JSON: got "/)
    }
    expect(callsOf([null, 3, []]).map(({ tool }) => tool)).toEqual(['', '', ''])
    expect(callsOf('x')).toEqual([])
  })

  it('reads texts, and parts that are texts, where a message has no calls of its own', () => {
    const parser = new XMLBlockParser()
    const said = '<tool name="a">{}</tool>'
    const parts = [
      { type: 'text', text: said.slice(0, 9) },
      { type: 'image' },
      { type: 'text', text: said.slice(9) },
    ]
    for (const content of [said, parts]) {
      expect(toolCallsOf({ role: 'assistant', content }, parser)).toEqual([
        { tool: 'a', args: {}, tag: null },
      ])
      expect(toolCallsOf({ role: 'assistant', content, tool_calls: [] }, parser).length).toBe(1)
    }
    expect(toolCallsOf({ role: 'assistant', content: null }, parser)).toEqual([])
  })
})
