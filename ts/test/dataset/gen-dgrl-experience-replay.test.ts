import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { GenDGRLExperienceReplay, loadDataset } from '../../src/dataset/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, genDgrlOptions, goldenBytes, isNative, rowOf, rowsOf } from './golden-rows.js'

const BIGFISH = 'bigfish-level_1_E'

/** The duty of a reader of an archive that it must not read. */
const REFUSED = /^(?:typed error|refused)/

describe.runIf(isNative)('GenDGRLExperienceReplay', () => {
  // The nominal lengths of the other rows are not those of a category.
  for (const row of [rowOf('datasets', 'datasets-0048'), rowOf('datasets', 'datasets-0051')])
    it(`opens ${row.dataset_id} as TorchRL`, async () => {
      const { options } = await genDgrlOptions()
      const buffer = await GenDGRLExperienceReplay.open(row.dataset_id, { ...options, batchSize: 4 })
      expect(buffer.length).toBe(row.ok.len)
      expectRows(buffer.readAllInOrder(), row.ok.all)
      expect(buffer.dataPath).toBe(join(options.root, row.ok.data_path))
      expect(buffer.dataPathRoot).toBe(join(options.root, row.ok.data_path_root))
      expect(buffer.sample().tensor('observation').shape).toEqual([4, 3, 64, 64])
    })

  it('opens the second time without a request, and keeps no archive', async () => {
    const { asked, options } = await genDgrlOptions()
    const first = await loadDataset(`gen_dgrl:${BIGFISH}`, options)
    expect(first).toBeInstanceOf(GenDGRLExperienceReplay)
    const numAsked = asked.length
    const second = await GenDGRLExperienceReplay.open(BIGFISH, { ...options, download: false })
    expect(second.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(asked).toHaveLength(numAsked)
    const raw = await readdir(join(options.root, '.raw'), { recursive: true, withFileTypes: true })
    expect(raw.filter((entry) => entry.isFile())).toEqual([])
    const split = GenDGRLExperienceReplay.open(BIGFISH, { ...options, splitTrajs: true })
    await expect(split).rejects.toThrow(failing('INCOMPATIBLE', /splitTrajs true: it was with false/))
  })

  it('splits trajectories, and takes everything away again', async () => {
    const { options } = await genDgrlOptions()
    const buffer = await GenDGRLExperienceReplay.open(BIGFISH, { ...options, splitTrajs: true })
    expect(buffer.readAllInOrder().batchSize).toEqual([4, 12])
    await buffer.delete()
    expect(existsSync(buffer.dataPath)).toBe(false)
  })

  for (const row of rowsOf('broken', 'GenDGRL'))
    it(`of an archive with ${row.case}: ${row.must}`, async () => {
      const { options } = await genDgrlOptions({ 'bigfish.tar.xz': goldenBytes(row.files[0] ?? '') })
      const opening = GenDGRLExperienceReplay.open(BIGFISH, options)
      if (!REFUSED.test(row.must)) return void expect((await opening).length).toBeGreaterThan(0)
      await expect(opening).rejects.toThrow(named)
      expect(await readdir(options.root)).toEqual(['.raw'])
    })

  it('names the function that a pickle calls', async () => {
    const { options } = await genDgrlOptions({
      'bigfish.tar.xz': goldenBytes('broken/gen_dgrl/evil.tar.xz'),
    })
    const opening = GenDGRLExperienceReplay.open(BIGFISH, options)
    await expect(opening).rejects.toThrow(failing('FORBIDDEN', /bigfish\.tar\.xz: member .*"os\.getenv"/))
  })

  it('does not take the page of an error for an archive', async () => {
    const { options } = await genDgrlOptions()
    const opening = GenDGRLExperienceReplay.open('maze-1M_E', options)
    await expect(opening).rejects.toThrow(failing('IO', /404/))
    expect(existsSync(join(options.root, 'maze-1M_E'))).toBe(false)
  })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/bigfish\.tar\.xz/),
})

describe('GenDGRLExperienceReplay.open', () => {
  it('refuses an id that it does not know, with the nearest one', async () => {
    await expect(GenDGRLExperienceReplay.open('bigfish-2M', { root: '/nowhere' })).rejects.toThrow(
      failing('UNKNOWN_NAME', /data sets of Gen-DGRL: got "bigfish-2M"; did you mean bigfish-25M\?/),
    )
    for (const id of ['../bigfish-1M_E', '', 'constructor'])
      await expect(GenDGRLExperienceReplay.open(id)).rejects.toThrow(failing('UNKNOWN_NAME'))
  })

  it('refuses options before a byte is fetched', async () => {
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(GenDGRLExperienceReplay.open(BIGFISH, options)).rejects.toThrow(failing(code, message))
    await refuse({ mirrors: 'x' }, 'UNKNOWN_NAME', /'mirror'/)
    await refuse({ mirror: 7 }, 'MALFORMED', /options\.mirror must be a text/)
    await refuse({ splitTrajs: 1 }, 'MALFORMED', /splitTrajs/)
    await refuse({ batchSize: 0 }, 'OUT_OF_RANGE', /batchSize/)
  })

  it('lists the ids', () => {
    expect(GenDGRLExperienceReplay.availableDatasets).toHaveLength(128)
    expect(GenDGRLExperienceReplay.availableDatasets).toContain(BIGFISH)
  })
})
