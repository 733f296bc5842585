/** The folder of converted rows of one data set: made once, whole or not at all. */

import { mkdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { aborted } from '../async/index.js'
import { describeValue, FulmarError, messageOf, readRegular } from '../core/index.js'
import { withFileLock } from '../fetch/file-lock.js'
import { raw } from '../native/index.js'
import { writing } from '../telemetry/disk.js'
import { systemClock } from '../telemetry/index.js'
import type { DatasetOptions } from './dataset-options.js'

/** Name of the conversion's options in the folder. */
const CONVERSION = 'conversion.json'

/** Most bytes of a file of JSON in the folder. */
const JSON_BYTES_MAX = 2 ** 24

/** A data set that a folder is made of. */
export interface DatasetSource {
  /** Folder of the rows. */
  readonly dataPath: string
  /** For messages, such as `d4rl:hopper-medium-v2`. */
  readonly label: string
  /** Options that the rows depend on, which are kept in the folder; none for a folder that is never asked for again. */
  readonly conversion: Readonly<Record<string, boolean | number | string>>
  /** File that is in a whole folder. @default 'meta.json' */
  readonly mark?: string
  /** Fetches the files and converts them to a new folder. */
  convert(folder: string): Promise<void>
}

/**
 * Makes the folder unless it is there. Several processes may ask for the same one: one converts, the others wait. A conversion that
 * fails leaves nothing; a process that dies meanwhile leaves a folder of another name, which the next conversion removes.
 * @throws {FulmarError} `UNAVAILABLE` if it is not there and `download` is false; `INCOMPATIBLE` if it was converted with other
 *   options, or something else is there; `ABORTED` if the signal fires; those of the conversion.
 */
export async function ensureFolder(source: DatasetSource, options: DatasetOptions): Promise<void> {
  const { dataPath, label } = source
  const { clock = systemClock, signal, download = true } = options
  if (signal?.aborted) throw aborted(signal)
  if (download !== 'force' && (await isWhole(source))) return await checkConversion(source)
  if (download === false) {
    const detail = `${label} must be in ${dataPath}, as download is false: it is not there`
    throw new FulmarError('UNAVAILABLE', detail)
  }
  await withFileLock(`${dataPath}.lock`, { clock, signal }, async () => {
    const isThere = await isWhole(source)
    if (isThere && download !== 'force') return await checkConversion(source)
    if (!isThere) await checkFree(source)
    await writing('the folder of a data set', dataPath, () => convertBeside(source, signal))
  })
}

/**
 * Makes a folder that must not be there. It is whole or not there, as with {@link ensureFolder}.
 * @throws {FulmarError} `INCOMPATIBLE` if something is there; `ABORTED` if the signal fires; those of the conversion.
 */
export async function makeFolder(
  source: DatasetSource,
  { clock = systemClock, signal }: Pick<DatasetOptions, 'clock' | 'signal'>,
): Promise<void> {
  const { dataPath } = source
  await checkFree(source)
  await withFileLock(`${dataPath}.lock`, { clock, signal }, async () => {
    await checkFree(source)
    await writing('the folder of a data set', dataPath, () => convertBeside(source, signal))
  })
}

/** Functions of the core that read files. */
type Converter =
  | `convert${'Columns' | 'Episodes' | 'Frames' | 'GenDgrl' | 'Openx' | 'Split' | 'Table' | 'Trials'}`
  | 'readOpenxEpisode'
  | 'RowsFolder'
  | 'SplitsFolder'

/** Returns a conversion of the core. @throws {FulmarError} `UNAVAILABLE` in WebAssembly, which has no files. */
export function converter<Name extends Converter>(name: Name): NonNullable<(typeof raw)[Name]> {
  const found = raw[name]
  if (found) return found
  throw new FulmarError('UNAVAILABLE', 'the backend must be native to open data sets: got WebAssembly')
}

/**
 * Converts in a folder of another name, and moves the rows out of it once they are whole. Other files of a conversion are in that
 * folder too, so that none is left by a process that dies.
 */
async function convertBeside(source: DatasetSource, signal: AbortSignal | undefined): Promise<void> {
  const { dataPath, conversion } = source
  const staged = `${dataPath}.incomplete`
  const rows = join(staged, 'rows')
  await rm(staged, { recursive: true, force: true })
  await mkdir(staged, { recursive: true })
  try {
    await source.convert(rows)
    if (Object.keys(conversion).length > 0)
      await writeFile(join(rows, CONVERSION), JSON.stringify(conversion))
    if (signal?.aborted) throw aborted(signal)
    await moveAside(dataPath)
    await rename(rows, dataPath)
  } finally {
    for (const path of [staged, asideOf(dataPath)]) await rm(path, { recursive: true, force: true })
  }
}

/**
 * Removes a folder of rows, which is never there in part: it loses its name first.
 * @throws {FulmarError} `IO` if the system refuses.
 */
export async function removeFolder(dataPath: string): Promise<void> {
  await writing('the folder of a data set', dataPath, async () => {
    await moveAside(dataPath)
    await rm(asideOf(dataPath), { recursive: true, force: true })
  })
}

/** The name that a folder has while it is removed. */
const asideOf = (dataPath: string): string => `${dataPath}.removed`

async function moveAside(dataPath: string): Promise<void> {
  await rm(asideOf(dataPath), { recursive: true, force: true })
  await rename(dataPath, asideOf(dataPath)).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause
  })
}

/** Refuses to replace what no conversion made, such as Minari's own files. */
async function checkFree({ dataPath, label }: DatasetSource): Promise<void> {
  const isThere = await stat(dataPath).then(
    () => true,
    () => false,
  )
  if (!isThere) return
  const detail = `${label} must have ${dataPath} for its rows alone: something else is there (give another folder)`
  throw new FulmarError('INCOMPATIBLE', detail)
}

/** Returns true for a folder that was renamed to its name. */
async function isWhole({ dataPath, mark = 'meta.json' }: DatasetSource): Promise<boolean> {
  return await stat(join(dataPath, mark)).then(
    (about) => about.isFile(),
    () => false,
  )
}

/** Refuses rows that were converted with other options. */
async function checkConversion({ dataPath, label, conversion }: DatasetSource): Promise<void> {
  const found = (await conversionIn(dataPath)) ?? (await conversionByTorchRL(dataPath))
  for (const [name, value] of Object.entries(conversion)) {
    if (found[name] === undefined || found[name] === value) continue
    const detail = `${label} in ${dataPath} must be converted with ${name} ${value}: it was with ${found[name]} (give another root, or download: 'force')`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
}

/** The options that a folder was converted with; nothing in one of TorchRL. @throws {FulmarError} `CORRUPT`, `IO`. */
export async function conversionIn(dataPath: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  return await objectIn(join(dataPath, CONVERSION))
}

/** The options that a folder of TorchRL shows: split trajectories have two dimensions. */
async function conversionByTorchRL(dataPath: string): Promise<Readonly<Record<string, unknown>>> {
  const shape = (await objectIn(join(dataPath, 'meta.json')))?.shape
  return Array.isArray(shape) ? { splitTrajs: shape.length > 1 } : {}
}

/** Reads an object of JSON, or nothing if the file is not there. @throws {FulmarError} `CORRUPT`, `IO`. */
async function objectIn(path: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const bytes = await readRegular(path, JSON_BYTES_MAX)
  if (bytes === undefined) return undefined
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
    if (typeof value === 'object' && value !== null) return { ...value }
    throw new FulmarError('CORRUPT', `it is ${describeValue(value)}`)
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be an object of JSON: got ${messageOf(cause)}`, { cause })
  }
}
