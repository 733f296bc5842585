/** A bound on how many requests are in flight, and a line before it. */

import { FulmarError } from '../core/index.js'

/** Most requests that wait in line. */
export const GATE_QUEUE_LENGTH_MAX = 262_144

/** A place in line, or past it. Leave it in either case. */
export interface Ticket {
  /** Resolves when it is this one's turn; `undefined` where it is at once. */
  readonly ready: Promise<void> | undefined
  /** Gives the place to the next. A second call does nothing. */
  leave(): void
}

/** `count` places; whoever finds none waits, first come, first served. */
export class Gate {
  #numFree: number
  /** Who waits, in order: a set forgets one in the middle at once. */
  readonly #line = new Set<() => void>()

  constructor(count: number) {
    this.#numFree = count
  }

  /** @throws {FulmarError} `LIMIT_EXCEEDED` if too many wait. */
  enter(): Ticket {
    let holds = this.#numFree > 0
    if (!holds && this.#line.size >= GATE_QUEUE_LENGTH_MAX) {
      const rule = `requests that wait must be at most ${GATE_QUEUE_LENGTH_MAX}`
      throw new FulmarError('LIMIT_EXCEEDED', `${rule}: there are more`)
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
