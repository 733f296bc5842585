/** Memory that batches are drawn into. */

import { Handle } from '../core/index.js'
import { type RawReplayBatch, raw } from '../native/index.js'
import { dictAround, type TensorDict } from '../tensor/tensor-dict.js'

/**
 * Memory that batches are drawn into again and again.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { BatchMemory, LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), seed: 1 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([7]) }, { batchSize: [1] }))
 * using memory = new BatchMemory()
 * for (let step = 0; step < 3; step++) {
 *   using batch = buffer.sampleInto(memory, 2)
 *   using id = batch.tensor('id')
 *   assert.deepEqual(id.data, Float32Array.of(7, 7))
 * }
 * ```
 */
export class BatchMemory {
  readonly #native = new Handle<RawReplayBatch>('BatchMemory', () => raw.ReplayBatch.empty())

  /** @internal */
  filled(fill: (memory: RawReplayBatch) => void): TensorDict {
    return dictAround(() =>
      this.#native.call((memory) => {
        fill(memory)
        return memory.items()
      }),
    )
  }

  /** Gives the native memory back; dictionaries taken from it live on. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}
