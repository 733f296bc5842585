/** One buffer in many threads. The workers run what `dist/` holds. */

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { describe, expect, it } from 'vitest'
import { describeBuild } from '../../src/core/index.js'
import {
  CompressedListStorage,
  HERReplayBuffer,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedReplayBuffer,
  PrioritizedSampler,
  RandomSampler,
  ReplayBuffer,
  type ReplayBufferToken,
  Sampler,
  Storage,
  TensorDictPrioritizedReplayBuffer,
  TensorDictReplayBuffer,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { idsOf, numbered } from './items.js'

const { backend } = describeBuild()
const refusal = (code: string, message = '') =>
  expect.objectContaining({ code, message: expect.stringContaining(message) })

interface Task {
  readonly task: 'write' | 'draw' | 'both' | 'batches'
  readonly writer?: number
  readonly numWrites?: number
  readonly numDraws?: number
}

const started = (token: ReplayBufferToken, task: Task) =>
  new Worker(new URL('./share-worker.mjs', import.meta.url), { workerData: { token, ...task } })

/** Returns the last message of a worker. */
async function said(worker: Worker): Promise<Record<string, number>> {
  // Both at once: a message may come with the end.
  const [[message]] = (await Promise.all([once(worker, 'message'), once(worker, 'exit')])) as [
    [Record<string, number>],
    unknown,
  ]
  return message
}

const WIDTH = 33

/** As the workers write them. */
function wideItems(...ids: number[]): TensorDict {
  const wide = Tensor.from(
    ids.flatMap((id) => Array<number>(WIDTH).fill(id)),
    { shape: [ids.length, WIDTH] },
  )
  return numbered(...ids).set('wide', wide)
}

function expectWhole(items: TensorDict): void {
  const wide = Array.from(items.tensor('wide').data, Number)
  expect(
    idsOf(items).every((id, row) =>
      wide.slice(row * WIDTH, (row + 1) * WIDTH).every((value) => value === id),
    ),
  ).toBe(true)
}

describe.runIf(backend === 'native')('a shared buffer', () => {
  it.each([
    ['LazyTensorStorage', (size: number) => new LazyTensorStorage(size)],
    ['ListStorage', (size: number) => new ListStorage(size)],
    ['LazyStackStorage', (size: number) => new LazyStackStorage(size)],
    ['CompressedListStorage', (size: number) => new CompressedListStorage(size)],
  ])('keeps every row of many threads whole, in a %s', async (_, storage) => {
    const [numWriters, numWrites, numDraws] = [3, 100, 100]
    const numRows = 1 + numWriters * numWrites * 3
    using buffer = new ReplayBuffer({ storage: storage(numRows), sampler: new PrioritizedSampler(), seed: 1 })
    buffer.extend(wideItems(7))
    const token = buffer.share()
    const writers = [1, 2, 3].map((writer) => said(started(token, { task: 'write', writer, numWrites })))
    const samplers = [1, 2].map(() => said(started(token, { task: 'draw', numDraws })))
    let isRunning = true
    const all = Promise.all([...writers, ...samplers]).finally(() => {
      isRunning = false
    })
    while (isRunning) {
      expectWhole(buffer.sample(16))
      await new Promise((resolve) => setImmediate(resolve))
    }
    const answers = await all
    expect(answers.filter(({ numTorn }) => numTorn !== undefined)).toEqual([{ numTorn: 0 }, { numTorn: 0 }])
    const held = buffer.readAllInOrder()
    expectWhole(held)
    const wanted = [1, 2, 3].flatMap((writer) =>
      Array.from({ length: numWrites * 3 }, (_, at) => writer * 100_000 + at),
    )
    expect(idsOf(held).sort((left, right) => left - right)).toEqual([7, ...wanted])
    expect(buffer.stats.writeCount).toBe(numRows)
  })

  it('tears no row of a ring that is written over while it is read', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(8), batchSize: 4 })
    buffer.extend(wideItems(7))
    const token = buffer.share()
    const workers = [1, 2].map((writer) => said(started(token, { task: 'write', writer, numWrites: 400 })))
    const draws = said(started(token, { task: 'draw', numDraws: 200 }))
    expect(await Promise.all(workers)).toEqual([{ written: 1200 }, { written: 1200 }])
    expect(await draws).toEqual({ numTorn: 0 })
    expectWhole(buffer.readAllInOrder())
    expect([buffer.length, buffer.stats.writeCount]).toEqual([8, 2401])
  })

  it('outlives a worker that is terminated in the middle', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(64), seed: 2 })
    buffer.extend(wideItems(7))
    const before = buffer.share()
    for (let round = 0; round < 5; round++) {
      const worker = started(buffer.share(), { task: 'both', writer: round + 1 })
      await once(worker, 'message')
      const { writeCount } = buffer.stats
      while (buffer.stats.writeCount < writeCount + 30) await new Promise((resolve) => setImmediate(resolve))
      await worker.terminate()
      const { writeCount: written } = buffer.stats
      expect((written - 1 - round) % 3).toBe(0)
      buffer.extend(wideItems(round))
      expect(buffer.stats.writeCount).toBe(written + 1)
      expectWhole(buffer.readAllInOrder())
      expectWhole(buffer.sample(32))
    }
    expect(buffer.share()).toEqual(before)
  })

  it('outlives workers that are terminated while batches are copied for them', async () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(64),
      batchSize: 32,
      prefetch: 4,
      seed: 2,
    })
    buffer.extend(wideItems(...Array(64).keys()))
    for (let round = 0; round < 5; round++) {
      const worker = started(buffer.share(), { task: 'batches' })
      const torn: unknown[] = []
      await once(worker, 'message')
      worker.on('message', (message) => torn.push(message))
      for (let write = 0; write < 20; write++) {
        buffer.extend(wideItems(100 * round + write))
        await new Promise((resolve) => setImmediate(resolve))
      }
      await worker.terminate()
      expect(torn).toEqual([])
      let numBatches = 0
      for await (const batch of buffer.batches()) {
        expectWhole(batch)
        numBatches += 1
        if (numBatches === 6) break
      }
    }
  })

  it('is of the same class, with the same sampler, storage and batch size', () => {
    using plain = new ReplayBuffer({ storage: new LazyTensorStorage(4, { lanes: [2] }), batchSize: 3 })
    using other = ReplayBuffer.attach(structuredClone(plain.share()))
    expect([other.storage.shape, other.sampler]).toEqual([[2, 2], expect.any(RandomSampler)])
    plain.extend(TensorDict.from({ id: Tensor.from([1, 2], { shape: [2, 1] }) }, { batchSize: [2, 1] }))
    expect([other.length, other.sample().batchSize]).toEqual([2, [3]])

    using prioritized = new PrioritizedReplayBuffer({ storage: new LazyTensorStorage(4), beta: 0.5 })
    using same = PrioritizedReplayBuffer.attach(prioritized.share())
    const sampler = same.sampler as PrioritizedSampler
    expect([sampler, sampler.beta]).toEqual([expect.any(PrioritizedSampler), 0.5])
    sampler.beta = 0.75
    expect((prioritized.sampler as PrioritizedSampler).beta).toBe(0.75)

    for (const buffers of [TensorDictReplayBuffer, TensorDictPrioritizedReplayBuffer]) {
      using told = new buffers({ storage: new LazyTensorStorage(4) })
      using again = buffers.attach(told.share())
      expect(again).toBeInstanceOf(buffers)
      again.extend(numbered(5))
      expect(told.sample(1).keys()).toContain('index')
    }
  })

  it('takes the writes of handles one after the other, each through its own transforms', () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4) })
    const shift = (items: TensorDict) => numbered(...idsOf(items).map((id) => id + 10))
    using other = ReplayBuffer.attach(buffer.share(), { transforms: [{ inverse: shift }] })
    expect([buffer.extend(numbered(1)), other.extend(numbered(2)), buffer.add(numbered(3).index(0))]).toEqual(
      [[0], [1], 2],
    )
    expect(idsOf(other.readAllInOrder())).toEqual([1, 12, 3])
    other.clear()
    expect(buffer.length).toBe(0)
  })

  it('stays open while a handle is, and its token leads nowhere afterwards', () => {
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4) })
    const token = buffer.share()
    expect(buffer.share()).toEqual(token)
    const other = ReplayBuffer.attach(token)
    buffer[Symbol.dispose]()
    other.extend(numbered(1))
    using third = ReplayBuffer.attach(token)
    expect(third.length).toBe(1)
    other[Symbol.dispose]()
    third[Symbol.dispose]()
    expect(() => ReplayBuffer.attach(token)).toThrow(refusal('CLOSED'))
    expect(() => buffer.share()).toThrow(refusal('CLOSED'))
  })

  it('refuses tokens of others', () => {
    using buffer = new TensorDictReplayBuffer()
    const token = buffer.share()
    expect(() => ReplayBuffer.attach(token)).toThrow(refusal('INCOMPATIBLE', 'TensorDictReplayBuffer'))
    expect(() => TensorDictReplayBuffer.attach({ ...token, id: 'made up' })).toThrow(refusal('CLOSED'))
    expect(() => TensorDictReplayBuffer.attach({ ...token, address: 1 } as never)).toThrow(
      refusal('UNKNOWN_NAME'),
    )
  })

  it('keeps nothing in JavaScript', () => {
    const storage = Storage.from({ maxSize: 4, set: () => {}, get: () => numbered(), clear: () => {} })
    expect(() => new ReplayBuffer({ storage }).share()).toThrow(refusal('INCOMPATIBLE', 'storage'))
    const sampler = Sampler.from({ extend: () => {}, sample: () => ({ rows: [0] }), clear: () => {} })
    expect(() => new ReplayBuffer({ sampler }).share()).toThrow(refusal('INCOMPATIBLE', 'sampler'))
    const rewardFn = () => Tensor.from([])
    const her = new HERReplayBuffer({ storage: new LazyTensorStorage(4), rewardFn })
    expect(() => her.share()).toThrow(refusal('INCOMPATIBLE', 'HERReplayBuffer'))
  })
})

describe.runIf(backend === 'wasm')('a shared buffer in WebAssembly', () => {
  it('is refused', () => {
    expect(() => new ReplayBuffer().share()).toThrow(refusal('UNAVAILABLE'))
    expect(() => ReplayBuffer.attach({ kind: 'ReplayBuffer', id: '', sampler: { kind: 'random' } })).toThrow(
      refusal('UNAVAILABLE'),
    )
  })
})
