/** Rows of a data set mapped into a new folder of rows. */

import { pathToFileURL } from 'node:url'
import { aborted } from '../async/index.js'
import { checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import {
  ImmutableDatasetWriter,
  type Storage,
  TensorDictReplayBuffer,
  TensorStorage,
} from '../replay/index.js'
import { type Clock, ProgressLine, type ProgressStream } from '../telemetry/index.js'
import { loadMemmap, saveMemmap, TensorDict } from '../tensor/index.js'
import { makeFolder } from './dataset-folder.js'
import { type ChunkMapper, mapInThreads } from './preprocess-threads.js'

/** Maps rows `[n, ...]` to as many rows. */
export type RowsFn = (rows: TensorDict) => TensorDict | Promise<TensorDict>

/** Options of `preprocess`. */
export interface PreprocessOptions {
  /** Folder of the mapped rows, which must not be there. */
  readonly dest: string
  /**
   * Threads, from 0 to 256, each with a module of its own: `fn` must be a module then. 0 is this thread.
   * @default 0
   */
  readonly numWorkers?: number
  /**
   * Rows of a call of `fn`, from 1; the last call may have fewer.
   * @default 1024
   */
  readonly chunksize?: number
  /** Rows to map, from the first on, from 1. @default all */
  readonly numFrames?: number
  /**
   * Shows the progress on standard error, or on a stream.
   * @default false
   */
  readonly pbar?: boolean | ProgressStream
  /** Measures waits for another process that writes `dest`. @default systemClock */
  readonly clock?: Clock
  /** Stops the mapping, in this thread between two calls of `fn`; `dest` is not there then. */
  readonly signal?: AbortSignal
}

const KEYS = ['dest', 'numWorkers', 'chunksize', 'numFrames', 'pbar', 'clock', 'signal'] as const

/** Most threads. */
const WORKERS_MAX = 256

const CHUNKSIZE = 1024

/** @internal Options after the checks. */
export interface RowsPlan {
  readonly numRows: number
  readonly chunksize: number
  readonly numWorkers: number
  readonly signal: AbortSignal | undefined
}

/** Maps the rows of `storage` to the folder `dest`, and opens it. See `BaseDatasetExperienceReplay.preprocess`. */
export async function preprocess(
  storage: Storage,
  fn: RowsFn | string | URL,
  options: PreprocessOptions,
): Promise<TensorDictReplayBuffer> {
  checkKnownKeys('options', options, KEYS, ['dest'])
  const plan = planOf(storage, options)
  const { dest, signal } = options
  if (typeof dest !== 'string' || dest === '')
    throw new FulmarError('MALFORMED', `options.dest must be a folder: got ${describeValue(dest)}`)
  const map = mapperOf(fn, plan)
  const progress = progressOf(options.pbar)
  if (signal?.aborted) throw aborted(signal)
  const convert = async (folder: string): Promise<void> => {
    const parts = await map(chunksOf(storage, plan), (numRows) =>
      progress?.update({ event: 'step', phase: 'map', step: numRows, numSteps: plan.numRows, metrics: {} }),
    )
    saveMemmap(folder, TensorDict.cat(parts))
  }
  try {
    const label = 'options.dest'
    await makeFolder({ dataPath: dest, label, conversion: {}, convert }, options)
  } finally {
    progress?.end()
  }
  const rows = new TensorStorage(loadMemmap(dest))
  return new TensorDictReplayBuffer({ storage: rows, writer: new ImmutableDatasetWriter() })
}

/** @internal A number of rows, and what reads them. */
export interface Chunk {
  readonly start: number
  readonly stop: number
  read(): TensorDict
}

function chunksOf(storage: Storage, { numRows, chunksize }: RowsPlan): readonly Chunk[] {
  return Array.from({ length: Math.ceil(numRows / chunksize) }, (_, at) => {
    const [start, stop] = [at * chunksize, Math.min((at + 1) * chunksize, numRows)]
    return {
      start,
      stop,
      read: () => storage.get(Array.from({ length: stop - start }, (_, row) => start + row)),
    }
  })
}

/** Returns what maps all chunks in this thread, or in others. */
function mapperOf(fn: RowsFn | string | URL, plan: RowsPlan): ChunkMapper {
  if (typeof fn === 'function') {
    if (plan.numWorkers === 0) return mapHere(async () => fn, plan)
    const detail = `fn must be a module where options.numWorkers is ${plan.numWorkers}: got a function`
    throw new FulmarError('MALFORMED', detail)
  }
  const url = moduleUrl(fn)
  return plan.numWorkers === 0 ? mapHere(() => loadRowsFn(url), plan) : mapInThreads(url, plan)
}

function moduleUrl(fn: string | URL): string {
  if (fn instanceof URL) return fn.href
  if (typeof fn === 'string' && fn !== '') return fn.startsWith('file:') ? fn : pathToFileURL(fn).href
  const detail = `fn must be a function, or the path or the URL of a module: got ${describeValue(fn)}`
  throw new FulmarError('MALFORMED', detail)
}

/** @internal Imports the function that a module exports by default. @throws {FulmarError} `USER_CODE`. */
export async function loadRowsFn(url: string): Promise<RowsFn> {
  const module: { readonly default?: unknown } = await import(url).catch((cause: unknown) => {
    throw new FulmarError('USER_CODE', `fn must be a module: ${url} fails with ${messageOf(cause)}`, {
      cause,
    })
  })
  if (typeof module.default === 'function') return module.default as RowsFn
  const got = describeValue(module.default)
  throw new FulmarError(
    'USER_CODE',
    `fn must be a module with a function as default export: ${url} has ${got}`,
  )
}

/** @internal Calls `fn`, and checks what it returns. @throws {FulmarError} `USER_CODE`, with the rows. */
export async function mappedRows(
  fn: RowsFn,
  rows: TensorDict,
  { start, stop }: { readonly start: number; readonly stop: number },
): Promise<TensorDict> {
  const place = `fn must map rows ${start} to ${stop - 1}`
  let mapped: unknown
  try {
    mapped = await fn(rows)
  } catch (cause) {
    throw new FulmarError('USER_CODE', `${place}: it fails with ${messageOf(cause)}`, { cause })
  }
  if (mapped instanceof TensorDict && mapped.batchSize[0] === stop - start) return mapped
  const got = mapped instanceof TensorDict ? `[${mapped.batchSize.join(', ')}]` : describeValue(mapped)
  throw new FulmarError('USER_CODE', `${place} to a TensorDict of ${stop - start} rows: got ${got}`)
}

function mapHere(load: () => Promise<RowsFn>, { signal }: RowsPlan): ChunkMapper {
  return async (chunks, onRows) => {
    const fn = await load()
    const parts: TensorDict[] = []
    for (const chunk of chunks) {
      if (signal?.aborted) throw aborted(signal)
      parts.push(await mappedRows(fn, chunk.read(), chunk))
      onRows(chunk.stop)
    }
    return parts
  }
}

function progressOf(pbar: unknown): ProgressLine | undefined {
  if (pbar === undefined || pbar === false) return undefined
  if (pbar === true) return new ProgressLine({ stream: process.stderr })
  if (typeof pbar === 'object' && pbar !== null && 'write' in pbar && typeof pbar.write === 'function')
    return new ProgressLine({ stream: pbar as ProgressStream })
  throw new FulmarError('MALFORMED', `options.pbar must be a boolean or a stream: got ${describeValue(pbar)}`)
}

function planOf(storage: Storage, options: PreprocessOptions): RowsPlan {
  const { numWorkers = 0, chunksize = CHUNKSIZE, numFrames = storage.length, signal } = options
  checkRange('numWorkers', numWorkers, 0, WORKERS_MAX)
  checkRange('chunksize', chunksize, 1, Number.MAX_SAFE_INTEGER)
  checkRange('numFrames', numFrames, 1, storage.length)
  return { numRows: numFrames, chunksize, numWorkers, signal }
}

function checkRange(name: string, value: unknown, least: number, most: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= most) return
  const rule = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`
  const got = describeValue(value)
  throw new FulmarError('OUT_OF_RANGE', `options.${name} must be a whole number ${rule}: got ${got}`)
}
