import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  cosineScaledReward,
  repetitionPenalty,
  softOverlongPunishment,
  thinkFormatReward,
} from '../../src/reward/index.js'
import { NGRAM_SIZE_MAX } from '../../src/reward/length.js'

describe('length', () => {
  it('falls with the length of a right answer and rises with that of a wrong one, inside their bounds', () => {
    const lengths = fc
      .tuple(fc.nat(3000), fc.nat(3000))
      .map(([a, b]) => (a < b ? [a, b] : [b, a]) as [number, number])
    const worth = (length: number, isRight: boolean) =>
      cosineScaledReward({ length, lengthMax: 1000, isRight })
    fc.assert(
      fc.property(lengths, ([short, long]) => {
        expect(worth(short, true)).toBeGreaterThanOrEqual(worth(long, true))
        expect(worth(short, false)).toBeLessThanOrEqual(worth(long, false))
        expect(worth(long, true)).toBeGreaterThanOrEqual(0.5)
        expect(worth(long, false)).toBeLessThanOrEqual(-0.5)
      }),
      { seed: 1, numRuns: 200 },
    )
  })

  it.each([
    [[1, 2, 3, 4], 2, 0],
    [[5, 5, 5, 5, 5], 2, -0.75],
    [[1, 2, 1, 2, 1, 2], 2, -0.6],
    [[1, 2], 3, 0],
    [[], 1, 0],
  ])('punishes %j with n-grams of %d by %d', (ids, ngramSize, penalty) => {
    expect(repetitionPenalty({ ids, ngramSize })).toBeCloseTo(penalty, 12)
    expect(repetitionPenalty({ ids: Uint32Array.from(ids), ngramSize, maxPenalty: 0 })).toBe(0)
  })

  it('takes n-grams of the largest size, and refuses one more, none, and a reward for repeating', () => {
    const ids = [1, 2, 3]
    expect(repetitionPenalty({ ids, ngramSize: NGRAM_SIZE_MAX })).toBe(0)
    const wrong = [
      { ngramSize: NGRAM_SIZE_MAX + 1 },
      { ngramSize: 0 },
      { ngramSize: 1.5 },
      { maxPenalty: 0.1 },
    ]
    for (const options of wrong) {
      const punish = () => repetitionPenalty({ ids, ...options })
      expect(punish).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    }
  })

  it.each([
    [50, 0],
    [80, 0],
    [90, -0.5],
    [100, -1],
    [110, -1],
  ])('punishes %d of 100 tokens with a cache of 20 by %d', (length, punishment) => {
    expect(softOverlongPunishment({ length, lengthMax: 100, cache: 20 })).toBe(punishment)
  })

  it.each([
    { length: -1, lengthMax: 10, cache: 5 },
    { length: 1, lengthMax: 10, cache: -1 },
    { length: 1, lengthMax: 10, cache: 11 },
    { length: Number.NaN, lengthMax: 10, cache: 5 },
  ])('refuses %j', (options) => {
    expect(() => softOverlongPunishment(options)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })

  it('punishes only above the limit without a cache', () => {
    const punish = (length: number) => softOverlongPunishment({ length, lengthMax: 10, cache: 0 })
    expect([0, 9, 10, 11].map(punish)).toEqual([0, 0, 0, -1])
  })

  it('refuses a curve of no length', () => {
    const worth = () => cosineScaledReward({ length: 1, lengthMax: 0, isRight: true })
    expect(worth).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })

  it('wants one thought at the beginning', () => {
    const texts = [
      '<think>\na\n</think>\nb',
      '<think></think>',
      'x<think>a</think>b',
      '<think>a',
      '<think><think></think>',
    ]
    expect(texts.map(thinkFormatReward)).toEqual([1, 1, 0, 0, 0])
  })
})
