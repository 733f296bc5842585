import { describe, expect, it } from 'vitest'
import { JSONCallParser, toolCallsOf, XMLBlockParser } from '../../src/tools/index.js'

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

  it('never rounds an integer: what a number cannot hold is a text of its digits', () => {
    const args = '{"id": 12345678901234567890, "ids": [9007199254740993], "n": 9007199254740992}'
    const read = { id: '12345678901234567890', ids: ['9007199254740993'], n: 9007199254740992 }
    expect(callsOf([{ name: 'find', arguments: args }])[0]?.args).toEqual(read)
    const said = { role: 'assistant', content: `<tool name="find">${args}</tool>` }
    expect(toolCallsOf(said, new XMLBlockParser())[0]?.args).toEqual(read)
    const json = `{"message": "", "tools": [{"tool": "find", "args": ${args}}]}`
    expect(new JSONCallParser().parse(json).calls[0]?.args).toEqual(read)
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
