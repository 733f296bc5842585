/** Specs of numbers between bounds. */

import { checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Dtype, Tensor } from '../tensor/index.js'
import { checkDomain, type FloatDtype, type WholeDtype } from './domain.js'
import { specText, tableText, textOf } from './spec-json.js'
import { isClassOf, type RESHAPED, TensorSpec, tensorOr, withRawSpec } from './tensor-spec.js'
import type { NestedPlain, PlainElement, SpecShape, SpecTable } from './types.js'

/** Options of {@link Bounded}. */
export interface BoundedOptions<D extends Dtype = Dtype, S extends SpecShape = SpecShape> {
  /** The length of each dimension, -1 for any. @default that of the bounds */
  readonly shape?: S
  /** The element type. @default 'f32' */
  readonly dtype?: D
}

/**
 * Numbers from `low` to `high`, both included. Bounds are numbers, nested arrays or tensors that are broadcast to the
 * shape; a float's may be infinite.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { Bounded } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using torque = new Bounded(-2, [1, 2], { shape: [2] })
 * const wild = Tensor.from([5, Number.NaN])
 * assert.deepEqual(torque.project(wild).data, Float32Array.of(1, 0))
 * assert.deepEqual(torque.explain(Tensor.from([5, 0])), {
 *   path: [],
 *   rule: 'domain',
 *   expected: 'from -2 to 1',
 *   got: '5',
 * })
 * assert.throws(() => new Bounded(1, 0, { shape: [2] }), { code: 'OUT_OF_RANGE' })
 * ```
 */
export class Bounded<
  D extends Dtype = 'f32',
  const S extends SpecShape = readonly number[],
> extends TensorSpec<Tensor<D>, NestedPlain<PlainElement<D>, S>> {
  declare readonly [RESHAPED]: Bounded<D, readonly number[]>

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if a bound is NaN or above the other, or the dtype cannot hold it; `SHAPE_MISMATCH` if
   *   bounds cannot be broadcast, or the shape is not given; `LIMIT_EXCEEDED` above 16 dimensions; `MALFORMED` for an
   *   unknown dtype, `UNKNOWN_NAME` for an unknown option.
   */
  constructor(low: SpecTable, high: SpecTable, options: BoundedOptions<D, S> = {}) {
    checkKnownKeys('options', options, ['shape', 'dtype'])
    const text = specText('Bounded', {
      shape: textOf(options.shape),
      dtype: textOf(options.dtype),
      low: tableText(low),
      high: tableText(high),
    })
    super(() => raw.TensorSpec.fromJson(text))
  }

  static {
    isClassOf('Bounded', Bounded)
  }

  /** The least values, broadcast to the shape. */
  get low(): Tensor<D> {
    return withRawSpec(this, (spec) => tensorOr(spec.low())) as Tensor<D>
  }

  /** The largest values, broadcast to the shape. */
  get high(): Tensor<D> {
    return withRawSpec(this, (spec) => tensorOr(spec.high())) as Tensor<D>
  }
}

/**
 * {@link Bounded} of floats.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import { BoundedContinuous } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using positive = new BoundedContinuous(0, Number.POSITIVE_INFINITY, { shape: [3] })
 * assert.ok(positive.rand(Rng.fromSeed(1)).data.every((x) => x >= 0 && x < 100))
 * ```
 */
export class BoundedContinuous<
  D extends FloatDtype = 'f32',
  const S extends SpecShape = readonly number[],
> extends Bounded<D, S> {
  /** @throws {FulmarError} `INCOMPATIBLE` for a dtype of integers; those of {@link Bounded}. */
  constructor(low: SpecTable, high: SpecTable, options: BoundedOptions<D, S> = {}) {
    checkDomain('continuous', options.dtype)
    super(low, high, options)
  }
}

/**
 * {@link Bounded} of integers, of `i64` unless the dtype is given. Draws are uniform and reach both bounds.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import { BoundedDiscrete } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using shift = new BoundedDiscrete(-2, 2, { shape: [] })
 * const drawn = new Set(shift.rand(Rng.fromSeed(1), [100]).data)
 * assert.deepEqual([...drawn].sort(), [-1n, -2n, 0n, 1n, 2n])
 * ```
 */
export class BoundedDiscrete<
  D extends WholeDtype = 'i64',
  const S extends SpecShape = readonly number[],
> extends Bounded<D, S> {
  /** @throws {FulmarError} `INCOMPATIBLE` for a dtype of floats; those of {@link Bounded}. */
  constructor(low: SpecTable, high: SpecTable, options: BoundedOptions<D, S> = {}) {
    checkDomain('discrete', options.dtype)
    super(low, high, { dtype: 'i64' as D, ...options })
  }
}
