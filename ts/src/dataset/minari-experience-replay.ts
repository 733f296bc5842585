/** Data sets of Minari. */

import { readdir, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join, sep } from 'node:path'
import {
  callAsync,
  checkKnownKeys,
  describeValue,
  FulmarError,
  messageOf,
  readRegular,
} from '../core/index.js'
import { FETCH_KEYS, type FetchOptions, withTransfer } from '../fetch/fetch-options.js'
import { nameParts } from '../fetch/file-name.js'
import { reposOf } from '../fetch/hub.js'
import { listed, planOf } from '../fetch/hub-files.js'
import { fetchSnapshot } from '../fetch/index.js'
import type { AnySpec } from '../spec/index.js'
import type { Json } from '../tensor/index.js'
import { BaseDatasetExperienceReplay, type DatasetPlace, placeOf } from './dataset-experience-replay.js'
import { converter, ensureFolder, removeFolder } from './dataset-folder.js'
import {
  checkBoolean,
  checkDatasetOptions,
  DATASET_KEYS,
  type DatasetOptions,
  HUB_OPTIONS,
  type HubDatasetOptions,
  hubOptionsOf,
} from './dataset-options.js'
import { specOf } from './minari-spec.js'

/** Options of {@link MinariExperienceReplay.open}. */
export interface MinariOptions extends DatasetOptions, HubDatasetOptions {
  /**
   * Reads Minari's own folder on this machine instead of the hub.
   * @default false
   */
  readonly loadFromLocalMinari?: boolean
  /**
   * Minari's own folder.
   * @default the variable `MINARI_DATASETS_PATH`, else `~/.minari/datasets`
   */
  readonly minariRoot?: string
}

/** Owner of the repositories on the hub: each has the data sets whose ids begin with its name. */
const OWNER = 'farama-minari'

/** The file that each data set has. */
const DATA = 'data/main_data.hdf5'

/** Options of {@link MinariExperienceReplay.availableDatasets}. */
export type MinariIdsOptions = Pick<MinariOptions, 'loadFromLocalMinari' | 'minariRoot'> &
  HubDatasetOptions &
  FetchOptions

/** Name of the metadata in the folder of the rows. */
const METADATA = 'env_metadata.json'

/** Most bytes of the metadata of a data set. */
const METADATA_BYTES_MAX = 2 ** 24

/**
 * A data set of Minari: `observation` and `action`, below `next` the observation, `reward`, `done`, `terminated` and
 * `truncated` after the step, and `episode`, its number. Infos are `info` and `next.info`; dictionaries stay dictionaries, and
 * texts are one value a row.
 *
 * @example
 * ```ts native
 * import { MinariExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = MinariExperienceReplay.open('mujoco/hopper/expert-v0', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class MinariExperienceReplay extends BaseDatasetExperienceReplay {
  /** The fields of Minari's `metadata.json`; the descriptions of spaces and environments are objects. */
  readonly metadata: Readonly<Record<string, Json>>

  private constructor(
    place: DatasetPlace,
    options: DatasetOptions,
    metadata: Readonly<Record<string, Json>>,
  ) {
    super(place, options)
    this.metadata = metadata
  }

  /**
   * Opens a data set; fetches and converts it unless it is there.
   * @throws {FulmarError} `MALFORMED` for an id that is not one of Minari; `UNKNOWN_NAME` for an unknown option;
   *   `UNAVAILABLE` if `download` is false and it is not there, Minari's folder lacks it, and in WebAssembly; `INCOMPATIBLE` if
   *   something else is in its folder; those of `fetchSnapshot`; with file, episode and key, `CORRUPT`, `UNKNOWN_NAME`,
   *   `SHAPE_MISMATCH`, `INCOMPATIBLE`, `MALFORMED`, `EMPTY` or `LIMIT_EXCEEDED` for files that break the format; `ABORTED` if
   *   the signal fires.
   */
  static async open(id: string, options: MinariOptions = {}): Promise<MinariExperienceReplay> {
    checkKnownKeys('options', options, [...DATASET_KEYS, ...HUB_OPTIONS, 'loadFromLocalMinari', 'minariRoot'])
    checkDatasetOptions(options)
    checkMinariId(id)
    const { splitTrajs = false, loadFromLocalMinari = false, minariRoot } = options
    checkBoolean('loadFromLocalMinari', loadFromLocalMinari)
    minariRootOf(minariRoot)
    const place = placeOf('minari', id, options, splitTrajs ? '_split' : '')
    const convertEpisodes = converter('convertEpisodes')
    const convert = async (folder: string): Promise<void> => {
      const source = loadFromLocalMinari ? await localFolder(id, minariRoot) : await hubFolder(id, options)
      await callAsync(() => convertEpisodes(source, folder, splitTrajs))
    }
    const conversion = { splitTrajs }
    await ensureFolder({ dataPath: place.dataPath, label: `minari:${id}`, conversion, convert }, options)
    return new MinariExperienceReplay(place, options, await metadataIn(place))
  }

  /**
   * Asks the hub for the ids, a question for each repository; with `loadFromLocalMinari` lists those in Minari's own folder.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `UNAVAILABLE` offline; those of `fetchSnapshot`; `IO` for a folder that cannot be
   *   read.
   */
  static async availableDatasets(options: MinariIdsOptions = {}): Promise<readonly string[]> {
    checkKnownKeys('options', options, [
      ...HUB_OPTIONS,
      ...FETCH_KEYS,
      ...['loadFromLocalMinari', 'minariRoot'],
    ])
    const { loadFromLocalMinari = false, minariRoot, ...fetching } = options
    checkBoolean('loadFromLocalMinari', loadFromLocalMinari)
    const root = minariRootOf(minariRoot)
    return loadFromLocalMinari ? await idsBelow(root) : await idsOnHub(fetching)
  }

  /**
   * Spec of one observation; `null` where its values are not described. A new one at each read.
   * @throws {FulmarError} `INCOMPATIBLE` for a space that is not one of Gymnasium's with a fixed shape.
   */
  get observationSpec(): AnySpec | null {
    return specOf(this.metadata.observation_space ?? null, 'observation_space')
  }

  /** The same of an action. */
  get actionSpec(): AnySpec | null {
    return specOf(this.metadata.action_space ?? null, 'action_space')
  }

  /** Removes the folders of the rows, split and not. */
  override async delete(): Promise<void> {
    await super.delete()
    await removeFolder(`${this.dataPathRoot}_split`)
  }
}

/** @internal Refuses what is not an id of Minari. @throws {FulmarError} `MALFORMED`. */
export function checkMinariId(id: string): void {
  nameParts('id', id, 'MALFORMED')
  if (/^(?:[\w.-]+\/)*[\w.-]+-v\d+$/.test(id)) return
  const detail = `id must be names with slashes and a version, such as mujoco/hopper/expert-v0: got ${describeValue(id)}`
  throw new FulmarError('MALFORMED', detail)
}

/** @internal Minari's own folder. @throws {FulmarError} `MALFORMED` for other than a text. */
export function minariRootOf(minariRoot: string | undefined): string {
  const { MINARI_DATASETS_PATH } = process.env
  if (minariRoot === undefined) return MINARI_DATASETS_PATH || join(homedir(), '.minari', 'datasets')
  if (typeof minariRoot === 'string') return minariRoot
  const got = describeValue(minariRoot)
  throw new FulmarError('MALFORMED', `options.minariRoot must be a folder: got ${got}`)
}

/** The ids of the files of each repository. */
async function idsOnHub(options: HubDatasetOptions & FetchOptions): Promise<readonly string[]> {
  const { repo, isOffline } = planOf(OWNER, options, 'dataset')
  if (isOffline)
    throw new FulmarError('UNAVAILABLE', 'the ids must be asked of the hub, which offline does not allow')
  return await withTransfer(options, async (transfer) => {
    const ids: string[] = []
    for (const name of await reposOf(transfer, repo, OWNER)) {
      const { files } = await listed(transfer, planOf(name, options, 'dataset'))
      const namespace = name.slice(OWNER.length + 1)
      ids.push(...idsOf(files.map((file) => `${namespace}/${file.name}`)))
    }
    return ids.sort()
  })
}

async function idsBelow(root: string): Promise<readonly string[]> {
  const names = await readdir(root, { recursive: true }).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return []
    throw new FulmarError('IO', `${root} must be a readable folder: got ${messageOf(cause)}`, { cause })
  })
  return idsOf(names.map((name) => name.split(sep).join('/'))).sort()
}

function idsOf(files: readonly string[]): string[] {
  return files.filter((file) => file.endsWith(`/${DATA}`)).map((file) => file.slice(0, -DATA.length - 1))
}

async function localFolder(id: string, minariRoot: string | undefined): Promise<string> {
  const folder = join(minariRootOf(minariRoot), ...id.split('/'), 'data')
  if (
    await stat(folder).then(
      (about) => about.isDirectory(),
      () => false,
    )
  )
    return folder
  throw new FulmarError('UNAVAILABLE', `minari:${id} must be in Minari's folder: there is no ${folder}`)
}

/** Fetches the files of a data set: the repository is the first part of its id, the folder the rest. */
async function hubFolder(id: string, options: MinariOptions): Promise<string> {
  const [namespace = '', ...rest] = id.split('/')
  const folder = [...rest, 'data'].join('/')
  const fetching = { ...hubOptionsOf(options), kind: 'dataset', include: [`${folder}/*`] } as const
  return join(await fetchSnapshot(`${OWNER}/${namespace}`, fetching), folder)
}

/** Reads the metadata in the folder of the rows. TorchRL keeps that of split trajectories in the folder of the others. */
async function metadataIn({ dataPath, root, id }: DatasetPlace): Promise<Readonly<Record<string, Json>>> {
  const path = join(dataPath, METADATA)
  const bytes =
    (await readRegular(path, METADATA_BYTES_MAX)) ??
    (await readRegular(join(root, ...id.split('/'), METADATA), METADATA_BYTES_MAX))
  if (bytes === undefined) throw new FulmarError('CORRUPT', `${path} must be there: it is missing`)
  const fields = standardJson(new TextDecoder().decode(bytes), path)
  if (isObject(fields)) return fields
  throw new FulmarError('CORRUPT', `${path} must be an object of JSON: got ${describeValue(fields)}`)
}

/** Reads JSON with the numbers that Python writes and JSON lacks, `NaN` and `Infinity`, as texts. */
function standardJson(text: string, path: string): Json {
  const standard = text.replace(/"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g, (part) =>
    part.startsWith('"') ? part : `"${part}"`,
  )
  try {
    return JSON.parse(standard) as Json
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be JSON: got ${messageOf(cause)}`, { cause })
  }
}

function isObject(value: Json): value is Readonly<Record<string, Json>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
