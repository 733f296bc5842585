import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { estimateAdvantages } from '../../src/rollout/index.js'

const rounded = (advantages: readonly (number | null)[]) =>
  advantages.map((value) => value && Number(value.toFixed(6)))

describe('estimateAdvantages', () => {
  it('subtracts the mean of the group', () => {
    expect(estimateAdvantages([1, 0, 0, 1])).toEqual([0.5, -0.5, -0.5, 0.5])
    expect(estimateAdvantages([1, 0, 0, 0])).toEqual([0.75, -0.25, -0.25, -0.25])
  })

  it('divides by the population deviation plus 1e-6 where asked to', () => {
    const stdNormalize = true
    expect(rounded(estimateAdvantages([1, 0, 0, 1], { stdNormalize }))).toEqual([
      0.999998, -0.999998, -0.999998, 0.999998,
    ])
    expect(rounded(estimateAdvantages([1, 0, 0, 0], { stdNormalize }))).toEqual([
      1.732047, -0.577349, -0.577349, -0.577349,
    ])
  })

  it('leaves unscored siblings out of the mean', () => {
    expect(estimateAdvantages([1, null, 0])).toEqual([0.5, null, -0.5])
    expect(estimateAdvantages([null, null])).toEqual([null, null])
  })

  it('is 0 where there is nothing to compare with', () => {
    expect(estimateAdvantages([3])).toEqual([0])
    expect(estimateAdvantages([3, null])).toEqual([0, null])
    expect(estimateAdvantages([0.1, 0.1, 0.1], { stdNormalize: true })).toEqual([0, 0, 0])
    expect(estimateAdvantages([])).toEqual([])
  })

  it('adds up to 0 over a group', () => {
    const reward = fc.float({ min: -100, max: 100, noNaN: true })
    fc.assert(
      fc.property(fc.array(reward, { minLength: 2, maxLength: 16 }), (rewards) => {
        const sum = estimateAdvantages(rewards).reduce<number>((total, value) => total + (value ?? 0), 0)
        expect(Math.abs(sum)).toBeLessThan(1e-3)
      }),
    )
  })

  it('refuses a reward that is not finite', () => {
    expect(() => estimateAdvantages([1, Number.NaN])).toThrow(expect.objectContaining({ code: 'NON_FINITE' }))
  })
})
