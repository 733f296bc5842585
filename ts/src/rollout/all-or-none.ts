/** Waiting for many things, of which none may be lost. */

/** All values; or, once every promise has settled, the first failure, with the values disposed. */
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

/** How a body ended, as data. */
export type Settled<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: unknown }

/** Runs `body` and gives back how it ended. */
export async function settle<T>(body: () => Promise<T>): Promise<Settled<T>> {
  try {
    return { ok: true, value: await body() }
  } catch (error) {
    return { ok: false, error }
  }
}
