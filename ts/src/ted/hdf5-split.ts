/** The nested form with a dictionary for each trajectory, as HDF5 files hold it. */

import type { TensorDict } from '../tensor/index.js'
import { converted, keysJson, type TEDOptions } from './keys.js'

/** Options of {@link H5Split} and {@link H5Combine}. */
export type H5Options = Pick<TEDOptions, 'shiftKey' | 'isFullKey'>

const H5_KEYS = ['shiftKey', 'isFullKey']

/**
 * A nested form with one dictionary a trajectory, `traj_0` and so on with as many digits as the last, and tensors in place of JSON
 * values: what {@link writeHdf5} can write.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { H5Combine, H5Split, readHdf5, TED2Nested, writeHdf5 } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from({ action: Tensor.from([4, 5]) }, { batchSize: [2] })
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(1, 1), { dtype: 'bool' }))
 * const nested = new TED2Nested().forward(steps)
 * const split = new H5Split().forward(nested)
 * assert.deepEqual(split.tensor(['traj_1', 'action']).data, Float32Array.of(5))
 * assert.ok(new H5Combine().forward(readHdf5(writeHdf5(split))).equals(nested))
 * ```
 */
export class H5Split {
  readonly #keys: string

  /** @throws {FulmarError} As the constructor of {@link TED2Flat}. */
  constructor(options: H5Options = {}) {
    this.#keys = keysJson(options, H5_KEYS)
  }

  /**
   * Shares the elements.
   * @throws {FulmarError} `MALFORMED` or `UNKNOWN_NAME` if the dictionary lacks the position of its ring; `INCOMPATIBLE`, with the
   *   key, if an entry is not ragged.
   */
  forward(nested: TensorDict): TensorDict {
    return converted(this.#keys, nested, (keys, dict) => keys.split(dict))
  }
}

/**
 * The nested form of the trajectories that {@link H5Split} made, in the order of their numbers.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { H5Combine } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const int = (...values: number[]) => Tensor.from(values, { dtype: 'i64' })
 * const split = TensorDict.from({ _storage_shape: int(3), shift: int(0).select(0, 0) })
 *   .set('is_full', Tensor.from(Uint8Array.of(1), { shape: [], dtype: 'bool' }))
 *   .set(['traj_0', 'action'], int(4, 5))
 *   .set(['traj_1', 'action'], int(6))
 * assert.deepEqual(new H5Combine().forward(split).ragged('action').offsets, Uint32Array.of(0, 2, 3))
 * ```
 */
export class H5Combine {
  readonly #keys: string

  /** @throws {FulmarError} As the constructor of {@link TED2Flat}. */
  constructor(options: H5Options = {}) {
    this.#keys = keysJson(options, H5_KEYS)
  }

  /**
   * Copies.
   * @throws {FulmarError} `UNKNOWN_NAME` if a word of the ring, or an entry in some trajectory, is missing; `MALFORMED` if a word has
   *   another form; `EMPTY` without trajectories; `INCOMPATIBLE` or `SHAPE_MISMATCH`, with the key, if they do not join.
   */
  forward(split: TensorDict): TensorDict {
    return converted(this.#keys, split, (keys, dict) => keys.combine(dict))
  }
}
