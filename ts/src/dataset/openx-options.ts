/** Options of Open X-Embodiment, and which of them exclude each other. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import {
  checkBoolean,
  checkDatasetOptions,
  checkSlices,
  DATASET_KEYS,
  type DatasetOptions,
  HUB_OPTIONS,
  type HubDatasetOptions,
} from './dataset-options.js'

/** Options of {@link OpenXExperienceReplay.open}. */
export interface OpenXOptions extends Omit<DatasetOptions, 'splitTrajs'>, HubDatasetOptions {
  /**
   * Reads one episode after the other from the files, instead of converting them to a folder of rows.
   * @default true unless `download` is given
   */
  readonly streaming?: boolean
  /** Stored episodes, or slices without replacement, come in an order that `seed` draws. Streams keep the order of the files. @default true */
  readonly shuffle?: boolean
  /** Slices of a batch, each of one episode. Excludes `sliceLen`. @default none */
  readonly numSlices?: number
  /** Steps of a slice. Excludes `numSlices`. @default none */
  readonly sliceLen?: number
  /** Streams alone: shorter episodes are padded with zeros (`true`) or with this number, instead of refused. @default none */
  readonly pad?: boolean | number
  /** Draws rows or slices again; a stream never does. @default true where rows are stored */
  readonly replacement?: boolean
  /** Stored rows alone: leaves out episodes that are shorter than a slice; else they are taken whole. @default true */
  readonly strictLength?: boolean
}

/** Options that were checked. */
export interface CheckedOpenXOptions {
  readonly streaming: boolean
  readonly shuffle: boolean
  readonly replacement: boolean
  readonly strictLength: boolean
  /** The number that short episodes are padded with. */
  readonly pad?: number
}

const OPENX_KEYS = [
  ...DATASET_KEYS.filter((name) => name !== 'splitTrajs'),
  ...HUB_OPTIONS,
  'streaming',
  'shuffle',
  'numSlices',
  'sliceLen',
  'pad',
  'replacement',
  'strictLength',
]

/** Buffers alone have them: a stream draws no rows and keeps none. */
const STORED_ALONE = ['sampler', 'writer', 'prefetch', 'root'] as const

/**
 * Checks all options.
 * @throws {FulmarError} `UNKNOWN_NAME`, `MALFORMED`, `OUT_OF_RANGE`; `INCOMPATIBLE` for those that exclude each other.
 */
export function checkOpenXOptions(options: OpenXOptions): CheckedOpenXOptions {
  if (Object.hasOwn(options ?? {}, 'splitTrajs')) {
    const detail =
      'options.splitTrajs must be left out: give sliceLen, or iterate over whole episodes without batchSize'
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  checkKnownKeys('options', options, OPENX_KEYS)
  checkDatasetOptions(options)
  const { streaming = options.download === undefined, shuffle = true, strictLength = true } = options
  const { replacement = !streaming } = options
  for (const [name, value] of Object.entries({ streaming, shuffle, strictLength, replacement }))
    checkBoolean(name, value)
  checkSlices(options)
  if (streaming) checkStreaming(options)
  else checkStored(options, { shuffle, replacement })
  const pad = padOf(options)
  return { streaming, shuffle, replacement, strictLength, ...(pad !== undefined && { pad }) }
}

function checkStreaming(options: OpenXOptions): void {
  if (options.numSlices !== undefined && options.batchSize === undefined)
    throw new FulmarError('OUT_OF_RANGE', 'options.batchSize must come with numSlices: it is left out')
  if (options.replacement)
    throw new FulmarError('INCOMPATIBLE', 'options.replacement must be false with streaming: got true')
  if (options.download !== undefined) {
    const got = describeValue(options.download)
    throw new FulmarError('INCOMPATIBLE', `options.download must be left out with streaming: got ${got}`)
  }
  for (const name of STORED_ALONE) {
    if (options[name] === undefined) continue
    throw new FulmarError('INCOMPATIBLE', `options.${name} must be left out with streaming: it is given`)
  }
}

function checkStored(
  { pad, numSlices, sliceLen }: OpenXOptions,
  { shuffle, replacement }: { readonly shuffle: boolean; readonly replacement: boolean },
): void {
  if (pad !== undefined)
    throw new FulmarError('INCOMPATIBLE', 'options.pad must come with streaming: got it with stored rows')
  const isSliced = numSlices !== undefined || sliceLen !== undefined
  if (isSliced && !shuffle && replacement)
    throw new FulmarError('INCOMPATIBLE', 'options.shuffle must be true with replacement: got false')
}

function padOf({ pad }: OpenXOptions): number | undefined {
  if (pad === undefined || pad === false) return undefined
  if (pad === true) return 0
  if (typeof pad === 'number' && Number.isFinite(pad)) return pad
  throw new FulmarError(
    'MALFORMED',
    `options.pad must be a boolean or a finite number: got ${describeValue(pad)}`,
  )
}
