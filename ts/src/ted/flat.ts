/** All trajectories of a ring one behind another, each one's observations once. */

import type { TensorDict } from '../tensor/index.js'
import { converted, keysJson, type RingPosition, ringJson, type TEDOptions } from './keys.js'

/**
 * Converts steps to the flat form. In a ring of steps, `[time]` or `[time, lanes...]`, an observation is stored at the root and again
 * below `next` of the step before. The flat form has `N` rewards, ends and actions, `[N, ...]`, and `N` observations plus the last
 * one of each trajectory: lane by lane, the oldest step first. It also has the position of the ring.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Flat2TED, TED2Flat } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const done = (...flags: number[]) => Tensor.from(Uint8Array.from(flags), { shape: [3, 1], dtype: 'bool' })
 * const steps = TensorDict.from({ observation: Tensor.from([2, 0, 1]), done: done(0, 0, 0) }, { batchSize: [3] })
 *   .set(['next', 'observation'], Tensor.from([3, 1, 2]))
 *   .set(['next', 'done'], done(1, 0, 0))
 * const flat = new TED2Flat().forward(steps, { shift: 1, isFull: true }) // the step at 1 is the oldest
 * assert.deepEqual(flat.tensor('observation').data, Float32Array.of(0, 1, 2, 3))
 * assert.deepEqual(flat.tensor('done').data, Uint8Array.of(0, 0, 1))
 * assert.ok(new Flat2TED().forward(flat).equals(steps))
 * ```
 */
export class TED2Flat {
  readonly #keys: string

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `MALFORMED` for a value of another type. */
  constructor(options: TEDOptions = {}) {
    this.#keys = keysJson(options)
  }

  /**
   * Copies. What was never written is zero. A trajectory ends where `doneKey` below `next` is true, and at the newest step.
   * @throws {FulmarError} `INCOMPATIBLE`, with the key, if an entry is not a tensor or named as `shiftKey` or `isFullKey`, if ends are
   *   not bools, or if a step's next observation is not that of the step after it, which this form could not bring back;
   *   `UNKNOWN_NAME` if an entry below `next` is not an end, not a reward and not at the root; `OUT_OF_RANGE` or `EMPTY` for an
   *   impossible position of the ring.
   */
  forward(steps: TensorDict, ring: RingPosition = {}): TensorDict {
    return converted(this.#keys, steps, (keys, dict) => keys.flat(dict, ringJson(ring)))
  }
}

/**
 * Restores the steps of a flat form, each at its position in the ring, `[time]` or `[time, lanes...]`; zeros where none was written.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Flat2TED, TED2Flat } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const over = Tensor.from(Uint8Array.of(0, 1), { shape: [2, 1], dtype: 'bool' })
 * const steps = TensorDict.from({ action: Tensor.from([5, 6]) }, { batchSize: [2] }).set(['next', 'over'], over)
 * const keys = { doneKey: 'over', doneKeys: ['over'] }
 * const flat = new TED2Flat(keys).forward(steps)
 * assert.deepEqual(new Flat2TED(keys).forward(flat).tensor('action').data, Float32Array.of(5, 6))
 * ```
 */
export class Flat2TED {
  readonly #keys: string

  /** @throws {FulmarError} As the constructor of {@link TED2Flat}. */
  constructor(options: TEDOptions = {}) {
    this.#keys = keysJson(options)
  }

  /**
   * Copies.
   * @throws {FulmarError} `MALFORMED` or `UNKNOWN_NAME` if the dictionary lacks the position of its ring; `UNKNOWN_NAME` without
   *   `doneKey`; `INCOMPATIBLE`, with the key, if an entry is not a tensor; `SHAPE_MISMATCH` if one has not as many rows as steps, or as
   *   those and trajectories; `OUT_OF_RANGE` or `EMPTY` for an impossible position of the ring.
   */
  forward(flat: TensorDict): TensorDict {
    return converted(this.#keys, flat, (keys, dict) => keys.stepsOfFlat(dict))
  }
}
