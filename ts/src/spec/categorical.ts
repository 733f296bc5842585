/** Specs of one of some choices, as an index. */

import type { Dtype } from '../tensor/index.js'
import { type DiscreteOptions, DiscreteSpec, discreteOf } from './discrete-spec.js'
import { isClassOf, type RESHAPED } from './tensor-spec.js'
import type { NestedPlain, PlainElement, SpecShape } from './types.js'

/**
 * An integer from 0 below `n` in each element. The shape is `[]` and the dtype `i64` unless given.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { Categorical } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using action = new Categorical(3, { mask: [false, true, true] })
 * const zero = Tensor.from(BigInt64Array.of(0n), { shape: [] })
 * assert.equal(action.explain(zero)?.expected, 'a value that the mask allows')
 * assert.deepEqual(action.project(zero).data, BigInt64Array.of(1n))
 * using rows = action.expand([2])
 * assert.deepEqual([rows.shape, rows.mask?.data], [[2], Uint8Array.of(0, 1, 1)])
 * ```
 */
export class Categorical<
  D extends Dtype = 'i64',
  const S extends SpecShape = readonly [],
> extends DiscreteSpec<D, NestedPlain<PlainElement<D>, S>> {
  declare readonly [RESHAPED]: Categorical<D, readonly number[]>

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `n` is not an integer from 1 to 2^53, or the dtype would round an index;
   *   `SHAPE_MISMATCH` or `EMPTY` for a mask that does not fit or allows nothing; `LIMIT_EXCEEDED` above 16 dimensions;
   *   `MALFORMED` for an unknown dtype, `UNKNOWN_NAME` for an unknown option.
   */
  constructor(n: number, options: DiscreteOptions<D, S> = {}) {
    super(() => discreteOf('Categorical', { n }, options))
  }

  static {
    isClassOf('Categorical', Categorical)
  }
}
