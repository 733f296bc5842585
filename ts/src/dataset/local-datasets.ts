/** Data sets on this machine: their folders, without loading the rows. */

import { readdir, stat } from 'node:fs/promises'
import { join, relative, sep } from 'node:path'
import { call, FulmarError, nearestName } from '../core/index.js'
import { storageAround } from '../replay/storage.js'
import type { TensorDict } from '../tensor/index.js'
import { placeOf } from './dataset-experience-replay.js'
import { conversionIn, converter, removeFolder } from './dataset-folder.js'
import { lerobotFolder } from './lerobot-experience-replay.js'
import { datasetSources, splitName } from './load-dataset.js'
import { rowsStorage } from './rows-storage.js'

/** Deepest folder of a data set below that of its source: Minari's ids have namespaces in namespaces. */
const DEPTH_MAX = 16

/** Ends of names of folders that are not rows: a conversion, and a removal, that are under way. */
const UNFINISHED = /\.(?:incomplete|removed)$/

/** Files of which a whole folder of rows has one: that of splits of Atari DQN replay has the second. */
const MARKS = ['meta.json', 'processed.json']

/** Second names of sources. */
const ALIASES: Readonly<Record<string, string>> = { atari_dqn: 'atari' }

/** The folders of rows of one id. */
export interface LocalDataset {
  /** With the source, such as `d4rl:hopper-medium-v2`. */
  readonly name: string
  /** Folders of the rows: of steps, of split trajectories. */
  readonly folders: readonly string[]
}

/**
 * Returns the data sets of a source that are converted, in the order of their names.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown source; `LIMIT_EXCEEDED` for folders more than 16 deep.
 */
export async function localDatasets(source: string, root?: string): Promise<readonly LocalDataset[]> {
  const canonical = checkSource(source)
  const { root: top } = placeOf(canonical, 'any', { ...(root !== undefined && { root }) })
  const byName = new Map<string, string[]>()
  for (const folder of await foldersIn(top, 0)) {
    const id = await idOf(canonical, folder, relative(top, folder).split(sep).join('/'))
    byName.set(`${canonical}:${id}`, [...(byName.get(`${canonical}:${id}`) ?? []), folder])
  }
  const names = [...byName].map(([name, folders]) => ({ name, folders: folders.sort() }))
  return names.sort((left, right) => (left.name < right.name ? -1 : 1))
}

/**
 * Returns the folders of a data set by `SOURCE:ID`.
 * @throws {FulmarError} `MALFORMED` for another form; `UNKNOWN_NAME` for an unknown source; `UNAVAILABLE` if it is not there.
 */
export async function localDataset(dataset: string, root?: string): Promise<LocalDataset> {
  const [given, id] = splitName(dataset)
  const source = checkSource(given)
  const name = source === 'lerobot' ? lerobotFolder(id) : id
  const { dataPath } = placeOf(source, name, { ...(root !== undefined && { root }) })
  const folders: string[] = []
  for (const folder of [dataPath, `${dataPath}_split`]) if (await isRows(folder)) folders.push(folder)
  if (folders.length > 0) return { name: `${source}:${id}`, folders }
  throw new FulmarError('UNAVAILABLE', `${source}:${id} must be in ${dataPath}: it is not there`)
}

/** The shape of the rows in a folder, and one of them. */
export interface OpenedRows {
  readonly shape: readonly number[]
  /** The first row. */
  readonly rows: TensorDict
}

/** Opens the rows in a folder of {@link localDataset}. @throws {FulmarError} With the file, `CORRUPT`, `INCOMPATIBLE`, `IO` and others. */
export async function openRows(folder: string): Promise<OpenedRows> {
  if (await isFile(join(folder, 'meta.json'))) {
    using storage = rowsStorage(folder)
    const rows = storage.get([0])
    return { shape: [storage.length, ...rows.batchSize.slice(1)], rows }
  }
  const splits = call(() => converter('SplitsFolder').open(folder))
  using storage = storageAround(() => splits.storage())
  return { shape: [storage.length], rows: storage.get([0]) }
}

/** Removes the folders of a data set. @throws {FulmarError} As {@link localDataset}; `IO` if the system refuses. */
export async function deleteDataset(name: string, root?: string): Promise<LocalDataset> {
  const found = await localDataset(name, root)
  for (const folder of found.folders) await removeFolder(folder)
  return found
}

/** The id of the rows in a folder: its path below that of the source, but for LeRobot, whose folders have names without slashes. */
async function idOf(source: string, folder: string, path: string): Promise<string> {
  if (source !== 'lerobot') return path.replace(/_split$/, '')
  const { id } = (await conversionIn(folder)) ?? {}
  return typeof id === 'string' ? id : path
}

function checkSource(source: string): string {
  if (datasetSources().includes(source)) return ALIASES[source] ?? source
  const nearest = nearestName(source, datasetSources())
  const hint = nearest === undefined ? '' : `; did you mean ${nearest}?`
  const detail = `source must be one of ${datasetSources().join(', ')}: got ${JSON.stringify(source)}${hint}`
  throw new FulmarError('UNKNOWN_NAME', detail)
}

/** Folders of rows have folders for keys of their own, which are not looked into. */
async function foldersIn(folder: string, depth: number): Promise<string[]> {
  if (await isRows(folder)) return [folder]
  if (depth > DEPTH_MAX)
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `folders of data sets must be at most ${DEPTH_MAX} deep: got ${folder}`,
    )
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  const inner = entries.filter(
    (entry) => entry.isDirectory() && !entry.name.startsWith('.') && !UNFINISHED.test(entry.name),
  )
  const found: string[] = []
  for (const { name } of inner) found.push(...(await foldersIn(join(folder, name), depth + 1)))
  return found
}

async function isRows(folder: string): Promise<boolean> {
  return (await Promise.all(MARKS.map((name) => isFile(join(folder, name))))).includes(true)
}

async function isFile(path: string): Promise<boolean> {
  return await stat(path).then(
    (about) => about.isFile(),
    () => false,
  )
}
