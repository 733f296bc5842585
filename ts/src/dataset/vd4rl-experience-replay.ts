/** Data sets of V-D4RL. */

import { join } from 'node:path'
import { callAsync, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { FETCH_KEYS, type FetchOptions, withTransfer } from '../fetch/fetch-options.js'
import { nameParts } from '../fetch/file-name.js'
import { listed, planOf } from '../fetch/hub-files.js'
import { fetchSnapshot } from '../fetch/index.js'
import type { BufferTransform } from '../replay/index.js'
import { Resize, ToTensorImage } from '../transform/index.js'
import {
  BaseDatasetExperienceReplay,
  type DatasetPlace,
  placeOf,
  unknownId,
} from './dataset-experience-replay.js'
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

/** Options of {@link VD4RLExperienceReplay.open}. */
export interface VD4RLOptions extends DatasetOptions, HubDatasetOptions {
  /**
   * Batches have images as f32 from 0 to 1, `[rows, channels, height, width]`; else they have them as they are stored.
   * @default true
   */
  readonly totensor?: boolean
  /**
   * Height and width that the images of batches are resized to, from 1 to 4096; one number for both. Only with `totensor`.
   * @default none: the size that is stored
   */
  readonly imageSize?: number | readonly [height: number, width: number]
  /**
   * Threads that read files, from 0 to 64; 0 and 1 are one.
   * @default 0
   */
  readonly numWorkers?: number
  /**
   * Treatment of a file whose arrays have other numbers of rows: an error, or all are cut to the shortest, which a warning says once.
   * @default 'error'
   */
  readonly lengthPolicy?: 'error' | 'shortest'
}

/** Repository on the hub, and the folder in it. */
const REPO = 'conglu/vd4rl'
const FOLDER = 'vd4rl'

/** Largest height and width of images. */
const IMAGE_SIZE_MAX = 4096

/** Most threads that read files. */
const WORKERS_MAX = 64

const PIXELS = ['pixels', ['next', 'pixels']] as const

/**
 * A data set of V-D4RL: `pixels`, `state`, `action`, `discount` and `is_init` at the root; below `next` the pixels and state one row later,
 * `reward` and the flags. The flags of sets of 84 pixels are those of `step_type` and `discount`.
 *
 * @example
 * ```ts native
 * import { VD4RLExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = VD4RLExperienceReplay.open('main/walker_walk/random/64px', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class VD4RLExperienceReplay extends BaseDatasetExperienceReplay {
  private constructor(place: DatasetPlace, options: VD4RLOptions) {
    const { transform = [] } = options
    super(place, { ...options, transform: [...imagesOf(options), transform].flat() })
  }

  /**
   * Asks the hub for the ids.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; those of `fetchSnapshot`.
   */
  static async availableDatasets(options: HubDatasetOptions & FetchOptions = {}): Promise<readonly string[]> {
    checkKnownKeys('options', options, [...HUB_OPTIONS, ...FETCH_KEYS])
    return await withTransfer(options, async (transfer) => {
      const { files } = await listed(transfer, planOf(REPO, options, 'dataset'))
      const names = files.map(({ name }) => name).filter((name) => /\.(?:npz|hdf5)$/.test(name))
      const folders = names.filter((name) => name.startsWith(`${FOLDER}/`)).map(folderOf)
      return [...new Set(folders)].sort()
    })
  }

  /**
   * Opens a data set; fetches and converts it unless it is there.
   * @throws {FulmarError} `MALFORMED` for an id of another form than `main/walker_walk/random/64px`; `UNKNOWN_NAME` for one that the hub
   *   lacks, with the nearest one, or an unknown option; `OUT_OF_RANGE` for sizes and numbers of threads; `UNAVAILABLE` if `download` is false
   *   and it is not there, and in WebAssembly; `INCOMPATIBLE` if it is there with other options, or for `imageSize` without `totensor`; those of
   *   `fetchSnapshot`; with file and key, `CORRUPT`, `UNKNOWN_NAME`, `SHAPE_MISMATCH`, `INCOMPATIBLE`, `FORBIDDEN`, `MALFORMED`,
   *   `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` for files that break the format; `ABORTED` if the signal fires.
   */
  static async open(id: string, options: VD4RLOptions = {}): Promise<VD4RLExperienceReplay> {
    checkKnownKeys('options', options, [...DATASET_KEYS, ...HUB_OPTIONS, ...OWN_KEYS])
    checkDatasetOptions(options)
    checkOwn(options)
    checkId(id)
    const { splitTrajs = false, lengthPolicy = 'error', numWorkers = 0 } = options
    const place = placeOf('vd4rl', id, options, splitTrajs ? '_split' : '')
    const convertFrames = converter('convertFrames')
    const convert = async (folder: string): Promise<void> => {
      const source = await fetchFolder(id, options)
      const reading = JSON.stringify({ lengthPolicy, numWorkers })
      const numCut = Number(await callAsync(() => convertFrames(source, folder, splitTrajs, reading)))
      if (numCut > 0)
        process.emitWarning(
          `vd4rl:${id}: ${numCut} files had arrays of other lengths and were cut to the shortest`,
        )
    }
    const conversion = { splitTrajs, shortest: lengthPolicy === 'shortest' }
    await ensureFolder({ dataPath: place.dataPath, label: `vd4rl:${id}`, conversion, convert }, options)
    return new VD4RLExperienceReplay(place, options)
  }

  /** Removes the folders of the rows, split and not. */
  override async delete(): Promise<void> {
    await super.delete()
    await removeFolder(`${this.dataPathRoot}_split`)
  }
}

const OWN_KEYS = ['totensor', 'imageSize', 'numWorkers', 'lengthPolicy'] as const

/** The id of a file: its folder. */
const folderOf = (name: string): string => name.split('/').slice(1, -1).join('/')

/** Fetches the files of a data set, and returns their folder. */
async function fetchFolder(id: string, options: VD4RLOptions): Promise<string> {
  const fetching = hubOptionsOf(options)
  if (!planOf(REPO, fetching, 'dataset').isOffline) {
    const known = await VD4RLExperienceReplay.availableDatasets(fetching)
    if (!known.includes(id)) throw unknownId('V-D4RL', id, known)
  }
  const include = [`${FOLDER}/${id}/*`]
  const snapshot = await fetchSnapshot(REPO, { ...fetching, kind: 'dataset', include })
  return join(snapshot, FOLDER, ...id.split('/'))
}

function checkId(id: string): void {
  nameParts('id', id, 'MALFORMED')
  if (/^(?:[\w.-]+\/)+[\w.-]+$/.test(id)) return
  const detail = `id must be names with slashes, such as main/walker_walk/random/64px: got ${describeValue(id)}`
  throw new FulmarError('MALFORMED', detail)
}

function checkOwn({
  totensor = true,
  imageSize,
  numWorkers = 0,
  lengthPolicy = 'error',
}: VD4RLOptions): void {
  checkBoolean('totensor', totensor)
  if (lengthPolicy !== 'error' && lengthPolicy !== 'shortest') {
    const got = describeValue(lengthPolicy)
    throw new FulmarError('MALFORMED', `options.lengthPolicy must be 'error' or 'shortest': got ${got}`)
  }
  checkRange('numWorkers', numWorkers, 0, WORKERS_MAX)
  if (imageSize === undefined) return
  if (!totensor)
    throw new FulmarError('INCOMPATIBLE', 'options.imageSize must come with totensor: it is false')
  const sizes = Array.isArray(imageSize) ? imageSize : [imageSize]
  if (sizes.length < 1 || sizes.length > 2) {
    const got = describeValue(imageSize)
    throw new FulmarError('MALFORMED', `options.imageSize must be a number, or height and width: got ${got}`)
  }
  for (const size of sizes) checkRange('imageSize', size, 1, IMAGE_SIZE_MAX)
}

function checkRange(name: string, value: unknown, least: number, most: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= most) return
  const detail = `options.${name} must be a whole number from ${least} to ${most}: got ${describeValue(value)}`
  throw new FulmarError('OUT_OF_RANGE', detail)
}

/** The transforms of images. */
function imagesOf({ totensor = true, imageSize }: VD4RLOptions): BufferTransform[] {
  if (!totensor) return []
  const inKeys = PIXELS.map((key) => key)
  const toTensor = new ToTensorImage({ inKeys, shapeTolerant: true })
  if (imageSize === undefined) return [toTensor]
  const [height, width] = typeof imageSize === 'number' ? [imageSize, imageSize] : imageSize
  return [toTensor, new Resize({ inKeys, w: height, h: width })]
}
