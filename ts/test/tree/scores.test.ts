import { describe, expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { EXP3Score, MCTSScores, PUCTScore, UCB1TunedScore, UCBScore } from '../../src/tree/index.js'
import { codeOf } from '../tensor/code-of.js'

const node = () =>
  TensorDict.from(
    {
      win_count: Tensor.from([10, 20, 3, 0], { shape: [2, 2] }),
      visits: Tensor.from([5, 10, 4, 0], { shape: [2, 2] }),
      total_visits: Tensor.from([50, 4], { shape: [2, 1] }),
      prior_prob: Tensor.from([0.6, 0.4, 0.5, 0.5], { shape: [2, 2] }),
      sum_squared_rewards: Tensor.from([25, 45, 3, 0], { shape: [2, 2] }),
    },
    { batchSize: [2] },
  )
const scores = (dict: TensorDict, key = 'score') => [...dict.tensor(key).toFloat32()]

describe('scores', () => {
  it('are those of all nodes at once', () => {
    const [one, other, third, fourth] = scores(MCTSScores.PUCT().forward(node()))
    expect([one, other, third]).toEqual([
      expect.closeTo(5.5355339, 5),
      expect.closeTo(3.2856488, 5),
      expect.closeTo(0.75 + 1, 5),
    ])
    expect(fourth).toBeNaN()
    expect(scores(new PUCTScore({ c: 5, unvisited: 0 }).forward(node()))[3]).toBe(5)
    expect(scores(MCTSScores.UCB1_TUNED().forward(node()))[0]).toBeCloseTo(2.4422681, 5)
    expect(scores(new UCBScore({ c: 1, ucb1: true }).forward(node()))[3]).toBe(Infinity)
  })

  it('read and write the keys that they are given', () => {
    const renamed = node().rename('win_count', ['stats', 'won'])
    const scored = new UCBScore({ c: 0, winCountKey: ['stats', 'won'], scoreKey: 'out' }).forward(renamed)
    expect(scores(scored, 'out').slice(0, 3)).toEqual([2, 2, 0.75])
  })

  it('refuse constants outside their range, missing entries and other shapes', () => {
    expect(codeOf(() => new EXP3Score({ gamma: 1.5 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => new PUCTScore({ c: -1 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => new UCB1TunedScore().forward(node().exclude(['visits'])))).toBe('UNKNOWN_NAME')
    const odd = node().set('total_visits', Tensor.zeros('f32', [2, 3]))
    expect(codeOf(() => MCTSScores.UCB().forward(odd))).toBe('SHAPE_MISMATCH')
  })

  it('of EXP3 learn from rewards', () => {
    const score = MCTSScores.EXP3()
    const bandit = score.forward(TensorDict.from({ num_actions: Tensor.from([2], { shape: [] }) }))
    score.updateWeights(bandit, 1, 0.5)
    expect([...bandit.tensor('weights').toFloat32()]).toEqual([1, expect.closeTo(Math.exp(0.05), 6)])
    expect(scores(score.forward(bandit), 'action_prob')[1]).toBeCloseTo(0.5112477, 6)
    expect(codeOf(() => score.updateWeights(bandit, 2, 0))).toBe('OUT_OF_RANGE')
  })
})
