/** Waits for several promises and disposes their values if one fails. */

/**
 * Returns all values; or, once every promise has settled, throws the first failure and disposes the values.
 */
export async function allOrNone<T>(
  promises: readonly Promise<T>[],
  dispose: (value: T) => void,
): Promise<T[]> {
  const settled = await Promise.allSettled(promises)
  const failed = settled.find((result) => result.status === 'rejected')
  const values = settled.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  if (failed === undefined) return values
  values.forEach(dispose)
  throw failed.reason
}

/** Outcome of a body, as data. */
export type Settled<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: unknown }

/** Runs `body` and returns its outcome. */
export async function settle<T>(body: () => Promise<T>): Promise<Settled<T>> {
  try {
    return { ok: true, value: await body() }
  } catch (error) {
    return { ok: false, error }
  }
}
