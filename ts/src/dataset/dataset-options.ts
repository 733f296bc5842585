/** Options that all data sets share. */

import { describeValue, FulmarError } from '../core/index.js'
import type { FetchOptions } from '../fetch/index.js'
import type { BufferTransform, Sampler, Writer } from '../replay/index.js'
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
] as const

/** @throws {FulmarError} `MALFORMED` for a value of another type. */
export function checkDatasetOptions(options: DatasetOptions): void {
  const { download = true, splitTrajs = false, collateFn } = options
  if (download !== 'force' && typeof download !== 'boolean') {
    const got = describeValue(download)
    throw new FulmarError('MALFORMED', `options.download must be true, false or 'force': got ${got}`)
  }
  if (typeof splitTrajs !== 'boolean')
    throw new FulmarError(
      'MALFORMED',
      `options.splitTrajs must be a boolean: got ${describeValue(splitTrajs)}`,
    )
  if (collateFn !== undefined && typeof collateFn !== 'function') {
    const got = describeValue(collateFn)
    throw new FulmarError('MALFORMED', `options.collateFn must be a function: got ${got}`)
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
