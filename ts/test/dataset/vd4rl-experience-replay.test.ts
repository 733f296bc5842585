import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { loadDataset, VD4RLExperienceReplay } from '../../src/dataset/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { startHub } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, golden, goldenBytes, isNative, rowsOf, type Wanted } from './golden-rows.js'

const WALKER = 'main/walker_walk/random/64px'
const FLAGS = ['done', 'terminated', 'truncated']

/** The repository of V-D4RL on loopback, or one with other files. */
async function vd4rlOptions(files?: Readonly<Record<string, Uint8Array>>) {
  const folder = 'raw/hub/datasets/conglu/vd4rl'
  const names = readdirSync(golden(folder), { recursive: true, encoding: 'utf8' })
  const own = names.filter((name) => /\.(?:npz|hdf5)$/.test(name))
  const hub = await startHub({
    kind: 'dataset',
    repo: 'conglu/vd4rl',
    files: files ?? Object.fromEntries(own.map((name) => [name, goldenBytes(join(folder, name))])),
  })
  const [root, cache] = [await temporaryFolder(), await temporaryFolder()]
  return { seen: hub.seen, options: { endpoint: hub.endpoint, root, cache, retries: 0 } }
}

/** The rows without the flags that TorchRL lacks at 84 pixels. */
function withoutFlags(rows: TensorDict): TensorDict {
  return rows.exclude(['is_init', ...FLAGS, ...FLAGS.map((name) => ['next', name] as const)])
}

interface WantedSample {
  readonly index: { readonly d: readonly number[] }
  readonly batch: {
    readonly k: { readonly pixels: Wanted; readonly next: { readonly k: { readonly pixels: Wanted } } }
  }
}

describe.runIf(isNative)('VD4RLExperienceReplay', () => {
  for (const row of rowsOf('datasets', 'VD4RL').filter(({ ok, options }) => ok?.all && !options.split_trajs))
    it(`opens ${row.dataset_id} as TorchRL, in threads too`, async () => {
      const { options } = await vd4rlOptions()
      const stored = { ...options, totensor: false, numWorkers: 2 }
      const buffer = await VD4RLExperienceReplay.open(row.dataset_id, stored)
      expect(buffer.length).toBe(row.ok?.len)
      const rows = buffer.readAllInOrder()
      expectRows(row.dataset_id.endsWith('84px') ? withoutFlags(rows) : rows, row.ok?.all)
      expect(buffer.dataPath).toBe(join(options.root, row.ok?.data_path ?? ''))
    })

  it('gives images as tensors, of one size', async () => {
    const { options } = await vd4rlOptions()
    const rows = rowsOf('datasets', 'VD4RL').filter(({ ok, options }) => ok && options.totensor === undefined)
    expect(rows).toHaveLength(2)
    for (const row of rows) {
      const size = row.options.image_size as number | undefined
      const buffer = await VD4RLExperienceReplay.open(WALKER, {
        ...options,
        ...(size && { imageSize: size }),
      })
      const { sample } = row.ok as unknown as { sample: WantedSample }
      const batch = buffer.at(sample.index.d)
      for (const [found, want] of [
        [batch.tensor('pixels'), sample.batch.k.pixels],
        [batch.tensor(['next', 'pixels']), sample.batch.k.next.k.pixels],
      ] as const) {
        if (size === undefined) {
          expectRows(TensorDict.from({ pixels: found }), { k: { pixels: want } })
          continue
        }
        expect([found.dtype, found.shape]).toEqual(['f32', want.s])
        const [numbers, head, tail] = [found.toFloat32(), want.head as number[], want.tail as number[]]
        const wanted = [...head, ...tail]
        const shown = [...numbers.slice(0, head.length), ...numbers.slice(-tail.length)]
        for (const [at, value] of shown.entries())
          expect(Math.abs(value - (wanted[at] ?? Number.NaN))).toBeLessThan(1e-4)
      }
    }
  })

  it('splits trajectories, which TorchRL does not the first time, and deletes both folders', async () => {
    const { options } = await vd4rlOptions()
    const steps = await VD4RLExperienceReplay.open(WALKER, { ...options, totensor: false })
    const split = await VD4RLExperienceReplay.open(WALKER, { ...options, totensor: false, splitTrajs: true })
    expect(split.readAllInOrder().batchSize).toEqual([2, 14])
    expect(split.dataPath).toBe(`${steps.dataPath}_split`)
    await split.delete()
    expect([existsSync(steps.dataPath), existsSync(split.dataPath)]).toEqual([false, false])
  })

  it('lists the ids of the hub, and refuses others with the nearest one', async () => {
    const { options } = await vd4rlOptions()
    const { root: _, ...hub } = options
    const [row] = rowsOf('datasets', 'available').filter(({ id }) => id === 'datasets-0042')
    expect(await VD4RLExperienceReplay.availableDatasets(hub)).toEqual(row?.datasets)
    await expect(VD4RLExperienceReplay.open('main/walker_walk/randon/64px', options)).rejects.toThrow(
      failing('UNKNOWN_NAME', new RegExp(`did you mean ${WALKER}\\?`)),
    )
  })

  it('opens the second time without a request', async () => {
    const { seen, options } = await vd4rlOptions()
    const first = await loadDataset(`vd4rl:${WALKER}`, options)
    const numSeen = seen.length
    const second = await VD4RLExperienceReplay.open(WALKER, { ...options, download: false })
    expect(seen).toHaveLength(numSeen)
    expect(second.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(() => second.extend(first.readAllInOrder())).toThrow(failing('INCOMPATIBLE'))
  })

  it('cuts arrays to the shortest if that is asked for, and says so once', async () => {
    const { options } = await vd4rlOptions({
      [`vd4rl/${WALKER}/a.npz`]: goldenBytes('broken/vd4rl/short.npz'),
    })
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined)
    try {
      const buffer = await VD4RLExperienceReplay.open(WALKER, { ...options, lengthPolicy: 'shortest' })
      expect(buffer.length).toBe(4)
      expect(warn).toHaveBeenCalledOnce()
      expect(warn.mock.calls[0]?.[0]).toMatch(/1 files? had arrays of other lengths/)
    } finally {
      warn.mockRestore()
    }
    await expect(VD4RLExperienceReplay.open(WALKER, options)).rejects.toThrow(
      failing('INCOMPATIBLE', /shortest/),
    )
  })

  for (const row of rowsOf('broken', 'VD4RL').filter(({ must }) => must !== 'loads'))
    it(`names the file that has ${row.case}, and leaves no folder`, async () => {
      const { options } = await vd4rlOptions({ [`vd4rl/${WALKER}/a.npz`]: goldenBytes(row.files[0] ?? '') })
      await expect(VD4RLExperienceReplay.open(WALKER, options)).rejects.toThrow(named)
      expect(existsSync(join(options.root, WALKER))).toBe(false)
    })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/a\.npz/),
})

describe('VD4RLExperienceReplay.open', () => {
  it('refuses ids and options before a byte is fetched', async () => {
    for (const id of ['walker', '../x/64px', '', 'main//64px'])
      await expect(VD4RLExperienceReplay.open(id)).rejects.toThrow(failing('MALFORMED', /id must/))
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(VD4RLExperienceReplay.open(WALKER, options)).rejects.toThrow(failing(code, message))
    await refuse({ image_size: 8 }, 'UNKNOWN_NAME', /'imageSize'/)
    await refuse({ totensor: 1 }, 'MALFORMED', /totensor/)
    await refuse({ imageSize: 0 }, 'OUT_OF_RANGE', /imageSize .* 1 to 4096: got 0/)
    await refuse({ imageSize: [1, 2, 3] }, 'MALFORMED', /imageSize/)
    await refuse({ imageSize: 8, totensor: false }, 'INCOMPATIBLE', /totensor/)
    await refuse({ numWorkers: 65 }, 'OUT_OF_RANGE', /numWorkers/)
    await refuse({ lengthPolicy: 'longest' }, 'MALFORMED', /lengthPolicy/)
  })
})
