/** Rows that stay in the files of their folder. */

import { readdir, truncate } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { D4RLExperienceReplay, LeRobotExperienceReplay } from '../../src/dataset/index.js'
import { SliceSampler } from '../../src/replay/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { d4rlOptions, golden, isNative } from './golden-rows.js'
import { filesIn, hubOptions } from './lerobot-hub.js'

const HOPPER = 'hopper-medium-v2'

describe.runIf(isNative)('columnBytesMax', () => {
  it('leaves longer columns in their files, with the same rows and draws', async () => {
    const { options } = await d4rlOptions()
    const whole = await D4RLExperienceReplay.open(HOPPER, { ...options, batchSize: 8 })
    const all = whole.readAllInOrder()
    for (const columnBytesMax of [0, 4 * whole.length, 2 ** 40]) {
      const buffer = await D4RLExperienceReplay.open(HOPPER, { ...options, batchSize: 8, columnBytesMax })
      expect(buffer.readAllInOrder().equals(all)).toBe(true)
      const drawn = await D4RLExperienceReplay.open(HOPPER, { ...options, batchSize: 8, seed: 3 })
      const same = await D4RLExperienceReplay.open(HOPPER, {
        ...options,
        batchSize: 8,
        seed: 3,
        columnBytesMax,
      })
      for (let draw = 0; draw < 3; draw++) expect(same.sample().equals(drawn.sample())).toBe(true)
      expect(() => buffer.extend(all)).toThrow(failing('INCOMPATIBLE', /immutable/))
    }
  })

  it('draws slices, maps rows and splits trajectories', async () => {
    const { options } = await d4rlOptions()
    const inFiles = { ...options, batchSize: 8, columnBytesMax: 0 }
    const slices = (more: object) =>
      D4RLExperienceReplay.open(HOPPER, { ...inFiles, ...more, sampler: new SliceSampler({ sliceLen: 4 }) })
    const [sliced, whole] = [await slices({}), await slices({ columnBytesMax: 2 ** 30 })]
    expect(sliced.sample().equals(whole.sample())).toBe(true)
    const dest = join(await temporaryFolder(), 'mapped')
    const mapped = await sliced.preprocess((rows) => rows.select(['action']), { dest, chunksize: 7 })
    expect(mapped.readAllInOrder().equals(whole.readAllInOrder().select(['action']))).toBe(true)
    const root = await temporaryFolder()
    const split = await D4RLExperienceReplay.open(HOPPER, { ...inFiles, root, splitTrajs: true })
    const wanted = await D4RLExperienceReplay.open(HOPPER, { ...options, root, splitTrajs: true })
    expect(split.readAllInOrder().equals(wanted.readAllInOrder())).toBe(true)
  })

  it('opens LeRobot with images that stay in their files', async () => {
    const { options } = await hubOptions('lerobot/x', filesIn(golden('broken/lerobot/good')))
    const open = (more: object) => LeRobotExperienceReplay.open('lerobot/x', { ...options, ...more })
    const [whole, inFiles] = [await open({}), await open({ columnBytesMax: 0, sliceLen: 2, batchSize: 4 })]
    expect(inFiles.readAllInOrder().equals(whole.readAllInOrder())).toBe(true)
    expect(inFiles.sample().batchSize).toEqual([4])
  })

  it('names a file that is cut off once it is open, and refuses other limits', async () => {
    const { options } = await d4rlOptions()
    const buffer = await D4RLExperienceReplay.open(HOPPER, { ...options, columnBytesMax: 0 })
    const leaf = (await readdir(buffer.dataPath)).find((name) => name === 'observation.memmap') ?? ''
    await truncate(join(buffer.dataPath, leaf), 4)
    expect(() => buffer.readAllInOrder()).toThrow(failing('IO', /observation\.memmap/))
    const opening = D4RLExperienceReplay.open(HOPPER, { ...options, columnBytesMax: -1 })
    await expect(opening).rejects.toThrow(failing('OUT_OF_RANGE', /columnBytesMax/))
  })
})
