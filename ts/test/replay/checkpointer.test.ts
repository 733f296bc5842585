import { existsSync, mkdtempSync, readdirSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  CompressedListStorageCheckpointer,
  FlatStorageCheckpointer,
  H5StorageCheckpointer,
  ListStorageCheckpointer,
  NestedStorageCheckpointer,
  StorageEnsembleCheckpointer,
  TensorStorageCheckpointer,
} from '../../src/entry/replay/files.js'
import {
  CompressedListStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  ReplayBuffer,
  ReplayBufferEnsemble,
  StorageEnsemble,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

const isNative = process.env.FULMAR_TEST_BACKEND === 'native'
let folder = ''
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'fulmar-checkpointer-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

/** Steps of episodes of 3, whose next observation is the next step's. */
function steps(start: number, count: number): TensorDict {
  const at = Array.from({ length: count }, (_, step) => start + step)
  const column = (of: (step: number) => number) => Tensor.from(at.map(of))
  const flags = (of: (step: number) => boolean) =>
    Tensor.from(
      Uint8Array.from(at, (step) => (of(step) ? 1 : 0)),
      { dtype: 'bool', shape: [count, 1] },
    )
  const observation = (step: number) => 100 * Math.floor(step / 3) + (step % 3)
  const batchSize = [count]
  const next = TensorDict.from(
    {
      observation: column((step) => observation(step) + 1),
      reward: Tensor.from(at, { shape: [count, 1] }),
      done: flags((step) => step % 3 === 2),
      terminated: flags((step) => step % 3 === 2),
      truncated: flags(() => false),
    },
    { batchSize },
  )
  return TensorDict.from(
    {
      observation: column(observation),
      action: Tensor.from(Int32Array.from(at)),
      done: flags(() => false),
      terminated: flags(() => false),
      truncated: flags(() => false),
      next,
    },
    { batchSize },
  )
}

const FORMS = [
  ['tensor', () => new LazyTensorStorage(8), () => new TensorStorageCheckpointer()],
  ['list', () => new ListStorage(8), () => new ListStorageCheckpointer()],
  [
    'compressed',
    () => new CompressedListStorage(8),
    () => new CompressedListStorageCheckpointer({ compressionLevel: 1 }),
  ],
  ['flat', () => new LazyTensorStorage(8), () => new FlatStorageCheckpointer()],
  ['nested', () => new LazyTensorStorage(8), () => new NestedStorageCheckpointer({ rewardKeys: ['reward'] })],
  ['h5', () => new LazyTensorStorage(8), () => new H5StorageCheckpointer({ checkpointFile: 'steps.h5' })],
] as const

describe.runIf(isNative)('a folder of a buffer', () => {
  it.each(FORMS)('as %s brings back the rows, the ring and the draws', (name, storage, form) => {
    const bufferOf = () =>
      new ReplayBuffer({ storage: storage(), sampler: new PrioritizedSampler(), seed: 5 })
    for (const count of [5, 11]) {
      const [buffer, other] = [bufferOf(), bufferOf()]
      buffer.extend(steps(0, 5))
      if (count > 5) buffer.extend(steps(5, count - 5))
      buffer.updatePriority([0, 1, 2], [3, 1, 2])
      const path = join(folder, `${name}-${count}`)
      buffer.dumps(path, form())
      other.loads(path, form())
      expect(other.stats).toEqual(buffer.stats)
      expect(other.readAllInOrder().equals(buffer.readAllInOrder())).toBe(true)
      expect(other.sampleWithInfo(16).index).toEqual(buffer.sampleWithInfo(16).index)
      expect(other.extend(steps(20, 2))).toEqual(buffer.extend(steps(20, 2)))
    }
  })

  it('is there whole or not at all, and is not written over', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(8) })
    buffer.extend(steps(0, 3))
    const path = join(folder, 'whole')
    buffer.dumps(path, new TensorStorageCheckpointer())
    const before = readdirSync(folder)
    expect(() => buffer.dumps(path, new TensorStorageCheckpointer())).toThrow(
      expect.objectContaining({ code: 'IO' }),
    )
    expect(() => buffer.dumps(join(folder, 'no/parent'), new TensorStorageCheckpointer())).toThrow(
      expect.objectContaining({ code: 'IO' }),
    )
    expect(readdirSync(folder)).toEqual(before)
  })

  it('leaves a buffer as it was when it is damaged, and says which file is', () => {
    const [buffer, other] = [4, 4].map(() => new ReplayBuffer({ storage: new LazyTensorStorage(8) })) as [
      ReplayBuffer,
      ReplayBuffer,
    ]
    buffer.extend(steps(0, 3))
    other.extend(steps(6, 2))
    const before = other.readAllInOrder()
    const path = join(folder, 'damaged')
    buffer.dumps(path, new TensorStorageCheckpointer())
    const leaf = readdirSync(path, { recursive: true })
      .map(String)
      .find((name) => name.endsWith('action.memmap')) as string
    truncateSync(join(path, leaf), 5)
    expect(() => other.loads(path, new TensorStorageCheckpointer())).toThrow(
      expect.objectContaining({ code: 'CORRUPT', message: expect.stringContaining('action') }),
    )
    expect(() => other.loads(join(folder, 'absent'), new TensorStorageCheckpointer())).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^(IO|CORRUPT)$/) }),
    )
    expect(other.readAllInOrder().equals(before)).toBe(true)
    expect(existsSync(path)).toBe(true)
  })

  it('refuses options that are none', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(8) })
    expect(() =>
      buffer.dumps(join(folder, 'x'), new FlatStorageCheckpointer({ donekey: 'done' } as never)),
    ).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
  })
})

it.skipIf(isNative)('says that WebAssembly has no folders', () => {
  const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(8) })
  expect(() => buffer.dumps(join(folder, 'x'), new TensorStorageCheckpointer())).toThrow(
    expect.objectContaining({ code: 'UNAVAILABLE' }),
  )
})

describe.runIf(isNative)('a folder of an ensemble', () => {
  it('brings back the rows and draws of every buffer, and is refused whole where a part is missing', () => {
    const ensembleOf = () => {
      const storages = new StorageEnsemble([new LazyTensorStorage(8), new LazyTensorStorage(4)])
      return new ReplayBufferEnsemble({ storages }, { batchSize: 4, seed: 3 })
    }
    const [ensemble, other] = [ensembleOf(), ensembleOf()]
    for (const [id, buffer] of ensemble.buffers.entries()) buffer.extend(steps(10 * id, 3))
    const path = join(folder, 'ensemble')
    const form = new StorageEnsembleCheckpointer(new TensorStorageCheckpointer())
    ensemble.dumps(path, form)
    other.loads(path, form)
    for (let draw = 0; draw < 4; draw++) {
      const [ours, theirs] = [ensemble.sampleWithInfo(), other.sampleWithInfo()]
      expect(theirs.bufferIds).toEqual(ours.bufferIds)
      expect(theirs.items.equals(ours.items)).toBe(true)
    }
    rmSync(join(path, 'writer/1'), { recursive: true })
    const empty = ensembleOf()
    expect(() => empty.loads(path, form)).toThrow(/storage 1/)
    expect(empty.buffers.map((buffer) => buffer.length)).toEqual([0, 0])
  })
})
