/** Shared lifetime of the parts of a run: the first failure ends all of them. */

import { aborted, onAbort } from '../async/index.js'
import { FulmarError } from '../core/index.js'

/** Ends on request, when a part fails, or when its parent signal fires. */
export class RunScope {
  readonly #controller = new AbortController()
  readonly #waiting = new Set<(error: unknown) => void>()
  #failure: { readonly error: unknown } | undefined
  #stopFollowing: () => void = () => {}

  /** Fires at the end. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get hasEnded(): boolean {
    return this.#controller.signal.aborted
  }

  /** Fails with `ABORTED` when `signal` fires. */
  follow(signal: AbortSignal | undefined): void {
    if (signal?.aborted) this.fail(aborted(signal))
    else this.#stopFollowing = onAbort(signal, () => this.fail(aborted(signal)))
  }

  /** Ends with an error; the first one counts. */
  fail(error: unknown): void {
    this.#failure ??= { error }
    this.end()
    for (const reject of this.#waiting) reject(this.#failure.error)
  }

  end(): void {
    this.#stopFollowing()
    if (!this.hasEnded)
      this.#controller.abort(new FulmarError('ABORTED', 'run must not have ended: it was stopped'))
  }

  /** Returns the result of `promise`, unless the scope fails first. Holds no reference afterwards. */
  async guard<T>(promise: Promise<T>): Promise<T> {
    let reject: (error: unknown) => void = () => {}
    const failed = new Promise<never>((_, fail) => {
      reject = fail
      if (this.#failure) fail(this.#failure.error)
    })
    this.#waiting.add(reject)
    try {
      return await Promise.race([failed, promise])
    } finally {
      this.#waiting.delete(reject)
    }
  }
}
