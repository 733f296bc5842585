import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { cp, mkdir, readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AtariDQNExperienceReplay, loadDataset } from '../../src/dataset/index.js'
import { deleteDataset, localDatasets, openRows } from '../../src/dataset/local-datasets.js'
import { NonTensorData, type NonTensorStack, Tensor, type TensorDict } from '../../src/tensor/index.js'
import { portOf, started } from '../fetch/fake-hub.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, type GoldenRow, golden, isNative, rowOf, rowsOf, type Wanted } from './golden-rows.js'

const BUCKET = golden('raw/gs/atari-replay-datasets')
const LOGS = 'dqn/Pong/1/replay_logs'

/** The bucket by its JSON API, and as the folder of a web server. */
async function bucket() {
  const asked: string[] = []
  const names = (await readdir(BUCKET, { recursive: true })).filter((name) => name.endsWith('.gz'))
  const about = async (name: string) => {
    const bytes = await readFile(join(BUCKET, name))
    return { name, size: String(bytes.length), md5Hash: createHash('md5').update(bytes).digest('base64') }
  }
  const running = await started(
    createServer(async (request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost')
      asked.push(pathname)
      const object = /^\/storage\/v1\/b\/atari-replay-datasets\/o\/(.+)$/.exec(pathname)?.[1]
      const name = decodeURIComponent(object ?? pathname.slice(1))
      if (pathname === '/storage/v1/b/atari-replay-datasets/o') {
        const prefix = searchParams.get('prefix') ?? ''
        const items = await Promise.all(names.filter((one) => one.startsWith(prefix)).map(about))
        return void response.end(JSON.stringify({ items }))
      }
      if (!names.includes(name)) return void response.writeHead(404).end()
      response.end(await readFile(join(BUCKET, name)))
    }),
  )
  return { asked, url: `http://127.0.0.1:${portOf(running)}` }
}

async function bucketOptions() {
  const { asked, url } = await bucket()
  return { asked, url, options: { endpoint: url, root: await temporaryFolder(), retries: 0 } }
}

/** Rows as TorchRL has them where no slices are drawn: flags of u8, `[rows]`; without `metadata`. */
function asUpstream(rows: TensorDict): TensorDict {
  const flags = ['done', 'terminated', 'truncated'].flatMap((name) => [[name], ['next', name]])
  return flags.reduce(
    (all, key) => {
      const numbers = Uint8Array.from(rows.tensor(key).data, Number)
      return all.set(key, Tensor.from(numbers, { dtype: 'u8' }))
    },
    rows.exclude(['metadata']),
  )
}

/** A value of Python. */
function plain(value: Wanted): unknown {
  const { $dict, d, s } = value as { $dict?: [string, Wanted][]; d?: number[]; s?: number[] }
  if ($dict) return Object.fromEntries($dict.map(([name, one]) => [name, plain(one)]))
  if (d) return s?.length === 0 ? d[0] : d
  return value
}

function expectLike(rows: TensorDict, want: Wanted): void {
  const { metadata, ...others } = want.k as { metadata: { $nts: Wanted[] } }
  expectRows(asUpstream(rows), { k: others })
  const found = rows.get('metadata')
  const len = rows.batchSize[0] ?? 0
  if (found instanceof NonTensorData) expect(Array(len).fill(found.value)).toEqual(metadata.$nts.map(plain))
  else expect((found as NonTensorStack).values).toEqual(metadata.$nts.map(plain))
}

/** Options of a row by our names. */
function optionsOf({ options }: GoldenRow) {
  const { batch_size, slice_len, num_slices, replacement, _max_runs } = options as Record<string, never>
  const all = {
    batchSize: batch_size,
    sliceLen: slice_len,
    numSlices: num_slices,
    replacement,
    numSplits: _max_runs,
  }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
}

describe.runIf(isNative)('AtariDQNExperienceReplay', () => {
  for (const row of rowsOf('datasets', 'AtariDQN').filter(({ ok }) => ok))
    it(`opens ${row.dataset_id} as TorchRL: ${row.note}`, async () => {
      const { options } = await bucketOptions()
      const buffer = await AtariDQNExperienceReplay.open(row.dataset_id, { ...options, ...optionsOf(row) })
      const { len, all, sampler, episodes } = row.ok as typeof row.ok & {
        sampler: string
        episodes?: { d: number[] }
      }
      expect(buffer.length).toBe(len)
      expectLike(buffer.readAllInOrder(), all as Wanted)
      expect(buffer.sampler.constructor.name).toBe(sampler)
      if (episodes) expect([...buffer.episodes]).toEqual(episodes.d)
      expect(buffer.splits.map(({ add_count }) => add_count)).toEqual(
        [13, 42, 57].slice(0, len === 34 ? 2 : 3),
      )
      const batch = buffer.sample()
      expect(batch.tensor('observation').shape).toEqual([row.options.batch_size, 84, 84])
      for (const name of ['done', 'terminated', 'truncated'])
        expect([batch.tensor(['next', name]).dtype, batch.tensor(['next', name]).shape]).toEqual([
          'bool',
          [row.options.batch_size, 1],
        ])
    })

  it('draws each row once an epoch without replacement', async () => {
    const { options } = await bucketOptions()
    const buffer = await AtariDQNExperienceReplay.open('Pong/1', {
      ...options,
      batchSize: 8,
      replacement: false,
    })
    const rows = Array.from({ length: 7 }, () => buffer.sample()).flatMap((batch) => [
      ...batch.tensor('index').data,
    ])
    expect(new Set(rows.map(Number)).size).toBe(53)
  })

  it('draws slices of one episode each', async () => {
    const { options } = await bucketOptions()
    const slices = await AtariDQNExperienceReplay.open('Pong/1', { ...options, batchSize: 32, sliceLen: 4 })
    const [ends, index] = [slices.sample(400), [] as number[]]
    index.push(...Array.from(ends.tensor('index').data, Number))
    const terminal = Array.from(slices.readAllInOrder().tensor(['next', 'terminated']).data, Number)
    for (let start = 0; start < 400; start += 4) {
      expect(index.slice(start, start + 4)).toEqual([0, 1, 2, 3].map((step) => (index[start] ?? 0) + step))
      expect(index.slice(start, start + 3).some((row) => terminal[row] === 1)).toBe(false)
    }
    const truncated = Array.from(ends.tensor(['next', 'truncated']).data, Number)
    expect(truncated.every((flag, at) => flag === 0 || at % 4 === 3)).toBe(true)
  })

  it('is the same from a web server, from folders, and by several at once; keeps no file of the bucket', async () => {
    const { asked, url, options } = await bucketOptions()
    const first = await loadDataset('atari:Pong/1', options)
    expect(first).toBeInstanceOf(AtariDQNExperienceReplay)
    expect(first.dataPath).toBe(join(options.root, 'Pong', '1'))
    const raw = await readdir(join(options.root, '.raw'), { recursive: true })
    // Small files show which splits there are; those of a split go with it.
    expect(raw.filter((name) => name.endsWith('.gz'))).toEqual([])
    const numAsked = asked.length
    const again = await loadDataset('atari_dqn:Pong/1', { ...options, download: false })
    expect(again.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    expect(asked).toHaveLength(numAsked)
    for (const from of [
      { mirror: url, numSplits: 3 },
      { folder: BUCKET },
      { folder: join(BUCKET, LOGS), numProcs: 2 },
    ]) {
      const root = await temporaryFolder()
      const buffer = await AtariDQNExperienceReplay.open('Pong/1', { ...from, root, retries: 0 })
      expect(buffer.readAllInOrder().equals(first.readAllInOrder())).toBe(true)
    }
    expect(existsSync(join(BUCKET, LOGS, 'add_count_ckpt.0.gz'))).toBe(true)
    const fewer = AtariDQNExperienceReplay.open('Pong/1', { ...options, numSplits: 1 })
    await expect(fewer).rejects.toThrow(failing('INCOMPATIBLE', /numSplits 1: it was with 50/))
  })

  it('opens what TorchRL left, which has no options of ours', async () => {
    const root = await temporaryFolder()
    const made = await AtariDQNExperienceReplay.open('Pong/1', { root, folder: BUCKET })
    const theirs = await temporaryFolder()
    await mkdir(join(theirs, 'Pong'))
    const skipped = 'conversion.json'
    await cp(made.dataPath, join(theirs, 'Pong', '1'), {
      recursive: true,
      filter: (path) => basename(path) !== skipped,
    })
    const files = await readdir(join(theirs, 'Pong', '1'), { recursive: true, withFileTypes: true })
    const names = files.filter((file) => file.isFile()).map((file) => join(file.parentPath, file.name))
    const { tree } = rowOf('datasets', 'datasets-0027').ok as unknown as { tree: [string, number][] }
    expect(names.sort()).toEqual(tree.map(([name]) => join(theirs, name)).sort())
    const opened = await AtariDQNExperienceReplay.open('Pong/1', { root: theirs, download: false })
    expect(opened.readAllInOrder().equals(made.readAllInOrder())).toBe(true)
    expect(await readFile(join(made.dataPath, 'processed.json'), 'utf8')).toBe('{"processed":null}')
  })

  it('is listed, shown and deleted', async () => {
    const root = await temporaryFolder()
    const { dataPath } = await AtariDQNExperienceReplay.open('Pong/1', { root, folder: BUCKET, numSplits: 2 })
    for (const source of ['atari', 'atari_dqn'])
      expect(await localDatasets(source, root)).toEqual([{ name: 'atari:Pong/1', folders: [dataPath] }])
    const { shape, rows } = await openRows(dataPath)
    expect([shape, rows.tensor('observation').shape]).toEqual([[34], [1, 84, 84]])
    await deleteDataset('atari_dqn:Pong/1', root)
    expect(existsSync(dataPath)).toBe(false)
  })

  it('maps rows into a folder', async () => {
    const root = await temporaryFolder()
    const buffer = await AtariDQNExperienceReplay.open('Pong/1', { root, folder: BUCKET })
    const dest = join(root, 'small')
    const small = await buffer.preprocess((rows) => rows.select(['action', ['next', 'reward']]), { dest })
    expect(small.readAllInOrder().tensor('action').data).toEqual(
      buffer.readAllInOrder().tensor('action').data,
    )
  })

  for (const row of rowsOf('broken', 'AtariDQN'))
    it(`of files with ${row.case}: ${row.must}`, async () => {
      const root = await temporaryFolder()
      const opening = AtariDQNExperienceReplay.open('Pong/1', {
        ...{ root, folder: dirname(golden(row.files[0] ?? '')) },
      })
      if (row.must.startsWith('loads')) return void expect((await opening).length).toBe(13)
      await expect(opening).rejects.toThrow(
        expect.objectContaining({ name: 'FulmarError', message: expect.stringMatching(/_ckpt\.0\.gz/) }),
      )
      expect(await readdir(join(root, 'Pong'))).toEqual([])
    })

  it('has a typed error for a run without files', async () => {
    const { options } = await bucketOptions()
    const opening = AtariDQNExperienceReplay.open('Asterix/1', options)
    await expect(opening).rejects.toThrow(failing('EMPTY', /Asterix\/1/))
    expect(existsSync(join(options.root, 'Asterix', '1'))).toBe(false)
  })
})

describe('AtariDQNExperienceReplay.open', () => {
  it('lists the ids of TorchRL', () => {
    const row = rowsOf('datasets', 'available').find(({ cls }) => cls === 'AtariDQN')
    expect(AtariDQNExperienceReplay.availableDatasets).toEqual(row?.datasets)
  })

  it('refuses what it does not know before a byte is fetched', async () => {
    const open = (id: string, options: object = {}) =>
      AtariDQNExperienceReplay.open(id, { root: '/nowhere', ...options })
    await expect(open('Pong/6')).rejects.toThrow(failing('UNKNOWN_NAME', /did you mean Pong\/\d/))
    for (const [options, code, message] of [
      [{ numSlices: 2, sliceLen: 2 }, 'INCOMPATIBLE', /numSlices must come without sliceLen/],
      [{ mirror: 'http://x', folder: '/x' }, 'INCOMPATIBLE', /mirror must come without folder/],
      [{ numSplits: 51 }, 'OUT_OF_RANGE', /from 1 to 50: got 51/],
      [{ numSplits: 0 }, 'OUT_OF_RANGE', /numSplits/],
      [{ numProcs: -1 }, 'OUT_OF_RANGE', /numProcs/],
      [{ sliceLen: 3, batchSize: 8 }, 'OUT_OF_RANGE', /multiple of sliceLen 3: got 8/],
      [{ replacement: 1 }, 'MALFORMED', /replacement/],
      [{ splitTrajs: true }, 'UNKNOWN_NAME', /splitTrajs/],
    ] as const)
      await expect(open('Pong/1', options)).rejects.toThrow(failing(code, message))
  })
})
