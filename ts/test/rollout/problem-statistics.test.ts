import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { meanInterval, shareInterval, studentQuantile } from '../../src/rollout/problem-statistics.js'

/** 97.5 % quantiles of Student's t, from published tables. */
const TABLE = [
  [1, 12.7062],
  [2, 4.30265],
  [3, 3.18245],
  [4, 2.77645],
  [5, 2.57058],
  [10, 2.22814],
  [29, 2.04523],
  [30, 2.04227],
  [60, 2.0003],
  [99, 1.98422],
  [100, 1.98397],
  [1000, 1.96234],
] as const

describe('studentQuantile', () => {
  it.each(TABLE)('of %i degrees of freedom is that of the tables', (degrees, quantile) => {
    expect(Math.abs(studentQuantile(degrees) - quantile)).toBeLessThan(5e-5)
  })

  it('has no step where the series takes over from the bisection', () => {
    const [before, at, after] = [99, 100, 101].map(studentQuantile)
    expect((before ?? 0) - (at ?? 0)).toBeCloseTo((at ?? 0) - (after ?? 0), 4)
  })
})

describe('meanInterval', () => {
  it('is the clustered interval of the published formula, with its correction for few problems', () => {
    // E. Miller (https://arxiv.org/abs/2411.00640), equation 4: answers s_ci of G clusters, n in all.
    const answers = [
      [1, 0, 1],
      [0, 0, 0],
      [1, 1, 1],
      [0.5, 0, 0.25],
    ]
    const flat = answers.flat()
    const middle = flat.reduce((sum, value) => sum + value, 0) / flat.length
    let squares = 0
    for (const cluster of answers)
      for (const one of cluster) for (const other of cluster) squares += (one - middle) * (other - middle)
    const half = studentQuantile(3) * (Math.sqrt(squares) / flat.length) * Math.sqrt(4 / 3)
    const interval = meanInterval(
      answers.map((cluster) => cluster.reduce((sum, value) => sum + value, 0) / 3),
    )
    expect(interval?.[0]).toBeCloseTo(middle - half, 12)
    expect(interval?.[1]).toBeCloseTo(middle + half, 12)
  })

  it('is none for fewer than two problems', () => {
    expect(meanInterval([])).toBe(null)
    expect(meanInterval([3])).toBe(null)
    expect(meanInterval([3, 3])).toEqual([3, 3])
  })
})

describe('shareInterval', () => {
  it('narrows with answers that differ within problems, and not with answers that agree', () => {
    const width = ([low, high]: readonly [number, number]) => high - low
    const agreeing = Array.from({ length: 20 }, (_, index) => index % 2)
    const differing = Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? 3 / 8 : 5 / 8))
    const one = shareInterval(agreeing, 20)
    expect(width(shareInterval(agreeing, 160))).toBeCloseTo(width(one), 1)
    expect(width(shareInterval(differing, 160))).toBeLessThan(width(one) / 2.5)
  })

  it('covers the truth in 95 of 100 draws, where problems differ in difficulty', () => {
    const coverage = covered((rng) => 0.2 + 0.6 * rng.below(2), shareInterval)
    expect(coverage).toBeGreaterThan(0.93)
    expect(coverage).toBeLessThanOrEqual(0.985)
  })

  it('would cover too little if answers counted as independent', () => {
    const naive = (values: readonly number[], numAnswers: number) => {
      const share = values.reduce((sum, value) => sum + value, 0) / values.length
      const half = 1.96 * Math.sqrt((share * (1 - share)) / numAnswers)
      return [share - half, share + half] as const
    }
    expect(covered((rng) => 0.2 + 0.6 * rng.below(2), naive)).toBeLessThan(0.9)
  })
})

/** Share of 2,000 draws of 40 problems with 4 answers each whose interval holds the true share, 0.5. */
function covered(
  difficulty: (rng: Rng) => number,
  intervalOf: (values: readonly number[], numAnswers: number) => readonly [number, number],
): number {
  using rng = Rng.fromSeed(7)
  let numCovered = 0
  for (let draw = 0; draw < 2_000; draw++) {
    const values = Array.from({ length: 40 }, () => {
      const chance = difficulty(rng)
      const solved = [0, 1, 2, 3].filter(() => rng.below(1_000_000) < chance * 1_000_000)
      return solved.length / 4
    })
    const [low, high] = intervalOf(values, 160)
    if (low <= 0.5 && 0.5 <= high) numCovered += 1
  }
  return numCovered / 2_000
}
