/** Batches of a buffer that are drawn ahead and copied off the event loop. */

import { call, callAsync, checkKnownKeys, FulmarError, type Handle } from '../core/index.js'
import { type RawPendingBatch, type RawReplayBatch, type RawReplayBuffer, raw } from '../native/index.js'
import type { TensorDict } from '../tensor/tensor-dict.js'
import type { ReplayBuffer } from './replay-buffer.js'
import { isSourceStorage, type Storage } from './storage.js'

/** Options of {@link ReplayBuffer.batches}. */
export interface BatchesOptions {
  /** Ends the iteration with `ABORTED`, between batches; those drawn ahead are left for the next. */
  readonly signal?: AbortSignal
}

/** Yields the batches of {@link ReplayBuffer.batches}; `transformed` makes a drawn one into its items. */
export async function* batchesAhead<T>(
  buffer: Handle<RawReplayBuffer>,
  storage: Storage,
  transformed: (batch: RawReplayBatch) => TensorDict,
  options: BatchesOptions & { readonly collate?: (batch: TensorDict) => T },
): AsyncGenerator<T | TensorDict, void, undefined> {
  checkKnownKeys('options', options, ['signal', 'collate'])
  const { signal, collate } = options
  let isLast = false
  while (!isLast) {
    if (signal?.aborted) {
      throw new FulmarError('ABORTED', 'signal must not fire during the iteration: got an abort', {
        cause: signal.reason,
      })
    }
    const pending = buffer.call((native) => native.nextBatch())
    try {
      if (!isSourceStorage(storage)) await copied(buffer, pending)
      isLast = pending.isLast()
      const items = transformed(call(() => pending.batch()))
      yield collate ? collate(items) : items
    } finally {
      pending.free()
    }
  }
}

/** Has the batch copied, and those drawn ahead, by threads that have nothing else to do where there are some. */
async function copied(buffer: Handle<RawReplayBuffer>, pending: RawPendingBatch): Promise<void> {
  const { copyAhead, copyBatch } = raw
  if (!copyAhead || !copyBatch) return
  // The caller of a batch gets the error.
  void buffer.callAsync((native) => copyAhead(native)).catch(() => {})
  if (!call(() => pending.isReady())) await callAsync(() => copyBatch(pending))
}
