import { describe, expect, it } from 'vitest'
import {
  ConsumingSampler,
  ImmutableDatasetWriter,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  ReplayBuffer,
  RoundRobinWriter,
  Sampler,
  TensorDictMaxValueWriter,
  Writer,
  type WriterSource,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { allRefused, idsOf, numbered, numbersOf, refusalsOf } from './items.js'

const range = (count: number, from = 0) => Array.from({ length: count }, (_, at) => from + at)
const tracked = (capacity: number) =>
  new ReplayBuffer({
    storage: new LazyTensorStorage(capacity),
    writer: new RoundRobinWriter({ trackGenerations: true }),
  })

describe('generations of rows', () => {
  it.each([
    [10, [10], Array(10).fill(0)],
    [4, [4, 3], [1, 1, 1, 0]],
    [5, [10], [1, 1, 1, 1, 1]],
    [4, [10], [2, 2, 1, 1]],
    [3, [1, 1, 1, 1], [1, 0, 0]],
    [4, [2], [0, 0, -1, -1]],
  ])('of a ring of %i after writes of %j are %j', (capacity, writes, expected) => {
    using buffer = tracked(capacity)
    for (const count of writes) buffer.extend(numbered(...range(count)))
    expect(buffer.generationsOf(range(capacity))).toEqual(expected)
    expect(numbersOf(buffer.sampleWithInfo(4).info, 'index_generation')).toHaveLength(4)
  })

  it('rise when rows are emptied, and are -1 where there is no row', () => {
    using buffer = tracked(4)
    buffer.extend(numbered(1, 2))
    buffer.clear()
    expect(buffer.generationsOf(range(4))).toEqual([1, 1, -1, -1])
    expect(buffer.generationsOf([-5, -1, 4, 100])).toEqual([-1, -1, -1, -1])
  })

  it('are not kept unless asked for', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4) })
    buffer.extend(numbered(...range(4)))
    expect(buffer.generationsOf(range(4))).toEqual([-1, -1, -1, -1])
    expect(buffer.sampleWithInfo(1).info.has('index_generation')).toBe(false)
  })

  it('count what another buffer writes to the same storage', () => {
    const storage = new LazyTensorStorage(4)
    using reader = new ReplayBuffer({ storage, writer: new RoundRobinWriter({ trackGenerations: true }) })
    using other = new ReplayBuffer({ storage })
    reader.extend(numbered(1, 2, 3, 4))
    const before = reader.generationsOf(range(4))
    other.extend(numbered(8, 9))
    const generation = reader.sampleWithInfo(100)
    expect(before).toEqual([0, 0, 0, 0])
    expect(new Set(idsOf(generation.items))).toEqual(new Set([8, 9, 3, 4]))
    expect(reader.generationsOf(range(4))).toEqual([1, 1, 0, 0])
  })
})

describe('updateIfPresent', () => {
  const versioned = (ids: readonly number[], versions: readonly number[]) =>
    numbered(...ids).set('version', Tensor.from(BigInt64Array.from(versions, BigInt)))

  it('writes the rows that still hold what was read', () => {
    using buffer = tracked(4)
    buffer.extend(numbered(1, 2, 3, 4))
    buffer.extend(numbered(5, 6))
    const given = { index: range(4), generation: [0, 0, 0, 0], patch: numbered(11, 12, 13, 14) }
    expect(buffer.updateIfPresent(given)).toEqual({
      updated: [false, false, true, true],
      versionRejected: null,
    })
    expect(idsOf(buffer.at({}))).toEqual([5, 6, 13, 14])
    expect(buffer.generationsOf(range(4))).toEqual([1, 1, 0, 0])
  })

  it('keeps the later version, and of a row that comes twice the highest', () => {
    using buffer = tracked(3)
    buffer.extend(versioned([1, 2, 3], [5, 5, 5]))
    const index = [0, 1, 2, 2]
    const version = [4, 5, 7, 6]
    const given = { index, generation: [0, 0, 0, 0], version, versionKey: 'version' }
    const patch = numbered(11, 12, 13, 14)
    const result = buffer.updateIfPresent({ ...given, patch })
    expect(result.versionRejected?.slice(0, 2)).toEqual([true, false])
    expect(idsOf(buffer.at({}))).toEqual([1, 12, 13])
    const newer = buffer.updateIfPresent({ ...given, patch, requireNewer: true })
    expect(newer.updated).not.toContain(true)
  })

  it('refuses a version without its key, and a key without a version', () => {
    using buffer = tracked(2)
    buffer.extend(versioned([1, 2], [5, 5]))
    const row = { index: [0], generation: [0], patch: numbered(9) }
    for (const half of [{ version: [4] }, { versionKey: 'version' }])
      expect(codeOf(() => buffer.updateIfPresent({ ...row, ...half }))).toBe('INCOMPATIBLE')
    expect(idsOf(buffer.at({}))).toEqual([1, 2])
  })

  it('refuses a patch that does not fit, and a writer that counts nothing', () => {
    using buffer = tracked(2)
    buffer.extend(numbered(1, 2))
    const row = { index: [0], generation: [0] }
    const unknown = TensorDict.from({ other: Tensor.from([1]) }, { batchSize: [1] })
    expect(codeOf(() => buffer.updateIfPresent({ ...row, patch: unknown }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => buffer.updateIfPresent({ ...row, patch: numbered(1, 2) }))).toBe('SHAPE_MISMATCH')
    const halves = TensorDict.from({ id: Tensor.from([1], { dtype: 'f64' }) }, { batchSize: [1] })
    expect(codeOf(() => buffer.updateIfPresent({ ...row, patch: halves }))).toBe('INCOMPATIBLE')
    expect(idsOf(buffer.at({}))).toEqual([1, 2])
    using plain = new ReplayBuffer({ storage: new LazyTensorStorage(2) })
    plain.extend(numbered(1))
    expect(codeOf(() => plain.updateIfPresent({ ...row, patch: numbered(1) }))).toBe('INCOMPATIBLE')
  })
})

describe('TensorDictMaxValueWriter', () => {
  const scored = (scores: readonly number[]) =>
    TensorDict.from({ key: Tensor.from(scores), obs: Tensor.from(scores) }, { batchSize: [scores.length] })

  it.each([20, 25, 30])('keeps the best %i of what it was shown', (capacity) => {
    const writer = new TensorDictMaxValueWriter({ rankKey: 'key' })
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(capacity), writer })
    const band = (from: number, to: number) =>
      range(capacity).map((at) => from + ((to - from) * (at + 1)) / (capacity + 1))
    buffer.extend(scored(band(0, 0.25)))
    for (const [from, to] of [
      [0.25, 0.5],
      [0.5, 1],
    ] as const) {
      const scores = band(from, to)
      const rows =
        from === 0.25
          ? buffer.extend(scored(scores))
          : scores.map((one) => buffer.add(scored([one]).index(0)))
      expect(new Set(rows).size).toBe(capacity)
      expect(Math.min(...numbersOf(buffer.at({}), 'obs'))).toBeGreaterThan(from)
    }
    expect(new Set(buffer.extend(scored(range(capacity).map(() => 0))))).toEqual(new Set([-1]))
    using again = new ReplayBuffer({
      storage: new LazyTensorStorage(capacity),
      writer: new TensorDictMaxValueWriter({ rankKey: 'key' }),
    })
    again.loadStateDict(buffer.stateDict())
    again.loadStateDict(again.stateDict())
    const better = scored([0.1, 2, 0.9999])
    expect(again.extend(better)).toEqual(buffer.extend(better))
  })

  it.each(['sum', 'max', 'min', 'mean', 'median'] as const)(
    'ranks by the %s of the values of an item',
    (reduction) => {
      const writer = new TensorDictMaxValueWriter({ rankKey: 'key', reduction })
      using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(1), writer })
      const key = Tensor.from([1, 2, 3, 9, 9, 9, 4, 5, 6, 7, 8, 9], { shape: [4, 3] })
      const rows = buffer.extend(TensorDict.from({ key, id: Tensor.from([0, 1, 2, 3]) }, { batchSize: [4] }))
      expect(rows).toEqual([-1, 0, -1, -1])
      expect(idsOf(buffer.at({}))).toEqual([1])
    },
  )

  it('needs a rank, and ranks lanes together', () => {
    const buffer = (storage: LazyTensorStorage) =>
      new ReplayBuffer({ storage, writer: new TensorDictMaxValueWriter({ rankKey: 'id' }) })
    using plain = buffer(new LazyTensorStorage(2))
    const other = TensorDict.from({ other: Tensor.from([1]) }, { batchSize: [1] })
    expect(codeOf(() => plain.extend(other))).toBe('UNKNOWN_NAME')
    expect(plain.length).toBe(0)
    using lanes = buffer(new LazyTensorStorage(4, { lanes: [2] }))
    const steps = TensorDict.stack([numbered(1, 2, 9), numbered(8, 2, 1)])
    expect(lanes.extend(steps)).toEqual([0, 1, -1, -1, 2, 3])
    expect(idsOf(lanes.at({}))).toEqual([1, 9, 8, 1])
  })
})

describe('lanes', () => {
  const wide = (lanes: number, time: number, from = 0) =>
    TensorDict.from(
      { id: Tensor.from(range(lanes * time, from), { shape: [lanes, time] }) },
      { batchSize: [lanes, time] },
    )

  it('are written together and lie time first', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10, { lanes: [3] }) })
    expect([buffer.storage.shape, buffer.storage.maxSize]).toEqual([[4, 3], 12])
    expect(buffer.extend(wide(3, 2))).toEqual(range(6))
    expect(buffer.extend(wide(3, 3, 10))).toEqual([6, 7, 8, 9, 10, 11, 0, 1, 2])
    expect(buffer.at({}).batchSize).toEqual([3, 4])
    expect(idsOf(buffer.at(0))).toEqual([12, 1, 10, 11])
    expect(idsOf(buffer.at('...', 1))).toEqual([1, 3, 5])
    expect(buffer.stats).toEqual({
      size: 12,
      capacity: 12,
      writeCount: 5,
      utilization: 1,
      prefetchQueueSize: 0,
    })
    expect(codeOf(() => buffer.add(numbered(1).index(0)))).toBe('INCOMPATIBLE')
    expect(codeOf(() => buffer.extend(wide(2, 2)))).toBe('SHAPE_MISMATCH')
  })

  it('have priorities of their own', () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(8, { lanes: [2] }),
      sampler: new PrioritizedSampler({ alpha: 1 }),
    })
    buffer.extend(wide(2, 4))
    buffer.updatePriority(range(8), [0, 0, 0, 0, 0, 3, 0, 0])
    expect(idsOf(buffer.sample(2))).toEqual([6, 6])
  })
})

it('a data set can be read, and neither written nor grown', () => {
  using buffer = new ReplayBuffer({ storage: new ListStorage(3), writer: new ImmutableDatasetWriter() })
  expect(codeOf(() => buffer.extend(numbered(1)))).toBe('INCOMPATIBLE')
  expect(codeOf(() => buffer.add(numbered(1).index(0)))).toBe('INCOMPATIBLE')
  expect(buffer.length).toBe(0)
})

describe('a writer of JavaScript', () => {
  /** Keeps items with an even number, in a ring. */
  function evens(): WriterSource & { next: number } {
    return {
      next: 0,
      plan(items, maxSize) {
        let kept = 0
        return idsOf(items).map((id) => (id % 2 ? -1 : (this.next + kept++) % maxSize))
      },
      commit(rows) {
        this.next += rows.filter((row) => row >= 0).length
      },
      clear() {
        this.next = 0
      },
    }
  }

  it('says where items go, and counts those that it kept', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(3), writer: Writer.from(evens()) })
    expect(buffer.extend(numbered(...range(7)))).toEqual([0, -1, 1, -1, 2, -1, 0])
    expect([idsOf(buffer.readAllInOrder()), buffer.stats.writeCount]).toEqual([[6, 2, 4], 4])
    expect([buffer.add(numbered(1).index(0)), buffer.add(numbered(8).index(0))]).toEqual([-1, 1])
    buffer.clear()
    expect(buffer.extend(numbered(8))).toEqual([0])
  })

  it('stands beside a sampler of JavaScript', () => {
    const sampler = Sampler.from({
      extend: () => {},
      sample: (length, count) => ({ rows: Array(count).fill(length - 1) }),
      clear: () => {},
      state: () => 'of the sampler',
    })
    const writer = Writer.from({ ...evens(), state: () => 'of the writer' })
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(3), writer, sampler })
    buffer.extend(numbered(2, 4))
    expect(idsOf(buffer.sample(2))).toEqual([4, 4])
    const parts = JSON.parse(buffer.stateDict().parts)
    expect([parts.sampler, parts.writer.own]).toEqual(['of the sampler', 'of the writer'])
  })

  it('is asked to reuse the rows that a sampler freed', () => {
    let freed: readonly number[] = []
    const source = evens()
    const writer = Writer.from({
      ...source,
      plan(items, maxSize, rows) {
        freed = rows
        return source.plan(items, maxSize, rows)
      },
    })
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(3),
      writer,
      sampler: new ConsumingSampler(),
    })
    buffer.extend(numbered(2, 4))
    const { index } = buffer.sampleWithInfo(2)
    buffer.extend(numbered(6))
    expect([...freed].sort()).toEqual([...index].sort())
  })

  it('changes nothing where it is wrong', () => {
    let rows: readonly number[] = []
    const source = { plan: () => rows, clear: () => {} }
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(3), writer: Writer.from(source) })
    for (const wrong of [[], [0, 1], [3], [-2], [0.5], [Number.NaN]]) {
      rows = wrong
      expect([codeOf(() => buffer.extend(numbered(1))), buffer.stats.writeCount]).toEqual(['USER_CODE', 0])
    }
    rows = [2]
    expect(codeOf(() => buffer.extend(numbered(1)))).toBe('OUT_OF_RANGE')
    expect([buffer.length, buffer.stats.writeCount]).toEqual([0, 0])
    expect(codeOf(() => new ReplayBuffer({ writer: Writer.from(source) }).share())).toMatch(
      /INCOMPATIBLE|UNAVAILABLE/,
    )
  })
})

it('of your own that asks its buffer is refused at once, whatever it asks for and for whatever it is called', () => {
  const seen: Record<string, Record<string, unknown>> = {}
  let own: ReplayBuffer | undefined
  const asks = (name: string) => {
    if (own) seen[name] = refusalsOf(own, false)
  }
  const writer = Writer.from({
    plan: (items) => {
      asks('plan')
      return range(items.batchSize[0] ?? 0)
    },
    commit: () => asks('commit'),
    clear: () => asks('clear'),
    state: () => {
      asks('state')
      return null
    },
    restore: () => asks('restore'),
  })
  own = new ReplayBuffer({ storage: new LazyTensorStorage(4), writer })
  own.extend(numbered(1, 2))
  own.loadStateDict(own.stateDict())
  own.clear()
  const refused = { ...allRefused(own, false), iterator: 'OUT_OF_RANGE' }
  const names = ['plan', 'commit', 'state', 'restore', 'clear']
  expect(seen).toEqual(Object.fromEntries(names.map((name) => [name, refused])))
})
