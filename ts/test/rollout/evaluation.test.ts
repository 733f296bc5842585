import { describe, expect, it } from 'vitest'
import { type EvaluationSample, evaluationOf } from '../../src/rollout/evaluation.js'

/** Answers to problems: which of them pass. */
const answers = (...problems: readonly (readonly boolean[])[]): EvaluationSample[] =>
  problems.flatMap((problem, problemIndex) =>
    problem.map((isSolved, answerIndex) => ({
      ...{ sample: problemIndex, problemIndex, answerIndex, messages: [], rewardBreakdown: {}, unscored: {} },
      ...{ isSolved, reward: Number(isSolved), status: 'completed', cause: null },
      ...{ numPromptTokens: 3, numCompletionTokens: 2 },
    })),
  )

describe('evaluationOf', () => {
  it('gives the share of answers that pass, and the mean of the rewards that there are', () => {
    const samples = answers([true, false], [false, false])
    expect(evaluationOf(samples, 2)).toMatchObject({
      passRate: 0.25,
      meanReward: 0.25,
      numProblems: 2,
      samples,
    })
    expect(evaluationOf(answers([false]), 1)).toMatchObject({ meanReward: 0, meanRewardInterval: null })
  })

  it('counts errors and missing scores apart from zeros', () => {
    const [right, wrong, ...others] = answers([true, false, false, false], [false, false])
    const unscored = others.map((answer) => ({ ...answer, reward: null }))
    const failed = unscored.map((answer, index) =>
      index < 2 ? { ...answer, status: 'error' as const } : answer,
    )
    const samples = [right, wrong, ...failed].filter((answer) => answer !== undefined)
    expect(evaluationOf(samples, 2)).toMatchObject({
      ...{ passRate: 0.5, meanReward: 0.5, passAt: { 1: 0.5, 2: 1 }, numProblems: 2 },
      ...{ numScored: 2, numErrors: 2, numUnscored: 2 },
    })
    expect(evaluationOf(failed, 2)).toMatchObject({
      ...{ passRate: 0, interval: [0, 1], passAt: {}, meanReward: null, meanRewardInterval: null },
      ...{ numScored: 0, numErrors: 2, numUnscored: 2 },
    })
  })

  it('weighs problems equally, however many of their answers were scored', () => {
    const samples = answers([true, true, true, true], [false])
    expect(evaluationOf(samples, 2)).toMatchObject({ passRate: 0.5, meanReward: 0.5, passAt: { 4: 1 } })
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
