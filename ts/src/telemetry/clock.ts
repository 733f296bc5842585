/** Time as an argument: whoever measures or waits is given a {@link Clock}, so no test has to sleep. */

/** A clock with timers. */
export interface Clock {
  /** Milliseconds since some fixed moment; never goes back. */
  nowMs(): number
  /** Calls `onDue` once, `delayMs` from now, unless the returned function was called before. */
  startTimer(delayMs: number, onDue: () => void): () => void
}

/** The longest delay that timers of JavaScript can express; longer ones would fire at once. */
export const TIMER_DELAY_MS_MAX = 2_147_483_647

/**
 * The machine's monotonic clock.
 *
 * @example
 * ```ts
 * import { systemClock } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const startMs = systemClock.nowMs()
 * assert.ok(systemClock.nowMs() >= startMs)
 * ```
 */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  startTimer: (delayMs, onDue) => {
    const timer = setTimeout(onDue, Math.min(delayMs, TIMER_DELAY_MS_MAX))
    return () => clearTimeout(timer)
  },
}

/**
 * A clock that moves only on request, for tests and replays.
 *
 * @example
 * ```ts
 * import { ManualClock } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * const clock = new ManualClock()
 * let rang = false
 * clock.startTimer(100, () => { rang = true })
 * clock.advance(99)
 * assert.equal(rang, false)
 * clock.advance(1)
 * assert.equal(rang, true)
 * ```
 */
export class ManualClock implements Clock {
  #nowMs = 0
  readonly #timers = new Map<symbol, { readonly dueMs: number; readonly onDue: () => void }>()

  nowMs(): number {
    return this.#nowMs
  }

  startTimer(delayMs: number, onDue: () => void): () => void {
    const key = Symbol('timer')
    this.#timers.set(key, { dueMs: this.#nowMs + delayMs, onDue })
    return () => this.#timers.delete(key)
  }

  /** Number of waiting timers. */
  get numTimers(): number {
    return this.#timers.size
  }

  /** Moves time forward and rings every timer that falls due, the earliest first. */
  advance(byMs: number): void {
    this.#nowMs += byMs
    const due = [...this.#timers].filter(([, { dueMs }]) => dueMs <= this.#nowMs)
    due.sort(([, a], [, b]) => a.dueMs - b.dueMs)
    for (const [key, { onDue }] of due) {
      if (this.#timers.delete(key)) onDue()
    }
  }
}
