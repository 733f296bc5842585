/** `fulmar dataset VERB`: public data sets as folders of rows. */

import { hasChecksums, verifyChecksums, writeChecksums } from '../dataset/dataset-checksums.js'
import {
  AtariDQNExperienceReplay,
  type BaseDatasetExperienceReplay,
  D4RLExperienceReplay,
  datasetSources,
  GenDGRLExperienceReplay,
  loadDataset,
  OpenMLExperienceReplay,
  OpenXExperienceReplay,
  RobosetExperienceReplay,
} from '../dataset/index.js'
import { splitName } from '../dataset/load-dataset.js'
import {
  deleteDataset,
  type LocalDataset,
  localDataset,
  localDatasets,
  openRows,
} from '../dataset/local-datasets.js'
import { ProgressLine } from '../telemetry/index.js'
import { Tensor, TensorDict } from '../tensor/index.js'
import { type CliIo, printJson, printTable } from './io.js'

/** Flags of all verbs. */
export interface DatasetFlags {
  readonly root?: string
  readonly json?: boolean
}

/** Flags of `fetch`. */
export interface FetchDatasetFlags extends DatasetFlags {
  readonly force?: boolean
  readonly splitTrajs?: boolean
  readonly mirror?: string
  readonly endpoint?: string
  readonly revision?: string
  readonly cache?: string
  readonly offline?: boolean
  readonly folder?: string
  /** A whole number, as text. */
  readonly numSplits?: string
}

/** Prints the data sets that are there; of one source those that can be fetched as well. */
export async function listDatasets(
  source: string | undefined,
  flags: DatasetFlags,
  io: CliIo,
): Promise<void> {
  const local: LocalDataset[] = []
  for (const name of source === undefined ? datasetSources() : [source])
    local.push(...(await localDatasets(name, flags.root)))
  const here = new Set(local.map(({ name }) => name))
  const known = knownIds(source).map((id) => `${source}:${id}`)
  const names = [...new Set([...here, ...known])]
  const rows = names.map((name) => ({ name, isHere: here.has(name) }))
  if (flags.json) return printJson(rows, io)
  for (const { name, isHere } of rows)
    io.stdout.write(isHere && known.length > 0 ? `${name}  here\n` : `${name}\n`)
}

/** Sources that list their ids. */
const LISTED: Readonly<Record<string, { readonly availableDatasets: readonly string[] }>> = {
  atari: AtariDQNExperienceReplay,
  atari_dqn: AtariDQNExperienceReplay,
  d4rl: D4RLExperienceReplay,
  gen_dgrl: GenDGRLExperienceReplay,
  openml: OpenMLExperienceReplay,
  openx: OpenXExperienceReplay,
  roboset: RobosetExperienceReplay,
}

/** The ids of a source that lists them. */
function knownIds(source: string | undefined): readonly string[] {
  return source === undefined ? [] : (LISTED[source]?.availableDatasets ?? [])
}

/** Fetches and converts a data set unless it is there, shows the progress, and prints its folder. */
export async function fetchDataset(name: string, flags: FetchDatasetFlags, io: CliIo): Promise<void> {
  const { json = false, force = false, numSplits, ...options } = flags
  const [source] = splitName(name)
  const progress = new ProgressLine({ stream: io.stderr })
  try {
    const { dataPath, length } = await loadDataset<BaseDatasetExperienceReplay>(name, {
      ...options,
      ...(numSplits !== undefined && { numSplits: Number(numSplits) }),
      // A folder has addresses of frames, so it needs no decoder.
      ...(source === 'lerobot' && { decodeVideo: false }),
      download: force ? 'force' : true,
      signal: io.signal,
      onProgress: (event: Parameters<ProgressLine['update']>[0]) => progress.update(event),
    })
    if (!(await hasChecksums(dataPath))) await writeChecksums(dataPath, io.signal)
    if (json) printJson({ path: dataPath, rows: length }, io)
    else io.stdout.write(`${dataPath}\n`)
  } finally {
    progress.end()
  }
}

/** Prints rows, size and leaves of a data set that is there. */
export async function showDataset(name: string, flags: DatasetFlags, io: CliIo): Promise<void> {
  const { folders } = await localDataset(name, flags.root)
  for (const path of folders) {
    const { shape, rows } = await openRows(path)
    const leaves = leavesOf(rows, shape[0])
    if (flags.json) printJson({ path, shape, leaves: Object.fromEntries(leaves) }, io)
    else printTable([['path', path], ['shape', `[${shape.join(', ')}]`], ...leaves], io)
  }
}

/** Reads all files of a data set and compares their checksums. */
export async function verifyDataset(name: string, flags: DatasetFlags, io: CliIo): Promise<void> {
  const { folders } = await localDataset(name, flags.root)
  for (const path of folders) {
    const numFiles = await verifyChecksums(path, io.signal)
    const { shape } = await openRows(path)
    if (flags.json) printJson({ path, shape, numFiles: numFiles ?? null }, io)
    else {
      const how =
        numFiles === undefined ? 'opened; it has no checksums' : `${numFiles} files have their SHA-256`
      io.stdout.write(`${path}: ${how}\n`)
    }
  }
}

/** Removes the folders of a data set, and prints them. */
export async function removeDataset(name: string, flags: DatasetFlags, io: CliIo): Promise<void> {
  const { folders } = await deleteDataset(name, flags.root)
  if (flags.json) printJson({ removed: folders }, io)
  else for (const path of folders) io.stdout.write(`${path}\n`)
}

/** Name, dtype and shape of each leaf, which has `numRows` rows; texts have no dtype. */
function leavesOf(rows: TensorDict, numRows: number | undefined, place = ''): [string, string][] {
  return rows.keys().flatMap((key): [string, string][] => {
    const [entry, name] = [rows.get(key), `${place}${key}`]
    if (entry instanceof TensorDict) return leavesOf(entry, numRows, `${name}.`)
    if (entry instanceof Tensor)
      return [[name, `${entry.dtype} [${[numRows, ...entry.shape.slice(1)].join(', ')}]`]]
    return [[name, 'values']]
  })
}
