/** Hashes of rows. */

import { checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import { type RawSipHash, raw } from '../native/index.js'
import { type Tensor, tensorAround, withRawTensor } from '../tensor/tensor.js'

/** A function from the rows of a tensor to 64-bit numbers. Equal rows must have equal hashes; others may. */
export interface RowHash {
  /** Returns the hash of each row of the first dimension: `i64` `[N]`. */
  forward(rows: Tensor): Tensor
}

/** Options of {@link SipHash}. */
export interface SipHashOptions {
  /** The key: two numbers of 64 bits. @default [0n, 0n] */
  readonly key?: readonly [bigint, bigint]
  /** If true, hashes the bytes as they are, as torchrl does: -0 differs from 0, and one NaN from another. @default false */
  readonly compatible?: boolean
}

/**
 * SipHash-1-3 ([Aumasson and Bernstein](https://doi.org/10.1007/978-3-642-34931-7_28)) of each row's little-endian bytes: the same numbers in
 * every process. With key 0 and `compatible` they are those of Python's `hash(bytes)` under `PYTHONHASHSEED=0`: 0 for a row without elements,
 * -2 in place of -1. A row of `bf16` is hashed as `f16`.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if the key is not two integers of 64 bits.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { SipHash } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const rows = Tensor.from(BigInt64Array.of(0n, 1n, 2n, 3n), { shape: [2, 2] })
 * assert.deepEqual(new SipHash().forward(rows).data, BigInt64Array.of(8311861578736502650n, -91117564047421083n))
 * const keyed = new SipHash({ key: [7n, 11n] })
 * assert.notDeepEqual(keyed.forward(rows).data, new SipHash().forward(rows).data)
 * ```
 */
export class SipHash implements RowHash {
  readonly #native: Handle<RawSipHash>

  constructor(options: SipHashOptions = {}) {
    checkKnownKeys('options', options, ['key', 'compatible'])
    const { key = [0n, 0n], compatible = false } = options
    const json = `{"key":${keyJson(key)},"compatible":${JSON.stringify(compatible)}}`
    this.#native = new Handle('SipHash', () => raw.SipHash.create(json))
  }

  /** Returns the hash of each row of the first dimension, `[N]`. @throws {FulmarError} `SHAPE_MISMATCH` for a scalar. */
  forward(rows: Tensor): Tensor<'i64'> {
    return tensorAround(() => this.#native.call((hash) => withRawTensor(rows, (one) => hash.forward(one))))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** The key of a hash as JSON, whose numbers are longer than a double's. */
export function keyJson(key: readonly [bigint, bigint]): string {
  const isWord = (word: unknown) => typeof word === 'bigint' && BigInt.asUintN(64, word) === word
  if (!Array.isArray(key) || key.length !== 2 || !key.every(isWord))
    throw new FulmarError('OUT_OF_RANGE', `key must be two bigints from 0 below 2^64: got ${String(key)}`)
  return `[${key.join(',')}]`
}
