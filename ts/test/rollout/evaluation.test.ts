import { describe, expect, it } from 'vitest'
import { type EvaluationSample, evaluationOf } from '../../src/rollout/evaluation.js'

/** Answers to problems: which of them pass. */
const answers = (...problems: readonly (readonly boolean[])[]): EvaluationSample[] =>
  problems.flatMap((problem, problemIndex) =>
    problem.map((isSolved) => ({
      ...{
        sample: problemIndex,
        problemIndex,
        messages: [],
        rewardBreakdown: {},
        status: 'completed' as const,
      },
      ...{ isSolved, reward: isSolved ? 1 : null },
    })),
  )

describe('evaluationOf', () => {
  it('gives the share of answers that pass, and the mean of the rewards that there are', () => {
    const samples = answers([true, false], [false, false])
    expect(evaluationOf(samples, 2)).toMatchObject({ passRate: 0.25, meanReward: 1, numProblems: 2, samples })
    expect(evaluationOf(answers([false]), 1).meanReward).toBe(null)
  })

  it('gives the chance to pass within k answers as counting all choices of k does', () => {
    const problems = [
      [true, false, false, false, true, false],
      [false, false, false, false, false, false],
      [true, true, true, true, true, false],
    ]
    const { passAt } = evaluationOf(answers(...problems), 3)
    expect(Object.keys(passAt)).toEqual(['1', '2', '4'])
    for (const k of [1, 2, 4]) {
      const chances = problems.map((problem) => {
        const choices = choose(problem, k)
        return choices.filter((choice) => choice.includes(true)).length / choices.length
      })
      expect(passAt[k]).toBeCloseTo(chances.reduce((sum, chance) => sum + chance, 0) / 3, 12)
    }
  })

  it("has Wilson's interval, which stays within 0 and 1", () => {
    // The bounds solve (share - p)^2 = z^2 p (1 - p) / count for p.
    for (const [solved, count] of [
      [18, 100],
      [0, 10],
      [7, 7],
      [1, 3],
    ] as const) {
      const measured = evaluationOf(
        answers(...Array.from({ length: count }, (_, index) => [index < solved])),
        count,
      )
      for (const [at, p] of measured.interval.entries()) {
        const gap = (solved / count - p) ** 2 - (1.959964 ** 2 * p * (1 - p)) / count
        expect(Math.abs(gap)).toBeLessThan(1e-12)
        expect(at === 0 ? p <= measured.passRate + 1e-12 : p >= measured.passRate - 1e-12).toBe(true)
      }
    }
    expect(evaluationOf(answers([false]), 1).interval[0]).toBe(0)
  })
})

function choose<T>(items: readonly T[], count: number): T[][] {
  if (count === 0) return [[]]
  return items.flatMap((item, index) =>
    choose(items.slice(index + 1), count - 1).map((rest) => [item, ...rest]),
  )
}
