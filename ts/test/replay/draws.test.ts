/**
 * Tests the distribution of everything that draws against probabilities computed here. All tests together
 * fail by chance once in ALPHA's reciprocal of seeds (Bonferroni). `FULMAR_DRAWS=2000000` draws more.
 */

import { afterAll, describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { type DrawOptions, drawToken } from '../../src/objective/index.js'
import {
  LazyTensorStorage,
  PrioritizedSampler,
  RandomSampler,
  ReplayBuffer,
  type Sampler,
  SamplerWithoutReplacement,
  SliceSampler,
  SliceSamplerWithoutReplacement,
} from '../../src/replay/index.js'
import type { TensorDict } from '../../src/tensor/index.js'
import { episodes, numbered } from './items.js'

const NUM_DRAWS = Number(process.env.FULMAR_DRAWS ?? 20_000)
const NUM_TOKENS = NUM_DRAWS / 4
const ALPHA = 1e-3
/** Questions of this file that {@link holds} answers. */
const NUM_TESTS = 21
let numAsked = 0

/** The chance of a larger value of a standard normal variable (Abramowitz and Stegun 26.2.17; right to 1e-7). */
function upperTail(z: number): number {
  if (z < 0) return 1 - upperTail(-z)
  const t = 1 / (1 + 0.2316419 * z)
  const terms = [0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429]
  const series = terms.reduceRight((sum, term) => (sum + term) * t, 0)
  return (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)) * series
}

/** The chance that counts are as far from `probabilities` or farther, by Pearson's chi-square; 0 if something impossible was drawn. */
function chiSquare(counts: readonly number[], probabilities: readonly number[]): number {
  const total = counts.reduce((sum, count) => sum + count, 0)
  const whole = probabilities.reduce((sum, one) => sum + one, 0)
  let [sum, degrees] = [0, -1]
  for (const [kind, probability] of probabilities.entries()) {
    const [count, mean] = [counts[kind] ?? 0, (total * probability) / whole]
    if (mean === 0 && count > 0) return 0
    if (mean === 0) continue
    if (mean < 5) throw new Error(`kind ${kind} must be expected five times: got ${mean}`)
    sum += (count - mean) ** 2 / mean
    degrees += 1
  }
  // Wilson and Hilferty's approximation.
  const spread = 2 / (9 * degrees)
  return upperTail((Math.cbrt(sum / degrees) - 1 + spread) / Math.sqrt(spread))
}

/** The chance of a distance as large as that of `values` from the uniform distribution over [0, 1), by Kolmogorov and Smirnov. */
function kolmogorovSmirnov(values: readonly number[]): number {
  const sorted = Float64Array.from(values).sort()
  const size = sorted.length
  const distance = sorted.reduce(
    (most, value, at) => Math.max(most, value - at / size, (at + 1) / size - value),
    0,
  )
  const scaled = (Math.sqrt(size) + 0.12 + 0.11 / Math.sqrt(size)) * distance
  let sum = 0
  for (let term = 1; term <= 100; term++) sum += (-1) ** (term - 1) * Math.exp(-2 * (term * scaled) ** 2)
  return Math.min(1, 2 * sum)
}

/** That what happened is not less likely than it may be. */
function holds(chance: number): void {
  numAsked += 1
  expect(chance).toBeGreaterThan(ALPHA / NUM_TESTS)
}

function countsOf(draws: Iterable<number>, numKinds: number): number[] {
  const counts = new Array<number>(numKinds).fill(0)
  for (const draw of draws) counts[draw] = (counts[draw] ?? 0) + 1
  return counts
}

/** The rows of so many draws from a buffer of these items. */
function drawn(sampler: Sampler, items: TensorDict, batchSize: number, numDraws = NUM_DRAWS): number[] {
  const capacity = items.batchSize[0] ?? 0
  using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(capacity), sampler, seed: 17 })
  buffer.extend(items)
  const rows: number[] = []
  while (rows.length < numDraws) {
    const batch = buffer.sampleWithInfo(batchSize)
    rows.push(...batch.index)
    batch.items[Symbol.dispose]()
  }
  return rows
}

const ones = (count: number) => new Array<number>(count).fill(1)
const range = (count: number) => Array.from({ length: count }, (_, at) => at)

describe('the tests themselves', () => {
  it('notice a draw that is one percent off, and one that depends on the last', () => {
    const rng = Rng.fromSeed(3)
    const skewed = range(200_000).map(() => rng.uniform() ** 1.02)
    expect(kolmogorovSmirnov(skewed)).toBeLessThan(ALPHA / NUM_TESTS)
    const kinds = skewed.map((value) => Math.floor(10 * value))
    expect(chiSquare(countsOf(kinds, 10), ones(10))).toBeLessThan(ALPHA / NUM_TESTS)
    const steps = range(NUM_DRAWS).map((at) => at % 10)
    const pairs = steps.slice(1).map((step, at) => 10 * (steps[at] ?? 0) + step)
    expect(chiSquare(countsOf(pairs, 100), ones(100))).toBeLessThan(ALPHA / NUM_TESTS)
  })

  it('know the tables', () => {
    expect(upperTail(1.959964)).toBeCloseTo(0.025, 6)
    // The upper 5 % point of chi-square with 9 degrees of freedom is 16.919.
    const [mean, degrees] = [1000, 9]
    const off = Math.sqrt((16.919 * mean) / (degrees + 1))
    const counts = range(10).map((at) => mean + (at % 2 === 0 ? off : -off))
    expect(chiSquare(counts, ones(10))).toBeCloseTo(0.05, 3)
  })
})

describe('the generator', () => {
  it('is uniform, also two and three numbers at a time', () => {
    const rng = Rng.fromSeed(1)
    const values = range(3 * NUM_DRAWS).map(() => rng.uniform())
    holds(kolmogorovSmirnov(values))
    const cells = (size: number, sides: number) =>
      range(Math.floor(values.length / size)).map((at) =>
        values
          .slice(at * size, (at + 1) * size)
          .reduce((cell, value) => cell * sides + Math.floor(sides * value), 0),
      )
    holds(chiSquare(countsOf(cells(2, 16), 256), ones(256)))
    holds(chiSquare(countsOf(cells(3, 8), 512), ones(512)))
  })
})

describe('a buffer draws', () => {
  it('rows uniformly, one after another, whatever came before', () => {
    const rows = drawn(new RandomSampler(), numbered(...range(32)), 128)
    holds(chiSquare(countsOf(rows, 32), ones(32)))
    const pairs = rows.slice(1).flatMap((row, at) => (at % 2 === 0 ? [32 * (rows[at] ?? 0) + row] : []))
    holds(
      chiSquare(
        countsOf(
          pairs.map((pair) => (pair % 1024) >> 2),
          256,
        ),
        ones(256),
      ),
    )
  })

  it('rows uniformly from many, and each of them sooner or later', () => {
    const size = Math.floor(NUM_DRAWS / 20)
    const rows = drawn(new RandomSampler(), numbered(...range(size)), 4096, 20 * size + 4096)
    // Each row is a little interval: spread over it, the draws are uniform numbers.
    const rng = Rng.fromSeed(2)
    holds(kolmogorovSmirnov(rows.map((row) => (row + rng.uniform()) / size)))
    // Of `size` rows, `size / e^20` are expected to be left out: fewer than one in 10^5 seeds leaves one of a thousand.
    expect(new Set(rows).size).toBe(size)
  })

  it('every row once an epoch, in any order', () => {
    const rows = drawn(new SamplerWithoutReplacement(), numbered(...range(5)), 5)
    const orders = range(rows.length / 5).map((epoch) => rows.slice(5 * epoch, 5 * epoch + 5))
    for (const order of orders) expect(new Set(order).size).toBe(5)
    const names = new Map<string, number>()
    for (const order of orders) names.set(order.join(), names.get(order.join()) ?? names.size)
    expect(names.size).toBe(120)
    holds(
      chiSquare(
        countsOf(
          orders.map((order) => names.get(order.join()) ?? -1),
          120,
        ),
        ones(120),
      ),
    )
  })

  it.each([0.5, 1, 2])('rows by their priorities to the power of %d', (alpha) => {
    const priorities = range(24).map((row) => 1 + ((row * 7) % 24))
    const storage = new LazyTensorStorage(24)
    const sampler = new PrioritizedSampler({ alpha, beta: 1, eps: 0 })
    using buffer = new ReplayBuffer({ storage, sampler, seed: 3 })
    buffer.extend(numbered(...range(24)))
    buffer.updatePriority(range(24), priorities)
    const rows: number[] = []
    const wanted = 2 * NUM_DRAWS
    while (rows.length < wanted) {
      const batch = buffer.sampleWithInfo(4096)
      rows.push(...batch.index)
      batch.items[Symbol.dispose]()
    }
    holds(
      chiSquare(
        countsOf(rows, 24),
        priorities.map((priority) => priority ** alpha),
      ),
    )
  })

  it('slices that start anywhere they fit, of every episode', () => {
    const endKeys = [['next', 'done']] as const
    const starts = (sampler: Sampler) =>
      drawn(sampler, episodes(3, 9, 20), 96).filter((_, at) => at % 3 === 0)
    const bySteps = [1, 0, 0, ...ones(7), 0, 0, ...ones(18), 0, 0]
    holds(chiSquare(countsOf(starts(new SliceSampler({ sliceLen: 3, by: 'steps', endKeys })), 32), bySteps))
    const byEpisode = bySteps.map((one, row) => (row < 3 ? one : row < 12 ? one / 7 : one / 18))
    const chosen = starts(new SliceSampler({ sliceLen: 3, by: 'trajectories', endKeys }))
    holds(chiSquare(countsOf(chosen, 32), byEpisode))
    const episodeOf = (row: number) => (row < 3 ? 0 : row < 12 ? 1 : 2)
    const once = drawn(new SliceSamplerWithoutReplacement({ sliceLen: 3, endKeys }), episodes(3, 9, 20), 9)
    const firsts = once.filter((_, at) => at % 9 === 0).map(episodeOf)
    holds(chiSquare(countsOf(firsts, 3), ones(3)))
  })
})

describe('a token is drawn', () => {
  const logits = Float32Array.from(range(16), (id) => 2 * Math.sin(3 * id + 1))
  const probabilities = (temperature: number) => {
    const weights = Array.from(logits, (logit) => Math.exp(logit / temperature))
    const sum = weights.reduce((total, weight) => total + weight, 0)
    return weights.map((weight) => weight / sum)
  }
  const ranked = (list: readonly number[]) => [...list].sort((a, b) => b - a)

  /** Remaining probabilities under each rule. */
  const rules: readonly [name: string, options: Omit<DrawOptions, 'logits'>, kept: readonly number[]][] = [
    ['as the logits say', {}, probabilities(1)],
    ['at a temperature', { temperature: 1.7 }, probabilities(1.7)],
    ['among the topK likeliest', { topK: 5 }, cut(probabilities(1), (p, all) => p >= (ranked(all)[4] ?? 0))],
    [
      'among the likeliest that have topP together',
      { topP: 0.8 },
      cut(probabilities(1), (p, all) => {
        const before = ranked(all).filter((other) => other > p)
        return before.reduce((sum, other) => sum + other, 0) < 0.8
      }),
    ],
    [
      'among those with minP of the likeliest',
      { minP: 0.2 },
      cut(probabilities(1), (p, all) => p >= 0.2 * Math.max(...all)),
    ],
    [
      'by all of them',
      { temperature: 1.3, topK: 9, minP: 0.05 },
      cut(probabilities(1.3), (p, all) => p >= (ranked(all)[8] ?? 0) && p >= 0.05 * Math.max(...all)),
    ],
    ['without those that are banned', { bannedIds: [0, 3] }, probabilities(1).with(0, 0).with(3, 0)],
  ]

  function cut(all: readonly number[], keeps: (p: number, all: readonly number[]) => boolean): number[] {
    return all.map((p) => (keeps(p, all) ? p : 0))
  }

  it.each(rules)('%s', (_, options, kept) => {
    const ids = range(NUM_TOKENS).map((drawIndex) => drawToken({ logits, seed: 9, drawIndex, ...options }).id)
    holds(chiSquare(countsOf(ids, logits.length), kept))
    expect(new Set(ids).size).toBe(kept.filter((p) => p > 0).length)
  })

  it('by seed as by index: the first draw of each seed', () => {
    const ids = range(NUM_TOKENS).map((seed) => drawToken({ logits, seed, drawIndex: 0 }).id)
    holds(chiSquare(countsOf(ids, logits.length), probabilities(1)))
  })
})

// The tests run in any order.
afterAll(() => {
  expect(numAsked, 'as many questions as the level allows for').toBe(NUM_TESTS)
})
