/** Specs of any numbers. */

import { checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Dtype, Tensor } from '../tensor/index.js'
import { checkDomain, type FloatDtype, type WholeDtype } from './domain.js'
import { specText, textOf } from './spec-json.js'
import { isClassOf, type RESHAPED, TensorSpec } from './tensor-spec.js'
import type { NestedPlain, PlainElement, SpecShape } from './types.js'

/** Options of {@link Unbounded}. */
export interface UnboundedOptions<D extends Dtype = Dtype, S extends SpecShape = SpecShape> {
  /** The length of each dimension, -1 for any. @default [1] */
  readonly shape?: S
  /** The element type. @default 'f32' */
  readonly dtype?: D
}

/**
 * Any numbers of a dtype but NaN. Draws are normal; those of integers uniform over the whole dtype.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { Unbounded } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using observation = new Unbounded({ shape: [2] })
 * assert.ok(observation.contains(Tensor.from([0.5, -1e9])))
 * assert.ok(!observation.contains(Tensor.from([0.5, Number.NaN])))
 * assert.deepEqual(observation.decode(observation.zero()), [0, 0])
 * ```
 */
export class Unbounded<D extends Dtype = 'f32', const S extends SpecShape = readonly [1]> extends TensorSpec<
  Tensor<D>,
  NestedPlain<PlainElement<D>, S>
> {
  declare readonly [RESHAPED]: Unbounded<D, readonly number[]>

  /**
   * @throws {FulmarError} `LIMIT_EXCEEDED` above 16 dimensions; `MALFORMED` for a length below -1 or an
   *   unknown dtype, `UNKNOWN_NAME` for an unknown option.
   */
  constructor(options: UnboundedOptions<D, S> = {}) {
    checkKnownKeys('options', options, ['shape', 'dtype'])
    const text = specText('Unbounded', { shape: textOf(options.shape), dtype: textOf(options.dtype) })
    super(() => raw.TensorSpec.fromJson(text))
  }

  static {
    isClassOf('Unbounded', Unbounded)
  }
}

/**
 * {@link Unbounded} of floats.
 *
 * @example
 * ```ts
 * import { Unbounded, UnboundedContinuous } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using reward = new UnboundedContinuous({ dtype: 'f64' })
 * assert.ok(reward.equals(new Unbounded({ shape: [1], dtype: 'f64' })))
 * ```
 */
export class UnboundedContinuous<
  D extends FloatDtype = 'f32',
  const S extends SpecShape = readonly [1],
> extends Unbounded<D, S> {
  /** @throws {FulmarError} `INCOMPATIBLE` for a dtype of integers; those of {@link Unbounded}. */
  constructor(options: UnboundedOptions<D, S> = {}) {
    checkDomain('continuous', options.dtype)
    super(options)
  }
}

/**
 * {@link Unbounded} of integers, of `i64` unless the dtype is given.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { UnboundedDiscrete } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using count = new UnboundedDiscrete({ shape: [] })
 * assert.ok(count.contains(Tensor.from(BigInt64Array.of(-7n), { shape: [] })))
 * ```
 */
export class UnboundedDiscrete<
  D extends WholeDtype = 'i64',
  const S extends SpecShape = readonly [1],
> extends Unbounded<D, S> {
  /** @throws {FulmarError} `INCOMPATIBLE` for a dtype of floats; those of {@link Unbounded}. */
  constructor(options: UnboundedOptions<D, S> = {}) {
    checkDomain('discrete', options.dtype)
    super({ dtype: 'i64' as D, ...options })
  }
}
