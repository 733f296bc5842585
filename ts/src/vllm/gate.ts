/** Limits the number of requests in flight; others wait in a queue. */

import { FulmarError } from '../core/index.js'

/** Maximum number of waiting requests. */
export const GATE_QUEUE_LENGTH_MAX = 262_144

/** Position in the queue, or past it. Leave it in either case. */
export interface Ticket {
  /** Resolves when the request may start; `undefined` if it may start at once. */
  readonly ready: Promise<void> | undefined
  /** Starts the next request. A second call does nothing. */
  leave(): void
}

/** A semaphore of `count` permits, first come, first served. */
export class Gate {
  #numFree: number
  /** Waiting requests in order: a set removes one in the middle in O(1). */
  readonly #line = new Set<() => void>()

  constructor(count: number) {
    this.#numFree = count
  }

  /** @throws {FulmarError} `LIMIT_EXCEEDED` if too many wait. */
  enter(): Ticket {
    let holds = this.#numFree > 0
    if (!holds && this.#line.size >= GATE_QUEUE_LENGTH_MAX) {
      const rule = `the queue must have at most ${GATE_QUEUE_LENGTH_MAX} waiting requests`
      throw new FulmarError('LIMIT_EXCEEDED', `${rule}: it is full`)
    }
    let wake = () => {}
    let ready: Promise<void> | undefined
    if (holds) this.#numFree -= 1
    else {
      ready = new Promise((resolve) => {
        wake = () => {
          holds = true
          resolve()
        }
      })
      this.#line.add(wake)
    }
    const leave = () => {
      if (holds) this.#pass()
      else this.#line.delete(wake)
      holds = false
    }
    return { ready, leave }
  }

  #pass(): void {
    const [next] = this.#line
    if (next === undefined) {
      this.#numFree += 1
      return
    }
    this.#line.delete(next)
    next()
  }
}
