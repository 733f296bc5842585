/** One ragged row for each trajectory of a ring, each one's observations once. */

import type { TensorDict } from '../tensor/index.js'
import { converted, keysJson, type RingPosition, ringJson, type TEDOptions } from './keys.js'

/**
 * The nested form of steps: that of {@link TED2Flat} with a ragged row for each trajectory, and for the unwritten steps of each lane;
 * the batch size is their number.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Nested2TED, TED2Nested } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from({ observation: Tensor.from([0, 7, 8]) }, { batchSize: [3] })
 *   .set(['next', 'observation'], Tensor.from([1, 8, 9]))
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(1, 0, 0), { dtype: 'bool' }))
 * const nested = new TED2Nested().forward(steps) // a full ring that begins anew
 * assert.deepEqual(nested.batchSize, [2])
 * assert.deepEqual(nested.ragged('observation').row(1).data, Float32Array.of(7, 8, 9))
 * assert.deepEqual(new Nested2TED().forward(nested).tensor('observation').data, Float32Array.of(0, 7, 8))
 * ```
 */
export class TED2Nested {
  readonly #keys: string

  /** @throws {FulmarError} As the constructor of {@link TED2Flat}. */
  constructor(options: TEDOptions = {}) {
    this.#keys = keysJson(options)
  }

  /** Copies. @throws {FulmarError} The errors of {@link TED2Flat.forward}. */
  forward(steps: TensorDict, ring: RingPosition = {}): TensorDict {
    return converted(this.#keys, steps, (keys, dict) => keys.nested(dict, ringJson(ring)))
  }
}

/**
 * Restores the steps of a nested form, each at its position in the ring; zeros where none was written.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Nested2TED, TED2Nested } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from({ action: Tensor.from([5, 6, 0]) }, { batchSize: [3] })
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(1, 0, 0), { dtype: 'bool' }))
 * const nested = new TED2Nested().forward(steps, { shift: 2, isFull: false }) // two of three are written
 * assert.deepEqual(nested.ragged('action').offsets, Uint32Array.of(0, 1, 2, 3))
 * assert.deepEqual(new Nested2TED().forward(nested).tensor('action').data, Float32Array.of(5, 6, 0))
 * ```
 */
export class Nested2TED {
  readonly #keys: string

  /** @throws {FulmarError} As the constructor of {@link TED2Flat}. */
  constructor(options: TEDOptions = {}) {
    this.#keys = keysJson(options)
  }

  /**
   * Copies.
   * @throws {FulmarError} The errors of {@link Flat2TED.forward}; `INCOMPATIBLE`, with the key, if an entry is not ragged; `SHAPE_MISMATCH`
   *   if its rows are not the trajectories that `doneKey` ends.
   */
  forward(nested: TensorDict): TensorDict {
    return converted(this.#keys, nested, (keys, dict) => keys.stepsOfNested(dict))
  }
}
