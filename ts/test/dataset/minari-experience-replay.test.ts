import { existsSync, readFileSync } from 'node:fs'
import { cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { MinariExperienceReplay } from '../../src/dataset/index.js'
import { DueClock, LIMIT_MS } from '../fetch/due-clock.js'
import { startHub } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import {
  expectRows,
  type GoldenRow,
  golden,
  isNative,
  MINARI_ROOT,
  minariOptions,
  rowOf,
  rowsOf,
} from './golden-rows.js'

const CARTPOLE = 'cartpole/random-v0'

afterEach(() => void vi.unstubAllEnvs())

const splitOf = ({ options }: GoldenRow) => options.split_trajs === true

/** Minari's folder with one damaged data set, and where rows go. */
async function damaged(row: GoldenRow) {
  const [first = ''] = row.files
  const minariRoot = golden(first.slice(0, first.indexOf('/x-v0/')))
  return { loadFromLocalMinari: true, minariRoot, root: await temporaryFolder() }
}

describe.runIf(isNative)('MinariExperienceReplay', () => {
  for (const row of rowsOf('datasets', 'Minari').filter(({ ok }) => ok?.all))
    it(`opens ${row.dataset_id}${splitOf(row) ? ' split' : ''} as TorchRL`, async () => {
      const options = { ...(await minariOptions()), splitTrajs: splitOf(row) }
      const buffer = await MinariExperienceReplay.open(row.dataset_id, options)
      expect(buffer.length).toBe(row.ok?.len)
      expectRows(buffer.readAllInOrder(), row.ok?.all)
      expect(buffer.dataPath).toBe(join(options.root, row.ok?.data_path ?? ''))
      expect(buffer.dataPathRoot).toBe(join(options.root, row.ok?.data_path_root ?? ''))
      const { total_episodes, total_steps, dataset_id, env_spec, minari_version } = row.ok?.metadata ?? {}
      expect(buffer.metadata).toMatchObject({ total_episodes, total_steps, minari_version })
      expect(buffer.metadata.dataset_id).toBe(dataset_id)
      // TorchRL adds the parts of the name.
      expect(env_spec).toMatchObject(buffer.metadata.env_spec as object)
    })

  it('keeps the descriptions of spaces as objects, with texts for infinities', async () => {
    const { ok } = rowOf('datasets', 'datasets-0022')
    const buffer = await MinariExperienceReplay.open('goal/nested-v0', await minariOptions())
    const { env_metadata } = ok as unknown as { readonly env_metadata: Readonly<Record<string, unknown>> }
    expect(buffer.metadata.observation_space).toEqual(env_metadata.observation_space)
    expect(buffer.metadata.action_space).toEqual(env_metadata.action_space)
  })

  it('opens the second time without the files of Minari', async () => {
    const options = await minariOptions()
    const first = await MinariExperienceReplay.open(CARTPOLE, options)
    const { root } = options
    const second = await MinariExperienceReplay.open(CARTPOLE, { root, download: false })
    expect(second.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(second.metadata).toEqual(first.metadata)
  })

  it('keeps split trajectories beside the others, and deletes both', async () => {
    const options = await minariOptions()
    const whole = await MinariExperienceReplay.open(CARTPOLE, options)
    const split = await MinariExperienceReplay.open(CARTPOLE, { ...options, splitTrajs: true })
    expect(whole.readAllInOrder().batchSize).toEqual([120])
    expect(split.readAllInOrder().batchSize).toEqual([5, 30])
    await whole.delete()
    expect(await readdir(join(options.root, 'cartpole'))).toEqual([])
    await whole.delete()
  })

  it('opens a folder of TorchRL', async () => {
    const root = await temporaryFolder()
    await cp(golden(`processed/minari/${CARTPOLE}`), join(root, CARTPOLE), { recursive: true })
    const buffer = await MinariExperienceReplay.open(CARTPOLE, { root, download: false })
    expectRows(buffer.readAllInOrder(), rowOf('datasets', 'datasets-0019').ok.all)
    expect(buffer.metadata.total_steps).toBe(120)
  })

  it('finds the metadata of split trajectories where TorchRL keeps it, and refuses folders without', async () => {
    const { root, ...options } = await minariOptions()
    await MinariExperienceReplay.open(CARTPOLE, { ...options, root, splitTrajs: true })
    await rm(join(root, `${CARTPOLE}_split`, 'env_metadata.json'))
    const opening = MinariExperienceReplay.open(CARTPOLE, { root, splitTrajs: true })
    await expect(opening).rejects.toThrow(failing('CORRUPT', /env_metadata\.json must be there/))
    await mkdir(join(root, CARTPOLE))
    await writeFile(join(root, CARTPOLE, 'env_metadata.json'), '{"a": NaN, "b": [-Infinity, "NaN"]}')
    const { metadata } = await MinariExperienceReplay.open(CARTPOLE, { root, splitTrajs: true })
    expect(metadata).toEqual({ a: 'NaN', b: ['-Infinity', 'NaN'] })
    for (const text of ['[]', '{'])
      await expect(
        writeFile(join(root, CARTPOLE, 'env_metadata.json'), text).then(() =>
          MinariExperienceReplay.open(CARTPOLE, { root, splitTrajs: true }),
        ),
      ).rejects.toThrow(failing('CORRUPT', /env_metadata\.json/))
  })

  it('looks in the folder of the variable', async () => {
    vi.stubEnv('MINARI_DATASETS_PATH', MINARI_ROOT)
    const { root } = await minariOptions()
    const buffer = await MinariExperienceReplay.open(CARTPOLE, { root, loadFromLocalMinari: true })
    expect(buffer.length).toBe(120)
  })

  it('does not replace the files of Minari', async () => {
    const root = await temporaryFolder()
    await cp(join(MINARI_ROOT, CARTPOLE), join(root, CARTPOLE), { recursive: true })
    const options = { root, minariRoot: root, loadFromLocalMinari: true }
    for (const download of [true, 'force'] as const)
      await expect(MinariExperienceReplay.open(CARTPOLE, { ...options, download })).rejects.toThrow(
        failing('INCOMPATIBLE', /something else is there/),
      )
    expect(existsSync(join(root, CARTPOLE, 'data', 'main_data.hdf5'))).toBe(true)
  })

  it('lists the ids of the hub, page by page, and those of the folder on this machine', async () => {
    const file = 'data/main_data.hdf5'
    const files = {
      [`random-v0/${file}`]: 'a',
      [`easy/expert-v1/${file}`]: 'b',
      'namespace_metadata.json': '{}',
    }
    const hub = await startHub({ kind: 'dataset', repo: 'farama-minari/cartpole', files })
    let entries: readonly (readonly unknown[])[] = [[{ id: 'farama-minari/cartpole' }], []]
    hub.fault = ({ path }, response) => {
      if (path !== '/api/datasets') return false
      const [page, ...rest] = entries
      entries = rest
      const next = `${hub.endpoint}/api/datasets?author=farama-minari&cursor=1`
      if (rest.length > 0) response.setHeader('link', `<${next}>; rel="next"`)
      response.end(JSON.stringify(page))
      return true
    }
    const options = { endpoint: hub.endpoint, cache: await temporaryFolder(), retries: 0 }
    const list = (more: object = {}) => MinariExperienceReplay.availableDatasets({ ...options, ...more })
    expect(await list()).toEqual(['cartpole/easy/expert-v1', 'cartpole/random-v0'])
    entries = [[{ id: 'other/cartpole' }]]
    await expect(list()).rejects.toThrow(failing('CORRUPT', /the datasets of farama-minari.*other\/cartpole/))
    await expect(list({ offline: true })).rejects.toThrow(failing('UNAVAILABLE', /offline/))
    await expect(list({ root: 'kept' })).rejects.toThrow(failing('UNKNOWN_NAME', /\broot/))
    const local = { loadFromLocalMinari: true, minariRoot: MINARI_ROOT }
    expect(await MinariExperienceReplay.availableDatasets(local)).toContain(CARTPOLE)
    const none = { ...local, minariRoot: await temporaryFolder() }
    expect(await MinariExperienceReplay.availableDatasets(none)).toEqual([])
  })

  it('fetches one data set of a repository of the hub', async () => {
    const data = (name: string) => readFileSync(join(MINARI_ROOT, CARTPOLE, 'data', name))
    const files = {
      'random-v0/data/main_data.hdf5': data('main_data.hdf5'),
      'random-v0/data/metadata.json': data('metadata.json'),
      'expert-v0/data/main_data.hdf5': 'another data set',
    }
    const hub = await startHub({ kind: 'dataset', repo: 'farama-minari/cartpole', files })
    const options = { endpoint: hub.endpoint, cache: await temporaryFolder(), root: await temporaryFolder() }
    const fast = { clock: new DueClock(), stallTimeoutMs: LIMIT_MS }
    const buffer = await MinariExperienceReplay.open(CARTPOLE, { ...options, ...fast })
    expectRows(buffer.readAllInOrder(), rowOf('datasets', 'datasets-0019').ok.all)
    expect(hub.seen.map(({ path }) => path).join()).not.toMatch(/expert-v0/)
    const numSeen = hub.seen.length
    await MinariExperienceReplay.open(CARTPOLE, { ...options, ...fast })
    expect(hub.seen).toHaveLength(numSeen)
  })

  for (const row of rowsOf('broken', 'Minari').filter(({ must }) => must.startsWith('typed error')))
    it(`names the file of ${row.case}, and leaves no folder`, async () => {
      const options = await damaged(row)
      await expect(MinariExperienceReplay.open('x-v0', options)).rejects.toThrow(named)
      expect(await readdir(options.root)).toEqual([])
    })

  it('refuses what Minari has not', async () => {
    const opening = MinariExperienceReplay.open('nothing/here-v0', await minariOptions())
    await expect(opening).rejects.toThrow(failing('UNAVAILABLE', /minari:nothing\/here-v0/))
  })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/main_data\.hdf5|metadata\.json/),
})

describe('MinariExperienceReplay.open', () => {
  it('refuses ids before any path is made', async () => {
    const [row] = rowsOf('broken', 'Minari').filter(({ ids }) => ids)
    for (const id of [...(row?.ids ?? []), 'a/../x-v0', 'x', 'x-v', 'a\\b-v0'])
      await expect(MinariExperienceReplay.open(id, { root: '/nowhere' })).rejects.toThrow(
        failing('MALFORMED', /id must/),
      )
    expect(existsSync('/nowhere')).toBe(false)
  })

  it('refuses options before a byte is fetched', async () => {
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(MinariExperienceReplay.open(CARTPOLE, options)).rejects.toThrow(failing(code, message))
    await refuse({ loadFromLocal: true }, 'UNKNOWN_NAME', /loadFromLocalMinari/)
    await refuse({ loadFromLocalMinari: 1 }, 'MALFORMED', /loadFromLocalMinari/)
    await refuse({ minariRoot: 7 }, 'MALFORMED', /minariRoot/)
    await refuse({ splitTrajs: 'yes' }, 'MALFORMED', /splitTrajs/)
    if (isNative) await refuse({ root: '/nowhere', download: false }, 'UNAVAILABLE', /minari:cartpole/)
  })
})
