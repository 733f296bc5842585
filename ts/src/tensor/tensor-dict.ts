/** Ordered, nested dictionaries of tensors whose shapes all begin with one batch size. */

import {
  call,
  checkKnownKeys,
  checkList,
  describeValue,
  FulmarError,
  Handle,
  namesDevice,
  type PlacedDevice,
  parseJson,
  placeDevice,
} from '../core/index.js'
import { type RawTensorDict, type RawTensorDictList, raw } from '../native/index.js'
import { type BatchIndex, indexJson, maskOf, positionsOf } from './batch-index.js'
import type { DictIn, EntryAt, Excluded, KnownShape, RowsOf, Selected, TensorOf } from './dict-shape.js'
import type { Dtype } from './dtype.js'
import { namesIn } from './key.js'
import { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
import { Ragged, raggedAround, withRawRagged } from './ragged.js'
import { dictOfState, stateDictOf } from './state-dict.js'
import { checkTensor, indices, Tensor, tensorAround, withRawTensor } from './tensor.js'
import { applied } from './tensor-dict-apply.js'
import type {
  ApplyOptions,
  PadSequenceOptions,
  RenameOptions,
  SelectOptions,
  TensorDictOptions,
} from './tensor-dict-options.js'

/** One name, or a path of them: `['a', 'b']` is the entry `b` of the dictionary `a`. A dot in a name has no meaning. */
export type TensorKey = string | readonly string[]

/** An entry of a dictionary. */
export type TensorDictEntry = Tensor | Ragged | TensorDict | NonTensorData | NonTensorStack

// Access to private fields, for this package only.
let wrap: <Shape extends object>(make: () => RawTensorDict) => TensorDict<Shape>
let unwrap: (dict: TensorDict) => Handle<RawTensorDict>

/**
 * Named tensors of one batch. Keys keep the order in which they were first set; entries share their elements
 * with the tensors that were set and that `get` returns. Dispose it, declare it with `using`, or leave it to
 * the collector.
 *
 * The type has the keys of the literal that the dictionary was made from: `get('reward')` is a `Tensor<'f32'>`
 * below. Other keys, and all keys of a plain `TensorDict`, give any entry or `undefined`; `delete`, `pop` and
 * `rename` do not change the type.
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
export class TensorDict<Shape extends object = object> {
  readonly #native: Handle<RawTensorDict>

  /** Leading dimensions that the shape of every tensor has. */
  readonly batchSize: readonly number[]

  private constructor(make: () => RawTensorDict) {
    this.#native = new Handle('TensorDict', make)
    this.batchSize = this.#native.call((dict) => [...dict.batchSize()])
  }

  static {
    wrap = (make) => new TensorDict(make)
    unwrap = (dict) => {
      if (typeof dict === 'object' && dict !== null && #native in dict) return dict.#native
      throw new FulmarError('MALFORMED', `items must be a TensorDict: got ${describeValue(dict)}`)
    }
  }

  /**
   * Creates a dictionary of `entries`, in their order; each is as in {@link TensorDict.set}.
   * @throws {FulmarError} `OUT_OF_RANGE` if a dimension is not an integer from 0; `LIMIT_EXCEEDED` above 16 of them; those
   *   of {@link TensorDict.set}.
   */
  static from<Entries extends Readonly<Record<string, TensorDictEntry>>>(
    entries?: Entries,
    options?: TensorDictOptions,
  ): TensorDict<KnownShape<Entries>>
  static from(
    entries: Readonly<Record<string, TensorDictEntry>> = {},
    options: TensorDictOptions = {},
  ): TensorDict {
    checkKnownKeys('options', options, ['batchSize', 'names'])
    const { batchSize = [], names } = options
    const dict = new TensorDict(() => raw.TensorDict.empty(indices(batchSize)))
    if (names) dict.names = names
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
  static stack<Shape extends object>(
    dicts: readonly TensorDict<Shape>[],
    dim = 0,
  ): TensorDict<RowsOf<Shape>> {
    return new TensorDict(() => withRawDicts(dicts, (list) => list.stack(dim)))
  }

  /**
   * Joins dictionaries along a batch dimension that they have; ragged entries join by rows. Copies.
   * @throws {FulmarError} As {@link TensorDict.stack}, but ragged entries join.
   */
  static cat<Shape extends object>(dicts: readonly TensorDict<Shape>[], dim = 0): TensorDict<RowsOf<Shape>> {
    return new TensorDict(() => withRawDicts(dicts, (list) => list.cat(dim)))
  }

  /**
   * Stacks dictionaries with different first batch dimensions, with padding after the elements of shorter ones. Copies.
   * @throws {FulmarError} `EMPTY` without dictionaries; `OUT_OF_RANGE` if one has no batch dimension or no element of a
   *   dtype equals the value; `INCOMPATIBLE` if an entry is ragged; `UNKNOWN_NAME` for an unknown option.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const sequence = (ids: number[]) =>
   *   TensorDict.from({ ids: Tensor.from(Int32Array.from(ids)) }, { batchSize: [ids.length] })
   * const batch = TensorDict.padSequence([sequence([1, 2]), sequence([3])], { value: -1, mask: 'masks' })
   * assert.deepEqual(batch.tensor('ids').data, Int32Array.of(1, 2, 3, -1))
   * assert.deepEqual(batch.tensor(['masks', 'ids']).data, Uint8Array.of(1, 1, 1, 0))
   * ```
   */
  static padSequence<Shape extends object>(
    dicts: readonly TensorDict<Shape>[],
    options: PadSequenceOptions = {},
  ): TensorDict<RowsOf<Shape>> {
    checkKnownKeys('options', options, ['dim', 'value', 'mask'])
    const { dim = 0, value = 0, mask } = options
    return new TensorDict(() => withRawDicts(dicts, (list) => list.padSequence(dim, value, mask)))
  }

  /**
   * Writes `entry` at `key`. A new key goes to the end, an existing one keeps its position; missing
   * dictionaries on the path are created. Shares the elements. Returns this dictionary.
   *
   * @throws {FulmarError} `SHAPE_MISMATCH`, with the key and both shapes, if the shape does not begin with
   * the batch size; `INCOMPATIBLE` if the path leads through an entry that is not a dictionary; `EMPTY` or
   * `LIMIT_EXCEEDED` if the key has no name or more than 32; `CLOSED` if the entry was disposed. After an
   * error nothing has changed.
   */
  set<Name extends keyof Shape & string>(key: Name, entry: Shape[Name]): this
  set<Key extends TensorKey>(key: Key extends keyof Shape ? never : Key, entry: TensorDictEntry): this
  set(key: TensorKey, entry: unknown): this {
    const path = pathOf(key)
    this.#native.call((dict) => {
      if (entry instanceof Tensor) withRawTensor(entry, (tensor) => dict.setTensor(path, tensor))
      else if (entry instanceof Ragged) withRawRagged(entry, (ragged) => dict.setRagged(path, ragged))
      else if (entry instanceof TensorDict) entry.#native.call((inner) => dict.setDict(path, inner))
      else if (entry instanceof NonTensorData) dict.setShared(path, jsonOf(entry.value))
      else if (entry instanceof NonTensorStack) dict.setEach(path, jsonOf(entry.values))
      else {
        const hint = Array.isArray(entry) ? '; Tensor.from makes a tensor of numbers' : ''
        const detail = `must be a Tensor, Ragged, TensorDict, NonTensorData or NonTensorStack: got ${describeValue(entry)}${hint}`
        throw new FulmarError('MALFORMED', `entry ${JSON.stringify(key)} ${detail}`)
      }
    })
    return this
  }

  /**
   * Returns the entry at `key`, or `undefined`. Shares the elements; a dictionary comes as a copy of its
   * structure.
   */
  get<Name extends keyof Shape & string>(key: Name): Shape[Name]
  get<const Path extends readonly string[]>(path: Path): EntryAt<Shape, Path>
  get(key: TensorKey): TensorDictEntry | undefined
  get(key: TensorKey): unknown {
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

  /** Returns true if there is an entry at `key`. */
  has(key: TensorKey): boolean {
    return this.#native.call((dict) => typeof dict.kind(pathOf(key)) === 'string')
  }

  /**
   * Returns the tensor at `key`.
   * @throws {FulmarError} `UNKNOWN_NAME` if there is no entry, `INCOMPATIBLE` if
   * it is not a tensor.
   */
  tensor<Name extends keyof Shape & string>(key: Name): TensorOf<Shape[Name]>
  tensor<const Path extends readonly string[]>(path: Path): TensorOf<EntryAt<Shape, Path>>
  tensor(key: TensorKey): Tensor
  tensor(key: TensorKey): Tensor {
    return tensorAround(() => this.#native.call((dict) => dict.tensor(pathOf(key))))
  }

  /** Returns the ragged tensor at `key`. @throws {FulmarError} As {@link TensorDict.tensor}. */
  ragged(key: TensorKey): Ragged {
    return raggedAround(() => this.#native.call((dict) => dict.ragged(pathOf(key))))
  }

  /**
   * Returns the dictionary at `key`: a copy of its structure, shared elements.
   * @throws {FulmarError} As
   * {@link TensorDict.tensor}.
   */
  dict<Name extends keyof Shape & string>(key: Name): DictIn<Shape[Name]>
  dict<const Path extends readonly string[]>(path: Path): DictIn<EntryAt<Shape, Path>>
  dict(key: TensorKey): TensorDict
  dict(key: TensorKey): TensorDict {
    return new TensorDict(() => this.#native.call((dict) => dict.dict(pathOf(key))))
  }

  /**
   * Returns the JSON value at `key`, or the values of the batch as nested arrays. A copy. An integer that a
   * JavaScript number would change, as most beyond 2^53, is a text of its digits.
   * @throws {FulmarError} As {@link TensorDict.tensor}.
   */
  value(key: TensorKey): Json {
    return parseJson(jsonTextAt(this, key)) as Json
  }

  /**
   * Removes the entry at `key` and returns it, or `undefined`.
   * @throws {FulmarError} `CLOSED` if this is
   * locked.
   */
  pop(key: TensorKey): TensorDictEntry | undefined {
    const entry = this.get(key)
    this.delete(key)
    return entry
  }

  /** Removes the entry at `key`. Returns true if there was one. */
  delete(key: TensorKey): boolean {
    return this.#native.call((dict) => dict.remove(pathOf(key)))
  }

  /** Returns the names of the entries in order, without nested ones. */
  keys(): string[] {
    return this.#native.call((dict) => dict.names())
  }

  /** Returns the paths of all entries, nested ones before the dictionary that holds them. */
  nestedKeys(): string[][] {
    return JSON.parse(this.#native.call((dict) => dict.nestedKeys())) as string[][]
  }

  /** Returns the paths of all entries that are not dictionaries. */
  leafKeys(): string[][] {
    return JSON.parse(this.#native.call((dict) => dict.leafKeys())) as string[][]
  }

  /**
   * Returns the element at `at` of the first batch dimension, without that dimension; a ragged entry gives
   * its row. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no batch dimension or no such element.
   */
  index(at: number): TensorDict<RowsOf<Shape>> {
    return this.#derive((dict) => dict.index(at))
  }

  /**
   * Returns the elements `start` up to and without `end` of the first batch dimension. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no batch dimension, or the range is backwards or ends past it.
   */
  slice(start: number, end: number = this.batchSize[0] ?? 0): TensorDict<RowsOf<Shape>> {
    return this.#derive((dict) => dict.slice(start, end))
  }

  /**
   * Returns the elements at `at` of the first batch dimension, in that order; an index may repeat. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no batch dimension or no such element.
   */
  indexSelect(at: Iterable<number>): TensorDict<RowsOf<Shape>> {
    return this.#derive((dict) => dict.indexSelect(indices(at)))
  }

  /**
   * Keeps only the entries at `keys`, in the order of this dictionary. Shares the elements.
   * @throws {FulmarError} `UNKNOWN_NAME` if a key has no entry and `strict` is not false.
   */
  select<const Key extends TensorKey>(
    keys: readonly Key[],
    options: SelectOptions = {},
  ): TensorDict<Selected<Shape, Key>> {
    checkKnownKeys('options', options, ['strict'])
    const paths = keys.map(pathOf)
    if (options.strict === false) return this.#operated({ op: 'selectKnown', keys: paths })
    return this.#derive((dict) => dict.select(JSON.stringify(paths)))
  }

  /**
   * Returns for each of `sets` the entries at its keys, then the remaining ones. Shares the elements.
   * @throws {FulmarError} `UNKNOWN_NAME` if a key has no entry.
   */
  splitKeys(...sets: readonly (readonly TensorKey[])[]): TensorDict[] {
    return this.#parted({ by: 'splitKeys', sets: sets.map((keys) => keys.map(pathOf)) })
  }

  /** Returns the nested dictionaries and JSON values, without tensors. */
  structure(): TensorDict {
    return this.#operated({ op: 'structure' })
  }

  /** Copies the structure, unlocked. Shares the elements. */
  clone(): TensorDict<Shape> {
    return this.#derive((dict) => dict.operate('{"op":"at","index":[]}'))
  }

  /** Returns all entries except those at `keys`; keys without an entry are skipped. Shares the elements. */
  exclude<const Key extends TensorKey>(keys: readonly Key[]): TensorDict<Excluded<Shape, Key>> {
    return this.#derive((dict) => dict.exclude(JSON.stringify(keys.map(pathOf))))
  }

  /**
   * Returns the batch elements at `index`. Shares the elements, but a list or a mask copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if a position does not exist or the index has more dimensions than
   * the batch; `SHAPE_MISMATCH` if a mask has another shape than its dimensions, or lists do not broadcast;
   * `INCOMPATIBLE` at a ragged entry whose rows would not keep one dimension; `MALFORMED` if an item is not a
   * valid index.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const ids = Tensor.from(Int32Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] })
   * const batch = TensorDict.from({ ids }, { batchSize: [2, 3] })
   * assert.deepEqual(batch.at('...', -1).tensor('ids').data, Int32Array.of(3, 6))
   * assert.deepEqual(batch.at([1, 0], { step: 2 }).tensor('ids').data, Int32Array.of(4, 6, 1, 3))
   * assert.deepEqual(batch.at([true, false], null).batchSize, [1, 1, 3])
   * ```
   */
  at(...index: BatchIndex[]): TensorDict<RowsOf<Shape>> {
    return this.#derive((dict) => dict.operate(`{"op":"at","index":${indexJson(index)}}`))
  }

  /**
   * Writes the entries of `part` over the batch elements at `index`. Entries missing from `part` stay.
   * Entries missing here are added, with 0 at all other elements, unless this is locked. Returns this
   * dictionary; entries taken from it before keep their elements.
   * @throws {FulmarError} The errors of `TensorDict.at`; `SHAPE_MISMATCH` if batch size or shapes differ; `INCOMPATIBLE`
   *   if kinds or dtypes do, or an entry is ragged; `CLOSED` if a locked one would get a key. After an error nothing has
   *   changed.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const ring = TensorDict.from({ id: Tensor.from(Int32Array.of(1, 2, 3)) }, { batchSize: [3] })
   * const rows = TensorDict.from({ id: Tensor.from(Int32Array.of(8, 9)) }, { batchSize: [2] })
   * ring.setAt([[2, 0]], rows)
   * assert.deepEqual(ring.tensor('id').data, Int32Array.of(9, 2, 8))
   * ```
   */
  setAt(index: readonly BatchIndex[], part: TensorDict): this {
    const json = indexJson(index)
    this.#native.call((dict) => withRawDict(part, (rows) => dict.setAt(json, rows)))
    return this
  }

  /**
   * Writes `value`, broadcast, over the elements of the tensor at `key`, even if this is locked. Returns this
   * dictionary; entries taken from it before keep their elements.
   * @throws {FulmarError} `UNKNOWN_NAME` if there is no entry; `INCOMPATIBLE` if it is not a tensor or has
   * another dtype; `SHAPE_MISMATCH` if `value` does not broadcast. After an error nothing has changed.
   */
  write(key: TensorKey, value: Tensor): this {
    return this.writeAt(key, [], value)
  }

  /**
   * Calls {@link TensorDict.write} for the batch elements at `index` only.
   * @throws {FulmarError} The errors of {@link TensorDict.write} and `TensorDict.at`.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const dict = TensorDict.from({ reward: Tensor.from([0.5, 1]) }, { batchSize: [2] }).lock()
   * dict.writeAt('reward', [-1], Tensor.from([2], { shape: [] }))
   * assert.deepEqual(dict.tensor('reward').data, Float32Array.of(0.5, 2))
   * ```
   */
  writeAt(key: TensorKey, index: readonly BatchIndex[], value: Tensor): this {
    const [path, json] = [pathOf(key), indexJson(index)]
    this.#native.call((dict) => withRawTensor(value, (tensor) => dict.writeAt(path, json, tensor)))
    return this
  }

  /**
   * Writes the entries of `other` over those at the same keys, even if this is locked. Returns this dictionary.
   * @throws {FulmarError} `UNKNOWN_NAME` if a key has no entry here; those of {@link TensorDict.setAt}. After an error nothing has
   *   changed.
   */
  writeAll(other: TensorDict): this {
    this.#native.call((dict) => withRawDict(other, (entries) => dict.writeAll(entries)))
    return this
  }

  /**
   * Writes a finite number to all tensors at the batch elements at `index`, cast to each dtype; JSON values stay. Returns this
   * dictionary.
   * @throws {FulmarError} The errors of `TensorDict.at`; `OUT_OF_RANGE` if a dtype cannot hold `value`; `INCOMPATIBLE` if an entry
   *   is ragged. After an error nothing has changed.
   */
  fillAt(index: readonly BatchIndex[], value: number): this {
    const json = indexJson(index)
    this.#native.call((dict) => dict.fillAt(json, value))
    return this
  }

  /**
   * Selects elements of this dictionary where `mask`, bools of the shape of the batch, is true, and of
   * `other` elsewhere. Copies.
   * @throws {FulmarError} `SHAPE_MISMATCH` if `mask` or `other` has another shape; `UNKNOWN_NAME` or `INCOMPATIBLE` if the
   *   dictionaries differ in keys, kinds or dtypes, or an entry is ragged.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const dict = TensorDict.from({ id: Tensor.from(Int32Array.of(1, 2)) }, { batchSize: [2] })
   * const mask = Tensor.from(Uint8Array.of(1, 0), { dtype: 'bool' })
   * assert.deepEqual(dict.where(mask, dict.zerosLike()).tensor('id').data, Int32Array.of(1, 0))
   * ```
   */
  where(mask: Tensor, other: TensorDict): TensorDict<RowsOf<Shape>> {
    return this.#derive((dict) =>
      withRawTensor(mask, (bools) => withRawDict(other, (rest) => dict.whereElse(bools, rest))),
    )
  }

  /**
   * Applies `to` to each tensor, and to the values of each ragged one, with its key; an entry for which `to`
   * returns nothing is removed. JSON values stay. Returns `undefined` if no entry is left and `keepEmpty` is
   * not set. Calls `to` once for each leaf, in order.
   * @throws {FulmarError} `SHAPE_MISMATCH`, with the key, if a shape does not begin with the batch size;
   * `UNKNOWN_NAME` for an unknown option. Errors of `to` pass through.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const dict = TensorDict.from({ id: Tensor.from([1, 2]), done: Tensor.zeros('bool', [2]) }, { batchSize: [2] })
   * const doubles = dict.apply((tensor) => tensor.to('f64'))
   * assert.equal(doubles.tensor('done').dtype, 'f64')
   * const ids = dict.apply((tensor, key) => (key[0] === 'id' ? tensor : undefined))
   * assert.deepEqual(ids?.keys(), ['id'])
   * ```
   */
  apply(to: (tensor: Tensor, key: readonly string[]) => Tensor, options?: ApplyOptions): TensorDict
  apply(
    to: (tensor: Tensor, key: readonly string[]) => Tensor | undefined,
    options: ApplyOptions & { readonly keepEmpty: true },
  ): TensorDict
  apply(
    to: (tensor: Tensor, key: readonly string[]) => Tensor | undefined,
    options?: ApplyOptions,
  ): TensorDict | undefined
  apply(
    to: (tensor: Tensor, key: readonly string[]) => Tensor | undefined,
    options: ApplyOptions = {},
  ): TensorDict | undefined {
    checkKnownKeys('options', options, ['batchSize', 'keepEmpty'])
    if (typeof to !== 'function')
      throw new FulmarError('MALFORMED', `to must be a function: got ${describeValue(to)}`)
    return applied(this, [], to, options)
  }

  /** Returns the same keys and shapes with zeros (`false` for bools); JSON values stay. */
  zerosLike(): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'zerosLike' })
  }

  /**
   * Converts every tensor, and the values of every ragged one, to another element type or device, as
   * {@link Tensor.to} does.
   * @throws {FulmarError} The errors of {@link Tensor.to}, with the key.
   */
  to(target: Dtype | PlacedDevice): TensorDict {
    if (!namesDevice(target)) return this.#operated({ op: 'to', dtype: target })
    return this.#operated({ op: 'toDevice', device: placeDevice(target) })
  }

  /** Device of all tensors; `undefined` without tensors, or if they are on several devices. */
  get device(): PlacedDevice | undefined {
    return (this.#native.call((dict) => dict.device()) ?? undefined) as PlacedDevice | undefined
  }

  /**
   * Sums each tensor along batch dimension `dim` and removes it; without `dim`, sums all elements, and the
   * result has no batch. Integers and bools add up to `i64`.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension or a sum does not fit; `INCOMPATIBLE` at a ragged entry or
   *   values of each element.
   */
  sum(dim?: number): TensorDict {
    return this.#operated({ op: 'sum', dim })
  }

  /**
   * Name of each batch dimension, `null` for an unnamed one. Names follow their dimensions through every
   * operation and into nested dictionaries; equality and saved folders ignore them. Setting this replaces all
   * names.
   * @throws {FulmarError} `SHAPE_MISMATCH` if there is not one for each dimension; `INCOMPATIBLE` if a name repeats.
   *
   * @example
   * ```ts
   * import { TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const batch = TensorDict.from({}, { batchSize: [2, 3], names: [null, 'time'] })
   * assert.deepEqual(batch.transpose(0, 1).names, ['time', null])
   * ```
   */
  get names(): readonly (string | null)[] {
    return JSON.parse(this.#native.call((dict) => dict.dimNames())) as (string | null)[]
  }

  set names(names: readonly (string | null)[]) {
    this.#native.call((dict) => dict.setDimNames(JSON.stringify(names)))
  }

  /**
   * Names dimensions that have no name yet: `'...'` covers all that the other names leave, `null` leaves one
   * unnamed. Returns this dictionary.
   * @throws {FulmarError} `INCOMPATIBLE` if a dimension has another name; those of {@link TensorDict.names}.
   */
  refineNames(...names: (string | null)[]): this {
    this.#native.call((dict) => dict.refineDimNames(JSON.stringify(names)))
    return this
  }

  /**
   * Returns all tensors by their path, its names joined by dots. Shares the elements.
   * @throws {FulmarError}
   * `INCOMPATIBLE` if two paths give one name.
   */
  stateDict(): Record<string, Tensor> {
    return stateDictOf(this)
  }

  /**
   * Writes the tensors of `state` over those of the same name, even if this is locked. Returns this dictionary.
   * @throws {FulmarError} `UNKNOWN_NAME` if the names are not exactly those of {@link TensorDict.stateDict}; with the key,
   *   `SHAPE_MISMATCH` or `INCOMPATIBLE` if a shape or a dtype differs. After an error nothing has changed.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const dict = TensorDict.from().set(['layer', 'bias'], Tensor.from([1]))
   * assert.deepEqual(Object.keys(dict.stateDict()), ['layer.bias'])
   * assert.ok(dict.zerosLike().loadStateDict(dict.stateDict()).equals(dict))
   * ```
   */
  loadStateDict(state: Readonly<Record<string, Tensor>>): this {
    return this.writeAll(dictOfState(this, state))
  }

  /**
   * Selects the batch elements where `mask` is true; one dimension replaces those of the mask. Copies.
   * @throws {FulmarError} `INCOMPATIBLE` if it does not hold bools; those of `TensorDict.at`.
   */
  maskedSelect(mask: Tensor): TensorDict<RowsOf<Shape>> {
    checkTensor(mask)
    return this.at(mask.as('bool'))
  }

  /**
   * Writes `value`, a finite number, to a copy of the batch where `mask`, of its shape, is true. JSON values
   * stay.
   * @throws {FulmarError} `INCOMPATIBLE` if it does not hold bools or an entry is ragged; `SHAPE_MISMATCH` if it has
   *   another shape; `OUT_OF_RANGE` if no element of a dtype equals `value`.
   */
  maskedFill(mask: Tensor, value: number): TensorDict<RowsOf<Shape>> {
    checkTensor(mask)
    return this.#operated({ op: 'maskedFill', mask: maskOf(mask), value })
  }

  /**
   * Replaces each batch element by the one at position `index` of dimension `dim`; `index` holds integers of
   * as many dimensions. Copies.
   * @throws {FulmarError} `SHAPE_MISMATCH` if `index` exceeds the batch in a
   * dimension other than `dim`; `OUT_OF_RANGE` if there is
   *   no such dimension or position.
   */
  gather(dim: number, index: Tensor): TensorDict<RowsOf<Shape>> {
    checkTensor(index)
    return this.#operated({ op: 'gather', dim, shape: index.shape, at: positionsOf(index) })
  }

  /**
   * Reshapes the batch, row-major; one size may be -1 and is inferred. Copies only if necessary.
   * @throws {FulmarError} `SHAPE_MISMATCH` if it holds another number of elements; `INCOMPATIBLE` at a ragged entry.
   */
  reshape(sizes: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'reshape', sizes })
  }

  /**
   * Calls {@link TensorDict.reshape} without copies.
   * @throws {FulmarError} `INCOMPATIBLE` if a copy is
   * necessary.
   */
  view(sizes: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'view', sizes })
  }

  /**
   * Merges the batch dimensions from `first` to `last`, both inclusive, into one.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension or `last` comes before `first`.
   */
  flatten(first = 0, last = -1): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'flatten', first, last })
  }

  /**
   * Splits dimension `dim` into dimensions of `sizes`, of which one may be -1 and is inferred.
   * @throws {FulmarError} `OUT_OF_RANGE` without such a dimension; `SHAPE_MISMATCH` if they do not multiply up to it.
   */
  unflatten(dim: number, sizes: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'unflatten', dim, sizes })
  }

  /**
   * Permutes the batch dimensions. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` without such a dimension; `SHAPE_MISMATCH` if a dimension is missing or repeated.
   */
  permute(order: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'permute', order })
  }

  /** Exchanges two batch dimensions. Shares the elements. @throws {FulmarError} `OUT_OF_RANGE` without such a dimension. */
  transpose(left: number, right: number): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'transpose', left, right })
  }

  /** Inserts a dimension of length 1 before `dim`; -1 appends it. @throws {FulmarError} `OUT_OF_RANGE` past the batch. */
  unsqueeze(dim: number): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'unsqueeze', dim })
  }

  /**
   * Removes dimension `dim` if its length is 1; without `dim`, removes every dimension of length 1.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension.
   */
  squeeze(dim?: number): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'squeeze', dim })
  }

  /**
   * Repeats dimensions of length 1, and new ones in front, up to `sizes`. Shares the elements.
   * @throws {FulmarError} `SHAPE_MISMATCH` if another dimension would change; `LIMIT_EXCEEDED` above 2^27 elements.
   */
  expand(sizes: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'expand', sizes })
  }

  /**
   * Tiles the batch, one count for each dimension. Copies.
   * @throws {FulmarError} As
   * {@link TensorDict.expand}.
   */
  repeat(counts: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'repeat', counts })
  }

  /**
   * Repeats each part of dimension `dim` `count` times in a row. Copies.
   * @throws {FulmarError} As
   * {@link TensorDict.expand}.
   */
  repeatInterleave(count: number, dim = 0): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'repeatInterleave', count, dim })
  }

  /**
   * Rotates dimension `dim` by `shift` positions. Copies.
   * @throws {FulmarError} As {@link TensorDict.unbind}.
   */
  roll(shift: number, dim = 0): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'roll', shift, dim })
  }

  /** Reverses dimension `dim`. Copies. @throws {FulmarError} As {@link TensorDict.unbind}. */
  flip(dim = 0): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'flip', dim })
  }

  /**
   * Returns the same entries with another batch size. Shares them.
   * @throws {FulmarError} `SHAPE_MISMATCH` if
   * a shape does not begin with it.
   */
  withBatchSize(sizes: readonly number[]): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'withBatchSize', sizes })
  }

  /**
   * Returns the same entries with the longest batch size that all shapes begin with, at most `dimsMax`
   * dimensions. Shares the elements.
   */
  autoBatchSize(dimsMax?: number): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'autoBatchSize', dimsMax: dimsMax ?? null })
  }

  /**
   * Pads the batch with `value`, a finite number: `around[i]` counts the elements to add before and after
   * dimension `i`.
   * @throws {FulmarError} `SHAPE_MISMATCH` with more pairs than dimensions; `OUT_OF_RANGE` if no element of a dtype equals
   *   `value`; `INCOMPATIBLE` at a ragged entry or a value of each element.
   */
  pad(around: readonly (readonly [before: number, after: number])[], value = 0): TensorDict<RowsOf<Shape>> {
    return this.#operated({ op: 'pad', around, value })
  }

  /**
   * Splits a dimension into parts of `size`, of which the last may be shorter, or into parts of the given
   * sizes. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` without such a dimension or with size 0; `SHAPE_MISMATCH` if sizes do not add up.
   */
  split(size: number | readonly number[], dim = 0): TensorDict<RowsOf<Shape>>[] {
    return this.#parted(
      typeof size === 'number' ? { by: 'split', size, dim } : { by: 'splitSizes', sizes: size, dim },
    )
  }

  /**
   * Splits a dimension into at most `count` parts of one length; the last may be shorter.
   * @throws
   * {FulmarError} As {@link TensorDict.split}.
   */
  chunk(count: number, dim = 0): TensorDict<RowsOf<Shape>>[] {
    return this.#parted({ by: 'chunk', count, dim })
  }

  /**
   * Splits a dimension into its elements and removes it.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no
   * such dimension.
   */
  unbind(dim = 0): TensorDict<RowsOf<Shape>>[] {
    return this.#parted({ by: 'unbind', dim })
  }

  /**
   * Moves all entries that are not dictionaries to the top level, their names joined. Shares the elements.
   * @throws {FulmarError} `INCOMPATIBLE` if two keys become one.
   */
  flattenKeys(separator = '.'): TensorDict {
    return this.#operated({ op: 'flattenKeys', separator })
  }

  /**
   * Moves entries with `separator` in their name to the path that it separates, after the other entries.
   * Shares the elements.
   * @throws {FulmarError} `INCOMPATIBLE` if a path leads to or through another entry; `EMPTY` without a separator.
   */
  unflattenKeys(separator = '.'): TensorDict {
    return this.#operated({ op: 'unflattenKeys', separator })
  }

  /**
   * Moves the entry at `old` to `key`. Returns this dictionary.
   * @throws {FulmarError} `UNKNOWN_NAME` if `old` has no entry or for an unknown option; `INCOMPATIBLE` if
   * `safe` is true and `key` exists; `CLOSED` if this is locked; those of {@link TensorDict.set}. After an
   * error nothing has changed.
   */
  rename(old: TensorKey, key: TensorKey, options: RenameOptions = {}): this {
    checkKnownKeys('options', options, ['safe'])
    this.#native.call((dict) => dict.rename(pathOf(old), pathOf(key), options.safe ?? false))
    return this
  }

  /**
   * Writes all entries of `other` here, over those at the same keys; nested dictionaries merge. Returns this
   * dictionary.
   * @throws {FulmarError} The errors of {@link TensorDict.set}. After an error nothing has changed.
   */
  update(other: TensorDict): this {
    this.#native.call((dict) => withRawDict(other, (entries) => dict.update(entries)))
    return this
  }

  /**
   * Forbids new and removed keys, with `CLOSED`; {@link TensorDict.setAt} still writes. Returns this
   * dictionary.
   */
  lock(): this {
    this.#native.call((dict) => dict.setLocked(true))
    return this
  }

  /** Allows keys to change again. Returns this dictionary. */
  unlock(): this {
    this.#native.call((dict) => dict.setLocked(false))
    return this
  }

  /** Number of bytes of the elements of all tensors. */
  get sizeBytes(): number {
    return this.#native.call((dict) => dict.sizeBytes())
  }

  /** True if keys cannot change. */
  get isLocked(): boolean {
    return this.#native.call((dict) => dict.locked())
  }

  /** Returns true if batch size and entries are equal; the order of keys does not matter. */
  equals(other: TensorDict): boolean {
    return this.#native.call((left) => withRawDict(other, (right) => left.equals(right)))
  }

  /** Frees the native memory; entries taken from it stay valid. */
  [Symbol.dispose](): void {
    this.#native.free()
  }

  #operated<Made extends object>(operation: object): TensorDict<Made> {
    return this.#derive((dict) => dict.operate(JSON.stringify(operation)))
  }

  #parted<Made extends object>(partition: object): TensorDict<Made>[] {
    return dictsOf(this.#native.call((dict) => dict.part(JSON.stringify(partition))))
  }

  #derive<Made extends object>(make: (dict: RawTensorDict) => RawTensorDict): TensorDict<Made> {
    return new TensorDict(() => this.#native.call(make))
  }
}

/** Wraps a native dictionary, for the rooms that get dictionaries from the core. */
export function dictAround<Shape extends object = object>(make: () => RawTensorDict): TensorDict<Shape> {
  return wrap(make)
}

/** Returns the text of {@link TensorDict.value}, for the rooms that pass it on unparsed. */
export function jsonTextAt(dict: TensorDict, key: TensorKey): string {
  return withRawDict(dict, (raw) => raw.value(pathOf(key)))
}

/** Calls `body` with the native dictionary, for the rooms that pass dictionaries to the core. */
export function withRawDict<R>(dict: TensorDict, body: (raw: RawTensorDict) => R): R {
  return unwrap(dict).call(body)
}

/** Rejects values that are not dictionaries. @throws {FulmarError} `MALFORMED`. */
export function checkDict(dict: TensorDict): void {
  unwrap(dict)
}

/** Returns the dictionaries of a native list, which is freed. */
export function dictsOf<Shape extends object = object>(list: RawTensorDictList): TensorDict<Shape>[] {
  try {
    return Array.from({ length: call(() => list.count()) }, (_, at) => dictAround<Shape>(() => list.get(at)))
  } finally {
    list.free()
  }
}

/** Calls `body` with a native list of dictionaries. */
export function withRawDicts<R>(dicts: readonly TensorDict[], body: (list: RawTensorDictList) => R): R {
  checkList('dicts', dicts)
  const list = call(() => raw.TensorDictList.empty())
  try {
    for (const dict of dicts) unwrap(dict).call((one) => list.push(one))
    return call(() => body(list))
  } finally {
    list.free()
  }
}

/**
 * Returns the names of a key.
 * @throws {FulmarError} `MALFORMED` if it is neither a name nor a list of them.
 */
export function pathOf(key: TensorKey): string[] {
  return namesIn(key)
}

/** Returns a JSON value as text. @throws {FulmarError} `MALFORMED` if JSON cannot represent it. */
export function jsonOf(value: Json): string {
  const text: string | undefined = JSON.stringify(value)
  if (text !== undefined) return text
  throw new FulmarError('MALFORMED', `value must be a JSON value: got ${typeof value}`)
}
