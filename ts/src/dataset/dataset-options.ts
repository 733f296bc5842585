/** Options that all data sets share. */

import { describeValue, FulmarError } from '../core/index.js'
import type { FetchOptions, HubOptions } from '../fetch/index.js'
import { type BufferTransform, Sampler, Writer } from '../replay/index.js'
import type { TensorDict } from '../tensor/index.js'

/** Options of every data set. */
export interface DatasetOptions extends Omit<FetchOptions, 'force'> {
  /** Rows of a batch where none are asked for, from 1. @default none */
  readonly batchSize?: number
  /**
   * Folder that converted rows are kept in, one folder below it for each id.
   * @default a folder for each source in that of the variable `FULMAR_HOME`, else in the platform's folder of caches
   */
  readonly root?: string
  /**
   * Fetches and converts what is not there; `'force'` does so once more; `false` uses what is there alone.
   * @default true
   */
  readonly download?: boolean | 'force'
  /** Sampler of the rows of a batch. @default `new RandomSampler()` */
  readonly sampler?: Sampler
  /** Writer of the buffer. @default `new ImmutableDatasetWriter()` */
  readonly writer?: Writer
  /** Number of batches that `batches` draws in advance. @default 0 */
  readonly prefetch?: number
  /** Fixes all draws. @default 0 */
  readonly seed?: number
  /** Transform of each batch, or several in order. @default none */
  readonly transform?: BufferTransform | readonly BufferTransform[]
  /** Makes another dictionary of each batch, behind the transforms. @default none */
  readonly collateFn?: (batch: TensorDict) => TensorDict
  /**
   * Keeps trajectories side by side, `[n, T_max]`, with `mask` and `traj_ids`: a row is a trajectory.
   * @default false
   */
  readonly splitTrajs?: boolean
  /**
   * Bytes of the longest column that is in memory, from 0. Rows of longer ones, such as images, are read from their files as they are drawn.
   * @default 2 ** 30
   */
  readonly columnBytesMax?: number
}

/** Names of {@link DatasetOptions}. */
export const DATASET_KEYS = [
  'client',
  'clock',
  'signal',
  'retries',
  'stallTimeoutMs',
  'onProgress',
  'batchSize',
  'root',
  'download',
  'sampler',
  'writer',
  'prefetch',
  'seed',
  'transform',
  'collateFn',
  'splitTrajs',
  'columnBytesMax',
] as const

/** Names of {@link HubDatasetOptions}. */
export const HUB_OPTIONS = ['revision', 'endpoint', 'token', 'cache', 'offline'] as const

/** Options of data sets whose files are on the hub. */
export type HubDatasetOptions = Pick<HubOptions, 'revision' | 'endpoint' | 'token' | 'cache' | 'offline'>

/** Checks what would be refused only once the rows are there. @throws {FulmarError} `MALFORMED`, `OUT_OF_RANGE`. */
export function checkDatasetOptions(options: DatasetOptions): void {
  const { download = true, splitTrajs = false, collateFn, batchSize = 1, prefetch = 0, seed = 0 } = options
  const { columnBytesMax = 0 } = options
  if (download !== 'force' && typeof download !== 'boolean') {
    const got = describeValue(download)
    throw new FulmarError('MALFORMED', `options.download must be true, false or 'force': got ${got}`)
  }
  checkBoolean('splitTrajs', splitTrajs)
  if (collateFn !== undefined && typeof collateFn !== 'function') {
    const got = describeValue(collateFn)
    throw new FulmarError('MALFORMED', `options.collateFn must be a function: got ${got}`)
  }
  checkParts(options)
  checkWhole('batchSize', batchSize, 1)
  checkWhole('prefetch', prefetch, 0)
  checkWhole('seed', seed, 0)
  checkWhole('columnBytesMax', columnBytesMax, 0)
}

function checkParts({ sampler, writer }: DatasetOptions): void {
  if (sampler !== undefined && !(sampler instanceof Sampler))
    throw new FulmarError('MALFORMED', `options.sampler must be a Sampler: got ${describeValue(sampler)}`)
  if (writer !== undefined && !(writer instanceof Writer))
    throw new FulmarError('MALFORMED', `options.writer must be a Writer: got ${describeValue(writer)}`)
}

/** @throws {FulmarError} `MALFORMED`. */
export function checkBoolean(name: string, value: unknown): void {
  if (typeof value === 'boolean') return
  throw new FulmarError('MALFORMED', `options.${name} must be a boolean: got ${describeValue(value)}`)
}

/** @throws {FulmarError} `MALFORMED`. */
export function checkText(name: string, value: unknown): void {
  if (typeof value === 'string') return
  throw new FulmarError('MALFORMED', `options.${name} must be a text: got ${describeValue(value)}`)
}

/** @throws {FulmarError} `OUT_OF_RANGE`. */
export function checkWhole(name: string, value: unknown, least: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least) return
  const got = describeValue(value)
  throw new FulmarError(
    'OUT_OF_RANGE',
    `options.${name} must be a whole number of at least ${least}: got ${got}`,
  )
}

/** Options of batches that are slices. */
interface SliceOptions {
  readonly numSlices?: number
  readonly sliceLen?: number
  readonly batchSize?: number
}

/**
 * Checks the numbers of slices and of their steps.
 * @throws {FulmarError} `OUT_OF_RANGE` for a number, or a batch size that is no multiple; `INCOMPATIBLE` for both.
 */
export function checkSlices({ numSlices, sliceLen, batchSize }: SliceOptions): void {
  if (numSlices !== undefined) checkWhole('numSlices', numSlices, 1)
  if (sliceLen !== undefined) checkWhole('sliceLen', sliceLen, 1)
  if (numSlices !== undefined && sliceLen !== undefined)
    throw new FulmarError('INCOMPATIBLE', 'options.numSlices must come without sliceLen: got both')
  const part = numSlices ?? sliceLen ?? 1
  if (batchSize !== undefined && batchSize % part !== 0) {
    const name = numSlices === undefined ? 'sliceLen' : 'numSlices'
    throw new FulmarError(
      'OUT_OF_RANGE',
      `options.batchSize must be a multiple of ${name} ${part}: got ${batchSize}`,
    )
  }
}

/** The part of the options that fetches take. */
export function fetchOptionsOf(options: DatasetOptions): FetchOptions {
  const { client, clock, signal, retries, stallTimeoutMs, onProgress, download } = options
  return {
    ...(client && { client }),
    ...(clock && { clock }),
    ...(signal && { signal }),
    ...(retries !== undefined && { retries }),
    ...(stallTimeoutMs !== undefined && { stallTimeoutMs }),
    ...(onProgress && { onProgress }),
    force: download === 'force',
  }
}

/** The part of the options that fetches from the hub take. */
export function hubOptionsOf(options: DatasetOptions & HubDatasetOptions): HubOptions {
  const hub = Object.fromEntries(
    HUB_OPTIONS.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  )
  return { ...fetchOptionsOf(options), ...hub }
}
