/** Specs of several choices, as indices. */

import type { Dtype } from '../tensor/index.js'
import { type DiscreteOptions, DiscreteSpec, discreteOf } from './discrete-spec.js'
import { isClassOf, type RESHAPED } from './tensor-spec.js'
import type { NestedPlain, PlainElement, SpecShape, SpecTable } from './types.js'

/**
 * Along the last dimension one integer below each number of `nvec`. The shape is that of `nvec` and the dtype `i64` unless
 * given; nested lists give each cell its own numbers.
 *
 * @example
 * ```ts
 * import { MultiCategorical } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using pad = new MultiCategorical([3, 2]) // three directions, one button
 * assert.equal(pad.cardinality(), 6n)
 * assert.deepEqual(pad.enumerate().select(0, 5).data, BigInt64Array.of(2n, 1n))
 * assert.deepEqual(pad.toOneHot(pad.encode([2, 0])).data, Uint8Array.of(0, 0, 1, 1, 0))
 * ```
 */
export class MultiCategorical<
  D extends Dtype = 'i64',
  const S extends SpecShape = readonly number[],
> extends DiscreteSpec<D, NestedPlain<PlainElement<D>, S>> {
  declare readonly [RESHAPED]: MultiCategorical<D, readonly number[]>

  /**
   * @throws {FulmarError} `EMPTY` if `nvec` is; `SHAPE_MISMATCH` if the last dimension is not as long; those of
   *   {@link Categorical}.
   */
  constructor(nvec: SpecTable<number>, options: DiscreteOptions<D, S> = {}) {
    super(() => discreteOf('MultiCategorical', { nvec }, options))
  }

  static {
    isClassOf('MultiCategorical', MultiCategorical)
  }
}
