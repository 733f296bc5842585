/** Yields to the event loop between two pieces of work. */

/**
 * Resolves after the timers and the input that are due now were handled. Costs microseconds where
 * `setImmediate` exists, else a timer of 0 ms.
 */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else setTimeout(resolve, 0)
  })
}
