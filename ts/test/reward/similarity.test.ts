import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { SIMILARITY_EXCESS, similarity } from '../../src/reward/index.js'
import { SIMILARITY_LENGTH_MAX, SIMILARITY_PAIRS_MAX } from '../../src/reward/similarity.js'

/** Letters of the longest common substring and of the parts left and right of it, found by trying every substring. */
function common(a: string, b: string): number {
  for (let length = a.length; length > 0; length--) {
    for (let start = 0; start + length <= a.length; start++) {
      const place = b.indexOf(a.slice(start, start + length))
      if (place < 0) continue
      const left = common(a.slice(0, start), b.slice(0, place))
      return left + length + common(a.slice(start + length), b.slice(place + length))
    }
  }
  return 0
}

describe('similarity', () => {
  it('is that of the longest common pieces', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 12 })
    fc.assert(
      fc.property(text, text, (a, b) => {
        const isTooLong = a.length > SIMILARITY_EXCESS * b.length
        const wanted = isTooLong ? 0 : (2 * common(a, b)) / (a.length + b.length)
        expect(similarity(a, b)).toBeCloseTo(wanted, 12)
      }),
      { seed: 1, numRuns: 1000 },
    )
  })

  it('takes texts of the longest length and refuses longer ones', () => {
    const wanted = 'ab'.repeat(SIMILARITY_LENGTH_MAX / 2)
    expect(similarity(wanted, wanted)).toBe(1)
    expect(() => similarity('', `${wanted}a`)).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
    expect(similarity(wanted.repeat(SIMILARITY_EXCESS), wanted)).toBeCloseTo(0.5, 12)
    expect(similarity(`${wanted.repeat(SIMILARITY_EXCESS)}a`, wanted)).toBe(0)
  })

  it('stops after so many comparisons, with what it has found', () => {
    // A thousand common letters, one by one, each search over all that is left: 4 million pairs again and again.
    const letters = Array.from({ length: 1000 }, (_, place) => String.fromCharCode(0x4e00 + place))
    const found = similarity(letters.join('x'), letters.join('y'))
    const searches = Math.ceil(SIMILARITY_PAIRS_MAX / 1999 ** 2) + 1
    expect(found).toBeGreaterThan(0)
    expect(found).toBeLessThanOrEqual((2 * searches) / 3998)
  })
})
