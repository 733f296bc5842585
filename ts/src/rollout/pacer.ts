/** Keeps the event loop responsive if thousands of rollouts are ready at the same time. */

import { yieldToEventLoop } from '../core/index.js'

/** Number of turns between two checks of timers and sockets; a turn takes less than a tenth of a millisecond. */
const TURNS_PER_TICK = 32

/** Admits a few turns in each round of the event loop, in the order of arrival. */
export class Pacer {
  readonly #waiting: (() => void)[] = []
  #numPassed = 0
  #isTicking = false

  /** Resolves when the turn may run: at once, unless many are waiting. */
  pass(): Promise<void> | undefined {
    if (!this.#isTicking) void this.#tick()
    if (this.#numPassed < TURNS_PER_TICK) {
      this.#numPassed += 1
      return undefined
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** Admits waiting turns round by round until the queue is empty. */
  async #tick(): Promise<void> {
    this.#isTicking = true
    do {
      await yieldToEventLoop()
      const released = this.#waiting.splice(0, TURNS_PER_TICK)
      this.#numPassed = released.length
      for (const resolve of released) resolve()
    } while (this.#waiting.length > 0)
    this.#isTicking = false
    this.#numPassed = 0
  }
}
