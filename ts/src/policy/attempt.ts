/** One try under a deadline that can be stopped, told apart from a try that fails. */

import type { Clock } from '../telemetry/index.js'

/** How a try ended. */
export type AttemptResult<T> =
  | { readonly kind: 'value'; readonly value: T }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'timeout' }
  | { readonly kind: 'aborted' }

/** What {@link attempt} runs, and how long it may take. */
export interface AttemptOptions<T> {
  readonly clock: Clock
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
  /** Its signal fires when nobody waits any more. */
  readonly run: (signal: AbortSignal) => Promise<T>
}

/** Ends with what `run` does, at the deadline or as soon as the signal fires, whether `run` heeds its signal or not. */
export function attempt<T>({ clock, timeoutMs, signal, run }: AttemptOptions<T>): Promise<AttemptResult<T>> {
  if (signal?.aborted) return Promise.resolve({ kind: 'aborted' })
  return new Promise((resolve) => {
    const controller = new AbortController()
    const finish = (result: AttemptResult<T>) => {
      stopTimer()
      stopListening()
      resolve(result)
    }
    const drop = (kind: 'timeout' | 'aborted') => {
      finish({ kind })
      controller.abort()
    }
    const stopTimer = clock.startTimer(timeoutMs, () => drop('timeout'))
    const stopListening = onAbort(signal, () => drop('aborted'))
    run(controller.signal).then(
      (value) => finish({ kind: 'value', value }),
      (error: unknown) => finish({ kind: 'failed', error }),
    )
  })
}

/** Who waits for a signal: one listener serves them all, or many requests of one run would look like a leak to Node. */
const WAITING = new WeakMap<AbortSignal, Set<() => void>>()

/** Calls `body` when `signal` fires, unless the returned function was called before. */
export function onAbort(signal: AbortSignal | undefined, body: () => void): () => void {
  if (signal === undefined) return () => {}
  const waiting = WAITING.get(signal) ?? new Set()
  if (!WAITING.has(signal)) {
    WAITING.set(signal, waiting)
    const ring = () => {
      for (const wake of [...waiting]) wake()
    }
    signal.addEventListener('abort', ring, { once: true })
  }
  waiting.add(body)
  return () => waiting.delete(body)
}
