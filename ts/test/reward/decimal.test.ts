import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { canonicalDecimal } from '../../src/reward/decimal.js'

describe('canonicalDecimal', () => {
  it.each([
    ['1,234,567', '1234567'],
    ['$-5', '-5'],
    ['-$5', '-5'],
    ['100%', '100'],
    ['120.', '120'],
    ['.5', '0.5'],
    ['-0', '0'],
    ['00', '0'],
    ['1,23', undefined],
    [',123', undefined],
    ['1234,567', undefined],
    ['--5', undefined],
    ['+-5', undefined],
    ['1.2.3', undefined],
    ['.', undefined],
    ['-', undefined],
    ['', undefined],
    ['1e3', undefined],
    ['\u0661', undefined],
    ['5 6', undefined],
  ])('reads %j as %j', (text, number) => {
    expect(canonicalDecimal(text)).toBe(number)
  })

  it('gives one text for all ways to write a number, and reads its own text as the same number', () => {
    const cents = fc.integer({ min: -100_000_000, max: 100_000_000 })
    const ways = (number: number) => {
      const [sign, whole, rest] = [
        number < 0 ? '-' : '',
        Math.trunc(Math.abs(number) / 100),
        Math.abs(number) % 100,
      ]
      const fraction = String(rest).padStart(2, '0')
      return [
        `${sign}${whole}.${fraction}`,
        `${sign}$${whole.toLocaleString('en-US')}.${fraction}0`,
        `${sign}00${whole}.${fraction}`,
      ]
    }
    fc.assert(
      fc.property(cents, (number) => {
        const read = new Set(ways(number).map(canonicalDecimal))
        expect(read.size).toBe(1)
        const [one = ''] = read
        expect(Number(one) * 100).toBeCloseTo(number, 4)
        expect(canonicalDecimal(one)).toBe(one)
      }),
      { seed: 1, numRuns: 300 },
    )
  })
})
