/** Data sets of D4RL. */

import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { callAsync, checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import { fetchTemporaryFile } from '../fetch/web-files.js'
import { readArchive, TensorDict } from '../tensor/index.js'
import { D4RL_FILES, D4RL_SERVER } from './d4rl-files.js'
import {
  BaseDatasetExperienceReplay,
  type DatasetPlace,
  placeOf,
  unknownId,
} from './dataset-experience-replay.js'
import { converter, ensureFolder } from './dataset-folder.js'
import {
  checkBoolean,
  checkDatasetOptions,
  checkText,
  DATASET_KEYS,
  type DatasetOptions,
  fetchOptionsOf,
} from './dataset-options.js'

/** Options of {@link D4RLExperienceReplay.open}. */
export interface D4RLOptions extends DatasetOptions {
  /**
   * A step that was cut off by a time limit is done.
   * @default true
   */
  readonly useTruncatedAsDone?: boolean
  /**
   * Folder of a server with the files of D4RL under their own names.
   * @default D4RL's server
   */
  readonly mirror?: string
}

/**
 * A data set of D4RL: `observation`, `action`, `reward`, `done`, `terminated`, `truncated` and `info` before a step, and
 * below `next` after it. The last row of a file is dropped; `next.observation` is zero where the step is done; `reward` and the
 * flags at the root are those of the step before.
 *
 * @example
 * ```ts native
 * import { D4RLExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = D4RLExperienceReplay.open('hopper-medium-v2', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class D4RLExperienceReplay extends BaseDatasetExperienceReplay {
  /** The group `metadata` of the file, such as the policy that acted. Empty if the folder was made by TorchRL. */
  readonly metadata: TensorDict

  private constructor(place: DatasetPlace, options: DatasetOptions, metadata: TensorDict) {
    super(place, options)
    this.metadata = metadata
  }

  /** The ids. */
  static get availableDatasets(): readonly string[] {
    return [...D4RL_FILES.keys()]
  }

  /**
   * Opens a data set; fetches and converts it unless it is there.
   * @throws {FulmarError} `UNKNOWN_NAME` for an id that is not one of D4RL's, with the nearest one, or an unknown option;
   *   `UNAVAILABLE` if `download` is false and it is not there, and in WebAssembly; `INCOMPATIBLE` if it is there with other options; those of
   *   `fetchFile`; with file and key, `CORRUPT`, `UNKNOWN_NAME`, `SHAPE_MISMATCH`, `INCOMPATIBLE`, `OUT_OF_RANGE`, `EMPTY`
   *   or `LIMIT_EXCEEDED` for a file that breaks the format; `ABORTED` if the signal fires.
   */
  static async open(id: string, options: D4RLOptions = {}): Promise<D4RLExperienceReplay> {
    checkAbsent(options)
    checkKnownKeys('options', options, [...DATASET_KEYS, 'useTruncatedAsDone', 'mirror'])
    checkDatasetOptions(options)
    const file = D4RL_FILES.get(id)
    if (file === undefined) throw unknownId('D4RL', id, D4RLExperienceReplay.availableDatasets)
    const { useTruncatedAsDone = true, splitTrajs = false, mirror = D4RL_SERVER } = options
    checkBoolean('useTruncatedAsDone', useTruncatedAsDone)
    checkText('mirror', mirror)
    const place = placeOf('d4rl', id, options)
    const convertColumns = converter('convertColumns')
    const conversion = { useTruncatedAsDone, splitTrajs }
    const convert = async (folder: string): Promise<void> => {
      const url = `${mirror.replace(/\/+$/, '')}/${file}`
      const source = await fetchTemporaryFile(url, {
        ...fetchOptionsOf(options),
        root: join(place.root, '.raw'),
      })
      // A file that cannot be converted is fetched anew the next time.
      await callAsync(() => convertColumns(source, folder, JSON.stringify(conversion))).finally(() =>
        rm(source, { force: true }),
      )
    }
    await ensureFolder({ dataPath: place.dataPath, label: `d4rl:${id}`, conversion, convert }, options)
    return new D4RLExperienceReplay(place, options, await metadataIn(place.dataPath))
  }
}

/** Options of TorchRL that have no meaning without D4RL's simulators. */
const ABSENT: Readonly<Record<string, string>> = {
  fromEnv: 'rows are read from the files of D4RL, without its simulators',
  terminateOnEnd: "D4RL's simulators alone know which steps it is about; all but the last of a file are kept",
}

/** Refuses options that only TorchRL has, with the reason. */
function checkAbsent(options: object): void {
  for (const [name, reason] of Object.entries(ABSENT)) {
    if (!Object.hasOwn(options ?? {}, name)) continue
    throw new FulmarError('UNKNOWN_NAME', `options.${name} must be left out: ${reason}`)
  }
}

/** Reads the metadata that the conversion left; none in a folder of TorchRL. */
async function metadataIn(dataPath: string): Promise<TensorDict> {
  const path = join(dataPath, 'metadata.tdz')
  const bytes = await readFile(path).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return undefined
    throw new FulmarError('IO', `${path} must be readable: got ${messageOf(cause)}`, { cause })
  })
  return bytes === undefined ? TensorDict.from({}) : readArchive(bytes)
}
