import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { XMLBlockParser } from '../../src/tools/index.js'
import { TOOL_NAME_CHARS_MAX } from '../../src/tools/xml-block-parser.js'

const parse = (text: string) => new XMLBlockParser().parse(text)

describe('XMLBlockParser', () => {
  it('gives calls in their order with arguments and tags, and the text around them', () => {
    expect(parse('before <tool name="a" tag="A">{"x": 1}</tool> mid <tool name="b">{}</tool> after')).toEqual(
      {
        text: 'before  mid  after',
        calls: [
          { tool: 'a', args: { x: 1 }, tag: 'A' },
          { tool: 'b', args: {}, tag: null },
        ],
        meta: { count: 2 },
      },
    )
  })

  it('keeps the text of arguments that are no object of JSON, and says so', () => {
    for (const raw of ['not json', '[1]', '1', '{"a": ']) {
      const [call] = parse(`<tool name="x">${raw}</tool>`).calls
      expect([call?.args, call?.problem]).toEqual([
        { raw: raw.trim() },
        expect.stringMatching(/must be an object of JSON/),
      ])
    }
  })

  it('is not ended by a close or an opening that stands escaped in a text of the arguments', () => {
    const args = { code: 'a </tool> b <tool name="y">{}</tool> \\" " \n' }
    const { calls, text } = parse(`<tool name="x">${JSON.stringify(args)}</tool>!`)
    expect([calls, text]).toEqual([[{ tool: 'x', args, tag: null }], '!'])
  })

  it('reads the same arguments that were written, whatever texts are in them', () => {
    const texts = fc.stringMatching(/^(<\/tool>|"|\\|<tool name="x">|[a-z{}\n ]){0,12}$/)
    fc.assert(
      fc.property(fc.dictionary(texts, texts), fc.dictionary(texts, texts), (a, b) => {
        const said = `${block(a)} and ${block(b)}`
        const { calls, text } = parse(said)
        expect(calls.map(({ args }) => JSON.stringify(args))).toEqual(
          [a, b].map((args) => JSON.stringify(args)),
        )
        expect(text).toBe('and')
      }),
      { seed: 7 },
    )
  })

  it('leaves a block that is never closed in the text, and reads the next one', () => {
    expect(parse('<tool name="a">{} <tool name="b">{}</tool>')).toEqual({
      text: '<tool name="a">{}',
      calls: [{ tool: 'b', args: {}, tag: null }],
      meta: { count: 1 },
    })
  })

  it('opens no call for a name past the bound', () => {
    const called = (length: number) => parse(`<tool name="${'n'.repeat(length)}">{}</tool>`).meta.count
    expect([called(TOOL_NAME_CHARS_MAX), called(TOOL_NAME_CHARS_MAX + 1)]).toEqual([1, 0])
  })

  it('takes any text', () => {
    const pieces = fc.constantFrom(
      '<tool name="',
      '">',
      '</tool>',
      '{',
      '}',
      '"',
      '\\',
      '\ud800',
      'tag="',
      ' ',
      '[',
    )
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 40 }), (parts) => {
        const { calls, meta } = parse(parts.join(''))
        expect(meta.count).toBe(calls.length)
      }),
      { seed: 3, numRuns: 2_000 },
    )
  })
})

const block = (args: object) => `<tool name="x">${JSON.stringify(args)}</tool>`
