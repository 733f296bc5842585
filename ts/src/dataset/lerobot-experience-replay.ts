/** Data sets of robots in the format of LeRobot. */

import { join } from 'node:path'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { isRepoName } from '../fetch/hub.js'
import { fetchSnapshot, type HubOptions } from '../fetch/index.js'
import { type BufferTransform, SliceSampler, type Storage, TensorStorage } from '../replay/index.js'
import { loadMemmap, Tensor, TensorDict } from '../tensor/index.js'
import { NextStateReconstructor } from '../transform/index.js'
import { BaseDatasetExperienceReplay, type DatasetPlace, placeOf } from './dataset-experience-replay.js'
import { ensureFolder } from './dataset-folder.js'
import {
  checkBoolean,
  checkDatasetOptions,
  checkWhole,
  DATASET_KEYS,
  type DatasetOptions,
  fetchOptionsOf,
} from './dataset-options.js'
import {
  checkKeyMap,
  keyOfColumn,
  type LeRobotColumn,
  type LeRobotKeyMap,
  lerobotColumnsToTensorDict,
} from './lerobot-columns.js'
import { convertLeRobot, videosIn } from './lerobot-convert.js'
import { readInfo } from './lerobot-metadata.js'
import { rowsStorage } from './rows-storage.js'
import { isVideoClip, VideoClipRef } from './video-clip-ref.js'
import { findVideoDecoder, noDecoder, type VideoDecode } from './video-decoder.js'

/** Options of the rows of {@link LeRobotExperienceReplay}. */
export interface LeRobotRowsOptions {
  /** Our key for the name of a column; others keep that of {@link lerobotColumnsToTensorDict}. @default none */
  readonly keyMap?: LeRobotKeyMap
  /** Decodes the frames of videos in each batch; otherwise a batch has their addresses, {@link VideoClipRef}. @default true */
  readonly decodeVideo?: boolean
  /** Decodes frames at once, without a promise. @default `node-av`, if it is installed */
  readonly decoder?: VideoDecode
  /** Adds the next observation of a slice below `next`; the last of an episode or a slice has NaN, or 0 in integers. @default false */
  readonly rehydrate?: boolean
  /** Slices of a batch: it is of slices of episodes. @default single rows */
  readonly numSlices?: number
  /** Steps of a slice: a batch is of slices of episodes. @default single rows */
  readonly sliceLen?: number
  /** Leaves episodes out that are shorter than a slice; else they are taken whole. @default true */
  readonly strictLength?: boolean
}

/** Options of {@link LeRobotExperienceReplay.open}. */
export interface LeRobotOptions
  extends Omit<DatasetOptions, 'splitTrajs'>,
    LeRobotRowsOptions,
    Pick<HubOptions, 'revision' | 'endpoint' | 'token' | 'cache' | 'offline'> {}

/** Options of {@link LeRobotExperienceReplay.fromColumns}. */
export type LeRobotColumnsOptions = LeRobotRowsOptions &
  Pick<DatasetOptions, 'batchSize' | 'sampler' | 'writer' | 'prefetch' | 'seed' | 'transform' | 'collateFn'>

const HUB_OPTIONS = ['revision', 'endpoint', 'token', 'cache', 'offline'] as const
const ROWS_OPTIONS = [
  'keyMap',
  'decodeVideo',
  'decoder',
  'rehydrate',
  'numSlices',
  'sliceLen',
  'strictLength',
] as const
const BUFFER_OPTIONS = [
  'batchSize',
  'sampler',
  'writer',
  'prefetch',
  'seed',
  'transform',
  'collateFn',
] as const

/** Files that are fetched. */
const FILES = ['meta/*', 'data/*', 'videos/*', '*.mp4']

/**
 * A data set of LeRobot, version 2 or 3: `observation` with `state` and `image`, `action`, `episode`, `frame`, `timestamp`,
 * `language_instruction`, and below `next` `reward` and `done`, as far as it has them. Images are u8 `[3, H, W]`; those of
 * videos are decoded as batches are drawn.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { LeRobotExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = LeRobotExperienceReplay.open('lerobot/pusht', { root: '/nowhere', download: false })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 *
 * const columns = { episode_index: [0, 0, 1, 1], 'observation.state': Tensor.zeros('f32', [4, 7]) }
 * const buffer = await LeRobotExperienceReplay.fromColumns(columns, { sliceLen: 2, batchSize: 4 })
 * assert.deepEqual(buffer.sample().tensor(['observation', 'state']).shape, [4, 7])
 * ```
 */
export class LeRobotExperienceReplay extends BaseDatasetExperienceReplay {
  readonly #isInMemory: boolean

  private constructor(place: DatasetPlace, options: DatasetOptions, { storage, isInMemory }: Rows) {
    super(place, options, storage)
    this.#isInMemory = isInMemory
  }

  /**
   * Opens a data set of the hub; fetches and converts it unless it is there.
   * @throws {FulmarError} `MALFORMED` for an id that is not a repository; `INCOMPATIBLE` for both `numSlices` and `sliceLen`, or one of
   *   them with a sampler, for rows that lack what `rehydrate` needs, and if the rows in the folder are those of another `keyMap` or repository;
   *   `UNKNOWN_NAME` for an unknown option or a name in `keyMap` that is not a column; `UNAVAILABLE` if `download` is false and it is not
   *   there, and for videos without a decoder; those of `fetchSnapshot`; with file, key and row, `CORRUPT`, `INCOMPATIBLE`,
   *   `SHAPE_MISMATCH`, `MALFORMED`, `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` for files that break the format; `ABORTED` if the
   *   signal fires.
   */
  static async open(id: string, options: LeRobotOptions = {}): Promise<LeRobotExperienceReplay> {
    const known = DATASET_KEYS.filter((name) => name !== 'splitTrajs')
    checkKnownKeys('options', options, [...known, ...HUB_OPTIONS, ...ROWS_OPTIONS])
    checkDatasetOptions(options)
    checkRowsOptions(options)
    if (!isRepoName(id) || !id.includes('/')) {
      const got = describeValue(id)
      throw new FulmarError('MALFORMED', `id must be a repository such as lerobot/pusht: got ${got}`)
    }
    const place = { ...placeOf('lerobot', lerobotFolder(id), options), id }
    const { keyMap, signal } = options
    const convert = async (folder: string): Promise<void> =>
      await convertLeRobot(await fetchedFiles(id, options), folder, { keyMap, signal })
    // Two ids may have one folder.
    const conversion = { keyMap: keyMapText(keyMap), id }
    await ensureFolder({ dataPath: place.dataPath, label: `lerobot:${id}`, conversion, convert }, options)
    const { storage, sample } = await rowsIn(place.dataPath, options)
    const rowsOptions = await rowsOptionsOf(sample, options)
    return new LeRobotExperienceReplay(place, rowsOptions, { storage, isInMemory: false })
  }

  /**
   * A buffer over columns in memory, see {@link lerobotColumnsToTensorDict}. It has no folder.
   * @throws {FulmarError} As {@link lerobotColumnsToTensorDict} and {@link LeRobotExperienceReplay.open}.
   */
  static async fromColumns(
    columns: Readonly<Record<string, LeRobotColumn>>,
    options: LeRobotColumnsOptions = {},
  ): Promise<LeRobotExperienceReplay> {
    checkKnownKeys('options', options, [...BUFFER_OPTIONS, ...ROWS_OPTIONS])
    checkDatasetOptions(options)
    checkRowsOptions(options)
    const { keyMap } = options
    const rows = lerobotColumnsToTensorDict(columns, keyMap === undefined ? {} : { keyMap })
    const place = { id: 'columns', root: '', dataPath: '' }
    const storage = new TensorStorage(rows)
    return new LeRobotExperienceReplay(place, await rowsOptionsOf(rows, options), {
      storage,
      isInMemory: true,
    })
  }

  /** Folder of the rows. */
  override get dataPathRoot(): string {
    return this.dataPath
  }

  /** Removes the folder of the rows, if they have one. @throws {FulmarError} `IO` if the system refuses. */
  override async delete(): Promise<void> {
    if (!this.#isInMemory) await super.delete()
  }
}

/** @internal Name of the folder of a data set, which is TorchRL's. */
export function lerobotFolder(id: string): string {
  return id.replaceAll('/', '_')
}

interface Rows {
  readonly storage: Storage
  readonly isInMemory: boolean
}

/** Checks what would be refused only once the rows are there. */
function checkRowsOptions(options: LeRobotColumnsOptions): void {
  const { keyMap, decodeVideo = true, decoder, rehydrate = false, strictLength = true } = options
  const { numSlices, sliceLen, sampler } = options
  checkKeyMap(keyMap)
  for (const [name, value] of Object.entries({ decodeVideo, rehydrate, strictLength }))
    checkBoolean(name, value)
  if (decoder !== undefined && typeof decoder !== 'function')
    throw new FulmarError('MALFORMED', `options.decoder must be a function: got ${describeValue(decoder)}`)
  for (const [name, value] of Object.entries({ numSlices, sliceLen })) {
    if (value === undefined) continue
    checkWhole(name, value, 1)
    if (sampler !== undefined)
      throw new FulmarError('INCOMPATIBLE', `options.${name} must come without a sampler: both are given`)
  }
  if (numSlices !== undefined && sliceLen !== undefined)
    throw new FulmarError('INCOMPATIBLE', 'options.numSlices must come without sliceLen: both are given')
}

/** Fetches the description, which may be refused, and then all files. */
async function fetchedFiles(id: string, options: LeRobotOptions): Promise<string> {
  const hub = Object.fromEntries(
    HUB_OPTIONS.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  )
  const fetching = { ...fetchOptionsOf(options), ...hub, kind: 'dataset' } as const
  const { videoKeys } = await readInfo(await fetchSnapshot(id, { ...fetching, include: ['meta/*'] }))
  if (videoKeys.length > 0) await decoderOf(`lerobot:${id}`, options)
  return await fetchSnapshot(id, { ...fetching, include: FILES })
}

async function decoderOf(what: string, options: LeRobotRowsOptions): Promise<VideoDecode | undefined> {
  if (options.decodeVideo === false) return undefined
  const decoder = options.decoder ?? (await findVideoDecoder())
  if (decoder === undefined) throw noDecoder(`${what}, unless options.decodeVideo is false,`)
  return decoder
}

/** Names are in order, so that equal maps have one text. */
function keyMapText(keyMap: LeRobotKeyMap = {}): string {
  const entries = Object.entries(keyMap).sort(([a], [b]) => (a < b ? -1 : 1))
  return JSON.stringify(entries)
}

/** The rows of a folder, with the addresses of frames in videos, and one or more of them. */
async function rowsIn(
  dataPath: string,
  { keyMap, columnBytesMax }: LeRobotOptions,
): Promise<{ readonly storage: Storage; readonly sample: TensorDict }> {
  const videos = await videosIn(dataPath, keyMap)
  if (videos.length === 0) {
    const storage = rowsStorage(dataPath, columnBytesMax)
    return { storage, sample: storage.get([0]) }
  }
  const rows = loadMemmap(dataPath)
  const [numRows = 0] = rows.batchSize
  for (const { key, files } of videos) {
    const clip = VideoClipRef.fromFiles(files.paths, { numFramesPerFile: files.numFramesPerFile })
    if (clip.batchSize[0] !== numRows) {
      const path = join(dataPath, 'video_refs.json')
      const detail = `${path} must have a frame for each of ${numRows} rows at ${key.join('.')}: got ${clip.batchSize[0]}`
      throw new FulmarError('CORRUPT', detail)
    }
    rows.set(key, clip.dict)
  }
  return { storage: new TensorStorage(rows), sample: rows }
}

/** The options of the buffer: slices, and the transforms of a batch. */
async function rowsOptionsOf(rows: TensorDict, options: LeRobotColumnsOptions): Promise<DatasetOptions> {
  const { keyMap, rehydrate = false, numSlices, sliceLen, strictLength = true, transform = [] } = options
  const videoKeys = videoKeysOf(rows)
  const decoder = videoKeys.length > 0 ? await decoderOf('the data set', options) : undefined
  const episode = keyOfColumn('episode_index', keyMap)
  const transforms: BufferTransform[] = decoder ? [decoding(videoKeys, decoder)] : []
  if (rehydrate)
    transforms.push(...rehydrating(rows, { keyMap, videoKeys, isDecoded: decoder !== undefined }))
  const slices = numSlices === undefined ? sliceLen !== undefined && { sliceLen } : { numSlices }
  if (slices && !rows.has(episode)) throw lacking('slices', episode)
  return {
    ...options,
    transform: [...transforms, transform].flat(),
    ...(slices && { sampler: new SliceSampler({ ...slices, trajKey: episode, strictLength }) }),
  }
}

function videoKeysOf(rows: TensorDict, prefix: readonly string[] = []): readonly (readonly string[])[] {
  return rows.keys().flatMap((name) => {
    const [entry, key] = [rows.get([name]), [...prefix, name]]
    if (isVideoClip(entry)) return [key]
    return entry instanceof TensorDict ? videoKeysOf(entry, key) : []
  })
}

function decoding(keys: readonly (readonly string[])[], decoder: VideoDecode): BufferTransform {
  return {
    forward: (batch) => {
      for (const key of keys) batch.set(key, VideoClipRef.around(batch.dict(key)).decodeSync({ decoder }))
      return batch
    },
  }
}

interface Rehydration {
  readonly keyMap: LeRobotKeyMap | undefined
  readonly videoKeys: readonly (readonly string[])[]
  readonly isDecoded: boolean
}

/** Transforms that fill the next observation: floats with NaN at the end of a slice, others with 0. */
function rehydrating(
  rows: TensorDict,
  { keyMap, videoKeys, isDecoded }: Rehydration,
): readonly BufferTransform[] {
  const [episode, frame, done] = ['episode_index', 'frame_index', 'next.done'].map((name) =>
    keyOfColumn(name, keyMap),
  )
  if (episode === undefined || !rows.has(episode)) throw lacking('options.rehydrate', episode ?? [])
  if (!(rows.get('observation') instanceof TensorDict)) throw lacking('options.rehydrate', ['observation'])
  const leaves = observationLeaves(rows, videoKeys)
  const videos = isDecoded ? videoKeys.filter(([first]) => first === 'observation') : []
  const floats = leaves.filter((key) => /^b?f\d/.test(rows.tensor(key).dtype))
  const others = [...leaves.filter((key) => !floats.includes(key)), ...videos]
  const shared = {
    trajKey: episode,
    doneKey: done !== undefined && rows.has(done) ? done : null,
    ...(frame !== undefined && rows.has(frame) && { stepCountKey: frame }),
  }
  return [
    ...(floats.length > 0 ? [new NextStateReconstructor({ ...shared, keys: floats })] : []),
    ...(others.length > 0 ? [new NextStateReconstructor({ ...shared, keys: others, fillValue: 0 })] : []),
  ]
}

function observationLeaves(
  rows: TensorDict,
  videoKeys: readonly (readonly string[])[],
): readonly (readonly string[])[] {
  const isVideo = (key: readonly string[]) =>
    videoKeys.some((video) => video.every((name, at) => key[at] === name))
  return rows
    .leafKeys()
    .filter((key) => key[0] === 'observation' && !isVideo(key) && rows.get(key) instanceof Tensor)
}

function lacking(what: string, key: readonly string[]): FulmarError {
  return new FulmarError('INCOMPATIBLE', `${what} needs the key ${key.join('.')}: the rows lack it`)
}
