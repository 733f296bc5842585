import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LeRobotExperienceReplay, loadDataset } from '../../src/dataset/index.js'
import { RandomSampler, Sampler, SliceSampler } from '../../src/replay/index.js'
import { saveMemmap, Tensor, TensorDict } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, type GoldenRow, golden, isNative, rowsOf, type Wanted } from './golden-rows.js'
import { filesIn, goldenHub, hubOptions, nodeAv, timeDecoder } from './lerobot-hub.js'

/** TorchRL's options in our names. */
function optionsOf({ options }: GoldenRow) {
  const {
    batch_size: batchSize,
    slice_len: sliceLen,
    num_slices: numSlices,
  } = options as Record<string, number>
  const { strict_length: strictLength, rehydrate, key_map } = options
  const given = { batchSize, sliceLen, numSlices, strictLength, rehydrate, keyMap: keyMapOf(key_map) }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

function keyMapOf(text: unknown): Record<string, string> | undefined {
  return text === undefined ? undefined : JSON.parse(String(text).replaceAll("'", '"'))
}

const rows = rowsOf('datasets', 'LeRobot').filter(({ ok }) => ok)
const aloha = () => goldenHub('lerobot/aloha_tiny')

interface Sample {
  readonly index: { readonly d: readonly number[] }
  readonly batch: { readonly k: Wanted }
}

describe.runIf(isNative)('LeRobotExperienceReplay', () => {
  for (const row of rows)
    it(`opens ${row.dataset_id} as TorchRL: ${Reflect.get(row, 'note')}`, async () => {
      const { options } = await goldenHub(row.dataset_id)
      const buffer = await LeRobotExperienceReplay.open(row.dataset_id, { ...options, ...optionsOf(row) })
      expect(buffer.length).toBe(row.ok?.len)
      expectRows(buffer.readAllInOrder(), row.ok?.all)
      expect(buffer.dataPath).toBe(join(options.root, row.ok?.data_path ?? ''))
      expect(buffer.dataPathRoot).toBe(join(options.root, row.ok?.data_path_root ?? ''))
      expect(buffer.sampler.constructor.name).toBe(row.ok?.sampler)
      const { files: named } = row.ok as unknown as { readonly files: readonly [string, number][] }
      const files = named.map(([name]) => name)
      const made = (await readdir(buffer.dataPath, { recursive: true, withFileTypes: true }))
        .filter((entry) => entry.isFile())
        .map(({ parentPath, name }) => join(parentPath, name).slice(buffer.dataPath.length + 1))
      expect(made.filter((name) => name !== 'conversion.json').sort()).toEqual([...files].sort())
      const sampled = buffer.sample()
      expect(sampled.batchSize.length).toBe(1)
    })

  for (const row of rows)
    it(`draws the batch of TorchRL from its rows: ${Reflect.get(row, 'note')}`, async () => {
      const { sample } = row.ok as unknown as { readonly sample: Sample }
      const { index, batch } = sample
      const { options } = await goldenHub(row.dataset_id)
      const { numSlices: _, sliceLen: __, ...given } = optionsOf(row) as Record<string, unknown>
      const sampler = Sampler.from({ sample: () => ({ rows: index.d }) })
      const buffer = await LeRobotExperienceReplay.open(row.dataset_id, { ...options, ...given, sampler })
      const drawn = buffer.sample(index.d.length)
      expectBatch(drawn, batch.k)
    })

  it('writes the numbers that TorchRL writes, with paths of the cache', async () => {
    const { options } = await goldenHub('lerobot/pusht')
    const { dataPath } = await LeRobotExperienceReplay.open('lerobot/pusht', options)
    const refs = JSON.parse(readFileSync(join(dataPath, 'video_refs.json'), 'utf8')) as Record<
      string,
      VideoRef
    >
    const manifest = rows[0]?.ok?.manifest as Record<string, VideoRef>
    expect(Object.keys(refs)).toEqual(Object.keys(manifest))
    for (const [key, { paths, num_frames_per_file }] of Object.entries(manifest)) {
      expect(refs[key]?.num_frames_per_file).toEqual(num_frames_per_file)
      expect(refs[key]?.paths.map((path) => path.split(/snapshots\/\w+\//)[1])).toEqual(paths)
      expect(refs[key]?.paths.every((path) => existsSync(path))).toBe(true)
    }
  })

  it('opens the second time without the hub, and a folder without our options', async () => {
    const { hub, options } = await aloha()
    const first = await LeRobotExperienceReplay.open('lerobot/aloha_tiny', options)
    const numSeen = hub.seen.length
    const { root } = options
    const again = await loadDataset('lerobot:lerobot/aloha_tiny', {
      root,
      download: false,
      decodeVideo: false,
    })
    expect(again.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(hub.seen).toHaveLength(numSeen)
    await first.delete()
    expect(await readdir(root)).toEqual([])
    const dest = join(root, 'lerobot_aloha_tiny')
    saveMemmap(dest, TensorDict.from({ episode: Tensor.from([0, 0], { dtype: 'i64' }) }, { batchSize: [2] }))
    const keyMap = { action: 'a' }
    const torch = await LeRobotExperienceReplay.open('lerobot/aloha_tiny', { root, download: false, keyMap })
    expect(torch.length).toBe(2)
  })

  it('refuses the rows of another repository, whose folder has the same name', async () => {
    const files = filesIn(golden('broken/lerobot/good'))
    const { options } = await hubOptions('lerobot/x_y', files)
    await LeRobotExperienceReplay.open('lerobot/x_y', options)
    await expect(LeRobotExperienceReplay.open('lerobot_x/y', options)).rejects.toThrow(
      failing('INCOMPATIBLE', /id lerobot_x\/y: it was with lerobot\/x_y/),
    )
  })

  it('refuses rows of another key map', async () => {
    const { options } = await aloha()
    const keyMap = { action: 'command', 'observation.state': ['robot', 'state'] }
    await LeRobotExperienceReplay.open('lerobot/aloha_tiny', { ...options, keyMap })
    const swapped = { 'observation.state': ['robot', 'state'], action: 'command' }
    const same = await LeRobotExperienceReplay.open('lerobot/aloha_tiny', { ...options, keyMap: swapped })
    expect(same.readAllInOrder().tensor(['robot', 'state']).shape).toEqual([21, 7])
    const opening = LeRobotExperienceReplay.open('lerobot/aloha_tiny', options)
    await expect(opening).rejects.toThrow(failing('INCOMPATIBLE', /keyMap/))
  })

  for (const row of rowsOf('broken', 'LeRobot').filter(({ must }) => must !== 'loads'))
    it(`refuses ${row.case}, and leaves no folder`, async () => {
      const { options } = await hubOptions('lerobot/x', filesIn(golden(row.files[0] ?? '')))
      const error = await LeRobotExperienceReplay.open('lerobot/x', options).then(
        () => undefined,
        (cause: Error & { code?: string }) => cause,
      )
      expect(error?.name).toBe('FulmarError')
      expect(error?.message).toMatch(NAMED[row.case] ?? /nothing/)
      if (row.case.startsWith('version')) expect(error?.code).toBe('INCOMPATIBLE')
      expect(await readdir(options.root)).toEqual([])
    })

  it('opens the control of the damaged ones', async () => {
    const { options } = await hubOptions('lerobot/x', filesIn(golden('broken/lerobot/good')))
    expect((await LeRobotExperienceReplay.open('lerobot/x', options)).length).toBe(21)
  })

  it('refuses a version before it fetches the data', async () => {
    const { hub, options } = await hubOptions('lerobot/x', filesIn(golden('broken/lerobot/v1')))
    await expect(LeRobotExperienceReplay.open('lerobot/x', options)).rejects.toThrow(/v1\.6/)
    expect(hub.seen.map(({ path }) => path).join()).not.toMatch(/\.parquet|\.mp4/)
  })

  it('needs a decoder for videos, before it fetches them', async () => {
    const { hub, options } = await aloha()
    const opening = (decoder?: unknown) =>
      LeRobotExperienceReplay.open('lerobot/aloha_tiny', {
        ...options,
        decodeVideo: true,
        ...(decoder ? { decoder } : {}),
      } as never)
    if (nodeAv === undefined) {
      await expect(opening()).rejects.toThrow(failing('UNAVAILABLE', /node-av.*options\.decoder/))
      expect(hub.seen.map(({ path }) => path).join()).not.toMatch(/\.parquet|\.mp4/)
    }
    const buffer = await opening(timeDecoder)
    const { index, frame, top } = pick(buffer.sample(6))
    expect(index).toHaveLength(6)
    expect(top.shape).toEqual([6, 3, 32, 32])
    expect([0, 1, 2, 3, 4, 5].map((at) => Number(top.data[at * 3 * 32 * 32]))).toEqual(frame)
    expect(buffer.readAllInOrder().dict(['observation', 'image', 'top']).keys()).toContain('file_id')
  })

  it('decodes before it fills the next observation', async () => {
    const { options } = await aloha()
    const video = { decodeVideo: true, decoder: timeDecoder, sliceLen: 3, rehydrate: true }
    const buffer = await LeRobotExperienceReplay.open('lerobot/aloha_tiny', { ...options, ...video })
    const batch = buffer.sample(6)
    const next = batch.tensor(['next', 'observation', 'image', 'top'])
    const { frame } = pick(batch)
    const shown = [0, 1, 2, 3, 4, 5].map((at) => Number(next.data[at * 3 * 32 * 32]))
    expect(shown).toEqual(frame.map((number, at) => (at % 3 === 2 ? 0 : number + 1)))
  })

  it('refuses a damaged list of videos', async () => {
    const { options } = await aloha()
    const { dataPath } = await LeRobotExperienceReplay.open('lerobot/aloha_tiny', options)
    const again = () => LeRobotExperienceReplay.open('lerobot/aloha_tiny', options)
    const write = (text: string) => writeFile(join(dataPath, 'video_refs.json'), text)
    for (const text of ['{', '{"a": 1}', '{"a": {"paths": ["x"], "num_frames_per_file": []}}']) {
      await write(text)
      await expect(again()).rejects.toThrow(failing('CORRUPT', /video_refs\.json/))
    }
    await write('{"top": {"paths": ["x.mp4"], "num_frames_per_file": [20]}}')
    await expect(again()).rejects.toThrow(failing('CORRUPT', /21 rows at top: got 20/))
  })

  it('refuses what it lacks for slices and next observations', async () => {
    const open = (options: object) =>
      LeRobotExperienceReplay.fromColumns({ action: [1, 2] }, options as never)
    await expect(open({ sliceLen: 1 })).rejects.toThrow(failing('INCOMPATIBLE', /slices.*episode/))
    await expect(open({ rehydrate: true })).rejects.toThrow(failing('INCOMPATIBLE', /rehydrate.*episode/))
    const only = LeRobotExperienceReplay.fromColumns({ episode_index: [0] }, { rehydrate: true })
    await expect(only).rejects.toThrow(failing('INCOMPATIBLE', /observation/))
  })

  it('has the repositories that the hub lacks refused by it', async () => {
    const { options } = await aloha()
    const opening = LeRobotExperienceReplay.open('lerobot/none', options)
    await expect(opening).rejects.toThrow(failing('IO', /lerobot\/none/))
    expect(await readdir(options.root)).toEqual([])
  })
})

/** Compares a batch with the rows of TorchRL's, without the flags that a slice sampler adds. */
function expectBatch(drawn: TensorDict, wanted: Wanted): void {
  const { index: _, next, ...others } = wanted as Record<string, { readonly k: Wanted }>
  const {
    truncated,
    terminated: __,
    ...flags
  } = (next?.k ?? {}) as Record<string, { readonly d: readonly boolean[] }>
  if (truncated !== undefined) {
    const stored = Array.from(drawn.tensor(['next', 'done']).data, Boolean)
    const done = stored.map((flag, at) => flag || truncated.d[at])
    expect(done).toEqual(flags.done?.d)
    delete flags.done
    drawn.delete(['next', 'done'])
  }
  drawn.delete('index')
  expectRows(drawn, { k: { ...others, ...(next && { next: { k: flags } }) } })
}

interface VideoRef {
  readonly paths: readonly string[]
  readonly num_frames_per_file: readonly number[]
}

function pick(batch: TensorDict) {
  const numbers = (key: string) => Array.from(batch.tensor(key).data, Number)
  return {
    index: numbers('index'),
    frame: numbers('frame'),
    top: batch.tensor(['observation', 'image', 'top']),
  }
}

const NAMED: Readonly<Record<string, RegExp>> = {
  'no info.json': /meta\/info\.json/,
  'info.json is no JSON': /meta\/info\.json/,
  'version v1.6': /meta\/info\.json.*v1\.6/,
  'version v9.0': /meta\/info\.json.*v9\.0/,
  'fps 0': /meta\/info\.json.*fps.*got 0/,
  'video_path leaves the folder': /meta\/info\.json: video_path.*\.\./,
  'a Parquet file cut': /data\/chunk-000\/episode_000000\.parquet/,
  'no data files': /data must have Parquet files/,
  'a video that is not there': /episode_000001\.mp4/,
  'task_index without a task': /meta\/tasks\.jsonl.*task 7/,
  'another width of state in one file': /episode_00000\d\.parquet.*observation\.state/,
  'a null in an action': /episode_000000\.parquet: column 'action' at row \d+.*null/,
  'episode length differs from the table': /meta\/episodes\.jsonl.*7: got 17/,
}

describe.runIf(isNative)('LeRobotExperienceReplay.fromColumns', () => {
  for (const row of rowsOf('datasets', 'LeRobot_from_columns'))
    it(`draws slices as TorchRL: ${JSON.stringify(row.options)}`, async () => {
      const { k } = row.ok as unknown as {
        readonly k: Record<string, { readonly d: readonly number[]; readonly k: Wanted }>
      }
      const options = { rehydrate: row.options.rehydrate === true }
      const sampler = Sampler.from({ sample: () => ({ rows: k.index?.d ?? [] }) })
      const buffer = await LeRobotExperienceReplay.fromColumns(columnsOf(row), { ...options, sampler })
      expectBatch(buffer.sample(6), k)
    })

  it('draws slices of one episode with its own sampler', async () => {
    const [row] = rowsOf('datasets', 'LeRobot_from_columns')
    const columns = columnsOf(row as GoldenRow)
    for (const slices of [{ sliceLen: 3 }, { numSlices: 2 }]) {
      const buffer = await LeRobotExperienceReplay.fromColumns(columns, { ...slices, batchSize: 6 })
      expect(buffer.sampler).toBeInstanceOf(SliceSampler)
      const batch = buffer.sample()
      const [episode, frame] = ['episode', 'frame'].map((key) => Array.from(batch.tensor(key).data, Number))
      expect(frame).toEqual([0, 1, 2, 0, 1, 2])
      expect(new Set(episode?.slice(0, 3)).size).toBe(1)
      expect(Array.from(batch.tensor(['next', 'truncated']).data, Number)).toEqual([0, 0, 1, 0, 0, 1])
    }
    const plain = await LeRobotExperienceReplay.fromColumns(columns)
    expect(plain.sampler).toBeInstanceOf(RandomSampler)
    expect(() => plain.add(TensorDict.from({}, { batchSize: [] }))).toThrow()
    await plain.delete()
    expect(plain.length).toBe(6)
  })
})

function columnsOf(row: GoldenRow): Record<string, Tensor | string[]> {
  const { $dict } = Reflect.get(row, 'columns') as { readonly $dict: readonly [string, unknown][] }
  return Object.fromEntries($dict.map(([name, value]) => [name, columnOf(value)]))
}

function columnOf(value: unknown): Tensor | string[] {
  if (Array.isArray(value)) return value as string[]
  const {
    $t,
    s: shape,
    d,
  } = value as { readonly $t: string; readonly s: number[]; readonly d: readonly number[] }
  const dtype = { float32: 'f32', int64: 'i64', bool: 'bool', uint8: 'u8' }[$t] as 'f32'
  return Tensor.from(d.map(Number), { shape, dtype })
}

describe('LeRobotExperienceReplay.open', () => {
  it('refuses options before a byte is fetched', async () => {
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(LeRobotExperienceReplay.open('lerobot/pusht', options)).rejects.toThrow(
        failing(code, message),
      )
    await refuse({ numSlices: 2, sliceLen: 2 }, 'INCOMPATIBLE', /numSlices.*sliceLen/)
    await refuse({ sliceLen: 2, sampler: new RandomSampler() }, 'INCOMPATIBLE', /sampler/)
    await refuse({ numSlices: 0 }, 'OUT_OF_RANGE', /numSlices/)
    await refuse({ sliceLen: 1.5 }, 'OUT_OF_RANGE', /sliceLen/)
    await refuse({ keyMap: [] }, 'MALFORMED', /keyMap/)
    await refuse({ keyMap: { action: [] } }, 'MALFORMED', /keyMap\['action'\]/)
    await refuse({ decodeVideo: 1 }, 'MALFORMED', /decodeVideo/)
    await refuse({ rehydrate: 'yes' }, 'MALFORMED', /rehydrate/)
    await refuse({ strictLength: 0 }, 'MALFORMED', /strictLength/)
    await refuse({ decoder: {} }, 'MALFORMED', /decoder/)
    await refuse({ splitTrajs: true }, 'UNKNOWN_NAME', /splitTrajs/)
    await refuse({ sliceLength: 3 }, 'UNKNOWN_NAME', /sliceLen/)
    await refuse({ root: '/nowhere', download: false }, 'UNAVAILABLE', /lerobot:lerobot\/pusht/)
    for (const id of ['pusht', '../pusht', 'lerobot/..', 7, 'a/b/c'])
      await expect(LeRobotExperienceReplay.open(id as string)).rejects.toThrow(
        failing('MALFORMED', /id must/),
      )
  })

  it.runIf(isNative)('does not replace something else', async () => {
    const root = await temporaryFolder()
    await mkdir(join(root, 'lerobot_pusht'))
    const opening = LeRobotExperienceReplay.open('lerobot/pusht', { root })
    await expect(opening).rejects.toThrow(failing('INCOMPATIBLE', /something else/))
  })
})
