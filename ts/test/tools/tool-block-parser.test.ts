import { describe, expect, it } from 'vitest'
import { ToolBlockParser } from '../../src/tools/index.js'

const parse = (text: string) => new ToolBlockParser().parse(text)

describe('ToolBlockParser', () => {
  it('reads a name, a new line, and arguments or none', () => {
    expect(parse('a <tool>add\n{"a": 1}\n</tool> b <tool> now \n</tool><tool>now\n\n</tool>')).toEqual({
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
    const args = { text: '<tool>echo</tool> <tool>echo\n{}</tool>' }
    const { calls } = parse(`<tool>echo\n${JSON.stringify(args)}</tool>`)
    expect(calls).toEqual([{ tool: 'echo', args, tag: null }])
  })

  it('says what it cannot read, and finds nothing where nothing is', () => {
    expect(parse('<tool>add\n{bad json}\n</tool>').calls[0]).toMatchObject({
      args: { raw: '{bad json}' },
      problem: 'arguments must be an object of JSON: got "{bad json}"',
    })
    for (const text of ['<tool>', '<tool>add', '<tool>add</tool>', '<tool>\n</tool>'])
      expect(parse(text).calls).toEqual([])
  })
})
