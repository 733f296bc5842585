/** Time for transfers: a pause is over at the next turn of the event loop, and what was waited for is noted. */

import type { Clock } from '../../src/telemetry/index.js'

/** Delays from here on are time limits, which never end. */
export const LIMIT_MS = 400_000

/** A clock that shortens pauses and notes them. */
export class DueClock implements Clock {
  /** Pauses in milliseconds, in the order in which they began. */
  readonly pauses: number[] = []

  nowMs(): number {
    return performance.now()
  }

  startTimer(delayMs: number, onDue: () => void): () => void {
    if (delayMs >= LIMIT_MS) return () => {}
    this.pauses.push(delayMs)
    const timer = setImmediate(onDue)
    return () => clearImmediate(timer)
  }
}
