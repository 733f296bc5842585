/** Deadline of a whole rollout. */

import { Deadlines, onAbort } from '../async/index.js'
import type { Clock } from '../telemetry/index.js'

/** Combines the signal of the caller with the deadline of a rollout, if any. */
export class RolloutLimit {
  readonly signal: AbortSignal | undefined
  readonly hasExpired: () => boolean
  readonly #stop: () => void

  constructor(clock: Clock, timeoutMs: number | null, outer: AbortSignal | undefined) {
    if (timeoutMs === null) {
      this.signal = outer
      this.hasExpired = () => false
      this.#stop = () => {}
      return
    }
    const own = new AbortController()
    let hasExpired = false
    const stopTimer = Deadlines.of(clock).start(timeoutMs, () => {
      hasExpired = !own.signal.aborted
      own.abort()
    })
    const stopListening = onAbort(outer, () => own.abort(outer?.reason))
    this.signal = own.signal
    this.hasExpired = () => hasExpired
    this.#stop = () => {
      stopTimer()
      stopListening()
    }
  }

  [Symbol.dispose](): void {
    this.#stop()
  }
}
