/** Data sets of RoboSet. */

import { join } from 'node:path'
import { callAsync, checkKnownKeys } from '../core/index.js'
import { fetchSnapshot } from '../fetch/index.js'
import { BaseDatasetExperienceReplay, placeOf, unknownId } from './dataset-experience-replay.js'
import { converter, ensureFolder, removeFolder } from './dataset-folder.js'
import {
  checkDatasetOptions,
  DATASET_KEYS,
  type DatasetOptions,
  HUB_OPTIONS,
  type HubDatasetOptions,
  hubOptionsOf,
} from './dataset-options.js'

/** Options of {@link RobosetExperienceReplay.open}. */
export interface RobosetOptions extends DatasetOptions, HubDatasetOptions {}

/** Repository on the hub. */
const REPO = 'jdvakil/RoboSet_Sim'

const TASKS = ['MicroOpen', 'Knob2Off', 'LdoorOpen', 'SdoorOpen', 'Knob1On'] as const
const HUMAN = 'FK1-v4(human)/human_demos_by_task'

/** The ids: folders of the repository. */
const IDS: readonly string[] = [
  ...['expert', 'human'].flatMap((by) =>
    ['door', 'relocate', 'hammer', 'pen'].map((task) => `DAPG(${by})/${task}_v2d-v1`),
  ),
  ...TASKS.map((task) => `FK1-v4(expert)/FK1_${task}Random_v2d-v4`),
  'FK1-v4(human)/human_demos_by_playdata',
  `${HUMAN}/human_demo_singleTask_Fixed-v4`,
  ...TASKS.map((task) => `${HUMAN}/FK1_${task}Random_v2d-v4`),
]

/**
 * A data set of RoboSet: `observation`, `action`, `done` and `info` at the root, below `next` the observation and info one row later,
 * `reward` and the flags; `episode` is the number of the trial, `seed` that of its file. `truncated` is false throughout, and `next.observation`
 * is zero at the end of a trial.
 *
 * @example
 * ```ts native
 * import { RobosetExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = RobosetExperienceReplay.open('DAPG(expert)/door_v2d-v1', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class RobosetExperienceReplay extends BaseDatasetExperienceReplay {
  /** The ids. */
  static get availableDatasets(): readonly string[] {
    return IDS
  }

  /**
   * Opens a data set; fetches and converts it unless it is there.
   * @throws {FulmarError} `UNKNOWN_NAME` for an id that is not one of RoboSet's, with the nearest one, or an unknown option;
   *   `UNAVAILABLE` if `download` is false and it is not there, and in WebAssembly; `INCOMPATIBLE` if it is there with other options; those of
   *   `fetchSnapshot`; with file, trial and key, `CORRUPT`, `UNKNOWN_NAME`, `SHAPE_MISMATCH`, `INCOMPATIBLE`, `MALFORMED`,
   *   `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` for files that break the format; `ABORTED` if the signal fires.
   */
  static async open(id: string, options: RobosetOptions = {}): Promise<RobosetExperienceReplay> {
    checkKnownKeys('options', options, [...DATASET_KEYS, ...HUB_OPTIONS])
    checkDatasetOptions(options)
    if (!IDS.includes(id)) throw unknownId('RoboSet', id, IDS)
    const { splitTrajs = false } = options
    const place = placeOf('roboset', id, options, splitTrajs ? '_split' : '')
    const convertTrials = converter('convertTrials')
    const convert = async (folder: string): Promise<void> => {
      const fetching = { ...hubOptionsOf(options), kind: 'dataset' } as const
      const snapshot = await fetchSnapshot(REPO, { ...fetching, include: [`${id}/*.h5`] })
      await callAsync(() => convertTrials(join(snapshot, ...id.split('/')), folder, splitTrajs))
    }
    const conversion = { splitTrajs }
    await ensureFolder({ dataPath: place.dataPath, label: `roboset:${id}`, conversion, convert }, options)
    return new RobosetExperienceReplay(place, options)
  }

  /** Removes the folders of the rows, split and not. */
  override async delete(): Promise<void> {
    await super.delete()
    await removeFolder(`${this.dataPathRoot}_split`)
  }
}
