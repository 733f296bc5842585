/** Several fetches at once, which stop together. */

import { aborted, onAbort, type Slots } from '../async/index.js'
import type { Transfer } from './transfer.js'

/**
 * Runs `one` for each item, as many at once as there are slots. The first failure stops the others.
 * @throws {FulmarError} The first failure; `ABORTED` if the signal of `transfer` fires.
 */
export async function together<T>(
  transfer: Transfer,
  slots: Slots,
  items: readonly T[],
  one: (item: T, transfer: Transfer) => Promise<void>,
): Promise<void> {
  const stopping = new AbortController()
  const stopListening = onAbort(transfer.signal, () => stopping.abort(transfer.signal?.reason))
  const failures: unknown[] = []
  const bounded = { ...transfer, signal: stopping.signal }
  const run = async (item: T) => {
    if (stopping.signal.aborted || transfer.signal?.aborted) return
    try {
      await one(item, bounded)
    } catch (failure) {
      failures.push(failure)
      stopping.abort(failure)
    }
  }
  try {
    await Promise.all(items.map((item) => slots.run(() => run(item))))
  } finally {
    stopListening()
  }
  if (transfer.signal?.aborted) throw aborted(transfer.signal)
  if (failures.length > 0) throw failures[0]
}
