import { existsSync } from 'node:fs'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { loadDataset, OpenXExperienceReplay } from '../../src/dataset/index.js'
import {
  RandomSampler,
  SamplerWithoutReplacement,
  SliceSampler,
  SliceSamplerWithoutReplacement,
} from '../../src/replay/index.js'
import { failing } from '../torchrl/envs/chats.js'
import {
  expectNearImages,
  expectRows,
  goldenBytes,
  isNative,
  openXOptions,
  rowOf,
  rowsOf,
  type Wanted,
} from './golden-rows.js'

const STRETCH = 'cmu_stretch'

/** Options of a stored data set from a hub on loopback. */
async function storedOptions(others?: Readonly<Record<string, Uint8Array>>) {
  const { hub, options, root } = await openXOptions(others)
  return { hub, options: { ...options, root, streaming: false } as const }
}

describe.runIf(isNative)('OpenXExperienceReplay', () => {
  for (const id of ['datasets-0063', 'datasets-0065', 'datasets-0066'])
    it(`opens ${rowOf('datasets', id).dataset_id} as TorchRL (${id})`, async () => {
      const row = rowOf('datasets', id)
      const { options } = await storedOptions()
      const buffer = await OpenXExperienceReplay.open(row.dataset_id, { ...options, batchSize: 4 })
      expect(buffer.length).toBe(row.ok.len)
      // Decoders of JPEG may differ by 3.
      if (row.dataset_id === 'viola') expectNearImages(buffer.readAllInOrder(), row.ok.all)
      else expectRows(buffer.readAllInOrder(), row.ok.all)
      expect(buffer.dataPath).toBe(join(options.root, row.ok.data_path))
      expect(buffer.dataPathRoot).toBe(join(options.root, row.ok.data_path_root))
      expect(buffer.sample().batchSize).toEqual([4])
      expect(buffer.sampler).toBeInstanceOf(RandomSampler)
    })

  it('yields whole episodes in order, as TorchRL, without a batch size', async () => {
    const row = rowOf('datasets', 'datasets-0068')
    const { options } = await storedOptions()
    const buffer = await OpenXExperienceReplay.open(STRETCH, { ...options, shuffle: false })
    const episodes = [...buffer]
    expect(episodes).toHaveLength(row.ok.batches.length)
    for (const [at, episode] of episodes.entries()) {
      // TorchRL has positions of slices as `[rows, 1]`, of other draws as `[rows]`.
      const { index, ...rest } = (row.ok.batches[at] as { readonly k: Readonly<Record<string, Wanted>> }).k
      expectRows(episode.exclude(['index']), { k: rest }, `episode ${at}`)
      expect(Array.from(episode.tensor('index').data, Number)).toEqual(index?.d)
    }
  })

  it('yields each episode once in an order that the seed draws', async () => {
    const { options } = await storedOptions()
    const orders = new Set<string>()
    for (const seed of [0, 0, 1, 2, 3]) {
      const buffer = await OpenXExperienceReplay.open(STRETCH, { ...options, seed })
      const order = [...buffer].map((episode) => Number(episode.tensor('episode').data[0]))
      expect([...order].sort()).toEqual([0, 1, 2, 3, 4])
      orders.add(order.join())
    }
    expect(orders.size).toBeGreaterThan(1)
    expect(orders.size).toBeLessThan(5)
  })

  it('draws slices of one episode each', async () => {
    const { options } = await storedOptions()
    const slices = { ...options, numSlices: 2, batchSize: 8, strictLength: false }
    const buffer = await OpenXExperienceReplay.open(STRETCH, slices)
    expect(buffer.sampler).toBeInstanceOf(SliceSampler)
    const batch = buffer.sample()
    const [first = -1, ...rest] = Array.from(batch.tensor('index').data, Number)
    expect(rest.slice(0, 3)).toEqual([first + 1, first + 2, first + 3])
    const episodes = Array.from(batch.tensor('episode').data, Number)
    expect(new Set(episodes.slice(0, 4)).size).toBe(1)
  })

  it('gives what TorchRL gives for the rows that it drew', async () => {
    const { options } = await storedOptions()
    const once = { ...options, sliceLen: 4, batchSize: 4, replacement: false, shuffle: false }
    const buffer = await OpenXExperienceReplay.open(STRETCH, once)
    expect(buffer.sampler).toBeInstanceOf(SliceSamplerWithoutReplacement)
    const episodes = [...buffer].map((batch) => new Set(Array.from(batch.tensor('episode').data, Number)))
    expect(episodes).toEqual([0, 1, 2, 3, 4].map((episode) => new Set([episode])))
  })

  it('draws rows once where replacement is false', async () => {
    const { options } = await storedOptions()
    const buffer = await OpenXExperienceReplay.open('viola', { ...options, replacement: false, batchSize: 5 })
    expect(buffer.sampler).toBeInstanceOf(SamplerWithoutReplacement)
    const drawn = [...buffer].flatMap((batch) => Array.from(batch.tensor('index').data, Number))
    expect(drawn.sort((left, right) => left - right)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  it('opens the second time without a request', async () => {
    const { hub, options } = await storedOptions()
    const first = await loadDataset(`openx:${STRETCH}`, { ...options, download: true })
    expect(first).toBeInstanceOf(OpenXExperienceReplay)
    expect(hub.seen.map(({ path }) => path).join()).not.toMatch(/resolve.*viola/)
    const numSeen = hub.seen.length
    const again = { ...options, download: false }
    const second = await OpenXExperienceReplay.open(STRETCH, again)
    expect(second.readAllInOrder().equals((first as OpenXExperienceReplay).readAllInOrder())).toBe(true)
    expect(hub.seen).toHaveLength(numSeen)
  })

  it('refuses a folder without the numbers of episodes', async () => {
    const { options } = await storedOptions()
    await mkdir(join(options.root, STRETCH), { recursive: true })
    await writeFile(join(options.root, STRETCH, 'meta.json'), '{}')
    const opening = OpenXExperienceReplay.open(STRETCH, { ...options, download: false })
    await expect(opening).rejects.toThrow(failing('CORRUPT', /episode\.memmap must be there/))
  })

  for (const row of rowsOf('broken', 'OpenX'))
    it(`of a file with ${row.case}: ${row.must}`, async () => {
      const { options } = await storedOptions({ 'viola/viola_00000.tar': goldenBytes(row.files[0] ?? '') })
      await expect(OpenXExperienceReplay.open('viola', options)).rejects.toThrow(named)
      expect(existsSync(options.root) ? await readdir(options.root) : []).toEqual([])
    })

  it('fails where the hub lacks the files', async () => {
    const { options } = await storedOptions()
    await expect(OpenXExperienceReplay.open('kuka', options)).rejects.toThrow(failing('EMPTY', /openx:kuka/))
  })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/viola_00000\.tar/),
})

describe('OpenXExperienceReplay.open', () => {
  const refuse = async (options: object, code: string, message: RegExp) => {
    const opening = OpenXExperienceReplay.open(STRETCH, { root: '/nowhere', streaming: false, ...options })
    await expect(opening).rejects.toThrow(failing(code, message))
  }

  it('refuses an id that it does not know, with the nearest one', async () => {
    const opening = OpenXExperienceReplay.open('cmu_stretsh', { root: '/nowhere', streaming: false })
    await expect(opening).rejects.toThrow(failing('UNKNOWN_NAME', /did you mean cmu_stretch\?/))
  })

  it('refuses options that exclude each other before a byte is fetched', async () => {
    await refuse({ numSlices: 2, sliceLen: 2 }, 'INCOMPATIBLE', /numSlices must come without sliceLen/)
    await refuse({ splitTrajs: true }, 'UNKNOWN_NAME', /splitTrajs must be left out/)
    await refuse({ pad: 0 }, 'INCOMPATIBLE', /options\.pad must come with streaming/)
    await refuse(
      { shuffle: false, numSlices: 2 },
      'INCOMPATIBLE',
      /options\.shuffle must be true with replacement/,
    )
    await refuse(
      { batchSize: 9, numSlices: 2 },
      'OUT_OF_RANGE',
      /batchSize must be a multiple of numSlices 2: got 9/,
    )
    await refuse(
      { batchSize: 9, sliceLen: 2 },
      'OUT_OF_RANGE',
      /batchSize must be a multiple of sliceLen 2: got 9/,
    )
  })

  it('refuses other options', async () => {
    await refuse({ num_slices: 2 }, 'UNKNOWN_NAME', /'numSlices'/)
    await refuse({ numSlices: 0 }, 'OUT_OF_RANGE', /numSlices/)
    await refuse({ sliceLen: 1.5 }, 'OUT_OF_RANGE', /sliceLen/)
    await refuse({ shuffle: 1 }, 'MALFORMED', /shuffle/)
    await refuse({ streaming: 'no' }, 'MALFORMED', /streaming/)
    await refuse({ replacement: 'no' }, 'MALFORMED', /replacement/)
    await refuse({ strictLength: 'no' }, 'MALFORMED', /strictLength/)
  })

  it('lists the ids of TorchRL', () => {
    const row = rowsOf('datasets', 'available').find(({ cls }) => cls === 'OpenX')
    expect(OpenXExperienceReplay.availableDatasets).toEqual(row?.datasets)
  })
})
