import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { countdownProblem, isCountdownSolution, parseCountdown } from '../../src/reward/index.js'

describe('countdownProblem', () => {
  it('draws games within their bounds whose numbers do not simply add up', () => {
    const options = fc.record({
      numCount: fc.integer({ min: 2, max: 6 }),
      maxNumber: fc.integer({ min: 5, max: 100 }),
      maxTarget: fc.integer({ min: 20, max: 1000 }),
    })
    const property = fc.property(fc.nat(), options, (seed, bounds) => {
      const { query, answer } = countdownProblem(Rng.fromSeed(seed), bounds)
      const { numbers, target } = parseCountdown(answer)
      expect(numbers.length).toBe(bounds.numCount)
      expect(Math.max(...numbers)).toBeLessThanOrEqual(bounds.maxNumber)
      expect(Math.min(...numbers)).toBeGreaterThanOrEqual(1)
      expect(target).toBeGreaterThanOrEqual(1)
      expect(target).toBeLessThanOrEqual(bounds.maxTarget)
      expect(isCountdownSolution(numbers.join('+'), { numbers, target })).toBe(false)
      expect(query).toContain(`[${numbers.join(', ')}]`)
    })
    fc.assert(property, { seed: 7, numRuns: 200 })
  })

  it('lets them add up where it may, as often as TorchRL does', () => {
    const rng = Rng.fromSeed(1)
    const games = Array.from({ length: 2000 }, () =>
      parseCountdown(countdownProblem(rng, { allowSum: true }).answer),
    )
    const share =
      games.filter((game) => isCountdownSolution(game.numbers.join('+'), game)).length / games.length
    expect(share).toBeGreaterThan(0.55)
    expect(share).toBeLessThan(0.66)
  })

  it('refuses games that cannot be', () => {
    const rng = Rng.fromSeed(1)
    expect(() => countdownProblem(rng, { numCount: 0 })).toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
    expect(() => countdownProblem(rng, { numCount: 64, allowSum: true })).not.toThrow()
    expect(() => countdownProblem(rng, { numCount: 65, allowSum: true })).toThrow(
      expect.objectContaining({ code: 'LIMIT_EXCEEDED' }),
    )
    expect(() => countdownProblem(rng, { numCount: 1 })).toThrow(expect.objectContaining({ code: 'EMPTY' }))
    expect(() => countdownProblem(rng, { numbers: 4 } as never)).toThrow(
      expect.objectContaining({ code: 'UNKNOWN_NAME' }),
    )
  })
})
