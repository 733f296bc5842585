/** Companions of buffers: ensembles, offline data, hindsight, queries and schedules. */

import { describe, expect, it } from 'vitest'
import {
  HERReplayBuffer,
  LambdaScheduler,
  LazyTensorStorage,
  LinearScheduler,
  OfflineToOnlineReplayBuffer,
  PrioritizedSampler,
  prefillReplayBuffer,
  ReplayBuffer,
  ReplayBufferEnsemble,
  SchedulerList,
  StepScheduler,
  traj,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

const bufferOf = (...ids: number[]) => {
  const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(16), seed: ids.length })
  if (ids.length > 0) buffer.extend(TensorDict.from({ id: Tensor.from(ids) }, { batchSize: [ids.length] }))
  return buffer
}
const idsOf = (batch: TensorDict) => Array.from(batch.tensor('id').data, Number)
const refusal = (code: string) => expect.objectContaining({ code })

describe('an ensemble', () => {
  it('draws whole parts, and never from a buffer without probability', () => {
    const ensemble = new ReplayBufferEnsemble([bufferOf(0), bufferOf(1), bufferOf(2)], {
      p: [0, 0.9, 0.1],
      numBufferSampled: 16,
      seed: 3,
    })
    const batch = ensemble.sampleWithInfo(48)
    expect(batch.items.batchSize).toEqual([16, 3])
    expect(batch.bufferIds).not.toContain(0)
    const drawn = batch.bufferIds.map((_, at) => idsOf(batch.items.index(at)))
    expect(drawn).toEqual(batch.bufferIds.map((id) => [id, id, id]))
    expect(batch.parts.map(({ index }) => index.length)).toEqual(Array(16).fill(3))
    expect(() => ensemble.sample(47)).toThrow(refusal('OUT_OF_RANGE'))
  })

  it('writes items where they say, and sees what is written to its buffers', () => {
    const buffers = [bufferOf(), bufferOf()]
    const byKey = new ReplayBufferEnsemble(buffers, { routingKey: 'to', sampleFromAll: true })
    const to = Tensor.from(BigInt64Array.of(1n, 0n, 1n))
    const taken = byKey.extend(TensorDict.from({ to, id: Tensor.from([5, 6, 7]) }, { batchSize: [3] }))
    expect(taken).toEqual([
      { buffer: 1, row: 0 },
      { buffer: 0, row: 0 },
      { buffer: 1, row: 1 },
    ])
    expect(idsOf(byKey.at(0))).toEqual([6, 5])
    expect(() => new ReplayBufferEnsemble(buffers).extend(TensorDict.from({}, { batchSize: [1] }))).toThrow(
      refusal('INCOMPATIBLE'),
    )
  })

  it('refuses what can draw nothing', () => {
    expect(() => new ReplayBufferEnsemble([])).toThrow(refusal('EMPTY'))
    expect(() => new ReplayBufferEnsemble([bufferOf()], { p: [1, 1] })).toThrow(refusal('SHAPE_MISMATCH'))
    expect(() => new ReplayBufferEnsemble([bufferOf()], { p: [0] })).toThrow(refusal('OUT_OF_RANGE'))
    const both = { p: [1], sampleFromAll: true }
    expect(() => new ReplayBufferEnsemble([bufferOf()], both)).toThrow(refusal('INCOMPATIBLE'))
    expect(() => new ReplayBufferEnsemble([bufferOf()], { routing: 1 } as never)).toThrow(
      refusal('UNKNOWN_NAME'),
    )
  })
})

describe('offline beside online data', () => {
  it('is mixed in exact parts that shrink', () => {
    const both = new OfflineToOnlineReplayBuffer(bufferOf(1, 1), bufferOf(), { offlineFraction: 0.3 })
    expect(idsOf(both.sample(10))).toEqual(Array(10).fill(1))
    prefillReplayBuffer(both.online, bufferOf(2, 2, 2), { chunkSize: 2 })
    expect(idsOf(both.sample(10)).filter((id) => id === 1)).toHaveLength(3)
    both.anneal(5, 10)
    expect(idsOf(both.sample(20)).filter((id) => id === 1)).toHaveLength(3)
    expect(() => new OfflineToOnlineReplayBuffer(bufferOf(), bufferOf(), { offlineFraction: 1 })).toThrow(
      refusal('OUT_OF_RANGE'),
    )
    expect(() => prefillReplayBuffer(bufferOf(), bufferOf(1), { count: 2 })).toThrow(refusal('OUT_OF_RANGE'))
  })
})

describe('hindsight', () => {
  const steps = (count: number) => {
    const dict = TensorDict.from({ desired_goal: Tensor.from(Array(count).fill(-1)) }, { batchSize: [count] })
    dict.set(['next', 'achieved_goal'], Tensor.from(Array.from({ length: count }, (_, at) => at)))
    dict.set(['next', 'reward'], Tensor.from(Array(count).fill(0)))
    const done = Uint8Array.from({ length: count }, (_, at) => (at === count - 1 ? 1 : 0))
    return dict.set(['next', 'done'], Tensor.from(done, { dtype: 'bool' }))
  }
  const achieved = (rows: TensorDict) => {
    const goal = rows.tensor('desired_goal').toFloat32()
    const now = rows.tensor(['next', 'achieved_goal']).toFloat32()
    return Tensor.from(goal.map((value, at) => (value === now[at] ? 1 : -1)))
  }

  it('relabels the first rows with what was achieved from there on, and leaves the rest', () => {
    const buffer = new HERReplayBuffer({
      storage: new LazyTensorStorage(8),
      rewardFn: achieved,
      herRatio: 0.5,
      seed: 5,
    })
    buffer.extend(steps(6))
    const batch = buffer.sample(40)
    const [goal, now] = ['desired_goal', 'next'].map((name) =>
      Array.from(
        name === 'next' ? batch.tensor(['next', 'achieved_goal']).data : batch.tensor(name).data,
        Number,
      ),
    ) as [number[], number[]]
    const reward = Array.from(batch.tensor(['next', 'reward']).data, Number)
    goal.forEach((value, at) => {
      if (at >= 20) {
        expect([value, reward[at]]).toEqual([-1, 0])
        return
      }
      expect(value).toBeGreaterThanOrEqual(now[at] as number)
      expect(reward[at]).toBe(value === now[at] ? 1 : -1)
    })
    expect(new Set(goal.slice(0, 20)).size).toBeGreaterThan(2)
  })

  it('refuses ratios, reward functions and steps that are none', () => {
    const storage = () => new LazyTensorStorage(4)
    expect(() => new HERReplayBuffer({ storage: storage(), rewardFn: achieved, herRatio: 1.5 })).toThrow(
      refusal('OUT_OF_RANGE'),
    )
    expect(() => new HERReplayBuffer({ storage: storage() } as never)).toThrow(refusal('MALFORMED'))
    const buffer = new HERReplayBuffer({ storage: storage(), rewardFn: achieved })
    expect(() => buffer.extend(TensorDict.from({ id: Tensor.from([1]) }, { batchSize: [1] }))).toThrow(
      refusal('UNKNOWN_NAME'),
    )
    expect(buffer.length).toBe(0)
  })
})

describe('a query', () => {
  it('finds trajectories by length, rewards and leaves', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(8) })
    const episode = Tensor.from(BigInt64Array.of(0n, 0n, 1n, 1n, 1n, 2n))
    const dict = TensorDict.from({ episode, id: Tensor.from([1, 2, 3, 4, 5, 6]) }, { batchSize: [6] })
    dict.set(['next', 'reward'], Tensor.from([1, 1, 0, 0, 0, 9]))
    buffer.extend(dict)
    const found = (...predicate: Parameters<typeof buffer.query>) => buffer.query(...predicate).map(idsOf)
    expect(found()).toEqual([[1, 2], [3, 4, 5], [6]])
    expect(found(traj.length.atLeast(2))).toEqual([
      [1, 2],
      [3, 4, 5],
    ])
    expect(found({ or: [traj.totalReward.above(8), traj.of('id', 'first').equals(1)] })).toEqual([
      [1, 2],
      [6],
    ])
    expect(found({ not: traj.of('id', 'mean').below(4) })).toEqual([[3, 4, 5], [6]])
    expect(() => buffer.query({ value: {}, is: '~', than: 1 } as never)).toThrow(refusal('MALFORMED'))
    expect(() => buffer.query(traj.of('absent', 'sum').above(0))).toThrow(refusal('UNKNOWN_NAME'))
  })
})

describe('transforms', () => {
  it('are called as methods, in order when drawn and in reverse when written', () => {
    class Scale {
      readonly by: number
      constructor(by: number) {
        this.by = by
      }
      forward(batch: TensorDict) {
        return TensorDict.from(
          {
            id: Tensor.from(
              batch
                .tensor('id')
                .toFloat32()
                .map((id) => id * this.by),
            ),
          },
          { batchSize: batch.batchSize },
        )
      }
      inverse(items: TensorDict) {
        return TensorDict.from(
          {
            id: Tensor.from(
              items
                .tensor('id')
                .toFloat32()
                .map((id) => id - this.by),
            ),
          },
          { batchSize: items.batchSize },
        )
      }
    }
    const buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(4),
      transforms: [new Scale(2), new Scale(3)],
    })
    buffer.extend(TensorDict.from({ id: Tensor.from([10]) }, { batchSize: [1] }))
    expect(idsOf(buffer.storage.get([0]))).toEqual([5])
    expect(idsOf(buffer.sample(1))).toEqual([30])
  })
})

describe('a schedule', () => {
  it('drives a parameter in steps, by factors, summands and functions, between bounds', () => {
    const sampler = new PrioritizedSampler({ alpha: 0.5, beta: 0.5 })
    const buffer = new ReplayBuffer({ sampler })
    const linear = new LinearScheduler(buffer, 'beta', { finalValue: 1, numSteps: 4 })
    const betas = Array.from({ length: 6 }, () => {
      linear.step()
      return sampler.beta
    })
    expect(betas).toEqual([0.625, 0.75, 0.875, 1, 1, 1])
    const all = new SchedulerList([
      new StepScheduler(buffer, 'alpha', { gamma: 0.5, minValue: 0.2 }),
      new LambdaScheduler(buffer, 'beta', (step) => 1 - step, { minValue: 0 }),
    ])
    all.step()
    expect([sampler.alpha, sampler.beta]).toEqual([0.25, 0])
    all.step()
    expect(sampler.alpha).toBeCloseTo(0.2)
    expect(() => new LinearScheduler(buffer, 'gamma', { finalValue: 1, numSteps: 1 }).step()).toThrow(
      refusal('UNKNOWN_NAME'),
    )
    expect(() => new StepScheduler(buffer, 'beta', { mode: 'cubic' as 'additive' })).toThrow(
      refusal('UNKNOWN_NAME'),
    )
  })
})
