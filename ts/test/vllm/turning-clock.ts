/** Time for tests against servers that really answer. */

import { type Clock, ManualClock } from '../../src/telemetry/index.js'

/** A clock that moves on a millisecond each time the event loop comes round: pauses and deadlines take no time. */
export class TurningClock implements Clock {
  readonly #clock = new ManualClock()
  #turns = false

  nowMs(): number {
    return this.#clock.nowMs()
  }

  startTimer(delayMs: number, onDue: () => void): () => void {
    const stop = this.#clock.startTimer(delayMs, onDue)
    if (!this.#turns) {
      this.#turns = true
      setImmediate(() => this.#turn())
    }
    return stop
  }

  #turn(): void {
    this.#clock.advance(1)
    this.#turns = this.#clock.numTimers > 0
    if (this.#turns) setImmediate(() => this.#turn())
  }
}
