import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { TrainingSample } from '../../src/chat/index.js'
import { limitAge, type OverStale } from '../../src/collect/index.js'
import { reduceMetrics } from '../../src/telemetry/index.js'

/** A sample of one prompt token and one token for each version. */
function sampleOf(versions: readonly number[]): TrainingSample {
  const at = (value: number) => Float32Array.of(0, ...versions.map(() => value))
  return {
    turnId: 0,
    ids: Uint32Array.of(7, ...versions.map((_, index) => 10 + index)),
    mask: Uint8Array.of(0, ...versions.map(() => 1)),
    versions: Uint32Array.of(0, ...versions),
    logProbs: at(-1),
    sampledLogProbs: at(-2),
    advantages: at(0.5),
    minPolicyVersion: Math.min(...versions),
    maxPolicyVersion: Math.max(...versions),
  }
}

const limited = (versions: readonly number[], overStale: OverStale, maxAge = 2) =>
  limitAge([sampleOf(versions)], { version: 7, maxAge, overStale })

describe('limitAge', () => {
  it.each<[OverStale, number[], number[][]]>([
    ['continue', [3, 3, 4, 5, 6], [[0, 1, 1, 1, 1, 1]]],
    ['maskPrefix', [3, 3, 4, 5, 6], [[0, 0, 0, 0, 1, 1]]],
    ['withhold', [3, 3, 4, 5, 6], []],
    ['cancel', [3, 3, 4, 5, 6], []],
    // At the bound nothing is too old; one past it, the token is.
    ['maskPrefix', [5, 6], [[0, 1, 1]]],
    ['maskPrefix', [4, 5], [[0, 0, 1]]],
    ['withhold', [5, 6], [[0, 1, 1]]],
    ['withhold', [4, 7], []],
    // Where no token is young enough, nothing is left to train.
    ['maskPrefix', [3, 4], []],
  ])('%s of %j keeps %j', (overStale, versions, masks) => {
    const { samples } = limited(versions, overStale)
    expect(samples.map(({ mask }) => [...mask])).toEqual(masks)
  })

  it('takes everything from a masked token but its id, and tells the weights that are left', () => {
    const [sample] = limited([4, 5, 6], 'maskPrefix').samples
    expect(sample).toEqual({
      ...sampleOf([4, 5, 6]),
      mask: Uint8Array.of(0, 0, 1, 1),
      versions: Uint32Array.of(0, 0, 5, 6),
      logProbs: Float32Array.of(0, 0, -1, -1),
      sampledLogProbs: Float32Array.of(0, 0, -2, -2),
      advantages: Float32Array.of(0, 0, 0.5, 0.5),
      minPolicyVersion: 5,
    })
  })

  it('counts what it leaves out, and does not change what it was given', () => {
    const samples = [sampleOf([3, 5]), sampleOf([6]), sampleOf([3, 3])]
    const before = structuredClone(samples)
    const result = limitAge(samples, { version: 7, maxAge: 2, overStale: 'maskPrefix' })
    expect(reduceMetrics(result.metrics).values).toEqual({
      'train_batch/num_samples_withheld/sum': 1,
      'train_batch/num_tokens_masked/sum': 1,
    })
    expect(result.samples[1]).toBe(samples[1])
    expect(samples).toEqual(before)
    expect(limitAge(samples, { version: 5, maxAge: 2, overStale: 'withhold' })).toEqual({
      samples,
      metrics: [],
    })
  })

  it('trains exactly the tokens that the naive rule trains', () => {
    const versions = fc.array(fc.nat(9), { minLength: 1, maxLength: 12 })
    const run = fc.record({
      all: fc.array(versions, { maxLength: 5 }),
      maxAge: fc.nat(9),
      overStale: fc.constantFrom<OverStale[]>('continue', 'maskPrefix', 'withhold', 'cancel'),
    })
    fc.assert(
      fc.property(run, ({ all, maxAge, overStale }) => {
        const { samples } = limitAge(all.map(sampleOf), { version: 9, maxAge, overStale })
        const isYoung = (version: number) => 9 - version <= maxAge
        const naive = all.flatMap((tokens) => {
          if (overStale === 'continue') return [tokens]
          if (overStale === 'maskPrefix') return [tokens.filter(isYoung)]
          return tokens.every(isYoung) ? [tokens] : []
        })
        const trained = samples.map((sample) => [...sample.versions].filter((_, at) => sample.mask[at] === 1))
        expect(trained).toEqual(naive.filter(({ length }) => length > 0))
        for (const [index, tokens] of trained.entries())
          expect(samples[index]?.minPolicyVersion).toBe(Math.min(...tokens))
      }),
      { seed: 11, numRuns: 200 },
    )
  })
})
