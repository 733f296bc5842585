/** Rows of texts from files, a part of a file at a time. Node only. */

import type { FileHandle } from 'node:fs/promises'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import {
  describeValue,
  FulmarError,
  messageOf,
  openRegular,
  readRegular,
  unreadable,
} from '../../core/index.js'
import { nameParts } from '../../fetch/file-name.js'
import { arrowParts } from '../../table/arrow-parts.js'
import { parquetParts } from '../../table/parquet-parts.js'
import type { TextRow } from './tokenized-dataset-loader.js'

/** The files of one split, in order, all of one format. */
export interface RowFiles {
  readonly format: 'parquet' | 'arrow' | 'jsonl'
  readonly paths: readonly string[]
}

/** Most bytes of a line of JSON. */
export const LINE_BYTES_MAX = 2 ** 26

/** Most bytes of a description of a saved data set. */
const STATE_BYTES_MAX = 2 ** 26

/** Bytes per read of lines. */
const CHUNK_BYTES = 2 ** 20

/** Patterns of the files of a split in a repository of the hub. */
export function splitPatterns(split: string): readonly string[] {
  const places = ['', 'data/']
  const files = [`${split}.parquet`, `${split}-*.parquet`, `${split}.jsonl`, `${split}-*.jsonl`]
  return [...places.flatMap((place) => files.map((file) => `${place}${file}`)), `${split}/*.parquet`]
}

/**
 * Finds the files of a split: a folder of `save_to_disk`, or Parquet files or JSON lines that are named after it, in `folder`, in its
 * `data` or in a folder of the split's name. A path that ends in `.jsonl` is one file.
 * @throws {FulmarError} `UNKNOWN_NAME` for a split without files; `CORRUPT` or `INCOMPATIBLE` for a saved folder that cannot be read.
 */
export async function rowFilesIn(folder: string, split: string): Promise<RowFiles> {
  if (folder.endsWith('.jsonl')) return { format: 'jsonl', paths: [folder] }
  const saved = await savedFiles(folder, split)
  if (saved) return { format: 'arrow', paths: saved }
  for (const format of ['parquet', 'jsonl'] as const) {
    for (const place of ['', 'data', split]) {
      const names = await namesIn(join(folder, place))
      const own = names.filter((name) => isOfSplit(name, place === split ? undefined : split, format)).sort()
      if (own.length > 0) return { format, paths: own.map((name) => join(folder, place, name)) }
    }
  }
  const rule = `${folder} must have files of the split ${split}`
  throw new FulmarError(
    'UNKNOWN_NAME',
    `${rule}: there is no ${split}-*.parquet, no ${split}.jsonl, no state.json`,
  )
}

/** Yields the rows of the files, part by part, up to `rowsMax`. @throws {FulmarError} As the readers of the formats. */
export async function* textParts(
  { format, paths }: RowFiles,
  rowsMax = Number.POSITIVE_INFINITY,
): AsyncGenerator<readonly TextRow[], void, undefined> {
  const read = { parquet: parquetParts, arrow: arrowParts, jsonl: lineParts }[format]
  let left = rowsMax
  for (const path of paths) {
    for await (const rows of read(path)) {
      yield rows.length <= left ? rows : rows.slice(0, left)
      left -= rows.length
      if (left <= 0) return
    }
  }
}

function isOfSplit(name: string, split: string | undefined, format: string): boolean {
  if (!name.endsWith(`.${format}`)) return false
  return split === undefined || name === `${split}.${format}` || name.startsWith(`${split}-`)
}

async function namesIn(folder: string): Promise<readonly string[]> {
  return await readdir(folder).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT' || cause.code === 'ENOTDIR') return []
    throw unreadable(folder, cause)
  })
}

/** The Arrow files of a folder that `datasets` saved, with splits or without; nothing for another folder. */
async function savedFiles(folder: string, split: string): Promise<readonly string[] | undefined> {
  const dict = await objectIn(join(folder, 'dataset_dict.json'))
  if (dict) {
    const { splits } = dict
    if (!Array.isArray(splits) || !splits.includes(split)) {
      const got = Array.isArray(splits) ? splits.join(', ') : describeValue(splits)
      throw new FulmarError('UNKNOWN_NAME', `${folder} must have the split ${split}: it has ${got}`)
    }
  }
  const inner = dict ? join(folder, ...nameParts('split', split, 'MALFORMED')) : folder
  const path = join(inner, 'state.json')
  const state = await objectIn(path)
  if (state === undefined) {
    if (dict) throw new FulmarError('CORRUPT', `${path} must be there: it is missing`)
    return undefined
  }
  const { _data_files: files, _indices_data_files: indices } = state
  if (Array.isArray(indices) && indices.length > 0) {
    const detail = `${path} must have no _indices_data_files, a choice of rows: got ${indices.length} (save the data set once more)`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  if (!Array.isArray(files)) {
    throw new FulmarError('CORRUPT', `${path} must list _data_files: got ${describeValue(files)}`)
  }
  return files.map((file) => join(inner, ...nameParts(`a file of ${path}`, Object(file).filename, 'CORRUPT')))
}

async function objectIn(path: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const bytes = await readRegular(path, STATE_BYTES_MAX)
  return bytes && objectOf(new TextDecoder().decode(bytes), path)
}

function objectOf(text: string, place: string): TextRow {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${place} must be a JSON object: got ${messageOf(cause)}`, { cause })
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
  throw new FulmarError('CORRUPT', `${place} must be a JSON object: got ${describeValue(value)}`)
}

/** Yields the rows of a file of JSON lines, those of a read at a time. Only `\n` ends a line; blank lines are skipped. */
async function* lineParts(path: string): AsyncGenerator<readonly TextRow[], void, undefined> {
  const handle = await openRegular(path)
  if (handle === undefined) throw unreadable(path)
  try {
    let number = 0
    for await (const lines of linesIn(handle, path)) {
      const rows: TextRow[] = []
      for (const line of lines) {
        number += 1
        if (line.trim() !== '') rows.push(objectOf(line, `line ${number} of ${path}`))
      }
      if (rows.length > 0) yield rows
    }
  } finally {
    await handle.close()
  }
}

/** Yields the whole lines of each read; the last ends with the file. */
async function* linesIn(
  handle: FileHandle,
  path: string,
): AsyncGenerator<readonly string[], void, undefined> {
  const chunk = new Uint8Array(CHUNK_BYTES)
  let rest: Uint8Array[] = []
  let restBytes = 0
  for (;;) {
    const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES, null)
    const end = bytesRead === 0 ? 0 : chunk.lastIndexOf(10, bytesRead - 1) + 1
    const isWhole = bytesRead === 0 || end > 0
    const head = chunk.slice(0, isWhole ? end : bytesRead)
    rest.push(head)
    restBytes += head.length
    if (restBytes > LINE_BYTES_MAX + CHUNK_BYTES) {
      throw new FulmarError(
        'LIMIT_EXCEEDED',
        `a line of ${path} must have at most ${LINE_BYTES_MAX} bytes: it has more`,
      )
    }
    if (isWhole && restBytes > 0) yield textOf(rest, path).replace(/\n$/, '').split('\n')
    if (bytesRead === 0) return
    if (!isWhole) continue
    rest = [chunk.slice(end, bytesRead)]
    restBytes = bytesRead - end
  }
}

function textOf(parts: readonly Uint8Array[], path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts))
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be UTF-8: got ${messageOf(cause)}`, { cause })
  }
}
