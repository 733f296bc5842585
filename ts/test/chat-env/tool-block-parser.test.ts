import { describe, expect, it } from 'vitest'
import { ToolBlockParser } from '../../src/chat-env/index.js'

const parse = (text: string) => new ToolBlockParser().parse(text)

describe('ToolBlockParser', () => {
  it('reads a name, a line and arguments, or a name alone', () => {
    expect(parse('a <tool>add\n{"a": 1}\n</tool> b <tool> now \n</tool><tool>now</tool>')).toEqual({
      text: 'a  b',
      calls: [
        { tool: 'add', args: { a: 1 }, tag: null },
        { tool: 'now', args: {}, tag: null },
        { tool: 'now', args: {}, tag: null },
      ],
      meta: { count: 3 },
    })
  })

  it('is not ended by a close in a text of the arguments', () => {
    expect(parse('<tool>echo\n{"text": "</tool>"}</tool>').calls[0]?.args).toEqual({ text: '</tool>' })
  })

  it('says what it cannot read, and finds nothing where nothing is', () => {
    expect(parse('<tool>add\n{bad json}\n</tool>').calls[0]).toMatchObject({
      args: { raw: '{bad json}' },
      problem: 'arguments must be an object of JSON: got "{bad json}"',
    })
    expect(parse('<tool>').calls).toEqual([])
  })
})
