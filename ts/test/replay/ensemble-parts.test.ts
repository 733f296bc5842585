import { expect, it } from 'vitest'
import {
  ImmutableDatasetWriter,
  LazyTensorStorage,
  RandomSampler,
  ReplayBuffer,
  ReplayBufferEnsemble,
  RoundRobinWriter,
  type Sampler,
  SamplerEnsemble,
  SamplerWithoutReplacement,
  StorageEnsemble,
  WriterEnsemble,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

const itemsOf = (...ids: number[]) => TensorDict.from({ id: Tensor.from(ids) }, { batchSize: [ids.length] })
const storageOf = (...ids: number[]) => {
  const storage = new LazyTensorStorage(4)
  storage.set(ids.keys(), itemsOf(...ids))
  return storage
}
const idsOf = (items: TensorDict) => Array.from(items.tensor('id').data, Number)

it('draws as an ensemble of buffers that have its parts', () => {
  const storages = [storageOf(1, 2, 3, 4), storageOf(10, 20)]
  const samplers = () => [new SamplerWithoutReplacement(), new RandomSampler()]
  const ours = new ReplayBufferEnsemble(
    {
      storages: new StorageEnsemble(storages),
      samplers: new SamplerEnsemble(samplers(), { p: [0.3, 0.7] }),
      writers: new WriterEnsemble([new RoundRobinWriter(), new ImmutableDatasetWriter()]),
    },
    { seed: 4 },
  )
  const buffers = storages.map(
    (storage, at) => new ReplayBuffer({ storage, sampler: samplers()[at] as Sampler, seed: 4 + at }),
  )
  const wanted = new ReplayBufferEnsemble(buffers, { seed: 4, p: [0.3, 0.7] })
  for (let draw = 0; draw < 20; draw++) {
    const [one, other] = [ours.sampleWithInfo(4), wanted.sampleWithInfo(4)]
    expect([one.bufferIds, idsOf(one.items)]).toEqual([other.bufferIds, idsOf(other.items)])
  }
  expect(() => ours.buffers[1]?.extend(itemsOf(1))).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
})

it('takes random samplers and rings where none are given', () => {
  const ensemble = new ReplayBufferEnsemble({ storages: new StorageEnsemble([storageOf(1), storageOf(2)]) })
  expect(ensemble.sample(4).batchSize).toEqual([2, 2])
  expect(ensemble.length).toBe(2)
})

it('reads rows of storages by their number', () => {
  const storages = new StorageEnsemble([storageOf(1, 2), storageOf(10)])
  const parts = storages.get([
    { buffer: 1, rows: [0, 0] },
    { buffer: 0, rows: [1] },
  ])
  expect(parts.map(({ buffer, items }) => [buffer, idsOf(items)])).toEqual([
    [1, [10, 10]],
    [0, [2]],
  ])
  for (const bad of [
    { buffer: 2, rows: [0] },
    { buffer: 1, rows: [3] },
  ]) {
    expect(() => storages.get([bad])).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  }
})

it('refuses parts that do not fit', () => {
  const storages = new StorageEnsemble([storageOf(1), storageOf(2)])
  const one = new SamplerEnsemble([new RandomSampler()])
  expect(() => new StorageEnsemble([])).toThrow(expect.objectContaining({ code: 'EMPTY' }))
  expect(() => new ReplayBufferEnsemble({ storages, samplers: one })).toThrow(
    expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
  )
  expect(() => new ReplayBufferEnsemble({ storages }, { p: [1, 0] })).toThrow(
    expect.objectContaining({ code: 'INCOMPATIBLE' }),
  )
  expect(() => new ReplayBufferEnsemble({ storages, writer: 1 } as never)).toThrow("did you mean 'writers'?")
})
