import { describe, expect, it } from 'vitest'
import { compareEvaluations } from '../../src/rollout/compare-evaluations.js'
import { type EvaluationSample, evaluationOf } from '../../src/rollout/evaluation.js'
import { failing } from '../torchrl/envs/chats.js'

/** Rewards of the answers to each problem. */
const evaluationWith = (rewards: readonly (readonly (number | null)[])[], name = 'row') => {
  const samples = rewards.flatMap((problem, problemIndex) =>
    problem.map(
      (reward, answerIndex): EvaluationSample => ({
        ...{
          sample: `${name} ${problemIndex}`,
          problemIndex,
          answerIndex,
          messages: [],
          rewardBreakdown: {},
        },
        ...{ unscored: {}, isSolved: reward === 1, reward, status: 'completed', cause: null },
        ...{ numPromptTokens: 0, numCompletionTokens: 0 },
      }),
    ),
  )
  return evaluationOf(samples, rewards.length)
}

describe('compareEvaluations', () => {
  it('has the difference of the means and the interval of the paired differences', () => {
    const [before, after] = [
      [[0, 1], [0], [1, 1], [0.5]],
      [[1, 1], [0], [1, 0], [1]],
    ].map((rewards) => evaluationWith(rewards))
    if (before === undefined || after === undefined) throw new Error('both are there')
    const compared = compareEvaluations(before, after)
    expect(compared).toMatchObject({ numProblems: 4, numBetter: 2, numWorse: 1 })
    // Differences of the means of the problems: 0.5, 0, -0.5, 0.5; their deviation is sqrt(11/48).
    const { meanReward, passRate } = compared
    expect(meanReward).toMatchObject({ before: 0.5, after: 0.625, difference: 0.125 })
    const half = 3.182446 * Math.sqrt(11 / 48 / 4)
    expect(meanReward.interval?.[0]).toBeCloseTo(0.125 - half, 5)
    expect(meanReward.interval?.[1]).toBeCloseTo(0.125 + half, 5)
    expect(passRate).toMatchObject({ before: 0.375, after: 0.625, difference: 0.25 })
  })

  it('is narrower than two intervals, as the difficulty of a problem is in both', () => {
    const easy = Array.from({ length: 20 }, (_, index) => [index % 5])
    const before = evaluationWith(easy)
    const after = evaluationWith(easy.map(([reward = 0], index) => [reward + 0.1 + 0.01 * (index % 2)]))
    const [low, high] = compareEvaluations(before, after).meanReward.interval ?? [0, 0]
    const [lowest, highest] = before.meanRewardInterval ?? [0, 0]
    expect(low).toBeGreaterThan(0.09)
    expect(high - low).toBeLessThan((highest - lowest) / 20)
  })

  it('leaves out problems without a score in both', () => {
    const before = evaluationWith([[1], [null], [0]])
    const after = evaluationWith([[null], [1], [1]])
    expect(compareEvaluations(before, after)).toMatchObject({ numProblems: 1, numBetter: 1 })
  })

  it('refuses evaluations of other problems, and such that share none', () => {
    const before = evaluationWith([[1]])
    expect(() => compareEvaluations(before, evaluationWith([[1]], 'other'))).toThrow(
      failing('INCOMPATIBLE', /problem 0 must be the same .*"row 0" and "other 0"/),
    )
    expect(() => compareEvaluations(before, evaluationWith([[null]]))).toThrow(failing('EMPTY', /share/))
  })
})
