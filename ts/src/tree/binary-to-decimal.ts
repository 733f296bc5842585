/** Binary digits to whole numbers. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawBinaryToDecimal, raw } from '../native/index.js'
import { type Tensor, tensorAround, withRawTensor } from '../tensor/tensor.js'

/** Options of {@link BinaryToDecimal}. */
export interface BinaryToDecimalOptions {
  /** Digits of one number, from 1 to 62. */
  readonly numBits: number
  /** If true, a feature above 0 is the digit 1 and any other 0; otherwise features are truncated to whole numbers. @default false */
  readonly convertToBinary?: boolean
}

/**
 * Reads each `numBits` features of a row, the highest digit first, as a number, and adds the numbers of a row.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `numBits` is not from 1 to 62.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { BinaryToDecimal } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const read = new BinaryToDecimal({ numBits: 4 })
 * assert.deepEqual(read.forward(Tensor.from([0, 0, 1, 0, 0, 0, 0, 1])).data, BigInt64Array.of(3n)) // 2 and 1
 * ```
 */
export class BinaryToDecimal {
  readonly #native: Handle<RawBinaryToDecimal>

  constructor(options: BinaryToDecimalOptions) {
    checkKnownKeys('options', options, ['numBits', 'convertToBinary'])
    const json = JSON.stringify(options)
    this.#native = new Handle('BinaryToDecimal', () => raw.BinaryToDecimal.create(json))
  }

  /**
   * Returns a number for each row of `features` `[.., F]`: `[N]`, where N is the product of the dimensions before the last. Sums wrap at 64
   * bits.
   * @throws {FulmarError} `SHAPE_MISMATCH` if F is not a multiple of `numBits`, or 0; `NON_FINITE` for NaN or an infinity.
   */
  forward(features: Tensor): Tensor<'i64'> {
    return tensorAround(() =>
      this.#native.call((read) => withRawTensor(features, (one) => read.forward(one))),
    )
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}
