/** Batches requests of several callers: TorchRL's batching, with an enforced timeout. */

import { checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'

/** Maximum number of rows that wait in a batcher. */
export const BATCH_QUEUE_LENGTH_MAX = 65_536

/** Options of batches. */
export interface BatchingOptions {
  /**
   * Number of waiting rows that starts a batch.
   * @default 1
   */
  readonly minBatchSize?: number
  /**
   * Maximum number of rows of a batch, at least `minBatchSize`.
   * @default no bound
   */
  readonly maxBatchSize?: number
  /**
   * Milliseconds after which rows run even if they are fewer than `minBatchSize`; `null` for no timeout.
   * @default 10_000
   */
  readonly batchingTimeoutMs?: number | null
  /** Clock of the timeout. @default systemClock */
  readonly clock?: Clock
}

/** The names of {@link BatchingOptions}. */
export const BATCHING_KEYS = ['minBatchSize', 'maxBatchSize', 'batchingTimeoutMs', 'clock'] as const

/** State of a batcher of rows. */
export interface BatchingState {
  /** As {@link BatchingOptions.minBatchSize}. */
  readonly minBatchSize: number
  /** As {@link BatchingOptions.maxBatchSize}; `null` without a bound. */
  readonly maxBatchSize: number | null
  /** As {@link BatchingOptions.batchingTimeoutMs}. */
  readonly batchingTimeoutMs: number | null
  /** Number of waiting rows. */
  readonly queueSize: number
  /** Number of running rows. */
  readonly numRunning: number
}

interface Waiting<Row, Result> {
  readonly row: Row
  readonly sinceMs: number
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
}

/**
 * Collects the rows of several callers and runs them together, first come, first served. `run` answers each
 * row separately, so that a failed row does not affect the others. A batch starts once `minBatchSize` rows
 * wait, or when the first of them has waited for `batchingTimeoutMs`; several batches may run at once.
 */
export class RequestBatcher<Row, Result> {
  readonly #run: (rows: readonly Row[]) => readonly Promise<Result>[]
  readonly #min: number
  readonly #max: number | undefined
  readonly #timeoutMs: number | null
  readonly #clock: Clock
  #queue: Waiting<Row, Result>[] = []
  #numRunning = 0
  #stopTimer: (() => void) | undefined

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if a size is not an integer from 1, `minBatchSize` is above `maxBatchSize`, or the timeout is
   * negative; `UNKNOWN_NAME` for an unknown key.
   */
  constructor(
    options: BatchingOptions & { readonly run: (rows: readonly Row[]) => readonly Promise<Result>[] },
  ) {
    checkKnownKeys('options', options, ['run', ...BATCHING_KEYS])
    const { run, minBatchSize = 1, maxBatchSize, batchingTimeoutMs = 10_000, clock = systemClock } = options
    checkSizes(minBatchSize, maxBatchSize, batchingTimeoutMs)
    this.#run = run
    this.#min = minBatchSize
    this.#max = maxBatchSize
    this.#timeoutMs = batchingTimeoutMs
    this.#clock = clock
  }

  /** State of the queue and of running rows. */
  get state(): BatchingState {
    return {
      minBatchSize: this.#min,
      maxBatchSize: this.#max ?? null,
      batchingTimeoutMs: this.#timeoutMs,
      queueSize: this.#queue.length,
      numRunning: this.#numRunning,
    }
  }

  /**
   * Returns the answers to `rows`, in their order, once all have one.
   * @throws {FulmarError} `LIMIT_EXCEEDED` if too many rows wait; `ABORTED` if {@link RequestBatcher.clear}
   * removed a row; else the error of the first failed row, after the others have ended.
   */
  async submit(rows: readonly Row[]): Promise<Result[]> {
    if (this.#queue.length + rows.length > BATCH_QUEUE_LENGTH_MAX) {
      const rule = `waiting rows must be at most ${BATCH_QUEUE_LENGTH_MAX}`
      throw new FulmarError('LIMIT_EXCEEDED', `${rule}: got ${this.#queue.length + rows.length}`)
    }
    const sinceMs = this.#clock.nowMs()
    const answers = rows.map(
      (row) => new Promise<Result>((resolve, reject) => this.#queue.push({ row, sinceMs, resolve, reject })),
    )
    this.#drain()
    return await allSettled(answers)
  }

  /** Runs all waiting rows now. */
  flush(): void {
    while (this.#queue.length > 0) this.#start()
    this.#schedule()
  }

  /** Removes waiting rows and rejects their callers with `ABORTED`. Running rows continue. */
  clear(): void {
    const waiting = this.#queue.splice(0)
    this.#schedule()
    for (const { reject } of waiting)
      reject(new FulmarError('ABORTED', 'batching must not be cleared while a row waits: it was'))
  }

  #drain(): void {
    while (this.#queue.length > 0 && this.#queue.length >= this.#min) this.#start()
    this.#schedule()
  }

  #start(): void {
    const batch = this.#queue.splice(0, this.#max ?? this.#queue.length)
    this.#numRunning += batch.length
    const answers = started(() => this.#run(batch.map(({ row }) => row)))
    for (const [index, { resolve, reject }] of batch.entries()) {
      const answer = answers(index)
      const ended = () => {
        this.#numRunning -= 1
      }
      answer.then(resolve, reject).finally(ended)
    }
  }

  /** One timer, for the row that has waited longest. */
  #schedule(): void {
    this.#stopTimer?.()
    this.#stopTimer = undefined
    const [first] = this.#queue
    if (first === undefined || this.#timeoutMs === null) return
    const leftMs = Math.max(0, first.sinceMs + this.#timeoutMs - this.#clock.nowMs())
    this.#stopTimer = this.#clock.startTimer(leftMs, () => this.flush())
  }
}

/** Returns the answer to each row; an error of `run`, or a missing answer, is the row's error. */
function started<Result>(run: () => readonly Promise<Result>[]): (index: number) => Promise<Result> {
  try {
    const answers = run()
    return (index) =>
      answers[index] ?? Promise.reject(new FulmarError('USER_CODE', 'run must answer each row'))
  } catch (error) {
    return () => Promise.reject(error)
  }
}

/** Returns the values, once every promise has ended; else throws the first error. */
export async function allSettled<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  const ended = await Promise.allSettled(promises)
  return ended.map((one) => {
    if (one.status === 'fulfilled') return one.value
    throw one.reason instanceof Error ? one.reason : new FulmarError('USER_CODE', messageOf(one.reason))
  })
}

function checkSizes(min: number, max: number | undefined, timeoutMs: number | null): void {
  for (const [name, size] of Object.entries({ minBatchSize: min, maxBatchSize: max ?? 1 })) {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new FulmarError('OUT_OF_RANGE', `${name} must be an integer >= 1: got ${size}`)
  }
  if (max !== undefined && min > max)
    throw new FulmarError('OUT_OF_RANGE', `minBatchSize (${min}) must be <= maxBatchSize (${max})`)
  if (timeoutMs !== null && !(timeoutMs >= 0))
    throw new FulmarError('OUT_OF_RANGE', `batchingTimeoutMs must be >= 0 or null: got ${timeoutMs}`)
}
