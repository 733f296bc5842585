import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { placeOf } from '../../src/dataset/dataset-experience-replay.js'
import {
  BaseDatasetExperienceReplay,
  D4RLExperienceReplay,
  MinariExperienceReplay,
} from '../../src/dataset/index.js'
import { SamplerWithoutReplacement, SliceSampler } from '../../src/replay/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { d4rlOptions, isNative, minariOptions } from './golden-rows.js'

const CARTPOLE = 'cartpole/random-v0'

afterEach(() => void vi.unstubAllEnvs())

describe.runIf(isNative)('BaseDatasetExperienceReplay', () => {
  it('draws batches of its size, with their rows', async () => {
    const { options } = await d4rlOptions()
    const buffer = await D4RLExperienceReplay.open('hopper-medium-v2', { ...options, batchSize: 8 })
    const batch = buffer.sample()
    expect(batch.batchSize).toEqual([8])
    const rows = Array.from(batch.tensor('index').data, Number)
    expect(batch.tensor('observation').equals(buffer.at(rows).tensor('observation'))).toBe(true)
    expect(buffer.sample(3).batchSize).toEqual([3])
  })

  it('draws the same batches from the same seed', async () => {
    const options = { ...(await minariOptions()), batchSize: 16 }
    const drawn = async (seed: number) => {
      const buffer = await MinariExperienceReplay.open(CARTPOLE, { ...options, seed })
      return buffer.sample()
    }
    expect((await drawn(7)).equals(await drawn(7))).toBe(true)
    expect((await drawn(7)).equals(await drawn(8))).toBe(false)
  })

  it('takes a sampler, and draws ahead', async () => {
    const sampler = new SamplerWithoutReplacement({ shuffle: false })
    const options = { ...(await minariOptions()), sampler, batchSize: 50, prefetch: 2 }
    const buffer = await MinariExperienceReplay.open(CARTPOLE, options)
    expect(buffer.sampler).toBe(sampler)
    const sizes: number[] = []
    for await (const batch of buffer.batches()) sizes.push(batch.batchSize[0] ?? 0)
    expect(sizes).toEqual([50, 50, 20])
  })

  it('draws slices that do not cross episodes', async () => {
    const sampler = new SliceSampler({ sliceLen: 5, trajKey: 'episode', strictLength: true })
    const options = { ...(await minariOptions()), sampler, batchSize: 20 }
    const buffer = await MinariExperienceReplay.open(CARTPOLE, options)
    const episodes = Array.from(buffer.sample().tensor('episode').data, Number)
    for (let at = 0; at < 20; at += 5) expect(new Set(episodes.slice(at, at + 5)).size).toBe(1)
  })

  it('draws trajectories as rows once they are split', async () => {
    const { options } = await d4rlOptions()
    const split = { ...options, splitTrajs: true, batchSize: 2 }
    const buffer = await D4RLExperienceReplay.open('kitchen-complete-v0', split)
    expect(buffer.sample().tensor('mask').shape).toEqual([2, 17])
  })

  it('transforms and collates each batch', async () => {
    const seen: string[] = []
    const named = (name: string) => (batch: TensorDict) => {
      seen.push(name)
      return batch
    }
    const options = {
      ...(await minariOptions()),
      transform: [{ forward: named('first') }, { forward: named('second') }],
      collateFn: (batch: TensorDict) => TensorDict.from({ x: batch.tensor('observation') }),
    }
    const buffer = await MinariExperienceReplay.open(CARTPOLE, options)
    expect(buffer.sample(4).keys()).toEqual(['x'])
    expect(seen).toEqual(['first', 'second'])
  })

  it('cannot be written, unless it is given a writer', async () => {
    const options = await minariOptions()
    const buffer = await MinariExperienceReplay.open(CARTPOLE, options)
    const rows = buffer.readAllInOrder()
    expect(() => buffer.extend(rows)).toThrow(failing('INCOMPATIBLE'))
    expect(() => buffer.add(rows.index(0))).toThrow(failing('INCOMPATIBLE'))
    expect(buffer.readAllInOrder().equals(rows)).toBe(true)
  })

  it('deletes its folders, and keeps what it has read', async () => {
    const { options } = await d4rlOptions()
    const buffer = await D4RLExperienceReplay.open('hopper-medium-v2', options)
    expect(buffer).toBeInstanceOf(BaseDatasetExperienceReplay)
    expect([buffer.datasetId, buffer.root]).toEqual(['hopper-medium-v2', options.root])
    await buffer.delete()
    expect(existsSync(buffer.dataPath)).toBe(false)
    expect(buffer.sample(3).batchSize).toEqual([3])
    const opening = D4RLExperienceReplay.open('hopper-medium-v2', { ...options, download: false })
    await expect(opening).rejects.toThrow(failing('UNAVAILABLE'))
  })

  it('is converted once for two that open it at once', async () => {
    const { asked, options } = await d4rlOptions()
    await D4RLExperienceReplay.open('maze2d-umaze-v1', options)
    const numAlone = asked.length
    await D4RLExperienceReplay.open('hopper-medium-v2', options)
    const before = asked.length
    const both = await Promise.all(
      [1, 2].map(() => D4RLExperienceReplay.open('kitchen-complete-v0', options)),
    )
    expect(asked.length - before).toBe(numAlone)
    expect(both[0]?.readAllInOrder().equals(both[1]?.readAllInOrder() ?? TensorDict.from({}))).toBe(true)
  })
})

describe('placeOf', () => {
  it('is below the root that is given, else a folder of the source in the cache', () => {
    const place = placeOf('minari', 'a/b-v0', { root: '/rows' }, '_split')
    expect(place).toEqual({ id: 'a/b-v0', root: '/rows', dataPath: join('/rows', 'a', 'b-v0_split') })
    vi.stubEnv('FULMAR_HOME', '/rows/cache')
    const home = join('/rows/cache', 'minari')
    expect(placeOf('minari', 'b-v0', {})).toEqual({ id: 'b-v0', root: home, dataPath: join(home, 'b-v0') })
  })

  it('refuses ids that lead out of it', () => {
    for (const id of ['../x', 'a/../../x', '/x', '', 'a//b', 'c:x', 'a\\b', 'a\0b'])
      expect(() => placeOf('minari', id, {})).toThrow(failing('MALFORMED', /^id must/))
  })
})
