import { describe, expect, it } from 'vitest'
import {
  CompressedListStorage,
  ConsumingSampler,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedReplayBuffer,
  PrioritizedSampler,
  PrioritizedSliceSampler,
  PromptGroupSampler,
  ReplayBuffer,
  RoundRobinWriter,
  SamplerWithoutReplacement,
  Sequence,
  SliceSampler,
  SliceSamplerWithoutReplacement,
  StalenessAwareSampler,
  Storage,
  StreamingSliceSampler,
  TensorDictMaxValueWriter,
  TensorDictReplayBuffer,
  TensorStorage,
} from '../../src/replay/index.js'
import { NonTensorData, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { allRefused, idsOf, numbered, refusalsOf } from './items.js'

const STORAGES: readonly [string, (rows: number) => Storage][] = [
  ['LazyTensorStorage', (rows) => new LazyTensorStorage(rows)],
  ['ListStorage', (rows) => new ListStorage(rows)],
  ['LazyStackStorage', (rows) => new LazyStackStorage(rows)],
  ['CompressedListStorage', (rows) => new CompressedListStorage(rows)],
]

describe.each(STORAGES)('%s', (_, make) => {
  it('gives back what was written, row by row', () => {
    using storage = make(4)
    const items = numbered(1, 2, 3).set(['next', 'flag'], Tensor.from([1, 0, 1], { dtype: 'bool' }))
    storage.set([0, 1, 2], items)
    expect([storage.length, storage.maxSize, storage.shape]).toEqual([3, 4, [4]])
    expect(storage.get([0, 1, 2]).equals(items)).toBe(true)
    storage.set([1, 1], numbered(8, 9).set(['next', 'flag'], Tensor.from([0, 1], { dtype: 'bool' })))
    expect(idsOf(storage.get([2, 1, 1, 0]))).toEqual([3, 9, 9, 1])
    storage.clear()
    expect(storage.length).toBe(0)
    expect(storage).toBeInstanceOf(Storage)
  })

  it('refuses rows that are beyond it, leave a gap or hold nothing, and changes nothing', () => {
    using storage = make(4)
    storage.set([0], numbered(1))
    expect(codeOf(() => storage.set([4], numbered(2)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => storage.set([2], numbered(2)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => storage.set([-1], numbered(2)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => storage.set([0.5], numbered(2)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => storage.set([Number.NaN], numbered(2)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => storage.set([0, 1], numbered(2)))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => storage.get([1]))).toBe('OUT_OF_RANGE')
    expect(idsOf(storage.get([0]))).toEqual([1])
    expect(storage.length).toBe(1)
  })

  it('has room for at least one row', () => {
    expect(codeOf(() => make(0))).toBe('OUT_OF_RANGE')
    for (const rows of [-1, 1.5, Number.NaN]) expect(() => make(rows)).toThrow(/./)
  })
})

describe('LazyTensorStorage', () => {
  it('holds every item to the leaves of the first, and names the wrong one', () => {
    using storage = new LazyTensorStorage(4)
    storage.set([0], numbered(1))
    const other = (leaf: Tensor) => TensorDict.from({ id: leaf }, { batchSize: [1] })
    expect(codeOf(() => storage.set([1], other(Tensor.from([1], { dtype: 'f64' }))))).toBe('INCOMPATIBLE')
    expect(codeOf(() => storage.set([1], other(Tensor.from([1, 2], { shape: [1, 2] }))))).toBe(
      'SHAPE_MISMATCH',
    )
    const extra = numbered(1).set('extra', Tensor.from([1]))
    expect(() => storage.set([1], extra)).toThrow(/extra/)
    expect(() => storage.set([1], TensorDict.from({}, { batchSize: [1] }))).toThrow(/id/)
    expect(storage.length).toBe(1)
  })

  it('takes no more bytes than it may', () => {
    using storage = new LazyTensorStorage(1000, { bytesMax: 3999 })
    expect(codeOf(() => storage.set([0], numbered(1)))).toBe('LIMIT_EXCEEDED')
    using enough = new LazyTensorStorage(1000, { bytesMax: 4000 })
    enough.set([0], numbered(1))
    expect(enough.length).toBe(1)
    // WebAssembly cannot represent such a number of rows.
    expect(['LIMIT_EXCEEDED', 'MALFORMED']).toContain(codeOf(() => new LazyTensorStorage(2 ** 32 + 1)))
  })

  it('keeps ragged rows and JSON values', () => {
    using storage = new LazyTensorStorage(3)
    const ids = Ragged.from(Tensor.from(Uint32Array.of(1, 2, 3)), Uint32Array.of(0, 1, 3))
    const task = new NonTensorData('sum')
    storage.set([0, 1], TensorDict.from({ ids, task }, { batchSize: [2] }))
    expect(storage.get([1]).ragged('ids').values.data).toEqual(Uint32Array.of(2, 3))
    expect(storage.get([1]).index(0).value('task')).toBe('sum')
  })
})

it('TensorStorage shares what it is made of until the first write', () => {
  const items = numbered(1, 2)
  using storage = new TensorStorage(items)
  storage.set([0], numbered(9))
  expect([idsOf(items), idsOf(storage.get([0, 1]))]).toEqual([
    [1, 2],
    [9, 2],
  ])
  expect(codeOf(() => new TensorStorage(TensorDict.from({ a: Tensor.from([1]) })))).toBe('SHAPE_MISMATCH')
  expect(codeOf(() => new TensorStorage(TensorDict.from({}, { batchSize: [0] })))).toBe('OUT_OF_RANGE')
})

it('CompressedListStorage compresses nested leaves, as hard as told', () => {
  const frames = TensorDict.from({ deep: TensorDict.from({ pixels: Tensor.zeros('u8', [84, 84]) }) })
  using storage = new CompressedListStorage(2, { compressionLevel: 9 })
  const batch = TensorDict.stack([frames])
  storage.set([0], batch)
  expect(storage.get([0]).equals(batch)).toBe(true)
  expect(codeOf(() => new CompressedListStorage(2, { compressionLevel: 10 }))).toBe('OUT_OF_RANGE')
})

it('of your own that asks its buffer is refused at once, whatever it asks for and for whatever it is called', () => {
  const seen: Record<string, Record<string, unknown>> = {}
  let buffer: ReplayBuffer | undefined
  const asks = (name: string) => {
    if (buffer) seen[name] = refusalsOf(buffer, true)
  }
  const kept = new Map<number, TensorDict>()
  const storage = Storage.from({
    maxSize: 4,
    set: (rows, items) => {
      asks('set')
      rows.forEach((row, at) => void kept.set(row, items.index(at)))
    },
    get: (rows) => {
      asks('get')
      return TensorDict.stack(rows.map((row) => kept.get(row) as TensorDict))
    },
    clear: () => {
      asks('clear')
      kept.clear()
    },
  })
  buffer = new ReplayBuffer({ storage, batchSize: 1 })
  expect(buffer.extend(numbered(1, 2))).toEqual([0, 1])
  expect(idsOf(buffer.readAllInOrder())).toEqual([1, 2])
  buffer.clear()
  const refused = allRefused(buffer, true)
  expect(seen).toEqual({ set: refused, get: refused, clear: refused })
  expect([buffer.length, storage.length]).toEqual([0, 0])
})

it('of your own may be asked again once it has answered, from promises and beside batches that are copied ahead', async () => {
  const kept = new Map<number, TensorDict>()
  const later: Promise<unknown>[] = []
  let buffer: ReplayBuffer | undefined
  const storage = Storage.from({
    maxSize: 4,
    set: (rows, items) => {
      rows.forEach((row, at) => void kept.set(row, items.index(at)))
      later.push(Promise.resolve().then(() => buffer?.length))
    },
    get: (rows) => TensorDict.stack(rows.map((row) => kept.get(row) as TensorDict)),
    clear: () => kept.clear(),
  })
  buffer = new ReplayBuffer({ storage, batchSize: 1, prefetch: 2, sampler: new SamplerWithoutReplacement() })
  buffer.extend(numbered(1, 2, 3))
  expect(await Promise.all(later)).toEqual([3])
  const ids: number[] = []
  for await (const batch of buffer.batches()) {
    expect(buffer.length).toBe(3)
    ids.push(...idsOf(batch))
  }
  expect(ids.sort()).toEqual([1, 2, 3])
})

it('refuses what is no dictionary of tensors by name', () => {
  using storage = new LazyTensorStorage(4)
  const wrong = [1, 2] as never
  for (const call of [() => storage.set([0], wrong), () => new TensorStorage(wrong)]) {
    expect(call).toThrow(
      expect.objectContaining({
        code: 'MALFORMED',
        message: 'items must be a TensorDict: got an array of 2',
      }),
    )
  }
})

// WebAssembly has 4 GiB of addresses, so a billion rows of four bytes are refused there.
it.skipIf(process.env.FULMAR_TEST_BACKEND === 'wasm')(
  'of a billion rows takes its memory as rows are written',
  () => {
    using storage = new LazyTensorStorage(2 ** 30)
    storage.set([0], numbered(7))
    expect(idsOf(storage.get([0, 0]))).toEqual([7, 7])
    using small = new LazyTensorStorage(2 ** 30, { bytesMax: 2 ** 32 - 1 })
    expect(codeOf(() => small.set([0], numbered(7)))).toBe('LIMIT_EXCEEDED')
  },
)

// Whatever is misspelt, wrong or of the wrong kind is refused by name; the classes of all files of the room.
describe('wrong options', () => {
  const wrong = (value: unknown) => value as never
  const storage = () => new LazyTensorStorage(4)
  const made: Record<string, (options: never) => unknown> = {
    ReplayBuffer: (options) => new ReplayBuffer(options),
    TensorDictReplayBuffer: (options) => new TensorDictReplayBuffer(options),
    PrioritizedReplayBuffer: (options) => new PrioritizedReplayBuffer(options),
    LazyTensorStorage: (options) => new LazyTensorStorage(4, options),
    CompressedListStorage: (options) => new CompressedListStorage(4, options),
    SamplerWithoutReplacement: (options) =>
      new ReplayBuffer({ sampler: new SamplerWithoutReplacement(options) }),
    ConsumingSampler: (options) => new ReplayBuffer({ sampler: new ConsumingSampler(options) }),
    PrioritizedSampler: (options) => new ReplayBuffer({ sampler: new PrioritizedSampler(options) }),
    SliceSampler: (options) => new SliceSampler(options),
    SliceSamplerWithoutReplacement: (options) => new SliceSamplerWithoutReplacement(options),
    PrioritizedSliceSampler: (options) => new PrioritizedSliceSampler(options),
    StreamingSliceSampler: (options) => new StreamingSliceSampler(options),
    StalenessAwareSampler: (options) => new StalenessAwareSampler(options),
    PromptGroupSampler: (options) => new PromptGroupSampler(options),
    RoundRobinWriter: (options) => new ReplayBuffer({ writer: new RoundRobinWriter(options) }),
    TensorDictMaxValueWriter: (options) => new TensorDictMaxValueWriter(options),
    Sequence: (options) => new Sequence(options),
  }
  it.each(Object.entries(made))('of %s are refused', (_, make) => {
    expect(codeOf(() => make(wrong({ misspelt: 1 })))).toBe('UNKNOWN_NAME')
  })

  it.each([
    ['PrioritizedSampler', { alpha: -1 }],
    ['PrioritizedSampler', { beta: Number.NaN }],
    ['PrioritizedSampler', { eps: Number.POSITIVE_INFINITY }],
    ['PrioritizedSampler', { maxPriorityWithinBuffer: 1 }],
    ['ConsumingSampler', { maxSampleCount: 0 }],
    ['ConsumingSampler', { maxSampleCount: 1.5 }],
    ['SamplerWithoutReplacement', { shuffle: 'yes' }],
    ['RoundRobinWriter', { trackGenerations: 'yes' }],
    ['ReplayBuffer', { batchSize: -1 }],
    ['ReplayBuffer', { seed: -1 }],
    ['ReplayBuffer', { seed: 0.5 }],
    ['TensorDictReplayBuffer', { reduction: 'mode' }],
    ['LazyTensorStorage', { lanes: [0] }],
    ['LazyTensorStorage', { bytesMax: -1 }],
  ] as const)('of %s are held to their domain: %j', (name, options) => {
    expect(['OUT_OF_RANGE', 'MALFORMED', 'UNKNOWN_NAME', 'INCOMPATIBLE', 'NON_FINITE']).toContain(
      codeOf(() => made[name]?.(wrong(options))),
    )
  })

  it('of calls are refused', () => {
    using buffer = new ReplayBuffer({ storage: storage() })
    buffer.extend(numbered(1))
    expect(codeOf(() => buffer.clear(wrong({ keep: true })))).toBe('UNKNOWN_NAME')
    const update = { index: [0], generation: [0], patch: numbered(1), versions: [1] }
    expect(codeOf(() => buffer.updateIfPresent(wrong(update)))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => buffer.appendTransform((items) => items, wrong({ inverted: true })))).toBe(
      'UNKNOWN_NAME',
    )
    using dicts = new TensorDictReplayBuffer({ storage: storage() })
    expect(codeOf(() => dicts.extendWith(numbered(1), wrong({ updatePriorities: true })))).toBe(
      'UNKNOWN_NAME',
    )
  })
})

describe('wrong arguments', () => {
  const prioritized = () => {
    const buffer = new TensorDictReplayBuffer({
      storage: new LazyTensorStorage(4),
      sampler: new PrioritizedSampler({ alpha: 1 }),
    })
    buffer.extend(numbered(1, 2))
    return buffer
  }

  it('of priorities are refused and change nothing', () => {
    using buffer = prioritized()
    const before = buffer.stateDict().parts
    expect(codeOf(() => buffer.updatePriority([0], Number.NaN))).toBe('NON_FINITE')
    expect(codeOf(() => buffer.updatePriority([0, 1], [1, Number.POSITIVE_INFINITY]))).toBe('NON_FINITE')
    expect(codeOf(() => buffer.updatePriority([0, 1], [1, -1]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.updatePriority([0, 1], [1, 2, 3]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => buffer.updatePriority([4], 1))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.updatePriority([0.5], 1))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.markUpdate([2]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.updateTensorDictPriority(numbered(1)))).toBe('UNKNOWN_NAME')
    expect(buffer.stateDict().parts).toBe(before)
  })

  it('of draws and writes are refused', () => {
    using buffer = prioritized()
    for (const count of [-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(codeOf(() => buffer.sample(count))).toBe('OUT_OF_RANGE')
    }
    expect(() => buffer.sample(2 ** 40)).toThrow(/./)
    expect(
      codeOf(() => buffer.extend(TensorDict.from({ id: Tensor.zeros('f32', [0]) }, { batchSize: [0] }))),
    ).toBe('EMPTY')
    expect(() => buffer.extend(TensorDict.from({ id: Tensor.from([1]) }))).toThrow(/./)
    expect(codeOf(() => buffer.readAllInOrder(3))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => buffer.writeAll(numbered(1)))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => buffer.setAt([[0, 1]], numbered(1, 2, 3)))).toBe('SHAPE_MISMATCH')
    expect(buffer.length).toBe(2)
  })
})
