import { describe, expect, it } from 'vitest'
import { type GroupAdvantageOptions, groupAdvantage } from '../../src/objective/index.js'
import { expectNear, readRows } from './rows.js'

describe('groupAdvantage', () => {
  it('gives the advantages of trl at every scale, with rollouts that nobody scored', () => {
    for (const row of readRows('advantages', (row) => row.kind === 'trl_grpo_advantages')) {
      const { rewards_per_func: rewards, reward_weights: weights } = row
      const isSum = row.multi_objective_aggregation === 'sum_then_normalize'
      const aggregation = isSum ? 'sumThenNormalize' : 'normalizeThenSum'
      const options = {
        groupSize: row.num_generations,
        scale: row.scale_rewards,
        stdFloor: 0,
        aggregation,
      } as const
      expectNear(groupAdvantage({ rewards, weights, ...options }).advantage, row.advantages)
    }
  })

  it('compares with the others of the group as trl does for RLOO', () => {
    for (const row of readRows('advantages', ({ kind }) => kind === 'trl_rloo_advantages')) {
      const [low, high] = row.reward_clip_range ?? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]
      const rewards = row.rewards.map((reward: number) => Math.min(Math.max(reward, low), high))
      const scale = row.normalize_advantages ? 'batch' : 'none'
      const options = { groupSize: row.num_generations, baseline: 'leaveOneOut', scale, stdFloor: 0 } as const
      expectNear(groupAdvantage({ rewards, ...options }).advantage, row.advantages)
    }
  })

  it('gives the advantages of torchtitan', () => {
    for (const row of readRows('torchtitan', (row) => row.kind === 'advantage')) {
      const { rewards, should_std_normalize: normalize } = row
      const scale = normalize ? 'group' : 'none'
      const options = { scale, std: 'population', epsilon: 1e-6, stdFloor: 0 } as const
      expectNear(groupAdvantage({ rewards, groupSize: rewards.length, ...options }).advantage, row.advantages)
    }
  })

  it('takes groups of unequal size by their bounds', () => {
    const { advantage, mean } = groupAdvantage({
      rewards: Float32Array.of(1, 0, 3, 3, 0),
      groupOffsets: Uint32Array.of(0, 2, 5),
      scale: 'none',
    })
    expect([...advantage]).toEqual([0.5, -0.5, 1, 1, -2])
    expect([...mean]).toEqual([0.5, 2])
  })

  it('gives exactly 0 to a group of equal rewards and flags it', () => {
    for (const scale of ['group', 'batch', 'none'] as const) {
      const { advantage, degenerate } = groupAdvantage({ rewards: Array(7).fill(0.1), groupSize: 7, scale })
      expect([...advantage]).toEqual(Array(7).fill(0))
      expect(degenerate).toEqual([true])
    }
  })

  it.each<[string, string, object]>([
    ['NON_FINITE', 'reward[1] must be finite: got NaN', { rewards: [1, Number.NaN] }],
    [
      'NON_FINITE',
      'advantage[0] must fit in single precision, whose largest number is 3.4028235e38: got 5e38',
      { rewards: [1e39, 0], scale: 'none' },
    ],
    [
      'NON_FINITE',
      'standard deviation of the rewards of group[0] must be finite: got inf',
      { rewards: [1e200, -1e200] },
    ],
    ['MALFORMED', 'rewards[0] must be a number or null: got "1"', { rewards: ['1', 2] }],
    ['EMPTY', 'reward must hold at least one group: got []', { rewards: [] }],
    ['SHAPE_MISMATCH', 'reward length must be a multiple of group size 2: got 3', { rewards: [1, 2, 3] }],
    ['OUT_OF_RANGE', 'a group must hold at least 2 rollouts: got 1', { groupSize: 1 }],
    ['OUT_OF_RANGE', 'groupAdvantage.epsilon must be a finite number: got NaN', { epsilon: Number.NaN }],
    [
      'MALFORMED',
      'exactly one of groupSize and groupOffsets must be given: got neither',
      { groupSize: undefined },
    ],
    [
      'UNKNOWN_NAME',
      "groupAdvantage.groupsize must be a known key: did you mean 'groupSize'?",
      { groupsize: 2 },
    ],
  ])('refuses with %s: %s', (code, message, change) => {
    const options = { rewards: [1, 2], groupSize: 2, ...change } as GroupAdvantageOptions
    expect(() => groupAdvantage(options)).toThrow(expect.objectContaining({ code, message }))
  })
})
