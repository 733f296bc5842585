/** Specs of several choices, as blocks with a single 1 each. */

import type { Dtype } from '../tensor/index.js'
import { type DiscreteOptions, DiscreteSpec, discreteOf } from './discrete-spec.js'
import { isClassOf, type RESHAPED } from './tensor-spec.js'
import type { NestedPlain, SpecShape, SpecTable } from './types.js'

/**
 * One-hot blocks of the lengths `nvec`, joined along the last dimension. The shape is their sum and the dtype `bool` unless
 * given. Plain JSON is one index a block.
 *
 * @example
 * ```ts
 * import { MultiOneHot } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using pad = new MultiOneHot([3, 2])
 * assert.deepEqual(pad.shape, [5])
 * const value = pad.encode([2, 0])
 * assert.deepEqual(value.data, Uint8Array.of(0, 0, 1, 1, 0))
 * assert.deepEqual(pad.toCategorical(value).data, BigInt64Array.of(2n, 0n))
 * ```
 */
export class MultiOneHot<
  D extends Dtype = 'bool',
  const S extends SpecShape = readonly [number],
> extends DiscreteSpec<D, NestedPlain<number, S>> {
  declare readonly [RESHAPED]: MultiOneHot<D, readonly number[]>

  /**
   * @throws {FulmarError} `EMPTY` if `nvec` is; `SHAPE_MISMATCH` if the last dimension is not its sum; those of
   *   {@link Categorical}.
   */
  constructor(nvec: SpecTable<number>, options: DiscreteOptions<D, S> = {}) {
    super(() => discreteOf('MultiOneHot', { nvec }, options))
  }

  static {
    isClassOf('MultiOneHot', MultiOneHot)
  }
}
