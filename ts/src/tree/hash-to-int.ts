/** Consecutive numbers for hashes. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawHashToInt, raw } from '../native/index.js'
import { type Tensor, tensorAround, withRawTensor } from '../tensor/tensor.js'

/** Options of {@link HashToInt}. */
export interface HashToIntOptions {
  /** Most hashes, from 1 to 2^28. @default 2^28 */
  readonly maxSize?: number
}

const MAX_SIZE = 2 ** 28

/**
 * Gives each new hash the next number, from 0.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `maxSize` is not in its range.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { HashToInt } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const ids = new HashToInt()
 * assert.deepEqual(ids.forward(Tensor.from(BigInt64Array.of(50n, -7n, 50n)), { extend: true }).data, BigInt64Array.of(0n, 1n, 0n))
 * // An unknown hash gets the next number, which stays free.
 * assert.deepEqual(ids.forward(Tensor.from(BigInt64Array.of(-7n, 3n))).data, BigInt64Array.of(1n, 2n))
 * ```
 */
export class HashToInt {
  #native: Handle<RawHashToInt>
  readonly #maxSize: number

  constructor(options: HashToIntOptions = {}) {
    checkKnownKeys('options', options, ['maxSize'])
    this.#maxSize = options.maxSize ?? MAX_SIZE
    this.#native = new Handle('HashToInt', () => raw.HashToInt.create(this.#maxSize))
  }

  /** Number of known hashes. */
  get length(): number {
    return this.#native.call((ids) => ids.count())
  }

  /**
   * Returns the number of each hash of `i64`, in their shape. With `extend` new hashes get the next numbers; otherwise unknown ones get the
   * number of known ones.
   * @throws {FulmarError} `INCOMPATIBLE` if the hashes are not `i64`; `LIMIT_EXCEEDED` above `maxSize`; then nothing has changed.
   */
  forward(hashes: Tensor, options: { readonly extend?: boolean } = {}): Tensor<'i64'> {
    checkKnownKeys('options', options, ['extend'])
    const { extend = false } = options
    return tensorAround(() =>
      this.#native.call((ids) => withRawTensor(hashes, (one) => ids.forward(one, extend))),
    )
  }

  /** Returns the known hashes, each at the position of its number: `i64` `[length]`. */
  stateDict(): { readonly hashes: Tensor<'i64'> } {
    return { hashes: tensorAround(() => this.#native.call((ids) => ids.hashes())) }
  }

  /**
   * Replaces the known hashes.
   * @throws {FulmarError} `CORRUPT` if a hash comes twice; those of {@link HashToInt.forward}. After an error nothing has changed.
   */
  loadStateDict(state: { readonly hashes: Tensor }): void {
    checkKnownKeys('state', state, ['hashes'])
    const before = this.#native
    const loaded = () =>
      withRawTensor(state.hashes, (hashes) => raw.HashToInt.fromHashes(hashes, this.#maxSize))
    this.#native = new Handle('HashToInt', loaded)
    before.free()
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}
