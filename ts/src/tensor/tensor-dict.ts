/** Ordered, nested dictionaries of tensors whose shapes all begin with one batch size. */

import { call, FulmarError, Handle } from '../core/index.js'
import { type RawTensorDict, type RawTensorDictList, raw } from '../native/index.js'
import { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
import { Ragged, raggedAround, withRawRagged } from './ragged.js'
import { indices, Tensor, tensorAround, withRawTensor } from './tensor.js'

/** One name, or a path of them: `['a', 'b']` is the entry `b` of the dictionary `a`. A dot in a name means nothing. */
export type TensorKey = string | readonly string[]

/** What can stand at a key. */
export type TensorDictEntry = Tensor | Ragged | TensorDict | NonTensorData | NonTensorStack

/** Options of {@link TensorDict.from}. */
export interface TensorDictOptions {
  /** The dimensions with which the shape of every tensor begins; never inferred. @default [] */
  readonly batchSize?: readonly number[]
}

// The door to the private part, for the functions below.
let unwrap: (dict: TensorDict) => Handle<RawTensorDict>

/**
 * Named tensors of one batch. Keys keep the order in which they were first set; entries share their elements with what
 * was set and with what `get` gives. Dispose it, declare it with `using`, or leave it to the collector.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using batch = TensorDict.from({ reward: Tensor.from([0.5, 1]) }, { batchSize: [2] })
 * batch.set(['next', 'ids'], Tensor.from(Uint32Array.of(1, 2, 3, 4), { shape: [2, 2] }))
 * using last = batch.index(1)
 * assert.deepEqual(last.tensor(['next', 'ids']).data, Uint32Array.of(3, 4))
 * using both = TensorDict.stack([last, last])
 * assert.deepEqual([both.batchSize, both.keys()], [[2], ['reward', 'next']])
 * ```
 */
export class TensorDict {
  readonly #native: Handle<RawTensorDict>

  /** The dimensions with which the shape of every tensor begins. */
  readonly batchSize: readonly number[]

  private constructor(make: () => RawTensorDict) {
    this.#native = new Handle('TensorDict', make)
    this.batchSize = this.#native.call((dict) => [...dict.batchSize()])
  }

  static {
    unwrap = (dict) => dict.#native
  }

  /**
   * A dictionary of `entries`, in their order; each is as in {@link TensorDict.set}.
   * @throws {FulmarError} `OUT_OF_RANGE` if a dimension is not an integer from 0; `LIMIT_EXCEEDED` above 16 of them; those
   *   of {@link TensorDict.set}.
   */
  static from(
    entries: Readonly<Record<string, TensorDictEntry>> = {},
    options: TensorDictOptions = {},
  ): TensorDict {
    const { batchSize = [] } = options
    const dict = new TensorDict(() => raw.TensorDict.empty(indices(batchSize)))
    for (const [name, entry] of Object.entries(entries)) dict.set(name, entry)
    return dict
  }

  /**
   * Joins dictionaries of one batch size and one set of keys along a new batch dimension. Copies. JSON values become
   * one for each element.
   * @throws {FulmarError} `EMPTY` without dictionaries; `SHAPE_MISMATCH`, `UNKNOWN_NAME` or `INCOMPATIBLE`, with the
   *   key, if shapes, keys, or kinds and dtypes differ; `INCOMPATIBLE` if an entry is ragged; `OUT_OF_RANGE` if `dim` is
   *   past the batch dimensions.
   */
  static stack(dicts: readonly TensorDict[], dim = 0): TensorDict {
    return new TensorDict(() => joinedDicts(dicts, (list) => list.stack(dim)))
  }

  /**
   * Joins dictionaries along a batch dimension that they have; ragged entries join by rows. Copies.
   * @throws {FulmarError} As {@link TensorDict.stack}, but ragged entries join.
   */
  static cat(dicts: readonly TensorDict[], dim = 0): TensorDict {
    return new TensorDict(() => joinedDicts(dicts, (list) => list.cat(dim)))
  }

  /**
   * Puts `entry` at `key`: a new key at the end, a known one in its old place; dictionaries on the way are made. Shares
   * the elements. Returns this dictionary.
   *
   * @throws {FulmarError} `SHAPE_MISMATCH`, with the key and both shapes, if the shape does not begin with the batch
   *   size; `INCOMPATIBLE` if the way leads through an entry that is no dictionary; `EMPTY` or `LIMIT_EXCEEDED` if the
   *   key has no name or more than 32; `CLOSED` if the entry was disposed. After an error nothing has changed.
   */
  set(key: TensorKey, entry: TensorDictEntry): this {
    const path = pathOf(key)
    this.#native.call((dict) => {
      if (entry instanceof Tensor) withRawTensor(entry, (tensor) => dict.setTensor(path, tensor))
      else if (entry instanceof Ragged) withRawRagged(entry, (ragged) => dict.setRagged(path, ragged))
      else if (entry instanceof TensorDict) entry.#native.call((inner) => dict.setDict(path, inner))
      else if (entry instanceof NonTensorData) dict.setShared(path, jsonOf(entry.value))
      else dict.setEach(path, jsonOf(entry.values))
    })
    return this
  }

  /** The entry at `key`, or `undefined`. Shares the elements; a dictionary comes as a copy of its structure. */
  get(key: TensorKey): TensorDictEntry | undefined {
    switch (this.#native.call((dict) => dict.kind(pathOf(key)))) {
      case 'tensor':
        return this.tensor(key)
      case 'ragged':
        return this.ragged(key)
      case 'dict':
        return this.dict(key)
      case 'nonTensorData':
        return new NonTensorData(this.value(key))
      case 'nonTensorStack':
        return new NonTensorStack(this.value(key) as readonly Json[])
      default:
        return undefined
    }
  }

  /** Whether there is an entry at `key`. */
  has(key: TensorKey): boolean {
    return this.#native.call((dict) => typeof dict.kind(pathOf(key)) === 'string')
  }

  /** The tensor at `key`. @throws {FulmarError} `UNKNOWN_NAME` if there is no entry, `INCOMPATIBLE` if it is no tensor. */
  tensor(key: TensorKey): Tensor {
    return tensorAround(() => this.#native.call((dict) => dict.tensor(pathOf(key))))
  }

  /** The ragged tensor at `key`. @throws {FulmarError} As {@link TensorDict.tensor}. */
  ragged(key: TensorKey): Ragged {
    return raggedAround(() => this.#native.call((dict) => dict.ragged(pathOf(key))))
  }

  /** The dictionary at `key`: its own structure, shared elements. @throws {FulmarError} As {@link TensorDict.tensor}. */
  dict(key: TensorKey): TensorDict {
    return new TensorDict(() => this.#native.call((dict) => dict.dict(pathOf(key))))
  }

  /**
   * The JSON value at `key`, or the values of the batch as nested arrays. A copy.
   * @throws {FulmarError} As {@link TensorDict.tensor}.
   */
  value(key: TensorKey): Json {
    return JSON.parse(this.#native.call((dict) => dict.value(pathOf(key)))) as Json
  }

  /** Takes the entry at `key` out. Whether there was one. */
  delete(key: TensorKey): boolean {
    return this.#native.call((dict) => dict.remove(pathOf(key)))
  }

  /** The names of the entries, nested ones not visited, in order. */
  keys(): string[] {
    return this.#native.call((dict) => dict.names())
  }

  /** The paths of all entries, nested ones before the dictionary that holds them. */
  nestedKeys(): string[][] {
    return JSON.parse(this.#native.call((dict) => dict.nestedKeys())) as string[][]
  }

  /** The paths of all entries that are no dictionaries. */
  leafKeys(): string[][] {
    return JSON.parse(this.#native.call((dict) => dict.leafKeys())) as string[][]
  }

  /**
   * The element at `at` of the first batch dimension, without that dimension; a ragged entry gives its row. Shares the
   * elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no batch dimension or no such element.
   */
  index(at: number): TensorDict {
    return this.#derive((dict) => dict.index(at))
  }

  /**
   * The elements `start` up to and without `end` of the first batch dimension. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no batch dimension, or the range is backwards or ends past it.
   */
  slice(start: number, end: number = this.batchSize[0] ?? 0): TensorDict {
    return this.#derive((dict) => dict.slice(start, end))
  }

  /**
   * The elements at `at` of the first batch dimension, in that order; an index may come twice. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no batch dimension or no such element.
   */
  indexSelect(at: Iterable<number>): TensorDict {
    return this.#derive((dict) => dict.indexSelect(indices(at)))
  }

  /**
   * Only the entries at `keys`, in the order of this dictionary. Shares the elements.
   * @throws {FulmarError} `UNKNOWN_NAME` if a key has no entry.
   */
  select(keys: readonly TensorKey[]): TensorDict {
    return this.#derive((dict) => dict.select(JSON.stringify(keys.map(pathOf))))
  }

  /** All entries but those at `keys`; keys without an entry are passed over. Shares the elements. */
  exclude(keys: readonly TensorKey[]): TensorDict {
    return this.#derive((dict) => dict.exclude(JSON.stringify(keys.map(pathOf))))
  }

  /** Whether batch size and entries are equal; the order of keys does not matter. */
  equals(other: TensorDict): boolean {
    return this.#native.call((left) => other.#native.call((right) => left.equals(right)))
  }

  /** Gives the native memory back; what was taken out of it lives on. */
  [Symbol.dispose](): void {
    this.#native.free()
  }

  #derive(make: (dict: RawTensorDict) => RawTensorDict): TensorDict {
    return new TensorDict(() => this.#native.call(make))
  }
}

function joinedDicts(
  dicts: readonly TensorDict[],
  join: (list: RawTensorDictList) => RawTensorDict,
): RawTensorDict {
  const list = call(() => raw.TensorDictList.empty())
  try {
    for (const dict of dicts) unwrap(dict).call((one) => list.push(one))
    return call(() => join(list))
  } finally {
    list.free()
  }
}

function pathOf(key: TensorKey): string[] {
  return typeof key === 'string' ? [key] : [...key]
}

function jsonOf(value: Json): string {
  const text: string | undefined = JSON.stringify(value)
  if (text !== undefined) return text
  throw new FulmarError('MALFORMED', `value must be what JSON can say: got ${typeof value}`)
}
