/** Specs of bits. */

import { checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Dtype } from '../tensor/index.js'
import { DiscreteSpec } from './discrete-spec.js'
import { specText, textOf } from './spec-json.js'
import { isClassOf, type RESHAPED } from './tensor-spec.js'
import type { NestedPlain, PlainElement, SpecShape } from './types.js'

/** Options of {@link Binary}. */
export interface BinaryOptions<D extends Dtype = Dtype, S extends SpecShape = SpecShape> {
  /** The length of each dimension, -1 for any; ends with `n`. @default [n] */
  readonly shape?: S
  /** The element type. @default 'i8' */
  readonly dtype?: D
}

/**
 * 0 or 1 in each element. Of `n` bits there are 2^n values. It has no mask.
 *
 * @example
 * ```ts
 * import { Binary } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using switches = new Binary(3)
 * assert.equal(switches.cardinality(), 8n)
 * using done = new Binary(1, { dtype: 'bool' })
 * assert.deepEqual(done.decode(done.one()), [true])
 * ```
 */
export class Binary<
  D extends Dtype = 'i8',
  const S extends SpecShape = readonly [number],
> extends DiscreteSpec<D, NestedPlain<PlainElement<D>, S>> {
  declare readonly [RESHAPED]: Binary<D, readonly number[]>

  /**
   * @throws {FulmarError} `SHAPE_MISMATCH` if the shape does not end with `n`, or neither is given; `LIMIT_EXCEEDED` above 16
   *   dimensions; `MALFORMED` for an unknown dtype, `UNKNOWN_NAME` for an unknown option.
   */
  constructor(n?: number, options: BinaryOptions<D, S> = {}) {
    checkKnownKeys('options', options, ['shape', 'dtype'])
    const text = specText('Binary', {
      shape: textOf(options.shape),
      dtype: textOf(options.dtype),
      n: textOf(n),
    })
    super(() => raw.TensorSpec.fromJson(text))
  }

  static {
    isClassOf('Binary', Binary)
  }
}
