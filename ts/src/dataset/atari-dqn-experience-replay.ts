/** Data sets of Atari DQN replay: the experience of agents that learned games of the Atari 2600. */

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { aborted } from '../async/index.js'
import { call, callAsync, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { RawSplitsFolder } from '../native/index.js'
import {
  type Sampler,
  SamplerWithoutReplacement,
  SliceSampler,
  SliceSamplerWithoutReplacement,
} from '../replay/index.js'
import { storageAround } from '../replay/storage.js'
import { ATARI_SPLITS, type AtariFiles, atariFiles } from './atari-files.js'
import { ATARI_IDS } from './atari-games.js'
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
  checkSlices,
  checkText,
  DATASET_KEYS,
  type DatasetOptions,
} from './dataset-options.js'

/** Options of {@link AtariDQNExperienceReplay.open}. */
export interface AtariDQNOptions extends Omit<DatasetOptions, 'splitTrajs' | 'columnBytesMax'> {
  /** The first splits to take, from 1 to 50; a split has a million steps. @default 50 */
  readonly numSplits?: number
  /** Slices of a batch, each of one episode. Excludes `sliceLen`, and `sampler`. @default none */
  readonly numSlices?: number
  /** Steps of a slice. Excludes `numSlices`, and `sampler`. @default none */
  readonly sliceLen?: number
  /** Leaves out episodes that are shorter than a slice; else they are taken whole. @default true */
  readonly strictLen?: boolean
  /** Draws rows or slices again. @default true */
  readonly replacement?: boolean
  /** Splits that are fetched and converted at once, from 0 to 50; 0 is one. @default 0 */
  readonly numProcs?: number
  /** Address of the API of buckets, or of a mirror of it. @default Google Cloud Storage's */
  readonly endpoint?: string
  /** Folder of a web server that has the objects of the bucket under their own names. Excludes `endpoint`. @default none */
  readonly mirror?: string
  /** A folder with the files of the run, or with the objects of the bucket under their own names. Excludes both. @default none */
  readonly folder?: string
}

/** Frames are in their files. */
const KEYS = DATASET_KEYS.filter((name) => name !== 'splitTrajs' && name !== 'columnBytesMax')

const OWN_KEYS = [
  'numSplits',
  'numSlices',
  'sliceLen',
  'strictLen',
  'replacement',
  'numProcs',
  'endpoint',
  'mirror',
  'folder',
] as const

/** File that is in a whole folder; TorchRL writes it too. */
const MARK = 'processed.json'

/** Metadata of a split. */
export interface AtariSplit {
  /** Steps that the agent had taken. */
  readonly add_count: number
  /** Rows that the ring of the agent was writing at. */
  readonly invalid_range: readonly number[]
  /** The id of the data set. */
  readonly dataset_id: string
}

/**
 * A run of Atari DQN replay: `observation`, u8 `[84, 84]`, `action`, and below `next` the observation, `reward`, `done`, `terminated`
 * and `truncated` after the step; flags are bools, `[rows, 1]`. `metadata` is that of the row's split. The id is one of 50 games and a
 * run from 1 to 5, such as `Pong/1`.
 *
 * Each frame is stored once and read from its file when a row is drawn. `next.observation` is zero where a step is terminal, and in
 * the last row of a split. Slices end at terminal steps alone.
 *
 * @example
 * ```ts native
 * import { AtariDQNExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = AtariDQNExperienceReplay.open('Pong/1', { root: '/nowhere', download: false, numSplits: 1 })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `download` out to fetch it
 * ```
 */
export class AtariDQNExperienceReplay extends BaseDatasetExperienceReplay {
  /** The metadata of each split. */
  readonly splits: readonly AtariSplit[]
  readonly #folder: RawSplitsFolder

  private constructor(place: DatasetPlace, options: AtariDQNOptions) {
    const folder = call(() => converter('SplitsFolder').open(place.dataPath))
    const sampler = options.sampler ?? samplerOf(options)
    const storage = storageAround(() => folder.storage())
    super(place, { ...options, ...(sampler && { sampler }) }, storage)
    this.#folder = folder
    this.splits = JSON.parse(call(() => folder.metadata()))
  }

  /** The ids: 50 games, 5 runs each. */
  static get availableDatasets(): readonly string[] {
    return ATARI_IDS
  }

  /**
   * Opens a data set; fetches and converts it unless it is there, a split after the other. The files of a split are removed
   * once it is converted, but not those of `folder`.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown id, with the nearest one, or an unknown option; `INCOMPATIBLE` for options that exclude each
   *   other, and if the data set is there with other options; `UNAVAILABLE` if `download` is false and it is not there, and in WebAssembly;
   *   `EMPTY` if there are no files; those of `fetchBucket` and `fetchFile`; with the file, `IO` if it is missing, `CORRUPT`,
   *   `INCOMPATIBLE`, `SHAPE_MISMATCH`, `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` if it breaks the format; `ABORTED` if the signal fires.
   */
  static async open(id: string, options: AtariDQNOptions = {}): Promise<AtariDQNExperienceReplay> {
    checkKnownKeys('options', options, [...KEYS, ...OWN_KEYS])
    checkDatasetOptions(options)
    checkOwn(options)
    if (!ATARI_IDS.includes(id)) throw unknownId('Atari DQN replay', id, ATARI_IDS)
    const place = placeOf('atari', id, options)
    const { numSplits = ATARI_SPLITS } = options
    const convertSplit = converter('convertSplit')
    const convert = async (folder: string): Promise<void> => {
      await mkdir(folder)
      const files = await atariFiles(id, place.root, options)
      await eachSplit(files, options, async (split, source) => {
        await callAsync(() => convertSplit(source, split, id, join(folder, String(split))))
      })
      // TorchRL keeps the number of splits it was restricted to.
      const processed = options.numSplits === undefined ? null : numSplits
      await writeFile(join(folder, MARK), JSON.stringify({ processed }))
    }
    const source = { dataPath: place.dataPath, label: `atari:${id}`, conversion: { numSplits }, mark: MARK }
    await ensureFolder({ ...source, convert }, options)
    return new AtariDQNExperienceReplay(place, options)
  }

  /** Number of terminal steps up to each row, that row included, as TorchRL numbers episodes. A new array. */
  get episodes(): Float64Array {
    return call(() => this.#folder.episodes())
  }
}

/** Runs `one` for each split, several at once. The first failure stops the others; files are released after either. */
async function eachSplit(
  files: AtariFiles,
  { numProcs = 0, signal }: AtariDQNOptions,
  one: (split: number, source: string) => Promise<void>,
): Promise<void> {
  const left = [...files.splits]
  let failure: { readonly cause: unknown } | undefined
  const work = async (): Promise<void> => {
    for (let split = left.shift(); split !== undefined && failure === undefined; split = left.shift()) {
      try {
        if (signal?.aborted) throw aborted(signal)
        await one(split, await files.ensure(split))
      } catch (cause) {
        failure ??= { cause }
      } finally {
        await files.release(split)
      }
    }
  }
  await Promise.all(Array.from({ length: Math.max(1, numProcs) }, work))
  if (failure !== undefined) throw failure.cause
}

function checkOwn(options: AtariDQNOptions): void {
  const { numSplits = ATARI_SPLITS, numProcs = 0, strictLen = true, replacement = true } = options
  checkRange('numSplits', numSplits, 1)
  checkRange('numProcs', numProcs, 0)
  checkBoolean('strictLen', strictLen)
  checkBoolean('replacement', replacement)
  for (const name of ['endpoint', 'mirror', 'folder'] as const)
    if (options[name] !== undefined) checkText(name, options[name])
  checkSlices(options)
  for (const [one, other] of EXCLUSIVE) {
    if (options[one] === undefined || options[other] === undefined) continue
    throw new FulmarError('INCOMPATIBLE', `options.${one} must come without ${other}: got both`)
  }
}

/** Options that exclude each other. */
const EXCLUSIVE = [
  ['sampler', 'numSlices'],
  ['sampler', 'sliceLen'],
  ['endpoint', 'mirror'],
  ['endpoint', 'folder'],
  ['mirror', 'folder'],
] as const

function checkRange(name: string, value: unknown, least: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= ATARI_SPLITS)
    return
  const detail = `options.${name} must be a whole number from ${least} to ${ATARI_SPLITS}: got ${describeValue(value)}`
  throw new FulmarError('OUT_OF_RANGE', detail)
}

/** The sampler of the options; none for uniform rows with replacement. */
function samplerOf({
  numSlices,
  sliceLen,
  strictLen = true,
  replacement = true,
}: AtariDQNOptions): Sampler | undefined {
  if (numSlices === undefined && sliceLen === undefined)
    return replacement ? undefined : new SamplerWithoutReplacement()
  const slices = {
    ...(numSlices !== undefined && { numSlices }),
    ...(sliceLen !== undefined && { sliceLen }),
    strictLength: strictLen,
  }
  return replacement ? new SliceSampler(slices) : new SliceSamplerWithoutReplacement(slices)
}
