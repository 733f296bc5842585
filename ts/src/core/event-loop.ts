/** Letting the event loop run between two pieces of work. */

/**
 * Resolves once timers and input that wait now had their turn. Costs microseconds where `setImmediate` exists, else
 * a timer of 0 ms.
 */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve)
    else setTimeout(resolve, 0)
  })
}
