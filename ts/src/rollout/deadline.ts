/** Bounded waiting: a call that has a deadline and can be stopped, told apart from a call that throws. */

import { FulmarError } from '../core/index.js'
import type { Clock } from '../telemetry/index.js'

/** What {@link withDeadline} runs, and how long it may take. */
export interface DeadlineOptions<T> {
  /** Measures the time. */
  readonly clock: Clock
  /** `null` waits for ever. */
  readonly timeoutMs: number | null
  /** Stops the wait from outside. */
  readonly signal: AbortSignal | undefined
  /** The call. */
  readonly run: (context: CallContext) => T | Promise<T>
}

/** What a bounded call is given. Its signal is made when it is first looked at: most calls never do. */
export class CallContext {
  #controller: AbortController | undefined
  #aborted: { readonly reason: unknown } | undefined

  /** Fires at the deadline, and when the wait is stopped from outside. */
  get signal(): AbortSignal {
    if (this.#controller === undefined && this.#aborted) return AbortSignal.abort(this.#aborted.reason)
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }

  /** Fires the signal, now or as soon as somebody looks at it. */
  abort(reason: unknown): void {
    this.#aborted = { reason }
    this.#controller?.abort(reason)
  }
}

/** How a bounded call ended: with a value, with what it threw, or because its time was over. */
export type DeadlineResult<T> =
  | { readonly kind: 'value'; readonly value: T }
  | { readonly kind: 'thrown'; readonly error: unknown }
  | { readonly kind: 'timeout' }

/**
 * Runs a call under a deadline. A `TimeoutError` of the call's own is `thrown`, never `timeout`.
 * @throws {FulmarError} `ABORTED` as soon as `signal` fires.
 */
export function withDeadline<T>({
  clock,
  timeoutMs,
  signal,
  run,
}: DeadlineOptions<T>): Promise<DeadlineResult<T>> {
  if (signal?.aborted) return Promise.reject(aborted(signal))
  return new Promise((resolve, reject) => {
    const context = new CallContext()
    const stopTimer =
      timeoutMs === null ? () => {} : clock.startTimer(timeoutMs, () => finish({ kind: 'timeout' }))
    const stopListening = onAbort(signal, () => {
      stopTimer()
      context.abort(signal?.reason)
      reject(aborted(signal))
    })
    const finish = (result: DeadlineResult<T>) => {
      stopTimer()
      stopListening()
      if (result.kind === 'timeout')
        context.abort(new FulmarError('TIMEOUT', 'call must end in time: got none'))
      resolve(result)
    }
    startCall(() => run(context)).then(
      (value) => finish({ kind: 'value', value }),
      (error: unknown) => finish({ kind: 'thrown', error }),
    )
  })
}

/** The error that a call rejects with that `signal` stopped: one for all of them, as there may be thousands. */
export function aborted(signal: AbortSignal | undefined): FulmarError {
  const known = signal && ABORTED.get(signal)
  if (known) return known
  const message = 'signal must not fire during the call: got an abort'
  const error = new FulmarError('ABORTED', message, { cause: signal?.reason })
  if (signal) ABORTED.set(signal, error)
  return error
}

const ABORTED = new WeakMap<AbortSignal, FulmarError>()

/** Who waits for a signal: one listener serves them all, or a run of many rollouts would look like a leak to Node. */
const WAITING = new WeakMap<AbortSignal, Set<() => void>>()

/** Calls `body` when `signal` fires, unless the returned function was called before. */
export function onAbort(signal: AbortSignal | undefined, body: () => void): () => void {
  if (signal === undefined) return () => {}
  const waiting = WAITING.get(signal) ?? listen(signal)
  waiting.add(body)
  return () => {
    waiting.delete(body)
  }
}

function listen(signal: AbortSignal): Set<() => void> {
  const waiting = new Set<() => void>()
  WAITING.set(signal, waiting)
  signal.addEventListener('abort', () => [...waiting].forEach((body) => void body()), { once: true })
  return waiting
}

/** A synchronous throw becomes a rejection. */
async function startCall<T>(run: () => T | Promise<T>): Promise<T> {
  return await run()
}
