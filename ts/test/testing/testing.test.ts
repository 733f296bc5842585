import { describe, expect, it } from 'vitest'
import {
  CompressedListStorage,
  ConsumingSampler,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  PrioritizedSliceSampler,
  PromptGroupSampler,
  RandomSampler,
  Rng,
  type RngState,
  Sampler,
  type SamplerSource,
  SamplerWithoutReplacement,
  SliceSampler,
  SliceSamplerWithoutReplacement,
  StalenessAwareSampler,
  Storage,
  type StorageSource,
  TensorDict,
} from '../../src/index.js'
import { checkSampler, checkStorage } from '../../src/testing/index.js'

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
    ['PromptGroupSampler', () => new PromptGroupSampler({ numGroups: 2 })],
    ["a user's own", () => Sampler.from(new RecentSampler())],
  ])('passes %s', (_, make) => {
    checkSampler(make)
  })

  const broken = (change: Partial<SamplerSource>) => () =>
    Sampler.from(Object.assign(new RecentSampler(), change))
  it.each([
    [
      'draws rows that hold nothing',
      { sample: (length: number) => ({ rows: [length] }) },
      'what sample gives: row must be <',
    ],
    ['draws nothing', { sample: () => ({ rows: [] }) }, 'a row at least'],
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
