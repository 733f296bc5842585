/** Images as networks take them: channels first, floats, of one size. */

import { type MappedKeys, rawTransform, Transform } from './transform.js'

/** Options of {@link ToTensorImage}; `inKeys` are `['pixels']` unless given. */
export interface ToTensorImageOptions extends MappedKeys {
  /** If true, elements are divided by 255. @default true for integer dtypes */
  readonly fromInt?: boolean
  /** If true, inserts a dimension of length 1 before an image of three dimensions. @default false */
  readonly unsqueeze?: boolean
  /** The element type of the result. @default 'f32' */
  readonly dtype?: 'f64' | 'f32' | 'f16' | 'bf16'
  /**
   * If true, keeps the order of images whose last dimension is not 3, as their channels are already first.
   * @default false
   */
  readonly shapeTolerant?: boolean
}

/**
 * Reads `[..., H, W, C]` as floats of shape `[..., C, H, W]`; integers are divided by 255.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ToTensorImage } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using toImage = new ToTensorImage()
 * const pixels = Tensor.from(Uint8Array.of(0, 51, 102, 153, 204, 255), { shape: [1, 2, 3] })
 * const image = toImage.forward(TensorDict.from({ pixels })).tensor('pixels')
 * assert.deepEqual([image.dtype, image.shape], ['f32', [3, 1, 2]])
 * assert.deepEqual(image.data, Float32Array.of(0, 0.6, 0.2, 0.8, 0.4, 1))
 * ```
 */
export class ToTensorImage extends Transform {
  /**
   * @throws {FulmarError} `INCOMPATIBLE` for a dtype of integers; `SHAPE_MISMATCH` if there are not as many keys out as in;
   *   `UNKNOWN_NAME` for an unknown option. `forward`: `SHAPE_MISMATCH` below three dimensions.
   */
  constructor(options: ToTensorImageOptions = {}) {
    super(() => rawTransform('ToTensorImage', options))
  }
}

/** Options of {@link Resize}; `inKeys` are `['pixels']` unless given. */
export interface ResizeOptions extends MappedKeys {
  /** The new length of the last dimension but one, from 1. */
  readonly w: number
  /** The new length of the last dimension, from 1. @default w */
  readonly h?: number
  /**
   * Interpolation of an element: an antialiased weighted mean of its neighbours, or the nearest one.
   * `nearest` and `nearest-exact` are torch's. With `bicubic` floats may leave the range of the source;
   * integers are clamped to their dtype.
   * @default 'bilinear'
   */
  readonly interpolation?: 'bilinear' | 'bicubic' | 'nearest' | 'nearest-exact'
}

/**
 * Reads `[..., A, B]` as `[..., w, h]`. Bilinear is antialiased, as Pillow does it; integers round to even.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Resize } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using resize = new Resize({ w: 1 })
 * const pixels = Tensor.from([0, 1, 2, 3], { shape: [1, 2, 2] })
 * assert.deepEqual(resize.forward(TensorDict.from({ pixels })).tensor('pixels').data, Float32Array.of(1.5))
 * ```
 */
export class Resize extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if a length is 0, `LIMIT_EXCEEDED` if it is too much; `SHAPE_MISMATCH` if there are not
   *   as many keys out as in. `forward`: `SHAPE_MISMATCH` below two dimensions; `EMPTY` for an image without elements.
   */
  constructor(options: ResizeOptions) {
    super(() => rawTransform('Resize', options))
  }
}

/** Options of {@link CenterCrop}; `inKeys` are `['pixels']` unless given. */
export interface CenterCropOptions extends MappedKeys {
  /** The new length of the last dimension but one, from 1. */
  readonly w: number
  /** The new length of the last dimension, from 1. @default w */
  readonly h?: number
}

/**
 * Reads the middle `[..., w, h]` of `[..., A, B]`, with zeros around an image that is too small.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { CenterCrop } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using crop = new CenterCrop({ w: 1, h: 3 })
 * const pixels = Tensor.from(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9), { shape: [3, 3] })
 * assert.deepEqual(crop.forward(TensorDict.from({ pixels })).tensor('pixels').data, Uint8Array.of(4, 5, 6))
 * ```
 */
export class CenterCrop extends Transform {
  /** @throws {FulmarError} The errors of {@link Resize}. */
  constructor(options: CenterCropOptions) {
    super(() => rawTransform('CenterCrop', options))
  }
}

/**
 * Reads `[..., 3, H, W]` as the brightness `[..., 1, H, W]`: `0.2989 R + 0.587 G + 0.114 B`. `inKeys` are `['pixels']` unless
 * given.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { GrayScale } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using gray = new GrayScale()
 * const pixels = Tensor.from([0, 1, 0], { shape: [3, 1, 1] })
 * assert.deepEqual(gray.forward(TensorDict.from({ pixels })).tensor('pixels').data, Float32Array.of(0.587))
 * ```
 */
export class GrayScale extends Transform {
  /**
   * @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many keys out as in; `UNKNOWN_NAME` for an unknown option.
   *   `forward`: `SHAPE_MISMATCH` without 3 channels.
   */
  constructor(options: MappedKeys = {}) {
    super(() => rawTransform('GrayScale', options))
  }
}
