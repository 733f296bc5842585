/** Stacks of dictionaries that are joined on access: their keys and shapes may differ. */

import { checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import type { RawLazyStack, RawStacked } from '../native/index.js'
import { type BatchIndex, indexJson } from './batch-index.js'
import { NonTensorStack } from './non-tensor.js'
import { type Ragged, raggedAround } from './ragged.js'
import { type Tensor, tensorAround } from './tensor.js'
import {
  dictAround,
  dictsOf,
  pathOf,
  TensorDict,
  type TensorDictEntry,
  type TensorKey,
  withRawDict,
  withRawDicts,
} from './tensor-dict.js'

/** Options of {@link LazyStack.get}: at most one of the three forms. */
export interface LazyGetOptions {
  /** If true, returns one entry for each part. @default false */
  readonly asList?: boolean
  /** If true, returns rows, which may differ in their first dimension. @default false */
  readonly asNestedTensor?: boolean
  /** If true, returns a dense tensor with padding next to short rows. @default false */
  readonly asPaddedTensor?: boolean
  /** Element used as padding. @default 0 */
  readonly paddingValue?: number
  /** Side of short rows that is padded. @default 'right' */
  readonly paddingSide?: 'left' | 'right'
}

/**
 * A stack of dictionaries along a new batch dimension, computed entry by entry on access; {@link lazyStack}
 * makes one. Dispose it, declare it with `using`, or leave it to the collector.
 *
 * @example
 * ```ts
 * import { lazyStack, Tensor, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const episode = (ids: number[]) => TensorDict.from({ ids: Tensor.from(Int32Array.from(ids)) })
 * using stack = lazyStack([episode([1, 2]), episode([3])])
 * assert.throws(() => stack.get('ids'), { code: 'SHAPE_MISMATCH' })
 * assert.deepEqual(stack.get('ids', { asPaddedTensor: true, paddingValue: -1 }).data, Int32Array.of(1, 2, 3, -1))
 * assert.deepEqual(stack.get('ids', { asNestedTensor: true }).offsets, Uint32Array.of(0, 2, 3))
 * ```
 */
export class LazyStack {
  readonly #native: Handle<RawLazyStack>

  /** Use {@link lazyStack}. @internal */
  constructor(make: () => RawLazyStack) {
    this.#native = new Handle('LazyStack', make)
  }

  /** Batch dimension along which the parts are stacked. */
  get dim(): number {
    return this.#native.call((stack) => stack.dim())
  }

  /** The batch dimensions; -1 where lengths differ. */
  get batchSize(): readonly number[] {
    return this.#native.call((stack) => [...stack.batchSize()])
  }

  /** The dictionaries. Shares the elements. */
  get parts(): TensorDict[] {
    return dictsOf(this.#native.call((stack) => stack.parts()))
  }

  /** The names of the entries that every part has, in the order of the first. */
  keys(): string[] {
    return (JSON.parse(this.#native.call((stack) => stack.names())) as string[][]).flat()
  }

  /** The paths of all entries but dictionaries that every part has. */
  leafKeys(): string[][] {
    return JSON.parse(this.#native.call((stack) => stack.leafKeys())) as string[][]
  }

  /**
   * Returns the entry at `key`, stacked. Copies; a list shares the elements.
   * @throws {FulmarError} `UNKNOWN_NAME` if a part has no such entry or for an unknown option;
   * `SHAPE_MISMATCH` if shapes differ, which an option may allow; `INCOMPATIBLE` for rows or padding of parts
   * with a batch or of entries that are not tensors, or for two forms at once; `OUT_OF_RANGE` if no element
   * of the dtype equals the padding.
   */
  get(key: TensorKey, options: LazyGetOptions & { readonly asList: true }): TensorDictEntry[]
  get(key: TensorKey, options: LazyGetOptions & { readonly asNestedTensor: true }): Ragged
  get(key: TensorKey, options: LazyGetOptions & { readonly asPaddedTensor: true }): Tensor
  get(key: TensorKey, options?: LazyGetOptions): TensorDictEntry | TensorDictEntry[]
  get(key: TensorKey, options: LazyGetOptions = {}): TensorDictEntry | TensorDictEntry[] {
    const known = ['asList', 'asNestedTensor', 'asPaddedTensor', 'paddingValue', 'paddingSide']
    checkKnownKeys('options', options, known)
    const { asList, asNestedTensor, asPaddedTensor, paddingValue = 0, paddingSide = 'right' } = options
    if ([asList, asNestedTensor, asPaddedTensor].filter(Boolean).length > 1) {
      throw new FulmarError('INCOMPATIBLE', 'options must select one form of an entry: several are true')
    }
    const path = pathOf(key)
    if (asNestedTensor) return raggedAround(() => this.#native.call((stack) => stack.ragged(path)))
    if (asPaddedTensor) {
      return tensorAround(() => this.#native.call((stack) => stack.padded(path, paddingSide, paddingValue)))
    }
    const alone = this.parts.map((part) => part.select([path]))
    return asList
      ? alone.map((part) => entryAt(part, path))
      : entryAt(TensorDict.stack(alone, this.dim), path)
  }

  /**
   * Writes an entry for the whole stack at `key`; each part gets its slice along the stacked dimension.
   * Returns this stack.
   * @throws {FulmarError} `SHAPE_MISMATCH` if the stacked dimension of the entry is not as long as there are parts; those of
   *   {@link TensorDict.set}. After an error nothing has changed.
   */
  set(key: TensorKey, entry: TensorDictEntry): this {
    // The batch of the value distinguishes values for each element from one that all elements share.
    const batchSize = entry instanceof NonTensorStack ? this.batchSize : []
    const holder = TensorDict.from({ '': entry }, { batchSize })
    this.#native.call((stack) => withRawDict(holder, (one) => stack.set(pathOf(key), one)))
    return this
  }

  /**
   * Writes the entries of `item` over those of the part at `at`, as {@link TensorDict.setAt} does. Returns this stack.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such part; those of {@link TensorDict.setAt}.
   */
  setPart(at: number, item: TensorDict): this {
    this.#native.call((stack) => withRawDict(item, (one) => stack.setPart(at, one)))
    return this
  }

  /**
   * Puts `part` before the one at `at`, or at the end if `at` is their number. Returns this stack.
   * @throws {FulmarError} `OUT_OF_RANGE` if `at` is larger; `SHAPE_MISMATCH` if the part has another number of batch dimensions.
   */
  insert(at: number, part: TensorDict): this {
    this.#native.call((stack) => withRawDict(part, (one) => stack.insert(at, one)))
    return this
  }

  /** Puts `part` at the end. Returns this stack. @throws {FulmarError} As {@link LazyStack.insert}. */
  append(part: TensorDict): this {
    return this.insert(this.parts.length, part)
  }

  /**
   * Returns the elements at `index`: a part, or a selection of one, if `index` has a position along the
   * stacked dimension; else a stack of parts.
   * @throws {FulmarError} The errors of `TensorDict.at`; those of {@link LazyStack.dense} if several lists, or a mask over several
   *   dimensions, pick across parts.
   *
   * @example
   * ```ts
   * import { LazyStack, lazyStack, TensorDict } from 'fulmar/tensor'
   * import assert from 'node:assert/strict'
   *
   * const stack = lazyStack([2, 3].map((length) => TensorDict.from({}, { batchSize: [length] })))
   * assert.deepEqual(stack.at(1).batchSize, [3])
   * assert.ok(stack.at([1, 0]) instanceof LazyStack)
   * ```
   */
  at(...index: BatchIndex[]): TensorDict | LazyStack {
    const json = indexJson(index)
    return stackedOf(this.#native.call((stack) => stack.at(json)))
  }

  /** Keeps only the entries at `keys` of every part. @throws {FulmarError} `UNKNOWN_NAME` if a part lacks one. */
  select(keys: readonly TensorKey[]): LazyStack {
    const json = JSON.stringify(keys.map(pathOf))
    return new LazyStack(() => this.#native.call((stack) => stack.select(json)))
  }

  /** Applies {@link TensorDict.apply} to every part. */
  apply(to: (tensor: Tensor, key: readonly string[]) => Tensor): LazyStack {
    return lazyStack(
      this.parts.map((part) => part.apply(to)),
      this.dim,
    )
  }

  /** Concatenates the parts of both stacks. @throws {FulmarError} `INCOMPATIBLE` if they are stacked along different dimensions. */
  cat(other: LazyStack): LazyStack {
    return new LazyStack(() => this.#native.call((left) => other.#native.call((right) => left.cat(right))))
  }

  /**
   * Stacks both along a new first dimension: each part with the one at the same index. Copies.
   * @throws {FulmarError} `INCOMPATIBLE` along different dimensions; `SHAPE_MISMATCH` with another number of parts or other shapes.
   */
  stack(other: LazyStack): LazyStack {
    return new LazyStack(() => this.#native.call((left) => other.#native.call((right) => left.stack(right))))
  }

  /** Joins the parts by {@link TensorDict.stack}. @throws {FulmarError} As {@link TensorDict.stack}. */
  dense(): TensorDict {
    return dictAround(() => this.#native.call((stack) => stack.dense()))
  }

  /**
   * Joins the entries that all parts have into one dictionary: stacked where shapes agree, ragged where first
   * dimensions differ.
   * @throws {FulmarError} `SHAPE_MISMATCH` if batch sizes differ, or shapes in another dimension; `INCOMPATIBLE` if kinds or dtypes do.
   */
  densify(): TensorDict {
    return dictAround(() => this.#native.call((stack) => stack.densify()))
  }

  /** Returns {@link LazyStack.dense} if keys and shapes agree, else a stack of the same parts. */
  maybeDense(): TensorDict | LazyStack {
    return stackedOf(this.#native.call((stack) => stack.maybeDense()))
  }

  /** Returns true if parts and dimension are equal. */
  equals(other: LazyStack): boolean {
    return this.#native.call((left) => other.#native.call((right) => left.equals(right)))
  }

  /** Frees the native memory; entries and parts taken from it stay valid. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/**
 * Stacks `dicts` lazily along `dim`. Their keys may differ, and so may the sizes of their batch dimensions.
 * @throws {FulmarError} `EMPTY` without dictionaries; `SHAPE_MISMATCH` if their numbers of batch dimensions differ; `OUT_OF_RANGE` if
 *   `dim` is past them.
 *
 * @example
 * ```ts
 * import { lazyStack, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const stack = lazyStack([2, 3].map((length) => TensorDict.from({}, { batchSize: [length] })))
 * assert.deepEqual(stack.batchSize, [2, -1])
 * ```
 */
export function lazyStack(dicts: readonly TensorDict[], dim = 0): LazyStack {
  return new LazyStack(() => withRawDicts(dicts, (list) => list.lazyStack(dim)))
}

/**
 * Calls {@link TensorDict.stack} if keys and shapes agree, else {@link lazyStack}.
 * @throws {FulmarError} As {@link lazyStack}.
 *
 * @example
 * ```ts
 * import { maybeDenseStack, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const dict = TensorDict.from({}, { batchSize: [3] })
 * assert.ok(maybeDenseStack([dict, dict]) instanceof TensorDict)
 * ```
 */
export function maybeDenseStack(dicts: readonly TensorDict[], dim = 0): TensorDict | LazyStack {
  return lazyStack(dicts, dim).maybeDense()
}

function stackedOf(stacked: RawStacked): TensorDict | LazyStack {
  try {
    return stacked.isDict() ? dictAround(() => stacked.dict()) : new LazyStack(() => stacked.lazy())
  } finally {
    stacked.free()
  }
}

/** Returns the entry at `path`, or throws the error for a missing one. */
function entryAt(dict: TensorDict, path: readonly string[]): TensorDictEntry {
  return dict.get(path) ?? dict.tensor(path)
}
