/** One number for the values of some keys of a dictionary. */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import { Tensor } from '../tensor/tensor.js'
import type { TensorDict, TensorKey } from '../tensor/tensor-dict.js'
import { HashToInt } from './hash-to-int.js'
import { type RowHash, SipHash } from './sip-hash.js'

/** Options of {@link QueryModule}. */
export interface QueryModuleOptions {
  /** Keys of the entries that are hashed. */
  readonly inKeys: readonly TensorKey[]
  /** Key of the numbers. @default '_index' */
  readonly indexKey?: TensorKey
  /** Key of the hashes. @default '_hash' */
  readonly hashKey?: TensorKey
  /** The hash of all entries, or one for each. @default {@link SipHash} */
  readonly hashModule?: RowHash | readonly RowHash[]
  /** The numbers of hashes. @default a new one */
  readonly hashToInt?: HashToInt
  /** The hash of the hashes `[N, keys]`, if there are several keys. @default `hashModule` if it is one, else {@link SipHash} */
  readonly aggregator?: RowHash
  /** If true, returns a copy with the results in place of the dictionary itself. @default false */
  readonly clone?: boolean
}

/**
 * Hashes entries of each element of a batch, of any shape, and numbers the hashes. Two elements with one hash have one number; a
 * {@link TensorDictMap} keeps them apart.
 *
 * @throws {FulmarError} `EMPTY` without keys; `SHAPE_MISMATCH` if the hashes are not one for each key; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { QueryModule } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const query = new QueryModule({ inKeys: ['observation'] })
 * const states = TensorDict.from({ observation: Tensor.from([1, 2, 1, 2, 3, 4], { shape: [3, 2] }) }, { batchSize: [3] })
 * assert.deepEqual(query.forward(states).tensor('_index').data, BigInt64Array.of(0n, 0n, 1n))
 * ```
 */
export class QueryModule {
  readonly inKeys: readonly TensorKey[]
  readonly indexKey: TensorKey
  readonly hashKey: TensorKey
  /** The numbers of hashes. */
  readonly hashToInt: HashToInt
  readonly #hashes: readonly RowHash[]
  readonly #aggregator: RowHash
  readonly #clone: boolean

  constructor(options: QueryModuleOptions) {
    const known = ['inKeys', 'indexKey', 'hashKey', 'hashModule', 'hashToInt', 'aggregator', 'clone']
    checkKnownKeys('options', options, known)
    const { inKeys, indexKey = '_index', hashKey = '_hash', hashModule, aggregator, clone = false } = options
    if (inKeys.length === 0) throw new FulmarError('EMPTY', 'inKeys must have at least one key: got 0')
    const shared = isOne(hashModule) ? hashModule : new SipHash()
    this.#hashes = isOne(hashModule) || !hashModule ? inKeys.map(() => shared) : hashModule
    if (this.#hashes.length !== inKeys.length) {
      const detail = `hashModule must be ${inKeys.length} hashes, one for each key: got ${this.#hashes.length}`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    this.inKeys = inKeys
    this.indexKey = indexKey
    this.hashKey = hashKey
    this.hashToInt = options.hashToInt ?? new HashToInt()
    this.#aggregator = aggregator ?? shared
    this.#clone = clone
  }

  /**
   * Returns the hash of each element of the batch, row-major: `i64` `[N]`.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE`, with the key, if an entry is missing or not a tensor; those of the hashes;
   *   `USER_CODE` if a hash of your own returns anything but `i64` `[N]`.
   */
  hash(dict: TensorDict): Tensor<'i64'> {
    const count = dict.batchSize.reduce((product, length) => product * length, 1)
    const columns = this.inKeys.map((key, at) => {
      const tensor = dict.tensor(key)
      const features = tensor.shape.slice(dict.batchSize.length)
      const rows = dict.batchSize.length === 1 ? tensor : tensor.reshape([count, ...features])
      return hashedBy(this.#hashes[at] as RowHash, rows, count)
    })
    const [only] = columns
    if (columns.length === 1 && only) return only
    return hashedBy(this.#aggregator, Tensor.stack(columns, 1), count)
  }

  /**
   * Writes the number and the hash of each element into `dict`, and returns it; with `clone` a copy. Without `extend`, unknown hashes get the
   * number of known ones.
   * @throws {FulmarError} As {@link QueryModule.hash} and {@link HashToInt.forward}.
   */
  forward(
    dict: TensorDict,
    options: { readonly extend?: boolean; readonly writeHash?: boolean; readonly clone?: boolean } = {},
  ): TensorDict {
    checkKnownKeys('options', options, ['extend', 'writeHash', 'clone'])
    const { extend = true, writeHash = true, clone = this.#clone } = options
    const hashes = this.hash(dict)
    const shape = [...dict.batchSize]
    const numbers = this.hashToInt.forward(hashes, { extend }).reshape(shape)
    const output = clone ? dict.clone() : dict
    output.set(this.indexKey, numbers)
    if (writeHash) output.set(this.hashKey, hashes.reshape(shape))
    return output
  }
}

function isOne(hash: QueryModuleOptions['hashModule']): hash is RowHash {
  return hash !== undefined && 'forward' in hash
}

function hashedBy(hash: RowHash, rows: Tensor, count: number): Tensor<'i64'> {
  const hashes = hash.forward(rows)
  if (!(hashes instanceof Tensor) || hashes.dtype !== 'i64' || String(hashes.shape) !== String([count])) {
    const got = hashes instanceof Tensor ? `${hashes.dtype} [${hashes.shape}]` : typeof hashes
    throw new FulmarError('USER_CODE', `a hash must return i64 of shape [${count}]: got ${got}`)
  }
  return hashes as Tensor<'i64'>
}
