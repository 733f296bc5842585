/** A map from dictionaries to dictionaries. */

import { checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import { type RawTensor, type RawTensorDict, type RawTensorDictMap, raw } from '../native/index.js'
import { type Tensor, tensorAround, withRawTensor } from '../tensor/tensor.js'
import { dictAround, pathOf, TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'
import { loadMemmap, saveMemmap } from '../tensor/torch-files.js'
import { QueryModule } from './query-module.js'

/** A map whose keys and values are batches: one call reads or writes all of a batch. */
export interface TensorMap<K, V> {
  /** Number of keys. */
  readonly length: number
  /** Returns the value of each key. */
  get(keys: K): V
  /** Writes a value at each key. */
  set(keys: K, values: V): void
  /** Returns whether each key is in the map. */
  contains(keys: K): Tensor
  /** Returns whether all keys are in the map. */
  has(keys: K): boolean
  /** Removes all keys. */
  clear(): void
}

/** Merges new values with the old ones of their keys, which are `undefined` for new keys. */
export type WriteFn = (values: TensorDict, old: TensorDict | undefined) => TensorDict

/** Options of {@link TensorDictMap.fromTensorDictPair}. */
export interface TensorDictMapPairOptions {
  /** Keys of the entries that are looked up. */
  readonly inKeys: readonly TensorKey[]
  /** Keys of the entries of a value that are kept. @default all */
  readonly outKeys?: readonly TensorKey[]
  /** Most keys, from 1 to 2^28. @default 1000 */
  readonly maxSize?: number
  /** The hash of all entries, or one for each. @default {@link SipHash} */
  readonly hashModule?: ConstructorParameters<typeof QueryModule>[0]['hashModule']
  /** Applied to what {@link TensorDictMap.get} returns. @default nothing */
  readonly collateFn?: (values: TensorDict) => TensorDict
  /** Merges written values with old ones. @default new values replace old ones */
  readonly writeFn?: WriteFn
  /** If true, keys are compared by their bytes, as in torchrl: -0 differs from 0, and one NaN from another. @default false */
  readonly compatible?: boolean
}

/** Options of {@link TensorDictMap}. */
export interface TensorDictMapOptions extends Omit<TensorDictMapPairOptions, 'inKeys' | 'hashModule'> {
  /** The hash of the keys; its `inKeys` are those of the map, its numbers are not used. */
  readonly queryModule: QueryModule
}

/**
 * A map whose keys are entries of a dictionary and whose values are dictionaries of dense tensors. A call takes a batch of any shape. A lookup
 * compares the whole key: keys of one hash stay apart, whatever the hash.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `maxSize` is not in its range; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { TensorDictMap } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const states = TensorDict.from({ state: Tensor.from([5, 9]) }, { batchSize: [2] })
 * const values = TensorDict.from({ value: Tensor.from([0.5, -1]) }, { batchSize: [2] })
 * const map = TensorDictMap.fromTensorDictPair(states, values, { inKeys: ['state'] })
 * map.set(states, values)
 * assert.deepEqual(map.get(states.index(1)).tensor('value').item(), -1)
 * assert.equal(map.has(TensorDict.from({ state: Tensor.from([7]) }, { batchSize: [1] })), false)
 * ```
 */
export class TensorDictMap implements TensorMap<TensorDict, TensorDict> {
  /** Most keys. */
  readonly maxSize: number
  /** The hash of the keys. */
  readonly queryModule: QueryModule
  readonly #native: Handle<RawTensorDictMap>
  readonly #collate: ((values: TensorDict) => TensorDict) | undefined
  readonly #write: WriteFn | undefined

  constructor(options: TensorDictMapOptions) {
    checkKnownKeys('options', options, [
      'queryModule',
      'outKeys',
      'maxSize',
      'collateFn',
      'writeFn',
      'compatible',
    ])
    const { queryModule, outKeys, maxSize = 1000, collateFn, writeFn, compatible = false } = options
    const json = JSON.stringify({ maxSize, compatible, outKeys: outKeys?.map(pathOf) })
    const keys = JSON.stringify(queryModule.inKeys.map(pathOf))
    this.#native = new Handle('TensorDictMap', () => raw.TensorDictMap.create(keys, json))
    this.maxSize = maxSize
    this.queryModule = queryModule
    this.#collate = collateFn
    this.#write = writeFn
  }

  /**
   * Makes an empty map for such keys and values; `outKeys` are those of `values` if absent.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE`, with the key, if an entry is missing or not a tensor; those of the constructor.
   */
  static fromTensorDictPair(
    keys: TensorDict,
    values: TensorDict,
    options: TensorDictMapPairOptions,
  ): TensorDictMap {
    const known = ['inKeys', 'outKeys', 'maxSize', 'hashModule', 'collateFn', 'writeFn', 'compatible']
    checkKnownKeys('options', options, known)
    const { inKeys, hashModule, ...rest } = options
    const outKeys = rest.outKeys ?? values.leafKeys()
    for (const key of inKeys) keys.tensor(key)
    for (const key of outKeys) values.tensor(key)
    const queryModule = new QueryModule({ inKeys, ...(hashModule && { hashModule }) })
    return new TensorDictMap({ ...rest, outKeys, queryModule })
  }

  /** Number of keys. */
  get length(): number {
    return this.#native.call((map) => map.count())
  }

  /**
   * Writes a value at each key, merged by `writeFn`. Of keys that come twice the last value stays; with `writeFn` they are merged one after
   * another.
   * @throws {FulmarError} `LIMIT_EXCEEDED` above `maxSize` keys; `SHAPE_MISMATCH`, `UNKNOWN_NAME` or `INCOMPATIBLE`, with the entry, if batch
   *   sizes differ or a key or a value is not like the first; `INCOMPATIBLE` if an entry of a value is not a dense tensor. After an error
   *   nothing has changed, but what `writeFn` merged before.
   */
  set(keys: TensorDict, values: TensorDict): void {
    if (this.#write) this.#merge(this.#write, flat(keys), flat(values))
    else this.#insert(keys, this.queryModule.hash(keys), values)
  }

  /**
   * Returns the value of each key, in the shape of their batch. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE`, with the row, if a key is not in the map; those of {@link TensorDictMap.set} for a wrong key.
   */
  get(keys: TensorDict): TensorDict {
    const values = dictAround(() => this.#with(keys, (map, one, hashes) => map.get(one, hashes)))
    return this.#collate ? this.#collate(values) : values
  }

  /**
   * Returns whether each key is in the map: `bool`, in the shape of the batch.
   * @throws {FulmarError} As {@link TensorDictMap.set} for a wrong key.
   */
  contains(keys: TensorDict): Tensor<'bool'> {
    return tensorAround(() => this.#with(keys, (map, one, hashes) => map.contains(one, hashes)))
  }

  /** Returns whether all keys of a batch are in the map. @throws {FulmarError} As {@link TensorDictMap.contains}. */
  has(keys: TensorDict): boolean {
    return this.contains(keys).data.every(Boolean)
  }

  /** Removes all keys; the next ones may have other shapes. */
  clear(): void {
    this.#native.call((map) => map.clear())
  }

  /** Returns the content: `keys`, `hashes` and `values`, of `length` each; without entries if the map is empty. */
  stateDict(): TensorDict {
    return dictAround(() => this.#native.call((map) => map.state()))
  }

  /**
   * Replaces the content by what {@link TensorDictMap.stateDict} returned.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE` if an entry is missing or of another kind; `CORRUPT` if a key comes twice; those of
   *   {@link TensorDictMap.set}. After an error nothing has changed.
   */
  loadStateDict(state: TensorDict): void {
    this.#native.call((map) => withRawDict(state, (one) => map.loadState(one)))
  }

  /** Writes the content into a folder. Native backend only. @throws {FulmarError} As {@link saveMemmap}. */
  dumps(path: string): void {
    saveMemmap(path, this.stateDict())
  }

  /** Reads a folder of {@link TensorDictMap.dumps}. Native backend only. @throws {FulmarError} As {@link loadMemmap} and {@link TensorDictMap.loadStateDict}. */
  loads(path: string): void {
    this.loadStateDict(loadMemmap(path))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }

  #with<R>(keys: TensorDict, body: (map: RawTensorDictMap, keys: RawTensorDict, hashes: RawTensor) => R): R {
    const hashes = this.queryModule.hash(keys)
    return this.#native.call((map) =>
      withRawDict(keys, (one) => withRawTensor(hashes, (two) => body(map, one, two))),
    )
  }

  #insert(keys: TensorDict, hashes: Tensor, values: TensorDict): void {
    this.#native.call((map) =>
      withRawDict(keys, (one) =>
        withRawTensor(hashes, (two) => withRawDict(values, (three) => map.insert(one, two, three))),
      ),
    )
  }

  /** Writes the first of all equal keys, then the second ones, and so on: new keys and known ones apart. */
  #merge(write: WriteFn, keys: TensorDict, values: TensorDict): void {
    const repeats = this.#with(keys, (map, one, hashes) => map.repeats(one, hashes))
    const turns = repeats.reduce((most, repeat) => Math.max(most, repeat + 1), 0)
    for (let turn = 0; turn < turns; turn++) {
      const rows = [...repeats.keys()].filter((row) => repeats[row] === turn)
      const known = this.contains(keys.indexSelect(rows)).data
      for (const isKnown of [0, 1]) {
        const chosen = rows.filter((_, at) => known[at] === isKnown)
        if (chosen.length > 0)
          this.#mergeRows(write, keys.indexSelect(chosen), values.indexSelect(chosen), isKnown === 1)
      }
    }
  }

  #mergeRows(write: WriteFn, keys: TensorDict, values: TensorDict, isKnown: boolean): void {
    const old = isKnown ? dictAround(() => this.#with(keys, (map, one, two) => map.get(one, two))) : undefined
    const merged = write(values, old)
    if (!(merged instanceof TensorDict))
      throw new FulmarError('USER_CODE', `writeFn must return a TensorDict: got ${typeof merged}`)
    this.#insert(keys, this.queryModule.hash(keys), merged)
  }
}

/** Returns a batch of any shape as one of one dimension. */
function flat(dict: TensorDict): TensorDict {
  return dict.batchSize.length === 1 ? dict : dict.reshape([-1])
}
