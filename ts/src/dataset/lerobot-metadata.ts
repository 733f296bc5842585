/** The files of a LeRobot data set that describe it: versions 2 and 3. */

import { readdir, stat } from 'node:fs/promises'
import { join, relative, sep } from 'node:path'
import { describeValue, FulmarError, messageOf, parseJson, readRegular } from '../core/index.js'
import { nameParts } from '../fetch/file-name.js'
import { ParquetFile } from '../table/parquet-file.js'

/** Most bytes of a file of JSON. */
const LEROBOT_JSON_BYTES_MAX = 2 ** 26

/** `meta/info.json`. */
export interface LeRobotInfo {
  /** 2 or 3. */
  readonly version: number
  /** Frames a second. */
  readonly fps: number
  /** Episodes of a folder in version 2. */
  readonly chunksSize: number
  readonly videoPath: string | undefined
  /** Columns whose frames are in video files. */
  readonly videoKeys: readonly string[]
}

/** An episode, with the fields of its row. */
export interface LeRobotEpisode {
  readonly index: number
  readonly length: number
  /** Path of the file below the folder, for messages. */
  readonly file: string
  readonly fields: Readonly<Record<string, unknown>>
}

/** The files of one video column in the order of their frames, and the frames of each. */
export interface VideoFiles {
  readonly paths: readonly string[]
  readonly numFramesPerFile: readonly number[]
}

const INFO = 'meta/info.json'

/**
 * Reads `meta/info.json`.
 * @throws {FulmarError} With the file and the key: `CORRUPT` if it is missing, no JSON, or a field has no such value;
 *   `INCOMPATIBLE` for another version than 2 and 3.
 */
export async function readInfo(folder: string): Promise<LeRobotInfo> {
  const fields = asObject(await jsonIn(folder, INFO), INFO)
  const { codebase_version = 'v3.0', fps, chunks_size = 1000, video_path: videoPath, features = {} } = fields
  const version = Number(/^v?(\d+)(?:\.|$)/.exec(String(codebase_version))?.[1] ?? Number.NaN)
  if (version !== 2 && version !== 3) {
    const got = describeValue(codebase_version)
    throw new FulmarError('INCOMPATIBLE', `${INFO} must have a codebase_version of 2 or 3: got ${got}`)
  }
  if (typeof fps !== 'number' || !(fps > 0) || !Number.isFinite(fps))
    throw wrong(INFO, 'fps', 'a number above 0', fps)
  if (!isCount(chunks_size) || chunks_size === 0)
    throw wrong(INFO, 'chunks_size', 'a whole number from 1', chunks_size)
  if (videoPath !== undefined && videoPath !== null && typeof videoPath !== 'string')
    throw wrong(INFO, 'video_path', 'a text', videoPath)
  const videoKeys = Object.entries(asObject(features, `${INFO}: features`))
    .filter(
      ([, feature]) =>
        typeof feature === 'object' && feature !== null && Reflect.get(feature, 'dtype') === 'video',
    )
    .map(([name]) => name)
  return { version, fps, chunksSize: chunks_size, videoPath: videoPath ?? undefined, videoKeys }
}

/**
 * Reads the episodes in order, or nothing if there is no such file.
 * @throws {FulmarError} `CORRUPT`, with the file and the key.
 */
export async function readEpisodes(folder: string): Promise<readonly LeRobotEpisode[] | undefined> {
  const tables = await filesBelow(folder, 'meta/episodes', '.parquet')
  const lines = 'meta/episodes.jsonl'
  const rows: (readonly [string, Readonly<Record<string, unknown>>])[] = []
  for (const file of tables) for (const row of await tableIn(folder, file)) rows.push([file, row])
  if (tables.length === 0) {
    const text = await textIn(folder, lines)
    if (text === undefined) return undefined
    for (const row of jsonLines(text, lines)) rows.push([lines, row])
  }
  const episodes = rows.map(([file, fields]) => ({
    ...{ index: countIn(fields, 'episode_index', file), length: countIn(fields, 'length', file) },
    ...{ file, fields },
  }))
  return episodes.sort((a, b) => a.index - b.index)
}

/** Reads the tasks by their index, and the file that they are in. @throws {FulmarError} `CORRUPT`, with the file. */
export async function readTasks(
  folder: string,
): Promise<{ readonly file: string; readonly texts: ReadonlyMap<number, string> }> {
  const table = 'meta/tasks.parquet'
  const lines = 'meta/tasks.jsonl'
  const isTable = await stat(join(folder, table)).then(
    () => true,
    () => false,
  )
  const file = isTable ? table : lines
  const rows = isTable ? await tableIn(folder, table) : jsonLines((await textIn(folder, lines)) ?? '', lines)
  const texts = new Map<number, string>()
  for (const row of rows) {
    const text = row.task ?? row.__index_level_0__
    if (typeof text !== 'string') throw wrong(file, 'task', 'a text', text)
    texts.set(countIn(row, 'task_index', file), text)
  }
  return { file, texts }
}

/**
 * Returns the video files of a column, which are below the folder.
 * @throws {FulmarError} With file and key: `CORRUPT` for fields that are missing or damaged, or a path that leads out of the
 *   folder; `INCOMPATIBLE` if an episode does not begin where the last one ends.
 */
export function videoFilesOf(
  folder: string,
  key: string,
  {
    info,
    episodes,
  }: { readonly info: LeRobotInfo; readonly episodes: readonly LeRobotEpisode[] | undefined },
): VideoFiles {
  if (episodes === undefined)
    throw new FulmarError('CORRUPT', `meta/episodes must be there for the videos of ${key}: it is missing`)
  const paths: string[] = []
  const counts: number[] = []
  for (const episode of episodes) {
    const path = join(folder, ...videoNameOf(key, episode, info))
    const isSame = info.version === 3 && paths.at(-1) === path
    if (info.version === 3)
      checkStart(key, episode, { fps: info.fps, start: isSame ? (counts.at(-1) ?? 0) : 0 })
    if (isSame) counts.push((counts.pop() ?? 0) + episode.length)
    else {
      paths.push(path)
      counts.push(episode.length)
    }
  }
  return { paths, numFramesPerFile: counts }
}

/** The files below a folder of the data set that end so, in order, as paths below the data set. */
export async function filesBelow(folder: string, below: string, suffix: string): Promise<readonly string[]> {
  const root = join(folder, ...below.split('/'))
  const names = await readdir(root, { recursive: true }).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return []
    throw new FulmarError('IO', `${root} must be a readable folder: got ${messageOf(cause)}`, { cause })
  })
  const files = names.filter((name) => name.endsWith(suffix))
  return files.map((name) => relative(folder, join(root, name)).split(sep).join('/')).sort()
}

/** Frames may begin half a frame away from the sum of those before. */
function checkStart(
  key: string,
  { index, file, fields }: LeRobotEpisode,
  { fps, start }: { readonly fps: number; readonly start: number },
): void {
  const name = `videos/${key}/from_timestamp`
  const from = fields[name]
  if (from === undefined || from === null) return
  if (typeof from !== 'number' || !Number.isFinite(from)) throw wrong(file, name, 'a number', from)
  if (Math.abs(from - start / fps) <= 0.5 / fps) return
  const detail = `${file} must have episode ${index} begin ${start / fps} s into its video at ${name}: got ${from}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

function videoNameOf(
  key: string,
  { index, file, fields }: LeRobotEpisode,
  info: LeRobotInfo,
): readonly string[] {
  if (info.videoPath === undefined) throw wrong(INFO, 'video_path', 'a text', undefined)
  const values: Readonly<Record<string, string | number>> =
    info.version === 3
      ? {
          video_key: key,
          chunk_index: countIn(fields, `videos/${key}/chunk_index`, file),
          file_index: countIn(fields, `videos/${key}/file_index`, file),
        }
      : { video_key: key, episode_chunk: Math.floor(index / info.chunksSize), episode_index: index }
  const name = info.videoPath.replace(/\{([^{}]*)\}/g, (hole: string, inside: string) => {
    const [, field = '', width = '0'] = /^(\w+)(?::0?(\d{1,2})d)?$/.exec(inside) ?? []
    const value = Object.hasOwn(values, field) ? values[field] : undefined
    if (value !== undefined) return String(value).padStart(Number(width), '0')
    throw wrong(INFO, 'video_path', `a pattern of ${Object.keys(values).join(', ')}`, hole)
  })
  return nameParts(`${INFO}: video_path`, name, 'CORRUPT')
}

/** Checks that the videos of a column are there. @throws {FulmarError} `CORRUPT`, with the path. */
export async function checkVideoFiles(key: string, { paths }: VideoFiles): Promise<void> {
  for (const path of new Set(paths)) {
    const about = await stat(path).catch(() => undefined)
    if (!about?.isFile())
      throw new FulmarError('CORRUPT', `the videos of ${key} must be there: ${path} is missing`)
  }
}

async function tableIn(folder: string, file: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const table = await ParquetFile.open(join(folder, ...file.split('/')))
  try {
    return (await table.readRows()).map((row) =>
      Object.fromEntries(
        Object.entries(row).map(([name, cell]) => [name, cell instanceof Uint8Array ? textOf(cell) : cell]),
      ),
    )
  } finally {
    await table.close()
  }
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}

async function textIn(folder: string, file: string): Promise<string | undefined> {
  const bytes = await readRegular(join(folder, ...file.split('/')), LEROBOT_JSON_BYTES_MAX)
  return bytes && textOf(bytes)
}

async function jsonIn(folder: string, file: string): Promise<unknown> {
  const text = await textIn(folder, file)
  if (text === undefined) throw new FulmarError('CORRUPT', `${file} must be there: it is missing`)
  return jsonOf(text, file)
}

function jsonLines(text: string, file: string): readonly Readonly<Record<string, unknown>>[] {
  return text
    .split('\n')
    .map((line, at) => [line, `${file}, line ${at + 1}`] as const)
    .filter(([line]) => line.trim() !== '')
    .map(([line, place]) => asObject(jsonOf(line, place), place))
}

function jsonOf(text: string, place: string): unknown {
  try {
    return parseJson(text)
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${place} must be JSON: got ${messageOf(cause)}`, { cause })
  }
}

function asObject(value: unknown, place: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
  throw new FulmarError('CORRUPT', `${place} must be an object of JSON: got ${describeValue(value)}`)
}

/** A whole number of a row, which tables keep as a big integer. */
function countIn(fields: Readonly<Record<string, unknown>>, name: string, file: string): number {
  const value = Object.hasOwn(fields, name) ? fields[name] : undefined
  const count = typeof value === 'bigint' ? Number(value) : value
  if (isCount(count)) return count
  throw wrong(file, name, 'a whole number from 0', value)
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

function wrong(file: string, key: string, rule: string, value: unknown): FulmarError {
  return new FulmarError('CORRUPT', `${file} must have ${rule} at ${key}: got ${describeValue(value)}`)
}
