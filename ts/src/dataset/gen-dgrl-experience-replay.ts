/** Data sets of Gen-DGRL: episodes of Procgen. */

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { callAsync, checkKnownKeys } from '../core/index.js'
import { fetchTemporaryFile } from '../fetch/web-files.js'
import {
  BaseDatasetExperienceReplay,
  type DatasetPlace,
  placeOf,
  unknownId,
} from './dataset-experience-replay.js'
import { converter, ensureFolder } from './dataset-folder.js'
import {
  checkDatasetOptions,
  checkText,
  DATASET_KEYS,
  type DatasetOptions,
  fetchOptionsOf,
} from './dataset-options.js'
import { GEN_DGRL_FILES, GEN_DGRL_SERVER } from './gen-dgrl-files.js'

/** Options of {@link GenDGRLExperienceReplay.open}. */
export interface GenDGRLOptions extends DatasetOptions {
  /**
   * Folder of a server with the archives of Gen-DGRL under their own names.
   * @default Gen-DGRL's server
   */
  readonly mirror?: string
}

/**
 * A data set of Gen-DGRL: `observation`, u8 `[3, 64, 64]`, and `action`, and below `next` the observation, `reward`, `done`,
 * `terminated` and `truncated` after the step. The id is a game of Procgen and a category, such as `bigfish-1M_E`. There are as many
 * rows as steps in the archive, at most the nominal length of the category.
 *
 * @example
 * ```ts native
 * import { GenDGRLExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = GenDGRLExperienceReplay.open('bigfish-1M_E', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class GenDGRLExperienceReplay extends BaseDatasetExperienceReplay {
  private constructor(place: DatasetPlace, options: DatasetOptions) {
    super(place, options)
  }

  /** The ids: 16 games in 8 categories. */
  static get availableDatasets(): readonly string[] {
    return [...GEN_DGRL_FILES.keys()]
  }

  /**
   * Opens a data set; fetches and converts it unless it is there. An episode is in memory at a time, with `splitTrajs` all of them.
   * @throws {FulmarError} `UNKNOWN_NAME` for an id that is not one of Gen-DGRL's, with the nearest one, or an unknown option;
   *   `UNAVAILABLE` if `download` is false and it is not there, and in WebAssembly; `INCOMPATIBLE` if it is there with other options; those of
   *   `fetchFile`; with archive, member and key, `CORRUPT`, `UNKNOWN_NAME`, `SHAPE_MISMATCH`, `INCOMPATIBLE`, `OUT_OF_RANGE`, `EMPTY`
   *   or `LIMIT_EXCEEDED` for an archive that breaks the format; `FORBIDDEN` for one with pickles that call functions, or names
   *   that lead out of it; `ABORTED` if the signal fires.
   */
  static async open(id: string, options: GenDGRLOptions = {}): Promise<GenDGRLExperienceReplay> {
    checkKnownKeys('options', options, [...DATASET_KEYS, 'mirror'])
    checkDatasetOptions(options)
    const file = GEN_DGRL_FILES.get(id)
    if (file === undefined) throw unknownId('Gen-DGRL', id, GenDGRLExperienceReplay.availableDatasets)
    const { splitTrajs = false, mirror = GEN_DGRL_SERVER } = options
    checkText('mirror', mirror)
    const place = placeOf('gen_dgrl', id, options)
    const convertGenDgrl = converter('convertGenDgrl')
    const conversion = { splitTrajs }
    const convert = async (folder: string): Promise<void> => {
      const url = `${mirror.replace(/\/+$/, '')}/${file.path}`
      const source = await fetchTemporaryFile(url, {
        ...fetchOptionsOf(options),
        root: join(place.root, '.raw'),
      })
      const conversionOptions = JSON.stringify({ numRowsMax: file.numRowsMax, splitTrajs })
      // An archive that cannot be converted is fetched anew the next time.
      await callAsync(() => convertGenDgrl(source, folder, conversionOptions)).finally(() =>
        rm(source, { force: true }),
      )
    }
    await ensureFolder({ dataPath: place.dataPath, label: `gen_dgrl:${id}`, conversion, convert }, options)
    return new GenDGRLExperienceReplay(place, options)
  }
}
