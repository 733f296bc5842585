import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { loadDataset, OpenMLExperienceReplay } from '../../src/dataset/index.js'
import { SamplerWithoutReplacement } from '../../src/replay/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { goldenBytes, isNative, openmlOptions, rowsOf, type Wanted } from './golden-rows.js'

const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value))

const description = (more: object) =>
  json({
    data_set_description: {
      url: 'https://www.openml.org/data/v1/download/2120/MagicTelescope.arff',
      default_target_attribute: 'class:',
      ...more,
    },
  })

describe.runIf(isNative)('OpenMLExperienceReplay', () => {
  for (const row of rowsOf('datasets', 'OpenML').filter(({ ok }) => ok))
    it(`opens ${row.dataset_id} as TorchRL`, async () => {
      const { options } = await openmlOptions()
      const buffer = await OpenMLExperienceReplay.open(row.dataset_id, { ...options, batchSize: 8 })
      const want = row.ok as unknown as {
        len: number
        all: { k: Record<'X' | 'y', Wanted> }
        max_outcome_val: number
        epoch_sizes: number[]
      }
      expect(buffer.length).toBe(want.len)
      expect(buffer.maxOutcomeVal).toBe(want.max_outcome_val)
      const rows = buffer.readAllInOrder()
      expect([rows.tensor('X').dtype, rows.tensor('y').dtype]).toEqual(['f64', 'i64'])
      expect(rows.tensor('X').shape).toEqual(want.all.k.X.s)
      expect(Array.from(rows.tensor('y').data, Number)).toEqual(want.all.k.y.d)
      const wanted = want.all.k.X.d as number[]
      Array.from(rows.tensor('X').data, Number).forEach((found, place) => {
        const value = wanted[place] ?? Number.NaN
        expect(Math.abs(found - value)).toBeLessThanOrEqual(1e-12 + 1e-12 * Math.abs(value))
      })
      expect(buffer.sampler).toBeInstanceOf(SamplerWithoutReplacement)
      expect(buffer.dataPath).toBe(join(options.root, row.dataset_id))
    })

  it('cannot be written, and keeps rows alone', async () => {
    const { options } = await openmlOptions()
    const buffer = await loadDataset('openml:magic', options)
    expect(() => buffer.extend(buffer.readAllInOrder())).toThrow(failing('INCOMPATIBLE'))
    const raw = await readdir(join(options.root, '.raw'), { recursive: true, withFileTypes: true })
    expect(raw.filter((entry) => entry.isFile()).map(({ name }) => name)).toEqual([])
  })

  it('opens the second time without a request', async () => {
    const { asked, options } = await openmlOptions()
    const first = await OpenMLExperienceReplay.open('shuttle', options)
    const numAsked = asked.length
    const second = await OpenMLExperienceReplay.open('shuttle', { ...options, download: false })
    expect(asked).toHaveLength(numAsked)
    expect(second.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(second.maxOutcomeVal).toBe(4)
  })

  it('takes two tables of one file at once', async () => {
    const { options } = await openmlOptions()
    const ids = ['adult_num', 'adult_onehot']
    const buffers = await Promise.all(ids.map((id) => OpenMLExperienceReplay.open(id, options)))
    expect(buffers.map(({ length }) => length)).toEqual([21, 21])
  })

  it('leaves out what the description says are no features', async () => {
    const features = [
      { name: 'fLength:', is_ignore: 'true', is_row_identifier: 'false' },
      { name: 'fWidth:', is_ignore: 'false', is_row_identifier: 'true' },
      { name: 'fSize:', is_ignore: 'false', is_row_identifier: 'false' },
    ]
    const { options } = await openmlOptions({
      '/features/1120': json({ data_features: { feature: features } }),
    })
    const buffer = await OpenMLExperienceReplay.open('magic', options)
    expect(buffer.readAllInOrder().tensor('X').shape).toEqual([30, 1])
  })

  it('refuses a file whose MD5 is not that of the description, with both sums', async () => {
    const { options } = await openmlOptions({ 'MagicTelescope.arff': goldenBytes('broken/openml/good.arff') })
    const opening = OpenMLExperienceReplay.open('magic', options)
    await expect(opening).rejects.toThrow(failing('CORRUPT', /[0-9a-f]{32}.*[0-9a-f]{32}/))
    expect(existsSync(join(options.root, 'magic'))).toBe(false)
  })

  for (const row of rowsOf('broken', 'OpenML').filter(({ must, files }) => /^typed/.test(must) && files[0]))
    it(`names the file that is ${row.case}, and leaves no folder`, async () => {
      const { options } = await openmlOptions({
        '/data/1120': description({}),
        'MagicTelescope.arff': goldenBytes(row.files[0] ?? ''),
      })
      const opening = OpenMLExperienceReplay.open('magic', options)
      await expect(opening).rejects.toThrow(failing('CORRUPT', /MagicTelescope\.arff/))
      expect(await readdir(options.root)).toEqual(['.raw'])
    })

  it('refuses answers of another form by their place', async () => {
    const refuse = async (end: string, answer: unknown, message: RegExp) => {
      const { options } = await openmlOptions({ [end]: json(answer) })
      await expect(OpenMLExperienceReplay.open('magic', options)).rejects.toThrow(failing('CORRUPT', message))
      expect(existsSync(join(options.root, 'magic'))).toBe(false)
    }
    await refuse('data_version/1', [], /a number at data\.dataset\.0\.did: got nothing/)
    await refuse('data_version/1', { data: { dataset: [{ did: '../x' }] } }, /did: got "\.\.\/x"/)
    await refuse('/data/1120', {}, /data_set_description\.url: got nothing/)
    await refuse('/data/1120', { data_set_description: { url: 'file:///etc/passwd' } }, /url: got "file/)
    await refuse(
      '/features/1120',
      { data_features: { feature: 7 } },
      /a list at data_features\.feature: got 7/,
    )
    const lone = { data_set_description: { url: 'http://x/a.arff', md5_checksum: 'z' } }
    await refuse('/data/1120', lone, /md5_checksum: got "z"/)
  })

  it('asks for the file on the mirror alone, whatever host the description names', async () => {
    const url = 'https://somewhere.example/data/v1/download/2120/MagicTelescope.arff'
    const { asked, options } = await openmlOptions({
      '/data/1120': description({ url, default_target_attribute: 'class:' }),
    })
    const buffer = await OpenMLExperienceReplay.open('magic', options)
    expect(buffer.readAllInOrder()).toBeInstanceOf(TensorDict)
    expect(asked.at(-1)).toBe('/data/v1/download/2120/MagicTelescope.arff')
  })
})

describe('OpenMLExperienceReplay.open', () => {
  it('refuses an id that it does not know, with the nearest one', async () => {
    await expect(OpenMLExperienceReplay.open('adult_nun', { root: '/nowhere' })).rejects.toThrow(
      failing('UNKNOWN_NAME', /data sets of OpenML: got "adult_nun"; did you mean adult_num\?/),
    )
    for (const id of ['iris', '../magic', '', 'constructor'])
      await expect(OpenMLExperienceReplay.open(id)).rejects.toThrow(failing('UNKNOWN_NAME'))
    expect(OpenMLExperienceReplay.availableDatasets).toHaveLength(7)
  })

  it('refuses options before a byte is fetched', async () => {
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(OpenMLExperienceReplay.open('magic', options)).rejects.toThrow(failing(code, message))
    await refuse({ splitTrajs: true }, 'UNKNOWN_NAME', /options\.splitTrajs/)
    await refuse({ mirror: 7 }, 'MALFORMED', /mirror/)
    await refuse({ batchSize: 0 }, 'OUT_OF_RANGE', /batchSize/)
  })
})
