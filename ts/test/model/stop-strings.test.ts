import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StopStrings } from '../../src/model/index.js'
import { STOP_STRING_LENGTH_MAX, STOP_STRINGS_MAX } from '../../src/model/stop-strings.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })

describe('StopStrings', () => {
  it('finds what the whole text shows to end first, wherever the text was cut', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 4 })
    const pieces = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 3 }), {
      maxLength: 30,
    })
    const property = fc.property(fc.array(word, { minLength: 1, maxLength: 3 }), pieces, (strings, cut) => {
      const stops = new StopStrings(strings)
      let text = ''
      for (const piece of cut) {
        text += piece
        const ends = strings
          .filter((stop) => text.includes(stop))
          .map((stop) => text.indexOf(stop) + stop.length)
        const end = Math.min(...ends)
        const expected = strings.filter(
          (stop) => text.indexOf(stop) + stop.length === end && text.includes(stop),
        )
        const longest = expected.reduce<string | null>((a, b) => (b.length > (a?.length ?? 0) ? b : a), null)
        const found = stops.push(piece)
        expect(found).toBe(longest)
        if (found !== null) return
      }
    })
    fc.assert(property, { numRuns: 500, seed: 3 })
  })

  it('refuses empty strings, too many and too long ones', () => {
    expect(() => new StopStrings(['a', ''])).toThrow(code('EMPTY'))
    expect(() => new StopStrings(Array(STOP_STRINGS_MAX).fill('a'))).not.toThrow()
    expect(() => new StopStrings(Array(STOP_STRINGS_MAX + 1).fill('a'))).toThrow(code('LIMIT_EXCEEDED'))
    expect(() => new StopStrings(['a'.repeat(STOP_STRING_LENGTH_MAX)])).not.toThrow()
    expect(() => new StopStrings(['a'.repeat(STOP_STRING_LENGTH_MAX + 1)])).toThrow(code('LIMIT_EXCEEDED'))
  })
})
