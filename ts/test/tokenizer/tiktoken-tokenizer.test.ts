import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { TiktokenTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const PATTERN = String.raw`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
const BYTES = Array.from({ length: 256 }, (_, byte) => Buffer.of(byte))

function ranks(...more: string[]): Uint8Array {
  const tokens = [...BYTES, ...more.map((token) => Buffer.from(token))]
  return new TextEncoder().encode(tokens.map((token, id) => `${token.toString('base64')} ${id}\n`).join(''))
}

const make = (...more: string[]) =>
  TiktokenTokenizer.fromTiktoken({
    ranks: ranks(...more),
    pattern: PATTERN,
    specialTokens: { '<|end|>': 300 },
  })

describe('TiktokenTokenizer', () => {
  it('merges the pair of the lowest rank first', () => {
    using tokenizer = make('bc', 'ab', 'abc', 'bcd')
    expect([...tokenizer.encode('abc').ids]).toEqual([258])
    expect([...tokenizer.encode('bcd').ids]).toEqual([259])
    expect([...tokenizer.encode('abcd').ids]).toEqual([258, 100])
    expect([...tokenizer.encode('ab bc').ids]).toEqual([257, 32, 256])
  })

  it('keeps special tokens apart from text', () => {
    using tokenizer = make('hi')
    expect([...tokenizer.encode('hi<|end|>', { addedTokens: true }).ids]).toEqual([256, 300])
    expect(tokenizer.encode('<|end|>').ids).not.toContain(300)
    expect([tokenizer.vocabSize, tokenizer.isSpecial(300), tokenizer.tokenOf(299)]).toEqual([
      301,
      true,
      undefined,
    ])
  })

  it('brings any text back', () => {
    using tokenizer = make('the', ' the', 'é', '🐈')
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const { ids, offsets } = tokenizer.encode(text)
        expect(tokenizer.decode(ids)).toBe(text)
        expect(offsets.at(-1) ?? 0).toBe(Buffer.byteLength(text))
      }),
    )
  })

  it('goes to JSON and back', () => {
    using tokenizer = make('the')
    using again = TiktokenTokenizer.fromJSON(JSON.stringify(tokenizer))
    expect(again.toJSON()).toEqual(tokenizer.toJSON())
    expect(again.encode('the<|end|>', { addedTokens: true })).toEqual(
      tokenizer.encode('the<|end|>', { addedTokens: true }),
    )
  })

  it('refuses patterns that nobody knows, and files that are broken', () => {
    const options = { ranks: ranks(), pattern: PATTERN }
    expect(() => TiktokenTokenizer.fromTiktoken({ ...options, pattern: '.' })).toThrow(
      failing('UNKNOWN_NAME'),
    )
    for (const text of ['', 'YQ==', 'YQ== x\n', '!! 0\n', 'YQ== 0\nYQ== 1\n']) {
      const broken = { ...options, ranks: new TextEncoder().encode(text) }
      expect(() => TiktokenTokenizer.fromTiktoken(broken), text).toThrow(failing('MALFORMED'))
    }
    const taken = { ...options, specialTokens: { '<s>': 7 } }
    expect(() => TiktokenTokenizer.fromTiktoken(taken)).toThrow(failing('MALFORMED'))
    expect(() => TiktokenTokenizer.fromTiktoken({ ...options, rank: 1 } as never)).toThrow(
      failing('UNKNOWN_NAME'),
    )
  })
})
