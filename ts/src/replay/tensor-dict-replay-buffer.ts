/** Buffers whose batches contain their rows and the columns of the sampler. */

import { checkKnownKeys } from '../core/index.js'
import { pathOf, type TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'
import { ReplayBuffer } from './replay-buffer.js'
import type { ReplayBufferOptions } from './replay-buffer-options.js'
import { type AttachOptions, attachBuffer, type ReplayBufferToken } from './replay-buffer-token.js'

/** Options of {@link TensorDictReplayBuffer}. */
export interface TensorDictReplayBufferOptions extends ReplayBufferOptions {
  /** Key of the priority of an item. @default 'td_error' */
  readonly priorityKey?: TensorKey
  /** Reduction of the values there to one priority. @default 'max' */
  readonly reduction?: 'max' | 'min' | 'mean' | 'median' | 'sum'
}

/**
 * A buffer whose batches contain their rows at `index` and the columns of the sampler. Priorities are read from the items that are
 * written.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ alpha: 1 })
 * const buffer = new TensorDictReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * buffer.extend(TensorDict.from({ td_error: Tensor.from([0, 4]) }, { batchSize: [2] }))
 * const batch = buffer.sample(3)
 * assert.deepEqual(batch.tensor('index').data, BigInt64Array.of(1n, 1n, 1n))
 * batch.set('td_error', Tensor.from([0.5, 0.25, 0.5]))
 * buffer.updateTensorDictPriority(batch)
 * ```
 */
export class TensorDictReplayBuffer extends ReplayBuffer {
  /** @internal */
  static override readonly kind: string | undefined = 'TensorDictReplayBuffer'
  constructor(options: TensorDictReplayBufferOptions = {}) {
    const { priorityKey, reduction, ...rest } = options
    super(rest, {
      writeInfo: true,
      ...(priorityKey && { priorityKey: pathOf(priorityKey) }),
      ...(reduction && { reduction }),
    })
  }

  static override attach(token: ReplayBufferToken, options: AttachOptions = {}): TensorDictReplayBuffer {
    return attachBuffer(TensorDictReplayBuffer, token, options)
  }

  /** Writes items, and priorities from them only if `updatePriority`; their rows. @throws {FulmarError} As {@link ReplayBuffer.extend}. */
  extendWith(items: TensorDict, options: { updatePriority: boolean }): number[] {
    checkKnownKeys('options', options, ['updatePriority'])
    return this.writeThrough(items, options.updatePriority)
  }

  /**
   * Sets the priorities that a batch holds, of the rows at its `index`; of the steps of a window those that are valid, by
   * their anchor, the largest.
   * @throws {FulmarError} `UNKNOWN_NAME` if it has no `index` or no priority; those of {@link ReplayBuffer.updatePriority}.
   */
  updateTensorDictPriority(batch: TensorDict): void {
    this.callNative((buffer) => withRawDict(batch, (dict) => buffer.updateTensorDictPriority(dict)))
  }
}
