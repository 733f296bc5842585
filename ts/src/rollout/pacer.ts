/** Keeps the event loop free while thousands of rollouts have something to do at the same moment. */

import { yieldToEventLoop } from '../core/index.js'

/** Turns that are computed between two looks at timers and sockets; one takes a tenth of a millisecond. */
const TURNS_PER_TICK = 16

/** Lets a few turns pass in each round of the event loop, the others in the next ones, in the order in which they came. */
export class Pacer {
  readonly #waiting: (() => void)[] = []
  #numPassed = 0
  #isTicking = false

  /** Resolves when it is this turn's time: at once, unless many came before it. */
  pass(): Promise<void> | undefined {
    if (!this.#isTicking) void this.#tick()
    if (this.#numPassed < TURNS_PER_TICK) {
      this.#numPassed += 1
      return undefined
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** One round after another, as long as somebody waits. */
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
