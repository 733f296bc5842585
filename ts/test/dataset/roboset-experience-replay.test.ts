import { existsSync, readdirSync } from 'node:fs'
import { cp, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { loadDataset, RobosetExperienceReplay } from '../../src/dataset/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { startHub } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, golden, goldenBytes, isNative, rowsOf } from './golden-rows.js'

const DOOR = 'DAPG(expert)/door_v2d-v1'

/** The repository of RoboSet on loopback, or one with other files. */
async function robosetOptions(files?: Readonly<Record<string, Uint8Array>>) {
  const folder = 'raw/hub/datasets/jdvakil/RoboSet_Sim'
  const names = readdirSync(golden(folder), { recursive: true, encoding: 'utf8' })
  const own = names
    .filter((name) => /\.\w+$/.test(name))
    .map((name) => [name, goldenBytes(join(folder, name))])
  const hub = await startHub({
    kind: 'dataset',
    repo: 'jdvakil/RoboSet_Sim',
    files: files ?? (Object.fromEntries(own) as Record<string, Uint8Array>),
  })
  const [root, cache] = [await temporaryFolder(), await temporaryFolder()]
  return { seen: hub.seen, options: { endpoint: hub.endpoint, root, cache, retries: 0 } }
}

describe.runIf(isNative)('RobosetExperienceReplay', () => {
  for (const row of rowsOf('datasets', 'Roboset').filter(({ ok, options }) => ok && !options.split_trajs))
    it(`opens ${row.dataset_id} as TorchRL`, async () => {
      const { options } = await robosetOptions()
      const buffer = await RobosetExperienceReplay.open(row.dataset_id, options)
      expect(buffer.length).toBe(row.ok?.len)
      expectRows(buffer.readAllInOrder(), row.ok?.all)
      expect(buffer.dataPath).toBe(join(options.root, row.ok?.data_path ?? ''))
      expect(buffer.dataPathRoot).toBe(join(options.root, row.ok?.data_path_root ?? ''))
    })

  it('splits trajectories, which TorchRL does not the first time, and deletes both folders', async () => {
    const { options } = await robosetOptions()
    const steps = await RobosetExperienceReplay.open(DOOR, options)
    const split = await RobosetExperienceReplay.open(DOOR, { ...options, splitTrajs: true })
    const rows = split.readAllInOrder()
    const done = Array.from(steps.readAllInOrder().tensor(['next', 'done']).data, Number)
    const numTrajs = done.filter((flag) => flag === 1).length
    expect(rows.batchSize[0]).toBe(numTrajs)
    expect(Array.from(rows.tensor('mask').data, Number).filter((flag) => flag === 1)).toHaveLength(39)
    expect(split.dataPath).toBe(`${steps.dataPath}_split`)
    await split.delete()
    expect(await readdir(join(options.root, 'DAPG(expert)'))).toEqual([])
  })

  it('fetches the files of its folder alone, and none the second time', async () => {
    const { seen, options } = await robosetOptions()
    const first = await loadDataset(`roboset:${DOOR}`, options)
    const fetched = seen.map(({ path }) => path).filter((path) => path.endsWith('.h5'))
    expect(fetched.every((path) => path.includes(DOOR))).toBe(true)
    const numSeen = seen.length
    const second = await RobosetExperienceReplay.open(DOOR, { ...options, download: false })
    expect(seen).toHaveLength(numSeen)
    expect(second.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(() => second.extend(TensorDict.from({}))).toThrow(failing('INCOMPATIBLE'))
  })

  it('opens a folder of TorchRL', async () => {
    const root = await temporaryFolder()
    await cp(golden('processed/roboset/door'), join(root, DOOR), { recursive: true })
    const buffer = await RobosetExperienceReplay.open(DOOR, { root, download: false })
    expectRows(buffer.readAllInOrder(), rowsOf('datasets', 'Roboset')[0]?.ok?.all)
  })

  for (const row of rowsOf('broken', 'Roboset').filter(({ must }) => must.startsWith('typed')))
    it(`names the file that has ${row.case}, and leaves no folder`, async () => {
      const { options } = await robosetOptions({ [`${DOOR}/seed0.h5`]: goldenBytes(row.files[0] ?? '') })
      const opening = RobosetExperienceReplay.open(DOOR, options)
      await expect(opening).rejects.toThrow(named)
      expect(existsSync(join(options.root, DOOR))).toBe(false)
    })

  it('fails where the hub lacks the folder', async () => {
    const { options } = await robosetOptions({ 'README.md': new Uint8Array(1) })
    await expect(RobosetExperienceReplay.open(DOOR, options)).rejects.toThrow(failing('IO'))
    expect(existsSync(join(options.root, DOOR))).toBe(false)
  })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/seed0\.h5/),
})

describe('RobosetExperienceReplay.open', () => {
  it('lists the ids of TorchRL', () => {
    const [row] = rowsOf('datasets', 'available').filter(({ cls }) => cls === 'Roboset')
    const wanted = Object.values(row?.datasets ?? {})
    expect([...RobosetExperienceReplay.availableDatasets].sort()).toEqual(wanted.sort())
  })

  it('refuses ids and options before a byte is fetched', async () => {
    await expect(RobosetExperienceReplay.open('DAPG(expert)/dor_v2d-v1')).rejects.toThrow(
      failing('UNKNOWN_NAME', /did you mean DAPG\(expert\)\/door_v2d-v1\?/),
    )
    for (const id of ['nope', '../door', ''])
      await expect(RobosetExperienceReplay.open(id)).rejects.toThrow(failing('UNKNOWN_NAME'))
    await expect(RobosetExperienceReplay.open(DOOR, { split: true } as object)).rejects.toThrow(
      failing('UNKNOWN_NAME', /options\.split/),
    )
  })
})
