import { describe, expect, it } from 'vitest'
import { MCAdvantage } from '../../src/objective/index.js'
import { LazyStackStorage, ReplayBuffer } from '../../src/replay/index.js'
import { NonTensorStack, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'

describe('MCAdvantage of dictionaries', () => {
  /** One trajectory of so many turns, with a ragged column. */
  const trajectory = (query: string | number, rewards: readonly number[], isEnded = true) => {
    const size = rewards.length
    const done = Uint8Array.from(rewards, (_, at) => Number(isEnded && at === size - 1))
    const next = TensorDict.from(
      {
        reward: Tensor.from(Float32Array.from(rewards), { shape: [size, 1] }),
        done: Tensor.from(done, { shape: [size, 1], dtype: 'bool' }),
      },
      { batchSize: [size] },
    )
    const ids = Ragged.fromRows(rewards.map((_, at) => Tensor.from(new Float32Array(at + 1))))
    const group =
      typeof query === 'number'
        ? Tensor.from(new BigInt64Array(size).fill(BigInt(query)))
        : new NonTensorStack(rewards.map(() => query))
    return TensorDict.from({ query: group, ids, next }, { batchSize: [size] })
  }
  const advantagesOf = (items: TensorDict | undefined) =>
    items && Array.from(items.tensor('advantage').toFloat32(), (value) => Number(value.toFixed(4)))

  it.each<['sum' | 'max' | 'mean', number[]]>([
    ['sum', [0, 2, 1]],
    ['max', [0, 1, 1]],
    ['mean', [0, 2 / 3, 0.5]],
  ])('compares the %s of trajectories, and gives each turn its own', (trajectoryReturn, returns) => {
    using advantage = new MCAdvantage({ grpoSize: 3, trajectoryReturn })
    expect(advantage.inverse(trajectory('p', [0, 0]))).toBeUndefined()
    expect(advantage.inverse(trajectory('p', [0, 1, 1]))).toBeUndefined()
    const group = advantage.inverse(trajectory('p', [1, 0]))
    const mean = returns.reduce((sum, value) => sum + value) / 3
    const std = Math.sqrt(returns.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 2)
    const naive = [2, 3, 2].flatMap((size, at) =>
      new Array<number>(size).fill(((returns[at] ?? 0) - mean) / std),
    )
    expect(advantagesOf(group)).toEqual(naive.map((value) => Number(value.toFixed(4))))
    expect(group?.tensor('advantage').shape).toEqual([7, 1])
    expect(group?.ragged('ids').numRows).toBe(7)
  })

  it('splits a flat batch at its ends, and keeps what is half of a group', () => {
    using advantage = new MCAdvantage({ grpoSize: 2 })
    const flat = TensorDict.cat([trajectory(0, [0, 0]), trajectory(1, [1, 0, 1]), trajectory(0, [1])])
    const group = advantage.inverse(flat)
    expect(group?.batchSize).toEqual([3])
    expect(advantage.stats().queuedTrajectories).toBe(1)
    const two = TensorDict.stack([trajectory(2, [0]), trajectory(2, [1])].map((one) => one.exclude(['ids'])))
    expect(advantagesOf(advantage.inverse(two))).toEqual(
      [-1, 1].map((sign) => Number((sign * Math.SQRT1_2).toFixed(4))),
    )
  })

  it('is a transform of a buffer: a degenerate group writes nothing', () => {
    using advantage = new MCAdvantage({ grpoSize: 2, trajectoryReturn: 'sum', keepReturnBounds: [0.1, 0.9] })
    using buffer = new ReplayBuffer({ storage: new LazyStackStorage(10), transforms: [advantage] })
    for (const rewards of [[0], [0], [1], [1]]) expect(buffer.extend(trajectory('q', rewards))).toEqual([])
    expect(buffer.extend(trajectory('q', [0, 0]))).toEqual([])
    expect(buffer.extend(trajectory('q', [0, 1]))).toHaveLength(4)
    expect(buffer.length).toBe(4)
    expect(advantage.stats()).toMatchObject({ completedGroups: 3, writtenGroups: 1, droppedGroups: 2 })
  })

  it('refuses turns without an end, and turns that could not be scored, and takes none of them', () => {
    using advantage = new MCAdvantage({ grpoSize: 2 })
    const code = (items: TensorDict, expected: string) =>
      expect(() => advantage.inverse(items)).toThrow(expect.objectContaining({ code: expected }))
    code(trajectory('a', [0, 1], false), 'INCOMPATIBLE')
    code(TensorDict.cat([trajectory('a', [0]), trajectory('a', [Number.NaN])]), 'NON_FINITE')
    code(trajectory('a', [0]).exclude(['query']), 'UNKNOWN_NAME')
    code(trajectory('a', [0]).exclude(['ids']).unsqueeze(0).unsqueeze(0), 'SHAPE_MISMATCH')
    expect(advantage.stats().queuedTrajectories).toBe(0)
  })
})
