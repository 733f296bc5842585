import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { JSONCallParser } from '../../src/tools/index.js'

const parser = new JSONCallParser()

describe('JSONCallParser', () => {
  it('reads an object or its text', () => {
    const said = {
      message: 'hi',
      tools: [
        { tool: 'a', args: {} },
        { tool: 'b', args: { y: 2 }, tag: 'T' },
      ],
    }
    const calls = [
      { tool: 'a', args: {}, tag: null },
      { tool: 'b', args: { y: 2 }, tag: 'T' },
    ]
    expect(parser.parse(said)).toEqual({ text: 'hi', calls, meta: { count: 2 } })
    expect(parser.parse(JSON.stringify(said))).toEqual(parser.parse(said))
  })

  it('takes any other text as a message without calls', () => {
    for (const text of ['Not valid JSON', '[1]', '3', 'null', '"text"', '']) {
      expect(parser.parse(text)).toEqual({ text, calls: [], meta: { count: 0 } })
    }
  })

  it('takes missing arguments as none, and what else stands in a call as nothing', () => {
    expect(parser.parse('{"tools": [{"tool": "a", "why": 1}]}').calls).toEqual([
      { tool: 'a', args: {}, tag: null },
    ])
  })

  it('says what is no call', () => {
    const problems = (tools: unknown) =>
      parser.parse({ message: 1, tools }).calls.map(({ problem }) => problem)
    expect(problems([{ args: {} }, 4, { tool: 'a', args: [] }])).toEqual([
      'tools[0] must be an object with a name as tool: got an object',
      'tools[1] must be an object with a name as tool: got 4',
      'arguments must be an object of JSON: got an array of 0',
    ])
    expect(problems('x')).toEqual(['tools must be a list of calls: got "x"'])
  })

  it('throws at no text', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
        const { calls, meta } = parser.parse(text)
        expect(meta.count).toBe(calls.length)
      }),
      { seed: 5, numRuns: 1_000 },
    )
    expect(parser.parse('['.repeat(1_000_000)).calls).toEqual([])
    expect(parser.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`).calls).toEqual([])
  })
})
