import { describe, expect, it } from 'vitest'
import {
  BatchMemory,
  HERReplayBuffer,
  ImmutableDatasetWriter,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  RandomSampler,
  ReplayBuffer,
  type ReplayBufferState,
  RoundRobinWriter,
  SamplerWithoutReplacement,
  SliceSampler,
  TensorDictPrioritizedReplayBuffer,
  TensorDictReplayBuffer,
  TensorStorage,
} from '../../src/replay/index.js'
import { NonTensorData, Tensor, TensorDict } from '../../src/tensor/index.js'
import { MultiStepTransform } from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { ALL, episodes, idsOf, numbered, numbersOf } from './items.js'

const range = (count: number, from = 0) => Array.from({ length: count }, (_, at) => from + at)
const ring = (capacity: number) => new ReplayBuffer({ storage: new LazyTensorStorage(capacity) })

describe('ReplayBuffer', () => {
  it('goes around as a ring, also in one write', () => {
    using buffer = ring(5)
    expect(buffer.extend(numbered(0, 1, 2))).toEqual([0, 1, 2])
    expect(buffer.extend(numbered(3, 4, 5, 6))).toEqual([3, 4, 0, 1])
    expect(idsOf(buffer.readAllInOrder())).toEqual([5, 6, 2, 3, 4])
    expect(buffer.stats).toEqual({
      size: 5,
      capacity: 5,
      writeCount: 7,
      utilization: 1,
      prefetchQueueSize: 0,
    })
    expect(buffer.extend(numbered(...range(12, 100)))).toEqual([2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3])
    expect(idsOf(buffer.readAllInOrder())).toEqual([108, 109, 110, 111, 107])
  })

  it.each([3, 5, 100])('holds the last of five items where there is room for %i', (capacity) => {
    using buffer = ring(capacity)
    buffer.extend(numbered(...range(5)))
    const kept = range(5).slice(-capacity)
    expect(buffer.length).toBe(kept.length)
    expect(idsOf(buffer.readAllInOrder()).sort()).toEqual(kept)
    expect(kept).toEqual(expect.arrayContaining(idsOf(buffer.sample(50))))
    expect(buffer.add(numbered(9).index(0))).toBe(5 % capacity)
    expect(idsOf(buffer.at([2]))).toEqual(idsOf(buffer.storage.get([2])))
  })

  it('refuses a write that is longer than the ring where told to, and keeps what it has', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), allowOverwrite: false })
    buffer.extend(numbered(7, 8))
    expect(codeOf(() => buffer.extend(numbered(1, 2, 3)))).toBe('OUT_OF_RANGE')
    expect(idsOf(buffer.readAllInOrder())).toEqual([7, 8])
    expect(buffer.extend(numbered(9))).toEqual([0])
  })

  it('is indexed as a batch is', () => {
    using buffer = ring(10)
    buffer.extend(numbered(...range(10)))
    expect(buffer.at({ stop: 9 }).batchSize).toEqual([9])
    expect(idsOf(buffer.at({ start: 8 }))).toEqual([8, 9])
    expect(idsOf(buffer.at({ start: 1, step: 4 }))).toEqual([1, 5, 9])
    expect(idsOf(buffer.at(-1))).toEqual([9])
    expect(idsOf(buffer.at([3, 3, 0]))).toEqual([3, 3, 0])
    expect(idsOf(buffer.at(range(10).map((row) => row % 5 === 0)))).toEqual([0, 5])
    expect(codeOf(() => buffer.at(10))).toBe('OUT_OF_RANGE')
  })

  it('reads all and writes all back, with new leaves', () => {
    using buffer = ring(6)
    buffer.extend(numbered(...range(6)))
    const all = buffer.readAllInOrder()
    buffer.writeAll(all.set('value_target', Tensor.from(range(6, 1))))
    expect(numbersOf(buffer.readAllInOrder(), 'value_target')).toEqual(range(6, 1))
    const first = buffer.readAllInOrder(3).set('value_target', Tensor.from([10, 11, 12]))
    buffer.writeAll(first, 3)
    expect(numbersOf(buffer.readAllInOrder(), 'value_target')).toEqual([10, 11, 12, 4, 5, 6])
  })

  it('edits items in place, one leaf or all, without a write', () => {
    using buffer = ring(4)
    buffer.extend(numbered(0, 1, 2, 3))
    buffer.setAt([[0, 2]], numbered(70, 72))
    buffer.setKeyAt('id', Tensor.from([73], { shape: [] }), [3])
    expect(idsOf(buffer.readAllInOrder())).toEqual([70, 1, 72, 73])
    expect(codeOf(() => buffer.setKeyAt('weight', Tensor.from([5]), [[1]]))).toBe('UNKNOWN_NAME')
    buffer.setAt([[1]], numbered(1).set(['more', 'weight'], Tensor.from([5])))
    expect(numbersOf(buffer.readAllInOrder(), ['more', 'weight'])).toEqual([0, 5, 0, 0])
    expect(buffer.stats.writeCount).toBe(4)
  })

  it('says nothing of rows that were emptied, and goes on', () => {
    using buffer = ring(10)
    buffer.extend(numbered(...range(15)))
    expect(buffer.stats).toEqual({
      size: 10,
      capacity: 10,
      writeCount: 15,
      utilization: 1,
      prefetchQueueSize: 0,
    })
    buffer.clear({ keepWriteCount: true })
    expect(buffer.stats).toEqual({
      size: 0,
      capacity: 10,
      writeCount: 15,
      utilization: 0,
      prefetchQueueSize: 0,
    })
    expect(codeOf(() => buffer.sample(1))).toBe('EMPTY')
    expect(buffer.add(numbered(4).index(0))).toBe(0)
    expect(idsOf(buffer.sample(2))).toEqual([4, 4])
    buffer.clear()
    expect(buffer.stats.writeCount).toBe(0)
  })

  it('keeps JSON values and items of different leaves where the storage does', () => {
    using buffer = new ReplayBuffer({ storage: new ListStorage(3) })
    buffer.add(TensorDict.from({ task: new NonTensorData({ name: 'sum' }) }))
    expect(buffer.at(0).value('task')).toEqual({ name: 'sum' })
    buffer.add(numbered(1).index(0))
    expect(codeOf(() => buffer.at({}))).toBe('UNKNOWN_NAME')
    expect(idsOf(buffer.at(1))).toEqual([1])
  })

  it('draws nothing and asks for a size where none is given', () => {
    using buffer = ring(3)
    buffer.extend(numbered(1))
    expect(() => buffer.sample()).toThrow(/batch.size must be given/)
    expect(codeOf(() => buffer.sample())).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer[Symbol.iterator]().next())).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.sample(0))).toBe('OUT_OF_RANGE')
  })

  it('is one item for a batch of another buffer that is added whole', () => {
    using buffer = new ReplayBuffer({ storage: new ListStorage(5) })
    expect(buffer.extend(TensorDict.stack([numbered(1, 2)]))).toEqual([0])
    expect(buffer.at({}).batchSize).toEqual([1, 2])
  })

  it('shares a storage with others, which learn of each write', () => {
    const storage = new LazyTensorStorage(100)
    const prioritized = () =>
      new ReplayBuffer({ storage, sampler: new PrioritizedSampler({ alpha: 1, beta: 1 }), seed: 2 })
    using first = prioritized()
    using second = prioritized()
    first.extend(numbered(...range(50)))
    expect(second.length).toBe(50)
    second.updatePriority(range(50), range(50).map(Number))
    second.updatePriority(range(49), 0)
    expect(new Set(second.sampleWithInfo(1000).index)).toEqual(new Set([49]))
    expect(new Set(first.sampleWithInfo(2000).index).size).toBe(50)
  })

  it('gives memory back on disposal, and refuses calls from then on', () => {
    const storage = new LazyTensorStorage(3)
    const buffer = new ReplayBuffer({ storage })
    buffer.extend(numbered(1, 2))
    storage[Symbol.dispose]()
    expect(buffer.length).toBe(2)
    const batch = buffer.sample(1)
    buffer[Symbol.dispose]()
    buffer[Symbol.dispose]()
    expect(codeOf(() => buffer.length)).toBe('CLOSED')
    expect(codeOf(() => buffer.sample(1))).toBe('CLOSED')
    expect(codeOf(() => storage.length)).toBe('CLOSED')
    expect(idsOf(batch)).toHaveLength(1)
  })
})

describe('transforms of a buffer', () => {
  const add = (amount: number) => (batch: TensorDict) =>
    batch.select(['id']).set('id', Tensor.from(idsOf(batch).map((id) => id + amount)))
  const times = (factor: number) => (batch: TensorDict) =>
    batch.select(['id']).set('id', Tensor.from(idsOf(batch).map((id) => id * factor)))

  it('run forward in order when drawn or read, and in reverse order when written', () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(4),
      transforms: [
        { forward: add(1), inverse: add(10) },
        { forward: times(2), inverse: times(100) },
      ],
    })
    buffer.extend(numbered(1, 2))
    expect(idsOf(buffer.storage.get([0, 1]))).toEqual([110, 210])
    expect(idsOf(buffer.at([0, 1]))).toEqual([222, 422])
    expect(new Set(idsOf(buffer.sample(100)))).toEqual(new Set([222, 422]))
    expect(idsOf(buffer.readAllInOrder())).toEqual([110, 210])
  })

  it('can be appended and put in front, and inverted', () => {
    using buffer = ring(4)
    buffer.appendTransform(times(2)).insertTransform(0, add(1)).appendTransform(add(5), { invert: true })
    buffer.extend(numbered(1))
    expect(idsOf(buffer.storage.get([0]))).toEqual([6])
    expect(idsOf(buffer.at([0]))).toEqual([14])
    expect(codeOf(() => buffer.insertTransform(4, add(1)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.insertTransform(0.5, add(1)))).toBe('OUT_OF_RANGE')
  })

  it('drop items by an inverse that gives nothing', () => {
    using buffer = new ReplayBuffer({ transforms: [{ inverse: () => undefined }] })
    expect(buffer.extend(numbered(1, 2))).toEqual([])
    expect(buffer.add(numbered(1).index(0))).toBe(-1)
    expect(buffer.length).toBe(0)
  })
})

describe('iteration over a buffer', () => {
  it.each([10, 15, 20])('cuts %i rows into batches of three, again and again', (rows) => {
    for (const dropLast of [false, true]) {
      const sampler = new SamplerWithoutReplacement({ dropLast })
      using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(20), sampler, batchSize: 3 })
      buffer.extend(numbered(...range(rows)))
      for (let epoch = 0; epoch < 2; epoch++) {
        const batches = [...buffer].map(idsOf)
        expect(batches).toHaveLength(dropLast ? Math.floor(rows / 3) : Math.ceil(rows / 3))
        const drawn = batches.flat()
        expect(new Set(drawn).size).toBe(drawn.length)
        if (!dropLast) expect(drawn.sort((a, b) => a - b)).toEqual(range(rows))
        expect(sampler.ranOut).toBe(true)
      }
    }
  })

  it('goes on for ever with replacement', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), batchSize: 2 })
    buffer.extend(numbered(1))
    let count = 0
    for (const batch of buffer) {
      expect(idsOf(batch)).toEqual([1, 1])
      if (++count === 5) break
    }
    expect(count).toBe(5)
  })
})

describe('sampleInto', () => {
  it('draws what sample draws, into memory that is used again', () => {
    const make = () => {
      const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(50), seed: 4, batchSize: 8 })
      buffer.extend(numbered(...range(50)))
      return buffer
    }
    using one = make()
    using other = make()
    using memory = new BatchMemory()
    for (const count of [undefined, 8, 3, 20, undefined]) {
      using batch = one.sampleInto(memory, count)
      expect(idsOf(batch)).toEqual(idsOf(other.sample(count)))
    }
  })

  it('leaves alone a batch that is still held', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(50), seed: 4 })
    buffer.extend(numbered(...range(50)))
    using memory = new BatchMemory()
    using held = buffer.sampleInto(memory, 8)
    const before = idsOf(held)
    using next = buffer.sampleInto(memory, 8)
    expect(idsOf(next)).not.toEqual(before)
    expect(idsOf(held)).toEqual(before)
  })

  it('leaves the memory usable after a draw that failed', () => {
    using buffer = ring(3)
    using memory = new BatchMemory()
    expect(codeOf(() => buffer.sampleInto(memory, 2))).toBe('EMPTY')
    buffer.extend(numbered(5))
    using batch = buffer.sampleInto(memory, 2)
    expect(idsOf(batch)).toEqual([5, 5])
  })

  it('takes the memory of a batch of other leaves', () => {
    using memory = new BatchMemory()
    using first = new ReplayBuffer()
    using second = new TensorDictReplayBuffer({ storage: new LazyTensorStorage(3) })
    first.extend(TensorDict.from({ name: new NonTensorData('a') }, { batchSize: [1] }))
    second.extend(numbered(5))
    using named = first.sampleInto(memory, 1)
    expect(named.keys()).toEqual(['name'])
    using drawn = second.sampleInto(memory, 2)
    expect([idsOf(drawn), numbersOf(drawn, 'index')]).toEqual([
      [5, 5],
      [0, 0],
    ])
  })
})

describe('the state of a buffer', () => {
  // Seeds are integers above 2^53, so the text is stored as it is.
  const copied = (state: ReplayBufferState): ReplayBufferState => ({ ...state })
  const samplers = {
    random: () => new RandomSampler(),
    prioritized: () => new PrioritizedSampler({ alpha: 1, beta: 1 }),
    slices: () => new SliceSampler({ numSlices: 4, endKeys: [['next', 'done']] }),
    'without replacement': () => new SamplerWithoutReplacement(),
  }
  it.each(Object.entries(samplers))('goes on where a %s one was taken', (_, sampler) => {
    const make = () => new ReplayBuffer({ storage: new LazyTensorStorage(120), sampler: sampler(), seed: 3 })
    using buffer = make()
    buffer.extend(episodes(50, 50))
    buffer.sample(32)
    const state = copied(buffer.stateDict())
    using again = make()
    again.loadStateDict(state)
    const index = buffer.sampleWithInfo(32).index
    expect(again.sampleWithInfo(32).index).toEqual(index)
    expect(buffer.sampleWithInfo(32).index).not.toEqual(index)
    buffer.loadStateDict(state)
    expect(buffer.sampleWithInfo(32).index).toEqual(index)
    expect(again.stats).toEqual(buffer.stats)
    expect(again.at({}).equals(buffer.at({}))).toBe(true)
    expect(again.extend(episodes(30))).toEqual(buffer.extend(episodes(30)))
    again.loadStateDict(again.stateDict())
    buffer.loadStateDict(buffer.stateDict())
    expect(again.sampleWithInfo(32).index).toEqual(buffer.sampleWithInfo(32).index)
  })

  it('keeps cursor, counts and generations of a ring', () => {
    const make = () =>
      new ReplayBuffer({
        storage: new LazyTensorStorage(4),
        writer: new RoundRobinWriter({ trackGenerations: true }),
      })
    using buffer = make()
    for (const count of [4, 5, 4, 1]) buffer.extend(numbered(...range(count)))
    using again = make()
    again.loadStateDict(copied(buffer.stateDict()))
    expect(again.generationsOf(range(4))).toEqual([3, 3, 2, 2])
    expect(again.stats.writeCount).toBe(14)
    expect(again.add(numbered(1).index(0))).toBe(2)
  })

  it('of something else is refused, and changes nothing', () => {
    using buffer = ring(4)
    buffer.extend(numbered(1, 2))
    const state = buffer.stateDict()
    const refused = [
      { ...state, parts: '{}' },
      { ...state, parts: 'no JSON' },
      { ...state, parts: state.parts.replace(/"cursor":2/, '"cursor":99') },
      { ...state, items: [] },
      { ...state, more: 1 },
    ]
    for (const wrong of refused) expect(() => buffer.loadStateDict(wrong)).toThrow(/./)
    using larger = ring(5)
    expect(codeOf(() => larger.loadStateDict(state))).toBe('INCOMPATIBLE')
    expect(larger.length).toBe(0)
    expect(idsOf(buffer.readAllInOrder())).toEqual([1, 2])
    expect(buffer.extend(numbered(3))).toEqual([2])
  })
})

describe('TensorDictReplayBuffer', () => {
  it('says rows, weights and generations beside the items', () => {
    using buffer = new TensorDictPrioritizedReplayBuffer({
      storage: new LazyTensorStorage(4),
      writer: new RoundRobinWriter({ trackGenerations: true }),
      alpha: 1,
      beta: 1,
    })
    buffer.extend(numbered(...range(6)))
    const batch = buffer.sample(40)
    const rows = numbersOf(batch, 'index')
    expect(idsOf(batch)).toEqual(rows.map((row) => [4, 5, 2, 3][row]))
    expect(numbersOf(batch, 'index_generation')).toEqual(rows.map((row) => (row < 2 ? 1 : 0)))
    expect(new Set(numbersOf(batch, 'priority_weight'))).toEqual(new Set([1]))
    expect(numbersOf(buffer.at({}), 'index')).toEqual([0, 1, 2, 3])
  })

  it('takes priorities from the items, unless told not to', () => {
    const errors = (...values: number[]) =>
      TensorDict.from({ td_error: Tensor.from(values) }, { batchSize: [values.length] })
    using buffer = new TensorDictPrioritizedReplayBuffer({ storage: new LazyTensorStorage(4), alpha: 1 })
    buffer.extend(errors(0, 3))
    expect(new Set(buffer.sampleWithInfo(100).index)).toEqual(new Set([1]))
    buffer.extendWith(errors(0, 0), { updatePriority: false })
    expect(new Set(buffer.sampleWithInfo(100).index)).toEqual(new Set([1, 2, 3]))
    const batch = buffer.at([1, 2, 3]).set('td_error', Tensor.from([0, 0, 5]))
    buffer.updateTensorDictPriority(batch)
    expect(new Set(buffer.sampleWithInfo(100).index)).toEqual(new Set([3]))
  })

  it.each(['min', 'max', 'mean', 'median', 'sum'] as const)(
    'reduces priorities of whole trajectories by %s',
    (reduction) => {
      using buffer = new TensorDictPrioritizedReplayBuffer({
        storage: new ListStorage(5),
        alpha: 0.7,
        beta: 0.9,
        reduction,
        batchSize: 3,
      })
      const shape = [3, 4]
      const items = { x: Tensor.zeros('f32', shape), td_error: Tensor.from(range(12), { shape }) }
      buffer.extend(TensorDict.from(items, { batchSize: shape }))
      const batch = buffer.sample()
      expect(batch.batchSize).toEqual([3, 4])
      expect(numbersOf(batch, 'priority_weight').every((weight) => weight > 0)).toBe(true)
      buffer.updateTensorDictPriority(batch)
    },
  )

  it('writes over rows that were given to a data set, but not through its writer', () => {
    using buffer = new TensorDictReplayBuffer({
      storage: new TensorStorage(numbered(1, 2, 3)),
      writer: new ImmutableDatasetWriter(),
    })
    expect(codeOf(() => buffer.extend(numbered(4)))).toBe('INCOMPATIBLE')
    expect(buffer.stats).toEqual({
      size: 3,
      capacity: 3,
      writeCount: 0,
      utilization: 1,
      prefetchQueueSize: 0,
    })
    buffer.setKeyAt('id', Tensor.from([7, 8, 9]), ALL)
    expect(idsOf(buffer.at({}))).toEqual([7, 8, 9])
  })
})

describe('what transforms hold back', () => {
  const steps = (...rewards: number[]) =>
    TensorDict.from({}, { batchSize: [rewards.length] })
      .set(['next', 'reward'], Tensor.from(rewards))
      .set(['next', 'done'], Tensor.from(new Uint8Array(rewards.length), { dtype: 'bool' }))
  const rewardsOf = (buffer: ReplayBuffer) => numbersOf(buffer.readAllInOrder(), ['next', 'reward'])
  const twoSteps = () => new MultiStepTransform({ nSteps: 2, gamma: 1 })

  it('is written by flush, through the transforms that stand nearer to the storage', () => {
    const seen: number[] = []
    const watch = {
      inverse(items: TensorDict) {
        seen.push(items.batchSize[0] ?? 0)
        return items
      },
    }
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(9), transforms: [watch, twoSteps()] })
    expect([buffer.extend(steps(1, 2)), buffer.extend(steps(4)), buffer.flush(), buffer.flush()]).toEqual([
      [],
      [0],
      [1, 2],
      [],
    ])
    expect([rewardsOf(buffer), seen]).toEqual([
      [3, 6, 4],
      [1, 2],
    ])
  })

  it('passes each transform that holds rows back as well', () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(9),
      transforms: [twoSteps(), twoSteps()],
    })
    expect(buffer.extend(steps(1, 1, 1, 1, 1))).toHaveLength(1)
    expect(buffer.flush()).toHaveLength(4)
    expect(rewardsOf(buffer)).toEqual([4, 4, 4, 3, 1])
  })

  it('is forgotten when the buffer is emptied', () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(9),
      transforms: [twoSteps(), { forward: (batch: TensorDict) => batch }],
    })
    buffer.extend(steps(1, 2))
    buffer.clear()
    expect([buffer.flush(), buffer.extend(steps(4, 4, 4))]).toEqual([[], [0]])
  })

  it('counts for hindsight as it is written', () => {
    const rewardFn = (rows: TensorDict) => Tensor.zeros('f32', [rows.batchSize[0] ?? 0])
    using buffer = new HERReplayBuffer({
      storage: new LazyTensorStorage(9),
      herRatio: 1,
      strategy: 'final',
      rewardFn,
      transforms: [twoSteps()],
    })
    const goals = (...ids: number[]) =>
      steps(...ids.map(() => 1))
        .set('desired_goal', Tensor.from(ids.map(() => -1)))
        .set(['next', 'achieved_goal'], Tensor.from(ids))
        .set(['next', 'observation'], Tensor.from(ids))
    expect(buffer.extend(goals(1, 2, 3))).toEqual([0])
    expect(buffer.flush()).toEqual([1, 2])
    expect(new Set(numbersOf(buffer.sample(8), 'desired_goal'))).toEqual(new Set([3]))
  })

  it('is none where a buffer writes without priorities, through the same transforms', () => {
    using buffer = new TensorDictReplayBuffer({
      storage: new LazyTensorStorage(9),
      sampler: new PrioritizedSampler({ alpha: 1 }),
      transforms: [{ inverse: (items: TensorDict) => items.set('seen', Tensor.zeros('f32', [2])) }],
    })
    const given = steps(1, 1).set('td_error', Tensor.from([0, 9]))
    expect(buffer.extendWith(given, { updatePriority: false })).toEqual([0, 1])
    expect(buffer.readAllInOrder().keys()).toContain('seen')
    expect(new Set(buffer.sampleWithInfo(64).index)).toEqual(new Set([0, 1]))
  })
})

describe('given rows', () => {
  it('come as a batch, with what is said of them', () => {
    using buffer = new TensorDictReplayBuffer({
      storage: new LazyTensorStorage(4),
      writer: new RoundRobinWriter({ trackGenerations: true }),
      transforms: [
        { forward: (batch: TensorDict) => batch.set('seen', Tensor.zeros('f32', [batch.batchSize[0] ?? 0])) },
      ],
    })
    buffer.extend(numbered(5, 6, 7))
    const { items, index, info } = buffer.batchOf([2, 0, 2])
    expect([idsOf(items), index, numbersOf(items, 'index')]).toEqual([
      [7, 5, 7],
      [2, 0, 2],
      [2, 0, 2],
    ])
    expect([items.keys().includes('seen'), numbersOf(info, 'index_generation')]).toEqual([true, [0, 0, 0]])
    expect(codeOf(() => buffer.batchOf([3]))).toBe('OUT_OF_RANGE')
  })

  it('are written over by whole items, which are new', () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(4),
      writer: new RoundRobinWriter({ trackGenerations: true }),
      sampler: new PrioritizedSampler({ alpha: 1 }),
    })
    buffer.extend(numbered(0, 1, 2))
    buffer.updatePriority([0, 1, 2], 0)
    buffer.writeAt([1], numbered(10))
    expect([idsOf(buffer.readAllInOrder()), buffer.generationsOf([0, 1, 2])]).toEqual([
      [0, 10, 2],
      [0, 1, 0],
    ])
    expect([new Set(idsOf(buffer.sample(8))), buffer.extend(numbered(3))]).toEqual([new Set([10]), [3]])
    expect(codeOf(() => buffer.writeAt([9], numbered(1)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.writeAt([0, 1], numbered(1)))).toBe('SHAPE_MISMATCH')
  })
})

describe('what is of the wrong kind', () => {
  it('is refused by name: priorities, checkpointers, rows beyond the limit, an index of nothing', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4) })
    buffer.extend(numbered(1, 2))
    const refusal = (code: string, message: string) =>
      expect.objectContaining({ code, message: expect.stringContaining(message) })
    expect(() => buffer.updatePriority([0], null as never)).toThrow(
      refusal('MALFORMED', 'priority must be a number'),
    )
    expect(() => buffer.updatePriority([0], {} as never)).toThrow(refusal('MALFORMED', 'got an object'))
    expect(() => buffer.extend([1] as never)).toThrow(
      refusal('MALFORMED', 'items must be a TensorDict: got an array of 1'),
    )
    expect(() => buffer.setKeyAt('id', [1] as never, [0])).toThrow(
      refusal('MALFORMED', 'value must be a Tensor'),
    )
    buffer.clear()
    expect(() => buffer.at(0)).toThrow(refusal('OUT_OF_RANGE', 'the dimension has none: got 0'))
    if (process.env.FULMAR_TEST_BACKEND !== 'native') return
    const none = undefined as never
    expect(() => buffer.dumps('nowhere', none)).toThrow(refusal('MALFORMED', 'checkpointer must be one'))
    expect(() => buffer.loads('nowhere', {} as never)).toThrow(refusal('MALFORMED', 'got an object'))
  })

  it('is USER_CODE where a transform gives it', () => {
    const wrong = 7 as never
    for (const transform of [
      { forward: () => wrong },
      { forward: (items: TensorDict) => items, inverse: () => wrong },
    ]) {
      using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4) })
      buffer.extend(numbered(1))
      buffer.appendTransform(transform)
      const use = () => ('inverse' in transform ? buffer.extend(numbered(2)) : buffer.sample(1))
      const message = `what ${'inverse' in transform ? 'inverse' : 'forward'} of transform 0 gives must be a TensorDict: got 7`
      expect(use).toThrow(expect.objectContaining({ code: 'USER_CODE', message }))
      expect(buffer.stats.size).toBe(1)
    }
  })
})
