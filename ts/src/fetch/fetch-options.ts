/** Options that all fetches share. */

import { Slots } from '../async/index.js'
import { describeValue, FulmarError } from '../core/index.js'
import { defaultHttpClient, type HttpClient } from '../native/index.js'
import { type Clock, type FetchEvent, systemClock } from '../telemetry/index.js'
import type { Transfer } from './transfer.js'

/** Options of every fetch. */
export interface FetchOptions {
  /**
   * Opens the connections.
   * @default undici in Node; the runtime's `fetch` elsewhere
   */
  readonly client?: HttpClient
  /**
   * Measures time limits and waits.
   * @default systemClock
   */
  readonly clock?: Clock
  /** Stops the fetch; what is there is resumed by the next one. */
  readonly signal?: AbortSignal
  /**
   * Repetitions of a request that failed, for each file, from 0 to 100.
   * @default 5
   */
  readonly retries?: number
  /**
   * Longest time without a byte until a request counts as failed, in milliseconds.
   * @default 60000
   */
  readonly stallTimeoutMs?: number
  /**
   * Fetches files that are there once more.
   * @default false
   */
  readonly force?: boolean
  /** Called as bytes come; `ProgressLine.update` takes these events. */
  readonly onProgress?: (event: FetchEvent) => void
}

/** Options of a fetch of several files. */
export interface ParallelOptions {
  /**
   * Files that are fetched at once, from 1 to 64.
   * @default 8
   */
  readonly parallel?: number
}

/** Names of {@link FetchOptions}. */
export const FETCH_KEYS = [
  'client',
  'clock',
  'signal',
  'retries',
  'stallTimeoutMs',
  'force',
  'onProgress',
] as const

/** Most repetitions that a caller may ask for. */
const RETRIES_MAX = 100

/** Most files at once. */
const PARALLEL_MAX = 64

/**
 * Runs `body` with the client of the options, or with one that is closed behind it.
 * @throws {FulmarError} `OUT_OF_RANGE` for a number outside its range.
 */
export async function withTransfer<T>(
  options: FetchOptions & ParallelOptions,
  body: (transfer: Transfer, slots: Slots) => Promise<T>,
): Promise<T> {
  const { clock = systemClock, signal, retries = 5, stallTimeoutMs = 60_000, parallel = 8 } = options
  checkInteger('options.retries', retries, 0, RETRIES_MAX)
  checkInteger('options.stallTimeoutMs', stallTimeoutMs, 1, Number.MAX_SAFE_INTEGER)
  checkInteger('options.parallel', parallel, 1, PARALLEL_MAX)
  const client = options.client ?? defaultHttpClient({ numConnections: parallel })
  try {
    return await body({ client, clock, signal, retries, stallTimeoutMs }, new Slots(parallel))
  } finally {
    if (options.client === undefined) await client.close()
  }
}

function checkInteger(place: string, value: unknown, least: number, most: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= most) return
  const detail = `${place} must be an integer from ${least} to ${most}: got ${describeValue(value)}`
  throw new FulmarError('OUT_OF_RANGE', detail)
}
