import { describe, expect, it } from 'vitest'
import { loadDataset, OpenXExperienceReplay, OpenXStream } from '../../src/dataset/index.js'
import { OpenXEpisodes } from '../../src/dataset/openx-episodes.js'
import type { OpenXOptions } from '../../src/dataset/openx-options.js'
import type { TensorDict } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'
import { expectRows, goldenBytes, isNative, openXOptions, rowsOf } from './golden-rows.js'

const STRETCH = 'cmu_stretch'

/** A row of `OpenX_stream`. */
interface StreamRow {
  readonly id: string
  readonly dataset_id: string
  readonly options: {
    readonly slice_len?: number
    readonly num_slices?: number
    readonly pad?: boolean | number
  }
  readonly batch: number | null
  readonly iterate: boolean
  readonly u_draws: readonly number[] | null
  readonly ok?: readonly unknown[]
}

const STREAM_ROWS = rowsOf('datasets', 'OpenX_stream').map((row) => plain(row) as StreamRow)

/** Dictionaries of golden rows, which keep their order as lists of pairs, as objects. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  const { $dict } = value as { readonly $dict?: readonly (readonly [string, unknown])[] }
  const entries = $dict ?? Object.entries(value)
  return Object.fromEntries(entries.map(([key, inner]) => [key, plain(inner)]))
}

/** Our options of a golden row. */
const optionsOf = ({ options, batch }: StreamRow): OpenXOptions => ({
  ...(options.slice_len !== undefined && { sliceLen: options.slice_len }),
  ...(options.num_slices !== undefined && { numSlices: options.num_slices }),
  ...(options.pad !== undefined && { pad: options.pad }),
  ...(batch !== null && { batchSize: batch }),
})

/** A stream with the uniform numbers of a golden row. */
async function streamOf(row: StreamRow): Promise<OpenXStream> {
  const { options } = await openXOptions()
  const ours = { ...options, ...optionsOf(row) }
  const { pad } = ours
  return new OpenXStream({
    datasetId: row.dataset_id,
    episodes: await OpenXEpisodes.open(row.dataset_id, ours),
    uniform: (episode) => row.u_draws?.[episode] ?? 0,
    pad: pad === true ? 0 : pad === false ? undefined : pad,
    options: ours,
  })
}

async function all(stream: AsyncIterable<TensorDict>): Promise<TensorDict[]> {
  const items: TensorDict[] = []
  for await (const item of stream) items.push(item)
  return items
}

/** The first observed numbers of the rows of a batch, which tell where they come from. */
const statesOf = (batch: TensorDict): string =>
  Array.from(batch.tensor(['observation', 'state']).data, Number).join()

describe.runIf(isNative)('OpenXStream', () => {
  for (const row of STREAM_ROWS.filter(({ ok }) => ok))
    it(`gives the batches of TorchRL (${row.id}: ${JSON.stringify(optionsOf(row))})`, async () => {
      const stream = await streamOf(row)
      const batches = row.iterate ? await all(stream) : []
      if (!row.iterate) for (const _ of row.ok ?? []) batches.push(await stream.sample())
      expect(batches).toHaveLength(row.ok?.length ?? 0)
      for (const [at, batch] of batches.entries()) expectRows(batch, row.ok?.[at], `batch ${at}`)
    })

  it('covers all rows of TorchRL', () => {
    expect(STREAM_ROWS).toHaveLength(8)
    expect(STREAM_ROWS.filter(({ ok }) => ok)).toHaveLength(5)
  })

  it('refuses episodes that are shorter than a slice, and numbers that no image holds, as TorchRL', async () => {
    const [short, negative] = ['datasets-0073', 'datasets-0075'].map((id) =>
      STREAM_ROWS.find((row) => row.id === id),
    )
    if (!short || !negative) throw new Error('two rows')
    const shortly = (await streamOf(short)).sample()
    await expect(shortly).rejects.toThrow(
      failing('OUT_OF_RANGE', /at most the 4 steps of each episode.*got 8/),
    )
    await expect((await streamOf(negative)).sample()).rejects.toThrow(failing('OUT_OF_RANGE', /-1/))
  })

  it('opens by default, and stores nothing', async () => {
    const { hub, options } = await openXOptions()
    const stream = await loadDataset(`openx:${STRETCH}`, { ...options, sliceLen: 4, batchSize: 8 })
    expect(stream).toBeInstanceOf(OpenXStream)
    expect(hub.seen.filter(({ path }) => path.endsWith('.tar'))).toEqual([])
    expect((await (stream as OpenXStream).sample()).batchSize).toEqual([8])
  })

  it('fetches a file when its first episode is read ahead', async () => {
    const { hub, options } = await openXOptions()
    const stream = await OpenXExperienceReplay.open(STRETCH, options)
    const fetched = () =>
      new Set(hub.seen.map(({ path }) => path).filter((path) => path.endsWith('.tar'))).size
    const episodes = stream[Symbol.asyncIterator]()
    await episodes.next()
    const early = fetched()
    for (let count = 0; count < 3; count++) await episodes.next()
    expect(fetched()).toBeGreaterThan(early)
  })

  it('goes on where its state was, in another object', async () => {
    const { options } = await openXOptions()
    const sliced = { ...options, sliceLen: 3, batchSize: 6, seed: 7 } as const
    const stream = await OpenXExperienceReplay.open(STRETCH, sliced)
    for (let count = 0; count < 3; count++) await stream.sample()
    const state = JSON.parse(JSON.stringify(stream.stateDict()))
    const want = [await stream.sample(), await stream.sample(), await stream.sample()].map(statesOf)
    const other = await OpenXExperienceReplay.open(STRETCH, sliced)
    other.loadStateDict(state)
    const found = [await other.sample(), await other.sample(), await other.sample()].map(statesOf)
    expect(found).toEqual(want)
    expect(other.stateDict()).toEqual(stream.stateDict())
  })

  it('draws the same slices for the same seed, and others for another', async () => {
    const { options } = await openXOptions()
    const drawn = async (seed: number) => {
      const sliced = { ...options, sliceLen: 2, batchSize: 10, seed } as const
      return statesOf(await (await OpenXExperienceReplay.open(STRETCH, sliced)).sample())
    }
    expect(await drawn(1)).toBe(await drawn(1))
    expect(await drawn(1)).not.toBe(await drawn(2))
  })

  it('cuts the last episode of a batch of whole ones, and answers calls in their order', async () => {
    const { options } = await openXOptions()
    const stream = await OpenXExperienceReplay.open(STRETCH, { ...options, batchSize: 20 })
    const [first, second] = await Promise.all([stream.sample(), stream.sample()])
    expect(first.batchSize).toEqual([20])
    expect(Array.from(first.tensor('episode').data, Number).slice(11, 13)).toEqual([0, 1])
    expect(statesOf(second)).not.toBe(statesOf(first))
    expect(Array.from(second.tensor('index').data, Number).at(-1)).toBe(19)
  })

  it('applies transforms to batches', async () => {
    const { options } = await openXOptions()
    const transformed = {
      ...options,
      ...{
        sliceLen: 2,
        batchSize: 2,
        transform: { forward: (batch: TensorDict) => batch.select(['action']) },
      },
      collateFn: (batch: TensorDict) => batch.flattenKeys(),
    } as const
    const stream = await OpenXExperienceReplay.open(STRETCH, transformed)
    expect((await stream.sample()).keys()).toEqual(['action'])
  })

  it('pads texts with empty ones', async () => {
    const { options } = await openXOptions()
    const padded = { ...options, sliceLen: 8, batchSize: 8, pad: true } as const
    const batch = await (await OpenXExperienceReplay.open('viola', padded)).sample()
    const texts = batch.get('language_instruction') as { readonly values: readonly string[] }
    expect(texts.values.slice(3)).toEqual(['push the red block', 'push the red block', '', '', ''])
    expect(Array.from(batch.tensor('discount').data, Number)).toEqual([1, 1, 1, 1, 1, 0, 0, 0])
  })

  for (const row of rowsOf('broken', 'OpenX'))
    it(`of a file with ${row.case}: ${row.must}`, async () => {
      const { options } = await openXOptions({ 'viola/viola_00000.tar': goldenBytes(row.files[0] ?? '') })
      const stream = await OpenXExperienceReplay.open('viola', { ...options, batchSize: 2 })
      for (let count = 0; count < 2; count++) {
        await expect(stream.sample()).rejects.toThrow(named)
        expect(stream.stateDict()).toMatchObject({ file: 0, start: 0, numEpisodes: 0 })
      }
    })

  it('keeps its position where a file cannot be fetched, and goes on once it can', async () => {
    const { hub, options } = await openXOptions()
    const stream = await OpenXExperienceReplay.open('viola', { ...options, retries: 0, batchSize: 2 })
    let isDown = true
    hub.fault = (seen, response) => {
      if (!isDown || !seen.path.endsWith('.tar')) return false
      response.writeHead(404).end()
      return true
    }
    await expect(stream.sample()).rejects.toThrow(failing('IO'))
    isDown = false
    expect((await stream.sample()).batchSize).toEqual([2])
  })

  it('reads the cache alone offline', async () => {
    const { hub, options } = await openXOptions()
    const online = await OpenXExperienceReplay.open('viola', { ...options, batchSize: 10 })
    const want = statesOf(await online.sample())
    const numSeen = hub.seen.length
    const offline = await OpenXExperienceReplay.open('viola', { ...options, offline: true, batchSize: 10 })
    expect(statesOf(await offline.sample())).toBe(want)
    expect(hub.seen).toHaveLength(numSeen)
    offline.loadStateDict(online.stateDict())
  })

  it('stops when the signal fires', async () => {
    const { options } = await openXOptions()
    const abort = new AbortController()
    const stream = await OpenXExperienceReplay.open('viola', {
      ...options,
      batchSize: 2,
      signal: abort.signal,
    })
    await stream.sample()
    abort.abort()
    await expect(stream.sample()).rejects.toThrow(failing('ABORTED'))
  })

  it('fails where the files have no episode, and where there is no file', async () => {
    const { options } = await openXOptions({ 'viola/viola_00000.tar': new Uint8Array(1024) })
    const stream = await OpenXExperienceReplay.open('viola', { ...options, batchSize: 2 })
    await expect(stream.sample()).rejects.toThrow(failing('EMPTY', /openx:viola/))
    await expect(OpenXExperienceReplay.open('kuka', options)).rejects.toThrow(failing('EMPTY', /openx:kuka/))
  })

  it('refuses states that are not of these files, and counts that are none', async () => {
    const { options } = await openXOptions()
    const stream = await OpenXExperienceReplay.open('viola', { ...options, sliceLen: 2 })
    const state = stream.stateDict()
    const refuse = (change: object, code: string, message: RegExp) =>
      expect(() => stream.loadStateDict({ ...state, ...change })).toThrow(failing(code, message))
    refuse({ commit: 'f'.repeat(40) }, 'INCOMPATIBLE', /state\.commit/)
    refuse({ file: 1 }, 'OUT_OF_RANGE', /state\.file must be below 1/)
    refuse({ start: -1 }, 'OUT_OF_RANGE', /state\.start/)
    refuse({ numEpisodes: 0.5 }, 'OUT_OF_RANGE', /state\.numEpisodes/)
    refuse({ other: 1 }, 'UNKNOWN_NAME', /other/)
    for (const count of [undefined, 0, 3, 1.5, '2' as never])
      await expect(stream.sample(count)).rejects.toThrow(
        failing('OUT_OF_RANGE', /count must be .*multiple of 2/),
      )
    expect((await stream.sample(2)).batchSize).toEqual([2])
    stream.loadStateDict({ ...state, start: 1 << 30 })
    await expect(stream.sample(2)).rejects.toThrow(failing('OUT_OF_RANGE', /start must be at most/))
  })
})

const named = expect.objectContaining({
  name: 'FulmarError',
  code: expect.stringMatching(/^[A-Z_]+$/),
  message: expect.stringMatching(/viola_00000\.tar/),
})

describe('OpenXExperienceReplay.open of a stream', () => {
  it('refuses options that exclude each other before a byte is fetched', async () => {
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(OpenXExperienceReplay.open(STRETCH, options)).rejects.toThrow(failing(code, message))
    await refuse({ numSlices: 2, sliceLen: 2 }, 'INCOMPATIBLE', /numSlices must come without sliceLen/)
    await refuse({ splitTrajs: true }, 'UNKNOWN_NAME', /splitTrajs/)
    await refuse(
      { streaming: true, download: true },
      'INCOMPATIBLE',
      /download must be left out with streaming/,
    )
    await refuse({ replacement: true }, 'INCOMPATIBLE', /replacement must be false with streaming/)
    await refuse(
      { batchSize: 9, numSlices: 2 },
      'OUT_OF_RANGE',
      /batchSize must be a multiple of numSlices 2: got 9/,
    )
    await refuse({ numSlices: 2 }, 'OUT_OF_RANGE', /batchSize must come with numSlices/)
    await refuse({ root: '/nowhere' }, 'INCOMPATIBLE', /root must be left out with streaming/)
    await refuse({ pad: 'zero' }, 'MALFORMED', /options\.pad/)
    await refuse({ pad: Number.NaN }, 'MALFORMED', /options\.pad/)
  })

  it('has the errors of TorchRL', () => {
    const rows = rowsOf('datasets', 'OpenX').filter(({ ok }) => ok === undefined)
    expect(rows.map(({ id }) => id).join()).toBe(
      'datasets-0077,datasets-0078,datasets-0079,datasets-0080,datasets-0081,datasets-0082',
    )
  })
})
