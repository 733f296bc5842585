/** Conversion of a LeRobot data set, row group by row group, to a folder of memory-mapped leaves. */

import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { aborted } from '../async/index.js'
import { FulmarError, messageOf } from '../core/index.js'
import { jsonFrom, TABLE_ROWS_MIN } from '../table/column.js'
import { type FileColumn, ParquetFile } from '../table/parquet-file.js'
import type { ColumnNumbers } from '../table/parquet-numbers.js'
import { type Json, loadMemmap, saveMemmap } from '../tensor/index.js'
import { type DecodeImage, imageDecoder } from './image-pixels.js'
import { elementsOf, type RowForm, shapeOfCell } from './lerobot-cells.js'
import { isFlagKey, keyOfColumn, keysOfColumns, type LeRobotKeyMap } from './lerobot-columns.js'
import {
  checkVideoFiles,
  filesBelow,
  type LeRobotEpisode,
  readEpisodes,
  readInfo,
  readTasks,
  type VideoFiles,
  videoFilesOf,
} from './lerobot-metadata.js'
import { MemmapColumns } from './memmap-columns.js'

/** Name of the video files in the folder, as TorchRL keeps them. */
const VIDEO_REFS = 'video_refs.json'

/** Options of {@link convertLeRobot}. */
export interface LeRobotConversion {
  readonly keyMap: LeRobotKeyMap | undefined
  readonly signal: AbortSignal | undefined
}

/** Numbers of the rows that were converted. */
interface Progress {
  numRows: number
  /** Names of the columns of each file. */
  columns: ReadonlySet<string> | undefined
  readonly forms: Map<string, RowForm>
  readonly framesByEpisode: Map<number, number>
  /** The column `index`, if there is one. */
  readonly index: number[]
}

/**
 * Converts the files below `source` to a new `folder`.
 * @throws {FulmarError} With file, key and row: `CORRUPT`, `INCOMPATIBLE`, `SHAPE_MISMATCH`, `MALFORMED`, `OUT_OF_RANGE`,
 *   `LIMIT_EXCEEDED` or `EMPTY` for files that break the format; `UNKNOWN_NAME` for a name in `keyMap` that is not a column; `ABORTED`
 *   if the signal fires.
 */
export async function convertLeRobot(
  source: string,
  folder: string,
  options: LeRobotConversion,
): Promise<void> {
  const info = await readInfo(source)
  const episodes = await readEpisodes(source)
  const videos = new Map<string, VideoFiles>()
  for (const key of info.videoKeys) videos.set(key, videoFilesOf(source, key, { info, episodes }))
  const files = await filesBelow(source, 'data', '.parquet')
  if (files.length === 0)
    throw new FulmarError('CORRUPT', `${join(source, 'data')} must have Parquet files: there is none`)
  const columns = new MemmapColumns(folder)
  const progress: Progress = {
    numRows: 0,
    columns: undefined,
    forms: new Map(),
    framesByEpisode: new Map(),
    index: [],
  }
  try {
    const work = {
      source,
      columns,
      progress,
      videoKeys: info.videoKeys,
      decodeImage: await imageDecoder(),
      tasks: await readTasks(source),
      ...options,
    }
    for (const file of files) await convertFile(work, file)
    if (progress.numRows === 0)
      throw new FulmarError('EMPTY', `${join(source, 'data')} must have rows: it has none`)
    checkEpisodes(progress, episodes)
    for (const [key, video] of videos) await checkVideoFiles(key, video)
    await columns.finish(progress.numRows)
  } finally {
    await columns.close()
  }
  await sortByIndex(folder, progress.index)
  if (videos.size > 0) await writeFile(join(folder, VIDEO_REFS), refsText(videos))
}

interface Work extends LeRobotConversion {
  readonly source: string
  readonly columns: MemmapColumns
  readonly progress: Progress
  readonly videoKeys: readonly string[]
  readonly decodeImage: DecodeImage
  readonly tasks: { readonly file: string; readonly texts: ReadonlyMap<number, string> }
}

async function convertFile(work: Work, file: string): Promise<void> {
  const { source, progress, videoKeys, signal } = work
  const table = await ParquetFile.open(join(source, ...file.split('/')))
  try {
    const columns = table.columns.filter(({ name }) => !videoKeys.includes(name))
    if (table.numRows === 0) return
    checkColumns(
      progress,
      file,
      columns.map(({ name }) => name),
    )
    const hasTask = columns.some(({ name }) => name === 'task')
    const addsTask =
      !hasTask && work.tasks.texts.size > 0 && columns.some(({ name }) => name === 'task_index')
    const names = [...columns.map(({ name }) => name), ...(addsTask ? ['task'] : []), ...videoKeys]
    const keys = keysOfColumns(names, work.keyMap)
    for (const group of table.groups) {
      for (const column of columns) {
        if (signal?.aborted) throw aborted(signal)
        const place = { file, column: column.name, row: group.rowStart }
        const target = { column, key: keys.get(column.name) ?? [], place }
        const numbers = await table.readNumbers(column, group)
        const isAppended = numbers !== undefined && (await appendNumbers(work, target, numbers))
        const cells = isAppended ? numbers.elements : await table.read(column.name, group)
        if (!isAppended) await appendCells(work, target, cells)
        if (column.name === 'task_index' && addsTask)
          work.columns.appendValues(keys.get('task') ?? [], tasksOf(work.tasks, cells, file))
        if (column.name === 'episode_index') countFrames(progress.framesByEpisode, cells)
        if (column.name === 'index')
          for (let at = 0; at < cells.length; at++) progress.index.push(Number(cells[at]))
      }
      progress.numRows += group.rowEnd - group.rowStart
    }
  } finally {
    await table.close()
  }
}

interface Place {
  readonly file: string
  readonly column: string
  /** Row of the first cell. */
  readonly row: number
}

/** A column of the table, and the key of its leaf. */
interface Target {
  readonly column: FileColumn
  readonly key: readonly string[]
  readonly place: Place
}

/** Appends cells of one length; not those of another length than the cells before, and returns false then. */
async function appendNumbers(
  { columns, progress }: Work,
  { column, key, place }: Target,
  { elements, width }: ColumnNumbers,
): Promise<boolean> {
  const shape = column.depth > 0 ? [width] : isFlagKey(key) ? [1] : []
  const known = progress.forms.get(column.name)?.shape ?? shape
  if (known.join() !== shape.join()) return false
  const dtype = elements instanceof Float32Array ? 'f32' : 'i64'
  await columns.append(key, formOf(progress, place, { dtype, shape }), elements)
  return true
}

async function appendCells(
  { columns, progress, decodeImage }: Work,
  { column, key, place }: Target,
  cells: ArrayLike<unknown>,
): Promise<void> {
  if (cells.length === 0) return
  if (column.dtype === 'image') {
    for (let at = 0; at < cells.length; at++) {
      const at_ = { ...place, row: place.row + at }
      const { width, height, pixels } = imageIn(cells[at], decodeImage, at_)
      const form = formOf(progress, at_, { dtype: 'u8', shape: [3, height, width] })
      await columns.append(key, form, pixels)
    }
    return
  }
  if (column.dtype === 'text' || column.dtype === 'json') {
    const values = Array.from(cells, (cell, at) => valueIn(cell, column, { ...place, row: place.row + at }))
    formOf(progress, place, { dtype: 'json', shape: [] })
    columns.appendValues(key, values)
    return
  }
  const dtype = column.dtype === 'bool' ? 'bool' : /^b?f/.test(column.dtype) ? 'f32' : 'i64'
  const known = progress.forms.get(column.name)
  const isFlag = isFlagKey(key) && column.depth === 0
  const shape = known?.shape ?? (isFlag ? [1] : shapeOfCell(cells[0], column.depth, place))
  const form = formOf(progress, place, { dtype, shape })
  const elements = elementsOf(cells, { dtype, shape: isFlag ? [] : shape }, place)
  await columns.append(key, { dtype, shape: form.shape }, elements)
}

/** Returns the form that all rows of a column have. @throws {FulmarError} `SHAPE_MISMATCH`. */
function formOf<Form extends RowForm>({ forms }: Progress, { file, column, row }: Place, form: Form): Form {
  const known = forms.get(column)
  if (known === undefined) forms.set(column, form)
  else if (known.dtype !== form.dtype || known.shape.join() !== form.shape.join()) {
    const [wanted, got] = [known, form].map(({ dtype, shape }) => `${dtype} of [${shape.join(', ')}]`)
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `${file} must have ${wanted} at ${column}, row ${row}: got ${got}`,
    )
  }
  return form
}

function valueIn(cell: unknown, { name, dtype }: FileColumn, { file, row }: Place): Json {
  const place = `${file}: column '${name}' at row ${row}`
  if (dtype === 'json') return jsonFrom(cell, place, TABLE_ROWS_MIN, 0)
  if (typeof cell === 'string') return cell
  throw new FulmarError('MALFORMED', `${place} must hold a text: got ${cell === null ? 'null' : typeof cell}`)
}

function imageIn(cell: unknown, decode: DecodeImage, { file, column, row }: Place) {
  const place = `${file}: column '${column}' at row ${row}`
  const bytes = typeof cell === 'object' && cell !== null ? Reflect.get(cell, 'bytes') : undefined
  if (!(bytes instanceof Uint8Array))
    throw new FulmarError(
      'MALFORMED',
      `${place} must hold the bytes of an image: got ${bytes === null ? 'null' : typeof bytes}`,
    )
  try {
    return decode(bytes)
  } catch (cause) {
    const code = cause instanceof FulmarError ? cause.code : 'CORRUPT'
    throw new FulmarError(code, `${place} must hold an image: got ${messageOf(cause)}`, { cause })
  }
}

function tasksOf({ file, texts }: Work['tasks'], cells: ArrayLike<unknown>, data: string): readonly string[] {
  const found: string[] = []
  for (let at = 0; at < cells.length; at++) {
    const cell = cells[at]
    // Frames of a task follow one another.
    const text = at > 0 && cell === cells[at - 1] ? found[at - 1] : texts.get(Number(cell))
    if (text === undefined)
      throw new FulmarError('CORRUPT', `${file} must have the task of ${data}: got no task ${cell}`)
    found.push(text)
  }
  return found
}

function countFrames(framesByEpisode: Map<number, number>, cells: ArrayLike<unknown>): void {
  for (let start = 0, end = 1; start < cells.length; start = end, end += 1) {
    // Frames of an episode follow one another.
    while (end < cells.length && cells[end] === cells[start]) end += 1
    const episode = Number(cells[start])
    framesByEpisode.set(episode, (framesByEpisode.get(episode) ?? 0) + end - start)
  }
}

/** Checks that a file has the columns of the first one. @throws {FulmarError} `CORRUPT`, with file and column. */
function checkColumns(progress: Progress, file: string, names: readonly string[]): void {
  progress.columns ??= new Set(names)
  const missing = [...progress.columns].find((name) => !names.includes(name))
  const extra = names.find((name) => !progress.columns?.has(name))
  if (missing === undefined && extra === undefined) return
  const got = missing === undefined ? `${extra} too` : `none at ${missing}`
  throw new FulmarError('CORRUPT', `${file} must have the columns of the other files: got ${got}`)
}

function checkEpisodes(
  { framesByEpisode, numRows }: Progress,
  episodes: readonly LeRobotEpisode[] | undefined,
): void {
  if (episodes === undefined) return
  if (framesByEpisode.size > 0) {
    for (const { index, length, file } of episodes) {
      const found = framesByEpisode.get(index) ?? 0
      if (found === length) continue
      const detail = `${file} must have the length of episode ${index} in the data, ${found}: got ${length}`
      throw new FulmarError('CORRUPT', detail)
    }
  }
  const total = episodes.reduce((sum, { length }) => sum + length, 0)
  if (total === numRows) return
  const file = episodes[0]?.file ?? 'meta/episodes.jsonl'
  throw new FulmarError('CORRUPT', `${file} must have the frames of the data, ${numRows}: got ${total}`)
}

/** Brings rows in the order of the column `index`, as the files may have another. */
async function sortByIndex(folder: string, index: readonly number[]): Promise<void> {
  if (index.every((value, at) => at === 0 || (index[at - 1] ?? 0) <= value)) return
  const order = index.map((_, at) => at).sort((a, b) => (index[a] ?? 0) - (index[b] ?? 0) || a - b)
  const sorted = `${folder}.columns`
  saveMemmap(sorted, loadMemmap(folder).indexSelect(order))
  await rm(folder, { recursive: true, force: true })
  await rename(sorted, folder)
}

function refsText(videos: ReadonlyMap<string, VideoFiles>): string {
  const refs = [...videos].map(([key, { paths, numFramesPerFile }]) => [
    key,
    { paths, num_frames_per_file: numFramesPerFile },
  ])
  return JSON.stringify(Object.fromEntries(refs))
}

/**
 * Reads the video files of a folder: the key of each column, and its files.
 * @throws {FulmarError} `CORRUPT`, with the path.
 */
export async function videosIn(
  folder: string,
  keyMap: LeRobotKeyMap | undefined,
): Promise<readonly { readonly key: readonly string[]; readonly files: VideoFiles }[]> {
  const path = join(folder, VIDEO_REFS)
  const text = await readFile(path, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return undefined
    throw new FulmarError('IO', `${path} must be readable: got ${messageOf(cause)}`, { cause })
  })
  if (text === undefined) return []
  let refs: unknown
  try {
    refs = JSON.parse(text)
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be JSON: got ${messageOf(cause)}`, { cause })
  }
  return Object.entries(refs ?? {}).map(([name, ref]) => {
    const { paths, num_frames_per_file: counts } = (ref ?? {}) as Readonly<Record<string, unknown>>
    if (!Array.isArray(paths) || !Array.isArray(counts) || paths.length !== counts.length)
      throw new FulmarError(
        'CORRUPT',
        `${basename(path)} must have a count for each path of ${name}: it has not`,
      )
    return { key: keyOfColumn(name, keyMap), files: { paths, numFramesPerFile: counts } }
  })
}
