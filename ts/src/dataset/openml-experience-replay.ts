/** Tables of OpenML as contextual bandits. */

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { callAsync, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Checksum } from '../fetch/index.js'
import { fetchTemporaryFile } from '../fetch/web-files.js'
import { SamplerWithoutReplacement } from '../replay/index.js'
import {
  BaseDatasetExperienceReplay,
  type DatasetPlace,
  placeOf,
  unknownId,
} from './dataset-experience-replay.js'
import { converter, ensureFolder } from './dataset-folder.js'
import { checkDatasetOptions, DATASET_KEYS, type DatasetOptions, fetchOptionsOf } from './dataset-options.js'
import { describeTable, OPENML_SERVER } from './openml-description.js'

/** Options of {@link OpenMLExperienceReplay.open}. */
export interface OpenMLOptions extends Omit<DatasetOptions, 'splitTrajs'> {
  /**
   * A server with the API and the files of OpenML under their own paths.
   * @default OpenML's server
   */
  readonly mirror?: string
}

/** Name and version of each table at OpenML. */
const TABLES: ReadonlyMap<string, readonly [name: string, version: number]> = new Map([
  ['adult_num', ['adult', 1]],
  ['adult_onehot', ['adult', 1]],
  ['mushroom_num', ['mushroom', 1]],
  ['mushroom_onehot', ['mushroom', 1]],
  ['covertype', ['covertype', 3]],
  ['shuttle', ['shuttle', 1]],
  ['magic', ['magictelescope', 1]],
])

const KEYS = [...DATASET_KEYS.filter((name) => name !== 'splitTrajs'), 'mirror']

/**
 * A table of OpenML: `X`, the features of a row as f64, and `y`, its outcome, an i64 from 0. Numbers are standardised; values of names are
 * standardised numbers in `*_num` and columns of 0 and 1 in `*_onehot`. Rows are drawn without replacement.
 *
 * @example
 * ```ts native
 * import { OpenMLExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = OpenMLExperienceReplay.open('magic', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class OpenMLExperienceReplay extends BaseDatasetExperienceReplay {
  /** The largest outcome; all are from 0. */
  readonly maxOutcomeVal: number

  private constructor(place: DatasetPlace, options: OpenMLOptions) {
    super(place, { sampler: new SamplerWithoutReplacement(), ...options })
    const outcomes = this.readAllInOrder().tensor('y').data
    this.maxOutcomeVal = Array.from(outcomes, Number).reduce((most, one) => Math.max(most, one), 0)
  }

  /** The ids. */
  static get availableDatasets(): readonly string[] {
    return [...TABLES.keys()]
  }

  /**
   * Opens a table; fetches and converts it unless it is there.
   * @throws {FulmarError} `UNKNOWN_NAME` for an id that is not one of these, with the nearest one, or an unknown option; `UNAVAILABLE` if
   *   `download` is false and it is not there, and in WebAssembly; `INCOMPATIBLE` if something else is in its folder; those of
   *   `fetchFile`, `CORRUPT` with both checksums among them; with the file, `CORRUPT`, `INCOMPATIBLE`, `UNKNOWN_NAME`, `EMPTY` or
   *   `LIMIT_EXCEEDED` for answers and tables that break the format; `ABORTED` if the signal fires.
   */
  static async open(id: string, options: OpenMLOptions = {}): Promise<OpenMLExperienceReplay> {
    checkKnownKeys('options', options, KEYS)
    checkDatasetOptions(options)
    const table = TABLES.get(id)
    if (table === undefined) throw unknownId('OpenML', id, OpenMLExperienceReplay.availableDatasets)
    const { mirror = OPENML_SERVER } = options
    if (typeof mirror !== 'string')
      throw new FulmarError('MALFORMED', `options.mirror must be a text: got ${describeValue(mirror)}`)
    const place = placeOf('openml', id, options)
    const convertTable = converter('convertTable')
    const convert = async (folder: string): Promise<void> => {
      // Several ids have one file.
      const raw = join(place.root, '.raw', id)
      const fetching = { ...fetchOptionsOf(options), root: raw }
      const { url, md5, columns } = await describeTable(table, mirror.replace(/\/+$/, ''), fetching)
      const checksum: Checksum | undefined = md5 === undefined ? undefined : { algorithm: 'md5', hex: md5 }
      const source = await fetchTemporaryFile(url, { ...fetching, ...(checksum && { checksum }) })
      // A file that cannot be converted is fetched anew the next time.
      await callAsync(() => convertTable(source, folder, id, JSON.stringify(columns))).finally(() =>
        rm(source, { force: true }),
      )
    }
    await ensureFolder({ dataPath: place.dataPath, label: `openml:${id}`, conversion: {}, convert }, options)
    return new OpenMLExperienceReplay(place, options)
  }
}
