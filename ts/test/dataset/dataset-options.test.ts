import { describe, expect, it } from 'vitest'
import { checkDatasetOptions, DATASET_KEYS, fetchOptionsOf } from '../../src/dataset/dataset-options.js'
import { ImmutableDatasetWriter, RandomSampler } from '../../src/replay/index.js'
import { failing } from '../torchrl/envs/chats.js'

describe('checkDatasetOptions', () => {
  it('takes what a buffer takes', () => {
    checkDatasetOptions({})
    const parts = { sampler: new RandomSampler(), writer: new ImmutableDatasetWriter() }
    const numbers = { batchSize: 1, prefetch: 0, seed: 2 ** 40 }
    checkDatasetOptions({ ...parts, ...numbers, download: 'force', splitTrajs: true, collateFn: (x) => x })
  })

  it('refuses values of another type by name, before anything is fetched', () => {
    const refuse = (name: string, value: unknown, code = 'MALFORMED') =>
      expect(() => checkDatasetOptions({ [name]: value })).toThrow(
        failing(code, new RegExp(`^options\\.${name} must`)),
      )
    refuse('download', 'yes')
    refuse('download', 1)
    refuse('splitTrajs', 1)
    refuse('collateFn', 'stack')
    refuse('sampler', 'random')
    refuse('writer', {})
    for (const value of [0, -1, 1.5, Number.NaN, '8']) refuse('batchSize', value, 'OUT_OF_RANGE')
    refuse('prefetch', -1, 'OUT_OF_RANGE')
    refuse('seed', 0.5, 'OUT_OF_RANGE')
  })
})

describe('fetchOptionsOf', () => {
  it('passes on what fetches take, and nothing else', () => {
    expect(fetchOptionsOf({})).toEqual({ force: false })
    const { signal } = new AbortController()
    const fetching = { signal, retries: 0, stallTimeoutMs: 5 }
    expect(fetchOptionsOf({ ...fetching, download: 'force', batchSize: 2, root: '/x' })).toEqual({
      ...fetching,
      force: true,
    })
    expect(Object.keys(fetching).every((name) => DATASET_KEYS.some((known) => known === name))).toBe(true)
  })
})
