import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { describeBuild, Rng } from '../../src/core/index.js'
import type { RngState } from '../../src/core/rng.js'
import {
  CompressedListStorageCheckpointer,
  FlatStorageCheckpointer,
  H5StorageCheckpointer,
  ListStorageCheckpointer,
  NestedStorageCheckpointer,
  TensorStorageCheckpointer,
} from '../../src/entry/replay/files.js'
import type { StorageCheckpointerBase } from '../../src/replay/checkpointer.js'
import {
  CompressedListStorage,
  ConsumingSampler,
  ImmutableDatasetWriter,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  PrioritizedSliceSampler,
  PromptGroupSampler,
  RandomSampler,
  RoundRobinWriter,
  Sampler,
  type SamplerSource,
  SamplerWithoutReplacement,
  SliceSampler,
  SliceSamplerWithoutReplacement,
  StalenessAwareSampler,
  Storage,
  type StorageSource,
  StreamingSliceSampler,
  TensorDictMaxValueWriter,
  Writer,
  type WriterSource,
} from '../../src/replay/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { checkCheckpointer, checkSampler, checkStorage, checkWriter } from '../../src/testing/index.js'

/** A user's storage. */
class MapStorage implements StorageSource {
  readonly maxSize = 8
  readonly kept = new Map<number, TensorDict>()

  set(rows: readonly number[], items: TensorDict): void {
    rows.forEach((row, at) => {
      this.kept.set(row, items.indexSelect([at]))
    })
  }

  get(rows: readonly number[]): TensorDict {
    return TensorDict.cat(rows.map((row) => this.kept.get(row) as TensorDict))
  }

  clear(): void {
    this.kept.clear()
  }
}

/** A user's sampler. */
class RecentSampler implements SamplerSource {
  #rng = Rng.fromSeed(4)
  #newest = 0

  extend(rows: readonly number[]): void {
    this.#newest = rows.at(-1) ?? this.#newest
  }

  sample(length: number, count: number) {
    return {
      rows: Array.from({ length: count }, (_, at) => (at === 0 ? this.#newest : this.#rng.below(length))),
    }
  }

  clear(): void {
    this.#newest = 0
  }

  state() {
    return { rng: { ...this.#rng.state }, newest: this.#newest }
  }

  restore(state: never): void {
    const { rng, newest } = state as { rng: RngState; newest: number }
    this.#rng = Rng.fromState(rng)
    this.#newest = newest
  }
}

describe('checkStorage', () => {
  it.each([
    ['LazyTensorStorage', () => new LazyTensorStorage(8)],
    ['ListStorage', () => new ListStorage(8)],
    ['LazyStackStorage', () => new LazyStackStorage(8)],
    ['CompressedListStorage', () => new CompressedListStorage(8)],
    ["a user's own", () => Storage.from(new MapStorage())],
  ])('passes %s', (_, make) => {
    checkStorage(make)
  })

  const broken = (change: Partial<StorageSource>) => () =>
    Storage.from(Object.assign(new MapStorage(), change))
  it.each([
    [
      'gives rows in another order',
      {
        get(this: MapStorage, rows: readonly number[]) {
          return TensorDict.cat(rows.toReversed().map((row) => this.kept.get(row) as TensorDict))
        },
      },
      'in the order asked for',
    ],
    [
      'keeps the first of a row',
      {
        set(this: MapStorage, rows: readonly number[], items: TensorDict) {
          rows.forEach((row, at) => {
            if (rows.indexOf(row) === at) this.kept.set(row, items.indexSelect([at]))
          })
        },
      },
      'the last must stay',
    ],
    [
      'gives too few',
      {
        get(this: MapStorage, rows: readonly number[]) {
          return this.kept.get(rows[0] as number) as TensorDict
        },
      },
      'what get gives',
    ],
    [
      'throws',
      {
        get(): TensorDict {
          throw new Error('out of luck')
        },
      },
      'out of luck',
    ],
  ])('refuses one that %s', (_, change, message) => {
    expect(() => checkStorage(broken(change as Partial<StorageSource>))).toThrow(
      expect.objectContaining({ code: 'USER_CODE', message: expect.stringContaining(message) }),
    )
  })
})

describe('checkSampler', () => {
  it.each([
    ['RandomSampler', () => new RandomSampler()],
    ['SamplerWithoutReplacement', () => new SamplerWithoutReplacement()],
    ['ConsumingSampler', () => new ConsumingSampler({ maxSampleCount: 3 })],
    ['PrioritizedSampler', () => new PrioritizedSampler()],
    ['SliceSampler', () => new SliceSampler({ sliceLen: 2 })],
    ['SliceSamplerWithoutReplacement', () => new SliceSamplerWithoutReplacement({ sliceLen: 2 })],
    ['PrioritizedSliceSampler', () => new PrioritizedSliceSampler({ sliceLen: 2 })],
    ['StalenessAwareSampler', () => new StalenessAwareSampler()],
    ['StalenessAwareSampler with weights', () => new StalenessAwareSampler({ stalenessWeight: [1, 0.5] })],
    ['PromptGroupSampler', () => new PromptGroupSampler({ numGroups: 2 })],
    ["a user's own", () => Sampler.from(new RecentSampler())],
  ])('passes %s', (_, make) => {
    checkSampler(make)
  })

  it('passes one whose rows run out, in batches that they suffice for', () => {
    checkSampler(() => new StreamingSliceSampler({ sliceLen: 2 }), { batchSize: 2 })
  })

  const broken = (change: Partial<SamplerSource>) => () =>
    Sampler.from(Object.assign(new RecentSampler(), change))
  it.each([
    [
      'draws rows that hold nothing',
      { sample: (length: number) => ({ rows: [length] }) },
      'what sample gives: row must be <',
    ],
    ['draws nothing', { sample: () => ({ rows: [] }) }, 'at least one row'],
    ['forgets its state', { restore: () => {} }, 'the same rows from the same state'],
    [
      'throws',
      {
        sample: () => {
          throw new Error('out of luck')
        },
      },
      'out of luck',
    ],
  ])('refuses one that %s', (_, change, message) => {
    expect(() => checkSampler(broken(change as Partial<SamplerSource>))).toThrow(
      expect.objectContaining({ code: 'USER_CODE', message: expect.stringContaining(message) }),
    )
  })
})

/** A user's writer: a ring. */
class RingWriter implements WriterSource {
  next = 0

  plan(items: TensorDict, maxSize: number): number[] {
    return Array.from({ length: items.batchSize[0] ?? 0 }, (_, at) => (this.next + at) % maxSize)
  }

  commit(rows: readonly number[]): void {
    this.next += rows.length
  }

  clear(): void {
    this.next = 0
  }

  state() {
    return this.next
  }

  restore(state: unknown): void {
    this.next = Number(state)
  }
}

describe('checkWriter', () => {
  it.each([
    ['RoundRobinWriter', () => new RoundRobinWriter()],
    ['RoundRobinWriter that tracks generations', () => new RoundRobinWriter({ trackGenerations: true })],
    ['TensorDictMaxValueWriter', () => new TensorDictMaxValueWriter()],
    ["a user's own", () => Writer.from(new RingWriter())],
  ])('passes %s', (_, make) => {
    checkWriter(make)
  })

  it('passes a writer that is read-only, told so', () => {
    checkWriter(() => new ImmutableDatasetWriter(), { isReadOnly: true })
    expect(() => checkWriter(() => new RoundRobinWriter(), { isReadOnly: true })).toThrow('must refuse items')
  })

  const broken = (change: Partial<WriterSource>) => () => Writer.from(Object.assign(new RingWriter(), change))
  it.each([
    ['plans rows that are none', { plan: () => [99, 0, 1] }, 'what plan gives: row must be <'],
    ['plans too few rows', { plan: () => [0] }, 'one row an item'],
    [
      'keeps nothing',
      { plan: (items: TensorDict) => Array(items.batchSize[0]).fill(-1) },
      'rows must all be used',
    ],
    ['forgets its state', { restore: () => {} }, 'the same rows from the same state'],
    [
      'changes when it is asked',
      {
        plan(this: RingWriter, items: TensorDict, maxSize: number) {
          return Array.from({ length: items.batchSize[0] ?? 0 }, () => this.next++ % maxSize)
        },
        commit: () => {},
      },
      'what is refused must change nothing',
    ],
    ['does not forget', { clear: () => {} }, 'leave none before them empty'],
    [
      'throws',
      {
        plan: () => {
          throw new Error('out of luck')
        },
      },
      'out of luck',
    ],
  ])('refuses one that %s', (_, change, message) => {
    expect(() => checkWriter(broken(change as Partial<WriterSource>))).toThrow(
      expect.objectContaining({ message: expect.stringContaining(message) }),
    )
  })
})

describe('checkCheckpointer', () => {
  const folders: string[] = []
  const folder = () => {
    folders.push(mkdtempSync(join(tmpdir(), 'fulmar-checkpointers-')))
    return folders.at(-1) as string
  }
  afterAll(() => {
    for (const path of folders) rmSync(path, { recursive: true })
  })

  const ALL: [string, () => StorageCheckpointerBase, ((maxSize: number) => Storage)?][] = [
    ['TensorStorageCheckpointer', () => new TensorStorageCheckpointer()],
    ['FlatStorageCheckpointer', () => new FlatStorageCheckpointer()],
    ['NestedStorageCheckpointer', () => new NestedStorageCheckpointer()],
    ['H5StorageCheckpointer', () => new H5StorageCheckpointer()],
    ['ListStorageCheckpointer', () => new ListStorageCheckpointer(), (maxSize) => new ListStorage(maxSize)],
    [
      'CompressedListStorageCheckpointer',
      () => new CompressedListStorageCheckpointer(),
      (maxSize) => new CompressedListStorage(maxSize),
    ],
  ]
  const isNative = describeBuild().backend === 'native'

  it.runIf(isNative).each(ALL)('passes %s', (_, make, storage) => {
    checkCheckpointer(make, { folder: folder(), ...(storage && { storage }) })
  })

  it.runIf(isNative)('refuses one that reads something else than was written', () => {
    let isWriting = false
    const make = () => {
      isWriting = !isWriting
      return isWriting ? new TensorStorageCheckpointer() : new FlatStorageCheckpointer()
    }
    expect(() => checkCheckpointer(make, { folder: folder() })).toThrow()
  })

  it.skipIf(isNative).each(ALL)('says that there are no folders for %s', (_, make, storage) => {
    expect(() => checkCheckpointer(make, { folder: 'none', ...(storage && { storage }) })).toThrow(
      expect.objectContaining({ code: 'UNAVAILABLE' }),
    )
  })
})
