import { existsSync } from 'node:fs'
import { cp, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { D4RLExperienceReplay } from '../../src/dataset/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import {
  d4rlOptions,
  expectRows,
  type GoldenRow,
  golden,
  goldenBytes,
  isNative,
  rowsOf,
} from './golden-rows.js'

const HOPPER = 'hopper-medium-v2'

/** The duty of a reader of a file that it must not read. */
const REFUSED = /^(?:typed error|refused|LIMIT_EXCEEDED)/

/** Our options of a golden row. */
const optionsOf = ({ options }: GoldenRow) => ({
  ...(options.split_trajs !== undefined && { splitTrajs: options.split_trajs === true }),
  ...(options.use_truncated_as_done !== undefined && {
    useTruncatedAsDone: options.use_truncated_as_done === true,
  }),
})

describe.runIf(isNative)('D4RLExperienceReplay', () => {
  for (const row of rowsOf('datasets', 'D4RL').filter(({ ok }) => ok))
    it(`opens ${row.dataset_id} with ${JSON.stringify(optionsOf(row))} as TorchRL`, async () => {
      const { options } = await d4rlOptions()
      const buffer = await D4RLExperienceReplay.open(row.dataset_id, { ...options, ...optionsOf(row) })
      expect(buffer.length).toBe(row.ok?.len)
      expectRows(buffer.readAllInOrder(), row.ok?.all)
      if (row.ok?.metadata.$td) expectRows(buffer.metadata, row.ok?.metadata)
      else expect(buffer.metadata.keys()).toEqual([])
      expect(buffer.dataPath).toBe(join(options.root, row.ok?.data_path ?? ''))
      expect(buffer.dataPathRoot).toBe(join(options.root, row.ok?.data_path_root ?? ''))
    })

  it('reads flags of floats, which TorchRL does not', async () => {
    const { options } = await d4rlOptions()
    const buffer = await D4RLExperienceReplay.open('carla-lane-v0', options)
    expect(buffer.length).toBeGreaterThan(0)
    expect(buffer.readAllInOrder().tensor(['next', 'terminated']).dtype).toBe('bool')
  })

  it('opens the second time without a request, with the same rows and metadata', async () => {
    const { asked, options } = await d4rlOptions()
    const first = await D4RLExperienceReplay.open(HOPPER, options)
    const numAsked = asked.length
    const second = await D4RLExperienceReplay.open(HOPPER, { ...options, download: false })
    expect(asked).toHaveLength(numAsked)
    expect(second.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(second.metadata.equals(first.metadata)).toBe(true)
    expect(first.metadata.value('algorithm')).toBe('SAC')
  })

  it('keeps rows alone, not the file that they came in', async () => {
    const { options } = await d4rlOptions()
    await D4RLExperienceReplay.open(HOPPER, options)
    expect((await readdir(options.root)).sort()).toEqual(['.raw', HOPPER])
    const raw = await readdir(join(options.root, '.raw'), { recursive: true, withFileTypes: true })
    expect(raw.filter((entry) => entry.isFile()).map(({ name }) => name)).toEqual([])
  })

  it('fetches and converts once more if it is forced to', async () => {
    const { asked, options } = await d4rlOptions()
    await D4RLExperienceReplay.open(HOPPER, options)
    const numAsked = asked.length
    const forced = { ...options, download: 'force', splitTrajs: true } as const
    const buffer = await D4RLExperienceReplay.open(HOPPER, forced)
    expect(asked.length).toBeGreaterThan(numAsked)
    expect(buffer.storage.length).toBe(buffer.readAllInOrder().batchSize[0])
    expect(buffer.readAllInOrder().batchSize).toHaveLength(2)
  })

  it('opens a folder of TorchRL, without metadata', async () => {
    const root = await temporaryFolder()
    await cp(golden(`processed/d4rl/${HOPPER}`), join(root, HOPPER), { recursive: true })
    const buffer = await D4RLExperienceReplay.open(HOPPER, { root, download: false })
    const row = rowsOf('datasets', 'D4RL').find(({ dataset_id }) => dataset_id === HOPPER)
    expectRows(buffer.readAllInOrder(), row?.ok?.all)
    expect(buffer.metadata.keys()).toEqual([])
    const split = D4RLExperienceReplay.open(HOPPER, { root, splitTrajs: true })
    await expect(split).rejects.toThrow(failing('INCOMPATIBLE', /splitTrajs true: it was with false/))
  })

  it('refuses rows that were converted with other options', async () => {
    const { asked, options } = await d4rlOptions()
    await D4RLExperienceReplay.open(HOPPER, options)
    const numAsked = asked.length
    for (const other of [{ useTruncatedAsDone: false }, { splitTrajs: true }])
      await expect(D4RLExperienceReplay.open(HOPPER, { ...options, ...other })).rejects.toThrow(
        failing('INCOMPATIBLE', new RegExp(`d4rl:${HOPPER} in .*${Object.keys(other)[0]}`)),
      )
    expect(asked).toHaveLength(numAsked)
  })

  for (const row of rowsOf('broken', 'D4RL').filter(({ must }) => REFUSED.test(must)))
    it(`names the file that has ${row.case}, and leaves no folder`, async () => {
      const { options } = await d4rlOptions({ 'hopper_medium-v2.hdf5': goldenBytes(row.files[0] ?? '') })
      const opening = D4RLExperienceReplay.open(HOPPER, options)
      await expect(opening).rejects.toThrow(named)
      expect(await readdir(options.root)).toEqual(['.raw'])
      expect(existsSync(join(options.root, HOPPER))).toBe(false)
    })

  it('fetches a file that could not be converted anew', async () => {
    const { asked, options } = await d4rlOptions({
      'hopper_medium-v2.hdf5': goldenBytes('broken/d4rl/html.hdf5'),
    })
    for (const count of [1, 2]) {
      await expect(D4RLExperienceReplay.open(HOPPER, options)).rejects.toThrow(failing('CORRUPT'))
      expect(new Set(asked).size).toBe(1)
      expect(asked.length).toBeGreaterThanOrEqual(count)
    }
  })

  it('fails where the server lacks the file', async () => {
    const { options } = await d4rlOptions()
    const opening = D4RLExperienceReplay.open('ant-random-v0', options)
    await expect(opening).rejects.toThrow(failing('IO', /404/))
  })

  it('stops when the signal fires', async () => {
    const { asked, options } = await d4rlOptions()
    const opening = D4RLExperienceReplay.open(HOPPER, { ...options, signal: AbortSignal.abort() })
    await expect(opening).rejects.toThrow(failing('ABORTED'))
    expect(asked).toEqual([])
    const abort = new AbortController()
    const late = D4RLExperienceReplay.open(HOPPER, {
      ...options,
      signal: abort.signal,
      onProgress: () => abort.abort(),
    })
    await expect(late).rejects.toThrow(failing('ABORTED'))
    expect(existsSync(join(options.root, HOPPER))).toBe(false)
  })

  it('tells what comes', async () => {
    const { options } = await d4rlOptions()
    const names = new Set<string>()
    await D4RLExperienceReplay.open(HOPPER, { ...options, onProgress: ({ name }) => void names.add(name) })
    expect([...names].join()).toMatch(/hopper_medium-v2\.hdf5/)
  })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/hopper_medium-v2\.hdf5/),
})

describe('D4RLExperienceReplay.open', () => {
  it('refuses an id that it does not know, with the nearest one', async () => {
    await expect(D4RLExperienceReplay.open('hopper-medum-v2', { root: '/nowhere' })).rejects.toThrow(
      failing('UNKNOWN_NAME', /got "hopper-medum-v2"; did you mean hopper-medium-v2\?/),
    )
    for (const id of ['../hopper-medium-v2', '', '/x', 'constructor'])
      await expect(D4RLExperienceReplay.open(id)).rejects.toThrow(failing('UNKNOWN_NAME'))
  })

  it('refuses options before a byte is fetched', async () => {
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(D4RLExperienceReplay.open(HOPPER, options)).rejects.toThrow(failing(code, message))
    await refuse({ someEnvKwarg: 1 }, 'UNKNOWN_NAME', /options\.someEnvKwarg/)
    await refuse({ split_trajs: true }, 'UNKNOWN_NAME', /'splitTrajs'/)
    await refuse({ fromEnv: true }, 'UNKNOWN_NAME', /options\.fromEnv must be left out: .*simulators/)
    await refuse({ terminateOnEnd: false }, 'UNKNOWN_NAME', /options\.terminateOnEnd .*simulators/)
    await refuse({ useTruncatedAsDone: 1 }, 'MALFORMED', /useTruncatedAsDone/)
    await refuse({ mirror: 7 }, 'MALFORMED', /mirror/)
    await refuse({ root: '' }, 'MALFORMED', /options\.root/)
  })

  it('lists the ids', () => {
    expect(D4RLExperienceReplay.availableDatasets).toContain(HOPPER)
  })
})
