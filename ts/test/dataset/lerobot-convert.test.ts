import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import { encode } from 'fast-png'
import { parquetWriteBuffer, type SchemaElement } from 'hyparquet-writer'
import { describe, expect, it } from 'vitest'
import { lerobotColumnsToTensorDict } from '../../src/dataset/index.js'
import { convertLeRobot } from '../../src/dataset/lerobot-convert.js'
import { loadMemmap, NonTensorStack, Tensor } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { isNative } from './golden-rows.js'

type Row = Readonly<Record<string, unknown>>

const listOf = (name: string, leaf: SchemaElement): SchemaElement[] => [
  { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
  { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
  leaf,
]
const leaf = (
  name: string,
  type: NonNullable<SchemaElement['type']>,
  converted?: SchemaElement['converted_type'],
): SchemaElement => ({
  ...{ name, type, repetition_type: 'OPTIONAL' },
  ...(converted && { converted_type: converted }),
})

/** The schema of each column of tests. */
const SCHEMAS: Readonly<Record<string, readonly SchemaElement[]>> = {
  'observation.state': listOf('observation.state', leaf('element', 'FLOAT')),
  grid: listOf('grid', {
    ...{ name: 'element', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
  } as SchemaElement).concat(
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    leaf('element', 'INT32'),
  ),
  action: listOf('action', leaf('element', 'DOUBLE')),
  timestamp: [leaf('timestamp', 'DOUBLE')],
  'next.done': [leaf('next.done', 'BOOLEAN')],
  episode_index: [leaf('episode_index', 'INT64')],
  frame_index: [leaf('frame_index', 'INT32')],
  index: [leaf('index', 'INT64')],
  task: [leaf('task', 'BYTE_ARRAY', 'UTF8')],
  notes: listOf('notes', leaf('element', 'BYTE_ARRAY', 'UTF8')),
  'observation.images.top': [
    { name: 'observation.images.top', repetition_type: 'OPTIONAL', num_children: 2 },
    leaf('bytes', 'BYTE_ARRAY'),
    leaf('path', 'BYTE_ARRAY', 'UTF8'),
  ],
}

function tableOf(rows: readonly Row[], rowGroupSize = 1000): Uint8Array {
  const names = Object.keys(rows[0] ?? {})
  const schema: SchemaElement[] = [
    { name: 'root', num_children: names.length },
    ...names.flatMap((name) => [...(SCHEMAS[name] ?? [])]),
  ]
  const columnData = names.map((name) => ({ name, data: rows.map((row) => row[name]) }))
  return new Uint8Array(parquetWriteBuffer({ columnData, schema, rowGroupSize }))
}

/** Writes a data set without videos, a file for each list of rows. */
async function written(
  files: readonly (readonly Row[])[],
  options: { rowGroupSize?: number; info?: object } = {},
) {
  const source = await temporaryFolder()
  await mkdir(join(source, 'meta'))
  await mkdir(join(source, 'data', 'chunk-000'), { recursive: true })
  const info = { codebase_version: 'v3.0', fps: 10, ...options.info }
  await writeFile(join(source, 'meta', 'info.json'), JSON.stringify(info))
  for (const [at, rows] of files.entries())
    await writeFile(
      join(source, 'data', 'chunk-000', `file-00${at}.parquet`),
      tableOf(rows, options.rowGroupSize),
    )
  return source
}

async function converted(source: string, keyMap?: Record<string, string>) {
  const root = await temporaryFolder()
  const folder = join(root, 'rows')
  await convertLeRobot(source, folder, { keyMap, signal: undefined })
  expect(await readdir(root)).toEqual(['rows'])
  return loadMemmap(folder)
}

/** The dictionary of rows as a loop makes it. */
function naive(rows: readonly Row[]) {
  const sorted = [...rows].sort((a, b) => Number(a.index) - Number(b.index))
  const column = (name: string) => sorted.map((row) => row[name])
  const floats = (name: string, shape: readonly number[]) =>
    Tensor.from(Float32Array.from((column(name) as number[][]).flat(4)), { shape: [sorted.length, ...shape] })
  const integers = (name: string, shape: readonly number[] = []) =>
    Tensor.from(BigInt64Array.from((column(name) as number[][]).flat(4) as never[], BigInt), {
      shape: [sorted.length, ...shape],
    })
  const [first] = sorted as { grid: number[][]; 'observation.state': number[]; action: number[] }[]
  return lerobotColumnsToTensorDict({
    'observation.state': floats('observation.state', [first?.['observation.state'].length ?? 0]),
    grid: integers('grid', [first?.grid.length ?? 0, first?.grid[0]?.length ?? 0]),
    action: floats('action', [first?.action.length ?? 0]),
    timestamp: floats('timestamp', []),
    'next.done': column('next.done') as boolean[],
    episode_index: integers('episode_index'),
    frame_index: integers('frame_index'),
    index: integers('index'),
    task: column('task') as string[],
  }).set('notes', new NonTensorStack(column('notes') as string[][]))
}

const dataSets = fc
  .record({
    numRows: fc.integer({ min: 1, max: 40 }),
    width: fc.integer({ min: 1, max: 5 }),
    grid: fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 3 })),
    rowGroupSize: fc.integer({ min: 1, max: 20 }),
    numFiles: fc.integer({ min: 1, max: 3 }),
    seed: fc.array(fc.double({ noDefaultInfinity: true, noNaN: true }), { minLength: 9, maxLength: 9 }),
    isShuffled: fc.boolean(),
  })
  .map(({ numRows, width, grid, rowGroupSize, numFiles, seed, isShuffled }) => {
    const number = (at: number) => (seed[at % 9] ?? 0) + at
    const rows = Array.from(
      { length: numRows },
      (_, row): Row => ({
        'observation.state': Array.from({ length: width }, (__, at) => Math.fround(number(row * width + at))),
        grid: Array.from({ length: grid[0] }, (__, y) =>
          Array.from({ length: grid[1] }, (___, x) => row - y + x),
        ),
        action: Array.from({ length: width + 1 }, (__, at) => number(row + at) / 3),
        timestamp: row / 10,
        'next.done': row % 7 === 6,
        episode_index: BigInt(Math.floor(row / 7)),
        frame_index: row % 7,
        index: BigInt(isShuffled ? (row * 17) % 41 : row),
        task: row % 2 ? 'push' : 'über 押す',
        notes: Array.from({ length: row % 3 }, (__, at) => `note ${at}`),
      }),
    )
    const size = Math.ceil(numRows / numFiles)
    const files = Array.from({ length: numFiles }, (_, at) => rows.slice(at * size, (at + 1) * size))
    return { rows, rowGroupSize, files: files.filter((file) => file.length > 0) }
  })

describe.runIf(isNative)('convertLeRobot', () => {
  it('makes the rows that a loop makes, for any files and row groups', () =>
    fc.assert(
      fc.asyncProperty(dataSets, async ({ rows, rowGroupSize, files }) => {
        const dict = await converted(await written(files, { rowGroupSize }))
        expect(dict.leafKeys().sort()).toEqual(naive(rows).leafKeys().sort())
        expect(dict.equals(naive(rows))).toBe(true)
      }),
      { numRuns: 25 },
    ))

  const image = (width: number, height: number, value: number) => ({
    bytes: encode({
      width,
      height,
      data: new Uint8Array(3 * width * height).fill(value),
      depth: 8,
      channels: 3,
    }),
    path: 'frame.png',
  })
  const images = (list: readonly unknown[]) =>
    list.map((cell, at) => ({ 'observation.images.top': cell, index: BigInt(at) }))

  it('keeps images of any size as [3, H, W]', async () => {
    const files = [images([image(5, 3, 7), image(5, 3, 9)]), images([image(5, 3, 200)])]
    const dict = await converted(await written(files, { rowGroupSize: 1 }))
    const top = dict.tensor(['observation', 'image', 'top'])
    expect(top.shape).toEqual([3, 3, 3, 5])
    expect([0, 1, 2].map((row) => top.data[row * 45])).toEqual([7, 200, 9])
  })

  it('refuses images that do not make a column', async () => {
    const refuse = async (list: readonly unknown[], code: string, message: RegExp) =>
      await expect(converted(await written([images(list)]))).rejects.toThrow(failing(code, message))
    await refuse(
      [image(4, 4, 1), image(4, 5, 1)],
      'SHAPE_MISMATCH',
      /file-000\.parquet.*top, row 1: got u8 of \[3, 5, 4\]/,
    )
    await refuse(
      [{ bytes: null, path: 'a.png' }],
      'MALFORMED',
      /row 0 must hold the bytes of an image: got null/,
    )
    await refuse([null], 'MALFORMED', /row 0/)
    await refuse(
      [{ bytes: Uint8Array.of(1, 2), path: '' }],
      'CORRUPT',
      /row 0 must hold an image.*bytes 1, 2/,
    )
  })

  it('names the file, the column and the row of a cell that does not fit', async () => {
    const row = (more: object): Row => ({ action: [1, 2], index: 0n, ...more })
    const refuse = async (files: readonly (readonly Row[])[], code: string, message: RegExp) =>
      await expect(converted(await written(files))).rejects.toThrow(failing(code, message))
    await refuse(
      [[row({}), row({ action: [1, 2, 3] })]],
      'SHAPE_MISMATCH',
      /file-000.*lists of 2 at action, row 1: got 3/,
    )
    await refuse([[row({})], [row({ action: [1] })]], 'SHAPE_MISMATCH', /file-001\.parquet.*action.*got 1/)
    await refuse(
      [[row({}), row({ action: null })]],
      'MALFORMED',
      /'action' at row 1 must hold a list: got null/,
    )
    await refuse(
      [[row({ action: [1, null] })]],
      'MALFORMED',
      /'action' at row 0 must hold a number: got null/,
    )
    await refuse([[row({ index: null })]], 'MALFORMED', /'index' at row 0 must hold an integer: got null/)
    await refuse(
      [[{ 'next.done': null }]],
      'MALFORMED',
      /'next\.done' at row 0 must hold a boolean: got null/,
    )
    await refuse([[{ task: null }]], 'MALFORMED', /'task' at row 0 must hold a text: got null/)
    await refuse([[row({})], [{ index: 1n }]], 'CORRUPT', /file-001\.parquet must have the columns.*action/)
    await refuse([[{ index: 1n }], [row({})]], 'CORRUPT', /file-001\.parquet must have the columns/)
  })

  it('refuses descriptions that do not agree with the data', async () => {
    const rows = [{ episode_index: 0n, index: 0n }]
    const refuse = async (text: string, message: RegExp, info = {}) => {
      const source = await written([rows], { info })
      await writeFile(join(source, 'meta', 'episodes.jsonl'), text)
      await expect(converted(source)).rejects.toThrow(failing('CORRUPT', message))
    }
    await refuse('{"episode_index": 0}', /meta\/episodes\.jsonl.*length: got undefined/)
    await refuse('{"episode_index": -1, "length": 1}', /episode_index: got -1/)
    await refuse('{"episode_index": 0, "length": 1}\n{"episode_index": 1, "length": 0.5}', /length: got 0\.5/)
    await refuse('{"episode_index": 3, "length": 1}', /episode 3 in the data, 0: got 1/)
    await refuse('', /frames of the data, 1: got 0/)
    await refuse('[', /meta\/episodes\.jsonl, line 1 must be JSON/)
    await refuse('7', /line 1 must be an object/)
    const good = '{"episode_index": 0, "length": 1}'
    await refuse(good, /chunks_size.*got 0/, { chunks_size: 0 })
    await refuse(good, /fps.*got "10"/, { fps: '10' })
    await refuse(good, /video_path.*got 7/, { video_path: 7 })
    await refuse(good, /features must be an object/, { features: [] })
    const features = { 'observation.images.top': { dtype: 'video' } }
    await refuse(good, /video_path.*got undefined/, { codebase_version: 'v2.0', features })
    await refuse(good, /chunk_index: got undefined/, { features, video_path: 'a.mp4' })
    const pattern = (video_path: string) => ({ codebase_version: 'v2.0', features, video_path })
    await refuse(good, /pattern of video_key.*\{episode\}/, pattern('{episode}.mp4'))
    await refuse(good, /below its folder/, pattern('/etc/{video_key}'))
    await refuse(
      good,
      /must be there: .*\/videos\/0007?\.mp4|is missing/,
      pattern('videos/{episode_index:04d}.mp4'),
    )
    const source = await written([rows], { info: pattern('a.mp4') })
    await expect(converted(source)).rejects.toThrow(failing('CORRUPT', /meta\/episodes must be there/))
  })

  it('refuses an episode that begins elsewhere in its video', async () => {
    const source = await written([[{ episode_index: 0n, index: 0n }]], {
      info: { video_path: 'a.mp4', features: { top: { dtype: 'video' } } },
    })
    const row = { episode_index: 0, length: 1, 'videos/top/chunk_index': 0, 'videos/top/file_index': 0 }
    const episode = (from: unknown) => JSON.stringify({ ...row, 'videos/top/from_timestamp': from })
    await writeFile(join(source, 'meta', 'episodes.jsonl'), episode(0.3))
    await expect(converted(source)).rejects.toThrow(failing('INCOMPATIBLE', /episode 0 begin 0 s.*got 0\.3/))
    await writeFile(join(source, 'meta', 'episodes.jsonl'), episode('x'))
    await expect(converted(source)).rejects.toThrow(failing('CORRUPT', /from_timestamp.*got "x"/))
  })

  it('keeps keys that the folder must escape, and refuses its words', async () => {
    const rows = [{ index: 0n }, { index: 1n }]
    const dict = await converted(await written([rows]), { index: 'a/b%c d' })
    expect(dict.tensor(['a/b%c d']).data).toEqual(BigInt64Array.of(0n, 1n))
    await expect(converted(await written([rows]), { index: 'shape' })).rejects.toThrow(
      failing('INCOMPATIBLE', /words of the format/),
    )
    await expect(converted(await written([rows]), { idx: 'a' })).rejects.toThrow(
      failing('UNKNOWN_NAME', /index/),
    )
  })

  it('stops where the signal fires, and leaves nothing', async () => {
    const root = await temporaryFolder()
    const work = convertLeRobot(await written([[{ index: 0n }]]), join(root, 'rows'), {
      keyMap: undefined,
      signal: AbortSignal.abort(),
    })
    await expect(work).rejects.toThrow(failing('ABORTED'))
    expect(await readdir(root)).toEqual([])
  })
})
