/** Limits on the number of samples per insert. */

import { checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import { type RawRateLimiter, raw } from '../native/index.js'

/**
 * Rule of a limiter. `minSize` allows samples once there are `minSize` items. `sampleToInsertRatio` keeps samples and inserts in
 * a ratio, within `error` around `samplesPerInsert * minSize`. `queue` allows one sample an item, with at most `size` waiting.
 */
export type RateLimiterOptions =
  | { readonly kind: 'minSize'; readonly minSize: number }
  | {
      readonly kind: 'sampleToInsertRatio'
      readonly samplesPerInsert: number
      readonly minSize: number
      readonly error: number
    }
  | { readonly kind: 'queue'; readonly size: number }

/** Options of a wait. */
export interface WaitOptions {
  /** After how many milliseconds it ends with `TIMEOUT` and the reason. @default never */
  readonly timeoutMs?: number
  /** Ends it with `ABORTED`. */
  readonly signal?: AbortSignal
}

interface Waiter {
  readonly tryNow: () => boolean
}

/**
 * Counts inserts, samples and deletes as reverb does, and makes callers wait for their turn. Nothing is drawn or written
 * here: call it before you do.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if the options could never let anything be done.
 *
 * @example
 * ```ts
 * import { RateLimiter } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const limiter = new RateLimiter({ kind: 'minSize', minSize: 2 })
 * const sampled = limiter.sample(1)
 * assert.throws(() => limiter.trySample(1), { message: 'items must be >= 2 to sample: got 0' })
 * limiter.tryInsert(2)
 * await sampled
 * assert.deepEqual(limiter.counts, { inserts: 2, samples: 1, deletes: 0 })
 * ```
 */
export class RateLimiter {
  readonly #native: Handle<RawRateLimiter>
  #waiting: Waiter[] = []

  constructor(options: RateLimiterOptions) {
    this.#native = new Handle('RateLimiter', () => raw.RateLimiter.create(JSON.stringify(options)))
  }

  /** Counts of inserts, samples and deletes. */
  get counts(): { readonly inserts: number; readonly samples: number; readonly deletes: number } {
    const [inserts = 0, samples = 0, deletes = 0] = this.#native.call((limiter) => limiter.counts())
    return { inserts, samples, deletes }
  }

  /** Counts samples. @throws {FulmarError} `OUT_OF_RANGE`, with the reason, if they are not allowed now. */
  trySample(count: number): void {
    this.#count('sample', count)
    this.#wake()
  }

  /** Counts inserts. @throws {FulmarError} `OUT_OF_RANGE`, with the reason, if they are not allowed now. */
  tryInsert(count: number): void {
    this.#count('insert', count)
    this.#wake()
  }

  /** Counts deletes. @throws {FulmarError} `OUT_OF_RANGE` if there are fewer items. */
  delete(count: number): void {
    this.#native.call((limiter) => limiter.remove(count))
    this.#wake()
  }

  /**
   * Waits until samples are allowed, first come, first served, and counts them.
   * @throws {FulmarError} `TIMEOUT` with the reason, or `ABORTED`.
   */
  sample(count: number, options: WaitOptions = {}): Promise<void> {
    checkKnownKeys('options', options, ['timeoutMs', 'signal'])
    return this.#wait('sample', count, options)
  }

  /** Counts inserts, once they are allowed. @throws {FulmarError} As {@link RateLimiter.sample}. */
  insert(count: number, options: WaitOptions = {}): Promise<void> {
    checkKnownKeys('options', options, ['timeoutMs', 'signal'])
    return this.#wait('insert', count, options)
  }

  #wait(what: 'sample' | 'insert', count: number, { timeoutMs, signal }: WaitOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      let reason = ''
      let timer: ReturnType<typeof setTimeout> | undefined
      const end = (settle: () => void) => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter)
        clearTimeout(timer)
        signal?.removeEventListener('abort', abort)
        settle()
        return true
      }
      const waiter: Waiter = {
        tryNow: () => {
          try {
            this.#count(what, count)
          } catch (error) {
            if (!(error instanceof FulmarError) || error.code !== 'OUT_OF_RANGE')
              return end(() => reject(error))
            reason = error.message
            return false
          }
          return end(resolve)
        },
      }
      const abort = () => {
        end(() => reject(new FulmarError('ABORTED', `${what} must not be aborted: got a signal; ${reason}`)))
      }
      if (signal?.aborted) return abort()
      if (waiter.tryNow()) {
        this.#wake()
        return
      }
      this.#waiting.push(waiter)
      signal?.addEventListener('abort', abort)
      if (timeoutMs !== undefined) {
        const late = () =>
          new FulmarError('TIMEOUT', `${what} must be allowed within ${timeoutMs} ms: ${reason}`)
        timer = setTimeout(() => end(() => reject(late())), timeoutMs)
      }
    })
  }

  #count(what: 'sample' | 'insert', count: number): void {
    this.#native.call((limiter) => limiter[what](count))
  }

  /** Resumes the waiting calls that are allowed now, oldest first; each may allow others. */
  #wake(): void {
    while (this.#waiting.some((waiter) => waiter.tryNow()));
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}
