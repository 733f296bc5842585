import { describe, expect, it } from 'vitest'
import {
  D4RLExperienceReplay,
  datasetSources,
  loadDataset,
  MinariExperienceReplay,
  registerDataset,
} from '../../src/dataset/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { d4rlOptions, isNative, minariOptions } from './golden-rows.js'

describe('loadDataset', () => {
  it('finds the source before the first colon, in any case, with spaces around it', async () => {
    registerDataset('finding', (id, options) => [id, options])
    expect(await loadDataset('finding:x')).toEqual(['x', {}])
    expect(await loadDataset('finding:a:b', { y: 1 })).toEqual(['a:b', { y: 1 }])
    expect(await loadDataset(' FINDING :x')).toEqual(['x', {}])
    expect(await loadDataset('finding:')).toEqual(['', {}])
  })

  it('refuses a name without a source, and an unknown one with the nearest', async () => {
    for (const name of ['plain', ':x', ' :x', '', 7 as never])
      await expect(loadDataset(name)).rejects.toThrow(failing('MALFORMED'))
    await expect(loadDataset('minary:x-v0')).rejects.toThrow(
      failing('UNKNOWN_NAME', /one of .*d4rl.* minari.*: got "minary"; did you mean minari\?/),
    )
  })

  it('passes on what the source throws', async () => {
    registerDataset('throwing', () => {
      throw new RangeError('no such rows')
    })
    await expect(loadDataset('throwing:x')).rejects.toThrow(new RangeError('no such rows'))
    await expect(loadDataset('d4rl:nothing-v0')).rejects.toThrow(failing('UNKNOWN_NAME', /data sets of D4RL/))
    await expect(loadDataset('minari:../x-v0')).rejects.toThrow(failing('MALFORMED', /id must/))
    await expect(loadDataset('minari:x-v0', { nothing: 1 } as never)).rejects.toThrow(
      failing('UNKNOWN_NAME', /options\.nothing/),
    )
  })

  it.runIf(isNative)('opens D4RL and Minari', async () => {
    const d4rl = await loadDataset('d4rl:hopper-medium-v2', (await d4rlOptions()).options)
    expect(d4rl).toBeInstanceOf(D4RLExperienceReplay)
    expect(d4rl.length).toBe(42)
    const minari = await loadDataset('minari:cartpole/random-v0', await minariOptions())
    expect(minari).toBeInstanceOf(MinariExperienceReplay)
    expect(minari.length).toBe(120)
  })
})

describe('registerDataset', () => {
  it('refuses a source that is there, unless it may be replaced', async () => {
    registerDataset('once', () => 1)
    expect(() => registerDataset(' ONCE ', () => 2)).toThrow(failing('INCOMPATIBLE', /"once"/))
    expect(() => registerDataset('once', () => 2, { replace: false })).toThrow(failing('INCOMPATIBLE'))
    expect(await loadDataset('once:x')).toBe(1)
    registerDataset('once', () => 2, { replace: true })
    expect(await loadDataset('once:x')).toBe(2)
    expect(() => registerDataset('d4rl', () => 2)).toThrow(failing('INCOMPATIBLE'))
  })

  it('refuses names and factories that cannot be', () => {
    for (const name of ['', ' ', 'a:b', 3 as never])
      expect(() => registerDataset(name, () => 1)).toThrow(failing('MALFORMED', /source must/))
    for (const factory of ['module', 3, undefined])
      expect(() => registerDataset('factories', factory as never)).toThrow(
        failing('MALFORMED', /factory must/),
      )
    expect(() => registerDataset('factories', () => 1, { replaced: true } as never)).toThrow(
      failing('UNKNOWN_NAME', /replace/),
    )
    expect(datasetSources()).not.toContain('factories')
  })

  it.each([undefined, null])('refuses %s from a source by its name', async (nothing) => {
    registerDataset('nothing', () => nothing, { replace: true })
    registerDataset('nothing_later', async () => nothing, { replace: true })
    const rule = (source: string) =>
      new RegExp(`source ${source} must return a data set for "a:b": got ${nothing}`)
    await expect(loadDataset('nothing:a:b')).rejects.toThrow(failing('MALFORMED', rule('nothing')))
    await expect(loadDataset('nothing_later:a:b')).rejects.toThrow(
      failing('MALFORMED', rule('nothing_later')),
    )
  })

  it('lists the sources in order', () => {
    registerDataset('aaa', () => 1)
    expect(datasetSources()).toEqual([...datasetSources()].sort())
    expect(datasetSources()).toEqual(expect.arrayContaining(['aaa', 'd4rl', 'minari']))
  })
})
