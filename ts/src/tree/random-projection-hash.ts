/** The hash of a random projection. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawRandomProjectionHash, raw } from '../native/index.js'
import { type Tensor, tensorAround, withRawTensor } from '../tensor/tensor.js'
import { keyJson, type RowHash } from './sip-hash.js'

/** Options of {@link RandomProjectionHash}. */
export interface RandomProjectionHashOptions {
  /** Columns of the matrix. @default 16 */
  readonly numComponents?: number
  /** Dtype of rows, matrix and projections. @default 'bf16' */
  readonly dtype?: 'f64' | 'f32' | 'f16' | 'bf16'
  /** The matrix `[features, components]`. @default standard normal numbers by `seed`, drawn at the first use */
  readonly matrix?: Tensor
  /** Seed of the matrix, an integer from 0. @default 0 */
  readonly seed?: number
  /** The key of the hash. @default [0n, 0n] */
  readonly key?: readonly [bigint, bigint]
}

/**
 * {@link SipHash} of `cast(row) . matrix`: rows that are close to each other often have one hash. Sums are singles in the order of the
 * features, rounded to the dtype.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `numComponents` is not an integer from 1, or the key as in {@link SipHash}; `UNKNOWN_NAME` or
 *   `INCOMPATIBLE` if the dtype is not a float; `SHAPE_MISMATCH` if the matrix does not have two dimensions.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { RandomProjectionHash } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const rows = Tensor.from(Float32Array.from({ length: 80 }, (_, at) => at % 7), { shape: [2, 40] })
 * const hash = new RandomProjectionHash({ seed: 7 })
 * assert.deepEqual(hash.forward(rows).data, new RandomProjectionHash({ seed: 7 }).forward(rows).data)
 * assert.deepEqual(hash.matrix?.shape, [40, 16])
 * ```
 */
export class RandomProjectionHash implements RowHash {
  readonly #native: Handle<RawRandomProjectionHash>

  constructor(options: RandomProjectionHashOptions = {}) {
    checkKnownKeys('options', options, ['numComponents', 'dtype', 'matrix', 'seed', 'key'])
    const { matrix, key = [0n, 0n], ...rest } = options
    const json = `${JSON.stringify(rest).slice(0, -1)}${Object.keys(rest).length > 0 ? ',' : ''}"key":${keyJson(key)}}`
    this.#native = new Handle('RandomProjectionHash', () =>
      matrix
        ? withRawTensor(matrix, (one) => raw.RandomProjectionHash.withMatrix(one, json))
        : raw.RandomProjectionHash.create(json),
    )
  }

  /** The matrix; nothing before the first use of one that is drawn. */
  get matrix(): Tensor | undefined {
    const matrix = this.#native.call((hash) => hash.matrix())
    return matrix ? tensorAround(() => matrix) : undefined
  }

  /**
   * Returns the hash of each row of `[N, features]`, `[N]`.
   * @throws {FulmarError} `SHAPE_MISMATCH` if there are other dimensions, or other features than before.
   */
  forward(rows: Tensor): Tensor<'i64'> {
    return tensorAround(() => this.#native.call((hash) => withRawTensor(rows, (one) => hash.forward(one))))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}
