import { describe, expect, it } from 'vitest'
import { ToolBlockParser, XMLBlockParser } from '../../src/tools/index.js'

/** A naive reader: for each opening, every close behind it is tried, the first that leaves an object of JSON is taken. */
function naive(content: string): { calls: unknown[]; text: string } {
  const calls: unknown[] = []
  let [text, rest] = ['', content]
  for (;;) {
    const match = /<tool name="([^"]+)">/.exec(rest)
    if (match === null) return { calls, text: (text + rest).trim() }
    const body = rest.slice(match.index + match[0].length)
    const found = objectBefore(body)
    if (found === undefined) return { calls, text: (text + rest).trim() }
    calls.push({ tool: match[1], args: found.args })
    text += rest.slice(0, match.index)
    rest = body.slice(found.end)
  }
}

function objectBefore(body: string) {
  for (let at = body.indexOf('</tool>'); at >= 0; at = body.indexOf('</tool>', at + 1)) {
    try {
      return { args: JSON.parse(body.slice(0, at)), end: at + '</tool>'.length }
    } catch {
      // The next close may be the one.
    }
  }
  return undefined
}

describe('callBlocks', () => {
  it('finds what a reader finds that tries every close', () => {
    const pieces = ['</tool>', '\\', '"', ' x ', '<tool name="b">', '\n', '{', '}']
    for (let seed = 0; seed < 4_096; seed++) {
      const value = Array.from({ length: 4 }, (_, at) => pieces[(seed >> (3 * at)) & 7]).join('')
      const said = `a <tool name="x">${JSON.stringify({ [value]: value })}</tool> b <tool name="y">{"v": 1}</tool>`
      const { calls, text } = new XMLBlockParser().parse(said)
      expect({ calls: calls.map(({ tool, args }) => ({ tool, args })), text }).toEqual(naive(said))
    }
  })

  it.each([
    ['openings that are never closed', '<tool name="x">{'],
    ['bodies whose texts never end', '<tool name="x">{"\\"</tool>'],
    ['beginnings of openings', '<tool name="x"  '],
    ['names that never end', '<tool name='],
    ['closes', '</tool>'],
    ['escapes', '<tool name="x">"\\"\\"\\"'],
  ])('reads a million characters of %s in one go', (_, piece) => {
    const text = piece.repeat(Math.ceil(1_000_000 / piece.length))
    for (const parser of [new XMLBlockParser(), new ToolBlockParser()]) {
      const { calls, meta } = parser.parse(text)
      expect(meta.count).toBe(calls.length)
      expect(calls.every(({ problem }) => problem !== undefined)).toBe(true)
    }
    const { meta } = new ToolBlockParser().parse('<tool>a\n{"\\"'.repeat(80_000))
    expect(meta.count).toBe(0)
  })
})
