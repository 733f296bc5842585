/** Specs of texts and other JSON values. */

import { checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Json, NonTensorData, NonTensorStack } from '../tensor/index.js'
import { specText, textOf } from './spec-json.js'
import { isClassOf, type RESHAPED, TensorSpec } from './tensor-spec.js'
import type { SpecShape } from './types.js'

/** Options of {@link NonTensor}. */
export interface NonTensorOptions {
  /** The dimensions of the batch. @default [1] */
  readonly shape?: SpecShape
  /** Value of samples, zeros and ones. @default null */
  readonly example?: Json
  /** If true, there is one value for each element of the shape; else one for all. @default false */
  readonly batched?: boolean
}

/**
 * Any JSON value: a text, an instruction, a record.
 *
 * @example
 * ```ts
 * import { NonTensor } from 'fulmar/spec'
 * import { NonTensorData, NonTensorStack, Tensor } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using task = new NonTensor({ shape: [], example: 'open the drawer' })
 * assert.deepEqual(task.zero(), new NonTensorData('open the drawer'))
 * assert.ok(task.contains(new NonTensorData({ goal: 7 })))
 * assert.equal(task.explain(Tensor.from([1]))?.rule, 'kind')
 * using each = new NonTensor({ shape: [2], example: 'x', batched: true })
 * assert.deepEqual(each.zero(), new NonTensorStack(['x', 'x']))
 * ```
 */
export class NonTensor extends TensorSpec<NonTensorData | NonTensorStack, Json> {
  declare readonly [RESHAPED]: NonTensor

  /** @throws {FulmarError} `LIMIT_EXCEEDED` above 16 dimensions; `UNKNOWN_NAME` for an unknown option. */
  constructor(options: NonTensorOptions = {}) {
    checkKnownKeys('options', options, ['shape', 'example', 'batched'])
    const text = specText('NonTensor', {
      shape: textOf(options.shape),
      example: textOf(options.example),
      batched: textOf(options.batched),
    })
    super(() => raw.TensorSpec.fromJson(text))
  }

  static {
    isClassOf('NonTensor', NonTensor)
  }

  /** Value of samples, zeros and ones. */
  get example(): Json {
    return this.toJson().example ?? null
  }

  /** True if there is one value for each element of the shape. */
  get batched(): boolean {
    return this.toJson().batched === true
  }
}
