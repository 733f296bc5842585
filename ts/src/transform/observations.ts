/** Tensors in another shape or dtype. */

import type { TensorKey } from '../tensor/index.js'
import { type MappedKeys, rawTransform, Transform, type TransformKeys } from './transform.js'

/** Options of {@link FlattenObservation}; `inKeys` are `['pixels']` unless given. */
export interface FlattenObservationOptions extends MappedKeys {
  /** The first of the dimensions; negative from the last. */
  readonly firstDim: number
  /** The last of them; negative from the last. */
  readonly lastDim: number
}

/**
 * Reads some dimensions behind the batch as one.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { FlattenObservation } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using flatten = new FlattenObservation({ firstDim: -2, lastDim: -1 })
 * const batch = TensorDict.from({ pixels: Tensor.zeros('u8', [2, 1, 3]) }, { batchSize: [2] })
 * assert.deepEqual(flatten.forward(batch).tensor('pixels').shape, [2, 3])
 * ```
 */
export class FlattenObservation extends Transform {
  /**
   * @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many keys out as in; `MALFORMED` without a dimension, or for a
   *   fraction. `forward`: `OUT_OF_RANGE` if there is no such dimension behind the batch.
   */
  constructor(options: FlattenObservationOptions) {
    super(() => rawTransform('FlattenObservation', options))
  }
}

/** Options of {@link UnsqueezeTransform}. */
export interface UnsqueezeTransformOptions extends MappedKeys {
  /** Dimension; negative from the end. */
  readonly dim: number
  readonly inKeys: TransformKeys
}

/**
 * Reads tensors with a new dimension of length 1, at `dim` of the result.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { UnsqueezeTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using unsqueeze = new UnsqueezeTransform({ dim: -1, inKeys: 'reward' })
 * const batch = TensorDict.from({ reward: Tensor.zeros('f32', [2]) }, { batchSize: [2] })
 * assert.deepEqual(unsqueeze.forward(batch).tensor('reward').shape, [2, 1])
 * ```
 */
export class UnsqueezeTransform extends Transform {
  /**
   * @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many keys out as in; `MALFORMED` without `dim` or `inKeys`.
   *   `forward`: `OUT_OF_RANGE` if there is no such place; `SHAPE_MISMATCH` before the batch.
   */
  constructor(options: UnsqueezeTransformOptions) {
    super(() => rawTransform('UnsqueezeTransform', options))
  }
}

/** Options of {@link CatTensors}. */
export interface CatTensorsOptions {
  /** Keys of the tensors, in this order. */
  readonly inKeys: TransformKeys
  /** Key of the result. */
  readonly outKey: TensorKey
  /** Along which dimension behind the batch; negative from the last. @default -1 */
  readonly dim?: number
  /** If true, removes the parts. @default true */
  readonly delKeys?: boolean
}

/**
 * Reads several tensors as one.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { CatTensors } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using cat = new CatTensors({ inKeys: ['position', 'speed'], outKey: 'observation' })
 * const batch = TensorDict.from({ position: Tensor.from([1]), speed: Tensor.from([2, 3]) })
 * assert.deepEqual(cat.forward(batch).tensor('observation').data, Float32Array.of(1, 2, 3))
 * ```
 */
export class CatTensors extends Transform {
  /**
   * @throws {FulmarError} `EMPTY` without keys. `forward`: `UNKNOWN_NAME` if a tensor is missing; `SHAPE_MISMATCH` or
   *   `INCOMPATIBLE` if other dimensions or dtypes differ; `OUT_OF_RANGE` if there is no such dimension behind the batch.
   */
  constructor(options: CatTensorsOptions) {
    super(() => rawTransform('CatTensors', options))
  }
}

/** Options of {@link DoubleToFloat}. */
export interface DoubleToFloatOptions {
  /** Keys of tensors that are read as singles. @default all doubles */
  readonly inKeys?: TransformKeys
  /** Keys of tensors that are stored as doubles. @default [] */
  readonly inKeysInv?: TransformKeys
}

/**
 * Reads doubles as singles, and stores singles as doubles.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { DoubleToFloat } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using toFloat = new DoubleToFloat()
 * const batch = TensorDict.from({ reward: Tensor.from(Float64Array.of(0.5)) })
 * assert.deepEqual(toFloat.forward(batch).tensor('reward').data, Float32Array.of(0.5))
 * ```
 */
export class DoubleToFloat extends Transform {
  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. `forward`, `inverse`: `UNKNOWN_NAME` if a tensor is missing. */
  constructor(options: DoubleToFloatOptions = {}) {
    super(() => rawTransform('DoubleToFloat', options))
  }
}
