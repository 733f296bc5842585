/** Batches one after the other: drawn ahead, copied elsewhere, kept, aborted. */

import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import {
  ConsumingSampler,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  RandomSampler,
  ReplayBuffer,
  Sampler,
  SamplerWithoutReplacement,
  SliceSampler,
  Storage,
  TensorDictReplayBuffer,
} from '../../src/replay/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { episodes, idsOf, numbered, numbersOf } from './items.js'

const refusal = (code: string, message = '') =>
  expect.objectContaining({ code, message: expect.stringContaining(message) })

/** The first `count` batches, or those of an epoch. */
async function taken<T>(batches: AsyncIterable<T>, count = Number.POSITIVE_INFINITY): Promise<T[]> {
  const all: T[] = []
  for await (const batch of batches) {
    all.push(batch)
    if (all.length === count) break
  }
  return all
}

const range = (length: number) => Array.from({ length }, (_, at) => at)

/** Rows in the caller's memory. */
function inAMap(maxSize: number): Storage {
  const kept = new Map<number, TensorDict>()
  return Storage.from({
    maxSize,
    set: (rows, items) => rows.forEach((row, at) => void kept.set(row, items.indexSelect([at]))),
    get: (rows) => TensorDict.cat(rows.map((row) => kept.get(row) as TensorDict)),
    clear: () => kept.clear(),
  })
}

/** Rows one after the other, twice around. */
function inOrder(): Sampler {
  let next = 0
  return Sampler.from({
    get ranOut() {
      return next === 12
    },
    extend: () => {},
    sample: (length, count) => ({ rows: range(count).map(() => next++ % length) }),
    clear: () => {},
  })
}

describe('batches', () => {
  it.each([
    ['RandomSampler', () => new RandomSampler()],
    ['SamplerWithoutReplacement', () => new SamplerWithoutReplacement()],
    ['ConsumingSampler', () => new ConsumingSampler({ maxSampleCount: 6 })],
    ['PrioritizedSampler', () => new PrioritizedSampler()],
    ['a sampler of JavaScript', inOrder],
  ])('are those that sample would draw: %s', async (_, sampler) => {
    const made = (options: object) => {
      const buffer = new TensorDictReplayBuffer({
        storage: new LazyTensorStorage(6),
        sampler: sampler(),
        batchSize: 4,
        seed: 3,
        ...options,
      })
      buffer.extend(numbered(...range(6)))
      return buffer
    }
    using now = made({})
    using later = made({ prefetch: 0 })
    using ahead = made({ prefetch: 3 })
    const want: TensorDict[] = []
    do want.push(now.sample())
    while (!now.sampler.ranOut && now.length > 0 && want.length < 9)
    for (const buffer of [later, ahead]) {
      const got = await taken(buffer.batches(), want.length)
      expect(got.map((batch) => batch.equals(want[got.indexOf(batch)] as TensorDict))).toEqual(
        want.map(() => true),
      )
    }
  })

  it('are cut into epochs, each of which ends once all of it was given', async () => {
    for (const [dropLast, want] of [
      [false, 6],
      [true, 5],
    ] as const) {
      const sampler = new SamplerWithoutReplacement({ dropLast })
      using buffer = new ReplayBuffer({ storage: new ListStorage(11), sampler, batchSize: 2, prefetch: 3 })
      buffer.extend(numbered(...range(11)))
      for (let epoch = 0; epoch < 2; epoch++) {
        const seen = (await taken(buffer.batches())).map(idsOf)
        expect([seen.length, new Set(seen.flat()).size]).toEqual([want, dropLast ? 10 : 11])
      }
    }
  })

  it('hold what was there when they were drawn, so many of them ahead', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), batchSize: 4, prefetch: 2 })
    buffer.extend(numbered(...range(10)))
    const seen: number[][] = []
    for await (const batch of buffer.batches()) {
      seen.push(idsOf(batch))
      if (seen.length === 1) {
        expect(buffer.stats.prefetchQueueSize).toBe(2)
        buffer.extend(numbered(...range(10).map((id) => id + 100)))
      }
      if (seen.length === 5) break
    }
    expect(seen.map((ids) => ids.every((id) => id < 100))).toEqual([true, true, true, false, false])
    expect(
      seen
        .slice(3)
        .flat()
        .every((id) => id >= 100),
    ).toBe(true)
  })

  it('are left for the next iteration by one that ends early, and by an abort', async () => {
    const made = (prefetch: number) => {
      const buffer = new ReplayBuffer({
        storage: new LazyTensorStorage(9),
        sampler: new SamplerWithoutReplacement(),
        batchSize: 2,
        prefetch,
      })
      buffer.extend(numbered(...range(9)))
      return buffer
    }
    using now = made(0)
    const want = [...now].map(idsOf)
    using buffer = made(2)
    const controller = new AbortController()
    const seen = (await taken(buffer.batches(), 1)).map(idsOf)
    await expect(
      (async () => {
        for await (const batch of buffer.batches({ signal: controller.signal })) {
          seen.push(idsOf(batch))
          controller.abort('enough')
        }
      })(),
    ).rejects.toThrow(refusal('ABORTED'))
    await expect(taken(buffer.batches({ signal: controller.signal }))).rejects.toMatchObject({
      cause: 'enough',
    })
    seen.push(...(await taken(buffer.batches())).map(idsOf))
    expect(seen).toEqual(want)
  })

  it('are kept by a state, and dropped when the buffer is emptied', async () => {
    const made = () =>
      new ReplayBuffer({
        storage: new LazyTensorStorage(9),
        sampler: new SamplerWithoutReplacement(),
        batchSize: 2,
        prefetch: 3,
        seed: 1,
      })
    using buffer = made()
    buffer.extend(numbered(...range(9)))
    await taken(buffer.batches(), 1)
    const state = buffer.stateDict()
    expect(state.prefetched).toHaveLength(3)
    using again = made()
    again.loadStateDict(state)
    const rest = (await taken(again.batches())).map(idsOf)
    expect(rest).toEqual((await taken(buffer.batches())).map(idsOf))
    expect(rest.flat()).toHaveLength(7)
    expect(buffer.stateDict()).not.toHaveProperty('prefetched')
    await taken(again.batches(), 1)
    again.clear()
    expect(again.stats.prefetchQueueSize).toBe(0)
    again.loadStateDict(buffer.stateDict())
    expect(again.stats.prefetchQueueSize).toBe(0)
    expect(() => again.loadStateDict({ ...state, prefetched: [numbered(1)] })).toThrow(
      refusal('UNKNOWN_NAME'),
    )
  })

  it('come through transforms and collate, in that order', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), batchSize: 2, prefetch: 1 })
    buffer.extend(numbered(4))
    buffer.appendTransform((batch) => numbered(...idsOf(batch).map((id) => id + 1)))
    const collated: number[][] = await taken(buffer.batches({ collate: idsOf }), 2)
    expect(collated).toEqual([
      [5, 5],
      [5, 5],
    ])
    const wrong = buffer.batches({
      collate: () => {
        throw new RangeError('of the caller')
      },
    })
    await expect(taken(wrong)).rejects.toThrow(RangeError)
    expect(await taken(buffer.batches({ collate: idsOf }), 1)).toEqual([[5, 5]])
  })

  it('may come of a storage that JavaScript keeps', async () => {
    using buffer = new ReplayBuffer({ storage: inAMap(4), batchSize: 3, prefetch: 2, seed: 4 })
    using native = new ReplayBuffer({ storage: new LazyTensorStorage(4), batchSize: 3, prefetch: 2, seed: 4 })
    for (const one of [buffer, native]) one.extend(numbered(1, 2, 3, 4))
    const [own, theirs] = [await taken(buffer.batches(), 5), await taken(native.batches(), 5)]
    expect(own.map(idsOf)).toEqual(theirs.map(idsOf))
  })

  it('say what is wrong when they are asked for', async () => {
    expect(() => new ReplayBuffer({ prefetch: 2 })).toThrow(refusal('OUT_OF_RANGE', 'batch size'))
    expect(() => new ReplayBuffer({ prefetch: 1025, batchSize: 1 })).toThrow(refusal('LIMIT_EXCEEDED'))
    expect(() => new ReplayBuffer({ prefetch: -1, batchSize: 1 })).toThrow(refusal('MALFORMED'))
    using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4), batchSize: 3, prefetch: 2 })
    await expect(taken(buffer.batches())).rejects.toThrow(refusal('EMPTY'))
    await expect(taken(new ReplayBuffer().batches())).rejects.toThrow(refusal('OUT_OF_RANGE', 'batch size'))
    await expect(taken(buffer.batches({ signals: 1 } as never))).rejects.toThrow(
      refusal('UNKNOWN_NAME', 'signal'),
    )
    buffer.extend(numbered(1))
    const batches = buffer.batches()
    await batches.next()
    buffer[Symbol.dispose]()
    await expect(batches.next()).rejects.toThrow(refusal('CLOSED'))
  })

  it('do not depend on how long anything takes', async () => {
    const rng = Rng.fromSeed(1)
    const run = async (prefetch: number) => {
      const sampler = new SliceSampler({ sliceLen: 3, trajKey: 'episode' })
      using buffer = new ReplayBuffer({
        storage: new LazyTensorStorage(64),
        sampler,
        batchSize: 12,
        prefetch,
        seed: 8,
      })
      buffer.extend(episodes(8, 8, 8, 8))
      const seen: number[][] = []
      for await (const batch of buffer.batches()) {
        for (let turn = rng.below(5); turn > 0; turn--) await new Promise((resolve) => setImmediate(resolve))
        seen.push(numbersOf(batch, 'step'))
        if (seen.length === 30) break
      }
      return seen
    }
    const want = await run(0)
    for (const prefetch of [1, 2, 7]) expect(await run(prefetch)).toEqual(want)
  })
})
