/** Ends calls of a policy early. */

import type { CallContext } from '../async/index.js'

/**
 * A switch that stops all calls that are added to it. Cheaper than `AbortSignal.any`, of which each request would need two:
 * nearly no call is ever stopped.
 */
export class CallStop {
  readonly #calls = new Set<CallContext>()
  #isAborted = false

  /** True once `abort` was called. */
  get isAborted(): boolean {
    return this.#isAborted
  }

  /** Adds a call that runs, and stops it at once if others were; returns a function that removes it. */
  add(call: CallContext): () => void {
    if (this.#isAborted) call.abort(undefined)
    this.#calls.add(call)
    return () => {
      this.#calls.delete(call)
    }
  }

  /** Fires the signals of all calls, now and later. */
  abort(): void {
    this.#isAborted = true
    for (const call of this.#calls) call.abort(undefined)
  }
}
