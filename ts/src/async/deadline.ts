/** Bounded waiting: calls with a deadline and a signal, whose timeout or abort differs from an error that they throw. */

import { FulmarError } from '../core/index.js'
import type { Clock } from '../telemetry/index.js'
import { Deadlines } from './deadlines.js'

/** Options of {@link withDeadline}. */
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

/** Context of a bounded call. Its signal is created on first access: most calls never use it. */
export class CallContext {
  #controller: AbortController | undefined
  #aborted: { readonly reason: unknown } | undefined

  /** Fires at the deadline, and when the wait is stopped from outside. */
  get signal(): AbortSignal {
    if (this.#controller === undefined && this.#aborted) return AbortSignal.abort(this.#aborted.reason)
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }

  /** Fires the signal, now or on its first access. */
  abort(reason: unknown): void {
    this.#aborted = { reason }
    this.#controller?.abort(reason)
  }
}

/** Outcome of a bounded call: a value, an error, or a timeout. */
export type DeadlineResult<T> =
  | { readonly kind: 'value'; readonly value: T }
  | { readonly kind: 'thrown'; readonly error: unknown }
  | { readonly kind: 'timeout' }

/** Outcome of a call that may have been aborted, too. */
export type BoundedResult<T> = DeadlineResult<T> | { readonly kind: 'aborted' }

/**
 * Runs a call under a deadline. A `TimeoutError` of the call's own is `thrown`, never `timeout`.
 * @throws {FulmarError} `ABORTED` as soon as `signal` fires.
 */
export async function withDeadline<T>(options: DeadlineOptions<T>): Promise<DeadlineResult<T>> {
  return unlessAborted(await bounded(options), options.signal)
}

/** An abort as an exception after all. @throws {FulmarError} `ABORTED` if it was one. */
export function unlessAborted<T>(
  result: BoundedResult<T>,
  signal: AbortSignal | undefined,
): DeadlineResult<T> {
  if (result.kind === 'aborted') throw aborted(signal)
  return result
}

/**
 * As {@link withDeadline}, with an abort as data: thousands of rollouts that stop at once spend most of the time on their exceptions. A
 * call that answers without a promise has ended before there is anything to wait for, so it needs no timer, and none here.
 */
export function bounded<T>({
  clock,
  timeoutMs,
  signal,
  run,
}: DeadlineOptions<T>): BoundedResult<T> | Promise<BoundedResult<T>> {
  if (signal?.aborted) return ABORTED
  const context = new CallContext()
  let answer: T | Promise<T>
  try {
    answer = run(context)
  } catch (error) {
    return signal?.aborted ? ABORTED : { kind: 'thrown', error }
  }
  if (!isThenable(answer)) return signal?.aborted ? ABORTED : { kind: 'value', value: answer }
  const promise = answer
  return new Promise((resolve) => {
    const stopTimer =
      timeoutMs === null ? undefined : Deadlines.of(clock).start(timeoutMs, () => finish({ kind: 'timeout' }))
    const abort = () => {
      stopTimer?.()
      context.abort(signal?.reason)
      resolve(ABORTED)
    }
    const stopListening = onAbort(signal, abort)
    const finish = (result: DeadlineResult<T>) => {
      stopTimer?.()
      stopListening()
      if (result.kind === 'timeout')
        context.abort(new FulmarError('TIMEOUT', 'call must end in time: it did not'))
      resolve(result)
    }
    promise.then(
      (value) => finish({ kind: 'value', value }),
      (error: unknown) => finish({ kind: 'thrown', error }),
    )
    if (signal?.aborted) abort()
  })
}

const ABORTED = { kind: 'aborted' } as const

function isThenable<T>(answer: T | Promise<T>): answer is Promise<T> {
  return typeof (answer as { readonly then?: unknown } | null | undefined)?.then === 'function'
}

/** The error that a call rejects with that `signal` stopped: one for all of them, as there may be thousands. */
export function aborted(signal: AbortSignal | undefined): FulmarError {
  const known = signal && ABORT_ERRORS.get(signal)
  if (known) return known
  const message = 'signal must not fire during the call: it did'
  const error = new FulmarError('ABORTED', message, { cause: signal?.reason })
  if (signal) ABORT_ERRORS.set(signal, error)
  return error
}

const ABORT_ERRORS = new WeakMap<AbortSignal, FulmarError>()

/** Waiting calls of a signal, which share one listener: Node reports many listeners as a leak. */
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
