/** Specs of one of some choices, as a block with a single 1. */

import type { Dtype } from '../tensor/index.js'
import { type DiscreteOptions, DiscreteSpec, discreteOf } from './discrete-spec.js'
import { isClassOf, type RESHAPED } from './tensor-spec.js'
import type { NestedPlain, SpecShape, WithoutLast } from './types.js'

/**
 * One 1 among zeros along the last dimension, which is `n` long. The shape is `[n]` and the dtype `bool` unless given. Plain
 * JSON is the index of the 1.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { OneHot } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using action = new OneHot(3)
 * assert.deepEqual(action.encode(2).data, Uint8Array.of(0, 0, 1))
 * const scores = Tensor.from([0.1, 0.7, 0.7])
 * assert.equal(action.decode(action.project(scores)), 1) // the first of equals
 * assert.deepEqual(action.index(action.encode(1), Tensor.from([-1, 0, 1])).data, Float32Array.of(0))
 * ```
 */
export class OneHot<
  D extends Dtype = 'bool',
  const S extends SpecShape = readonly [number],
> extends DiscreteSpec<D, NestedPlain<number, WithoutLast<S>>> {
  declare readonly [RESHAPED]: OneHot<D, readonly number[]>

  /** @throws {FulmarError} `SHAPE_MISMATCH` if the last dimension is not `n`; those of {@link Categorical}. */
  constructor(n: number, options: DiscreteOptions<D, S> = {}) {
    super(() => discreteOf('OneHot', { n }, options))
  }

  static {
    isClassOf('OneHot', OneHot)
  }
}
