import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type OffsetUnit, offsetsIn } from '../../src/tokenizer/index.js'
import { golden } from './files.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

/** The obvious way, for texts of which every character boundary is asked. */
function slowly(text: string, unit: OffsetUnit): number[] {
  const ends = [0]
  for (const char of text) {
    const size = { bytes: Buffer.byteLength(char), codePoints: 1, utf16: char.length }[unit]
    ends.push((ends.at(-1) ?? 0) + size)
  }
  return ends
}

describe('offsetsIn', () => {
  it('counts as the obvious way does', () => {
    const unit = fc.constantFrom<OffsetUnit>('bytes', 'codePoints', 'utf16')
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), unit, (text, wanted) => {
        const offsets = Uint32Array.from(slowly(text, 'bytes'))
        expect([...offsetsIn(text, offsets, wanted)]).toEqual(slowly(text, wanted))
      }),
    )
  })

  it('makes places of slices, so that a token is the text it came from', async () => {
    using tokenizer = await golden('qwen2')
    const text = 'naïve 🐈 日本語'
    const { ids, offsets } = tokenizer.encode(text)
    const places = offsetsIn(text, offsets, 'utf16')
    const words = Array.from(ids, (_, index) => text.slice(places[2 * index], places[2 * index + 1]))
    expect(words.filter((word) => /^ ?[a-zï]+$/.test(word)).join('')).toBe('naïve')
    expect(words.at(-1)?.length).toBeGreaterThan(0)
  })

  it('takes offsets in any order', () => {
    expect([...offsetsIn('aé🐈', Uint32Array.of(7, 0, 3, 1), 'utf16')]).toEqual([4, 0, 2, 1])
    expect([...offsetsIn('', Uint32Array.of(0), 'codePoints')]).toEqual([0])
  })

  it('refuses places that are none', () => {
    expect(() => offsetsIn('é', Uint32Array.of(1), 'utf16')).toThrow(failing('OUT_OF_RANGE'))
    expect(() => offsetsIn('é', Uint32Array.of(3), 'utf16')).toThrow(failing('OUT_OF_RANGE'))
    expect(() => offsetsIn('é', Uint32Array.of(0), 'words' as OffsetUnit)).toThrow(failing('UNKNOWN_NAME'))
    expect(() => offsetsIn('\uD83D', Uint32Array.of(0), 'bytes')).toThrow(failing('UNKNOWN_TEXT'))
    expect(() => offsetsIn('a', [0] as unknown as Uint32Array, 'bytes')).toThrow(failing('MALFORMED'))
  })
})
