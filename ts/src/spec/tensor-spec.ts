/** Methods of all specs. */

import { call, checkKnownKeys, FulmarError, Handle, type Rng } from '../core/index.js'
import { type RawTensorSpec, type RawTensorSpecList, raw } from '../native/index.js'
import { indexJson } from '../tensor/batch-index.js'
import type { BatchIndex, Dtype, Tensor, TensorDictEntry } from '../tensor/index.js'
import { indices, tensorAround } from '../tensor/tensor.js'
import { plainText } from './spec-json.js'
import type { SpecCheckOptions, SpecJson, SpecShape, SpecViolation } from './types.js'
import { madeValue, withValue } from './value.js'

/** Type-level key of the type of a reshaped spec. */
export declare const RESHAPED: unique symbol

/** Options of {@link TensorSpec.enumerate}. */
export interface EnumerateOptions {
  /** If true, enumerates only values that the mask allows. @default false */
  readonly useMask?: boolean
}

// Doors to the private parts, for this room only.
let unwrap: (spec: TensorSpec) => Handle<RawTensorSpec>

/** The classes by what the core calls them; each class puts itself here. */
const CLASSES = new Map<string, { readonly prototype: TensorSpec }>()

/**
 * Shape, dtype and domain of values. A spec checks values and reports errors, projects values to the nearest
 * valid one, samples and enumerates values, and converts plain JSON to values and back. Methods that reshape
 * a spec also reshape its bounds and masks.
 *
 * Dimensions of a value before those of the spec are a batch. A dimension of -1 takes any length.
 *
 * @example
 * ```ts
 * import { Rng, Tensor } from 'fulmar'
 * import { Categorical, TensorSpec } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using action = new Categorical(4)
 * using rng = Rng.fromSeed(7)
 * assert.ok(action.contains(action.rand(rng, [100])))
 * const wild = Tensor.from(BigInt64Array.of(9n), { shape: [] })
 * assert.equal(action.explain(wild)?.expected, 'an integer in 0..4')
 * assert.deepEqual(action.project(wild).data, BigInt64Array.of(3n))
 * assert.ok(TensorSpec.fromJson(action.toJson()).equals(action))
 * ```
 */
export class TensorSpec<V extends TensorDictEntry = TensorDictEntry, P = unknown> {
  readonly #native: Handle<RawTensorSpec>

  /** The name of the class in JSON: `'Bounded'`, `'Composite'`, ... */
  readonly kind: string
  /** The length of each dimension, -1 for a dynamic one; of a dictionary its batch size. */
  readonly shape: SpecShape

  declare readonly [RESHAPED]: TensorSpec

  /** @internal */
  protected constructor(make: () => RawTensorSpec) {
    this.#native = new Handle('TensorSpec', make)
    this.kind = this.#native.call((spec) => spec.kind())
    this.shape = this.#native.call((spec) => [...spec.shape()])
  }

  static {
    unwrap = (spec) => spec.#native
  }

  /**
   * The spec that JSON describes, an instance of its class.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key or type; `MALFORMED` for JSON of another form; those of the
   *   class's constructor.
   */
  static fromJson(json: SpecJson | string): TensorSpec {
    const text = typeof json === 'string' ? json : JSON.stringify(json)
    return specAround(() => raw.TensorSpec.fromJson(text))
  }

  /**
   * The spec of values stacked along a new dimension: one of the class of `specs` if all are equal, else a `Stacked` or
   * `StackedComposite`.
   * @throws {FulmarError} `EMPTY` without specs; `INCOMPATIBLE` if class or dtype differ; `SHAPE_MISMATCH` if the number
   *   of dimensions does; `OUT_OF_RANGE` if `dim` is past it.
   */
  static stack(specs: readonly TensorSpec[], dim = 0): TensorSpec {
    return specAround(() => joinedSpecs(specs, (list) => list.stack(dim)))
  }

  /** The element type; nothing for dictionaries and JSON values. */
  get dtype(): Dtype | undefined {
    return (this.#native.call((spec) => spec.dtype()) ?? undefined) as Dtype | undefined
  }

  /** This spec as JSON. */
  toJson(): SpecJson {
    return JSON.parse(this.#native.call((spec) => spec.toJson())) as SpecJson
  }

  /**
   * Refuses a value that is not of this spec.
   * @throws {FulmarError} `SHAPE_MISMATCH`; `INCOMPATIBLE` for another dtype or kind; `UNKNOWN_NAME` for a missing key, or
   *   with `strict` for one too many; `OUT_OF_RANGE` for a number outside the domain; `NON_FINITE` for NaN. The message
   *   begins with the keys that lead to the leaf.
   */
  check(value: TensorDictEntry, options: SpecCheckOptions = {}): asserts value is V {
    const strict = strictOf(options)
    withValue(value, this.shape, (one) => this.#native.call((spec) => spec.check(one, strict)))
  }

  /**
   * Returns true if `value` fits this spec. Never throws for the content of a value; extra keys of a
   * dictionary are allowed.
   */
  contains(value: TensorDictEntry): value is V {
    return this.explain(value) === undefined
  }

  /** The first rule that `value` breaks, and where; nothing if it is of this spec. */
  explain(value: TensorDictEntry, options: SpecCheckOptions = {}): SpecViolation | undefined {
    const strict = strictOf(options)
    const text = withValue(value, this.shape, (one) => this.#native.call((spec) => spec.explain(one, strict)))
    return typeof text === 'string' ? (JSON.parse(text) as SpecViolation) : undefined
  }

  /**
   * The value of this spec that is nearest to `value`: clamped, rounded to even, the largest element of a one-hot block
   * (the first of equals); NaN becomes the middle of the bounds. The same every time; a value of the spec stays as it is.
   * @throws {FulmarError} `SHAPE_MISMATCH`, `INCOMPATIBLE` or `UNKNOWN_NAME` if shape, kind or keys are not those of the
   *   spec.
   */
  project(value: TensorDictEntry): V {
    const project = () =>
      withValue(value, this.shape, (one) => this.#native.call((spec) => spec.project(one)))
    return madeValue(project) as V
  }

  /**
   * Draws a value with `shape` before the dimensions of the spec; dynamic ones have length 1. Integers between bounds are
   * uniform, the bounds included; unbounded floats normal; inside one infinite bound exponential. Takes one number from
   * `rng`, the seed of the draw.
   * @throws {FulmarError} `LIMIT_EXCEEDED` above 2^28 elements; `INCOMPATIBLE` if stacked specs make values that no tensor
   *   holds.
   */
  rand(rng: Rng, shape: readonly number[] = []): V {
    const seed = rng.below(Number.MAX_SAFE_INTEGER)
    return madeValue(() => this.#native.call((spec) => spec.rand(seed, indices(shape)))) as V
  }

  /** Zeros, which need not be in the domain. @throws {FulmarError} As {@link TensorSpec.rand}. */
  zero(shape: readonly number[] = []): V {
    return madeValue(() => this.#native.call((spec) => spec.zero(indices(shape)))) as V
  }

  /** Ones, which need not be in the domain. @throws {FulmarError} As {@link TensorSpec.rand}. */
  one(shape: readonly number[] = []): V {
    return madeValue(() => this.#native.call((spec) => spec.one(indices(shape)))) as V
  }

  /**
   * The value that plain JSON describes: nested arrays of numbers, for one-hot specs indices, for dictionaries an object
   * with every key. Has the shape of the spec, without a batch.
   * @throws {FulmarError} `MALFORMED` for JSON of another form; those of {@link TensorSpec.check}.
   */
  encode(plain: P): V {
    return madeValue(() => this.#native.call((spec) => spec.encode(plainText(plain)))) as V
  }

  /** The plain JSON of a value. A batch is kept. @throws {FulmarError} As {@link TensorSpec.check}. */
  decode(value: TensorDictEntry): P {
    const text = withValue(value, this.shape, (one) => this.#native.call((spec) => spec.decode(one)))
    return JSON.parse(text, this.dtype?.includes('f') ? reviveNumber : undefined) as P
  }

  /**
   * Returns all values along a new first dimension, the last choice changing fastest; all cells of one value are equal.
   * @throws {FulmarError} `INCOMPATIBLE` if their number is unlimited, or cells differ; `LIMIT_EXCEEDED` above 2^28 elements.
   */
  enumerate(options: EnumerateOptions = {}): V {
    checkKnownKeys('options', options, ['useMask'])
    return madeValue(() => this.#native.call((spec) => spec.enumerate(options.useMask ?? false))) as V
  }

  /**
   * Returns the number of values of {@link TensorSpec.enumerate}; `undefined` for infinitely many. That of a
   * dictionary is the product of its leaves.
   * @throws {FulmarError} `INCOMPATIBLE` for JSON values and stacks, or if cells differ; `LIMIT_EXCEEDED` from 2^128.
   */
  cardinality(): bigint | undefined {
    const count = this.#native.call((spec) => spec.cardinality())
    return typeof count === 'string' ? BigInt(count) : undefined
  }

  /**
   * Returns the spec of values that are broadcast to `sizes`: new dimensions come first, those of length 1 expand.
   * @throws {FulmarError} `SHAPE_MISMATCH` if other dimensions would change; `OUT_OF_RANGE` if the last one of a one-hot or
   *   multiple choice would.
   */
  expand(sizes: readonly number[]): this[typeof RESHAPED] {
    return this.#operated({ op: 'expand', sizes })
  }

  /**
   * The spec of values in another shape; one -1 is counted from the others.
   * @throws {FulmarError} `SHAPE_MISMATCH` if it holds another number of elements; `OUT_OF_RANGE` if the last dimension of a
   *   one-hot or multiple choice would change; `INCOMPATIBLE` for stacks.
   */
  reshape(sizes: readonly number[]): this[typeof RESHAPED] {
    return this.#operated({ op: 'reshape', sizes })
  }

  /** One dimension in place of those from `first` to `last`. @throws {FulmarError} As {@link TensorSpec.reshape}. */
  flatten(first = 0, last = -1): this[typeof RESHAPED] {
    return this.#operated({ op: 'flatten', first, last })
  }

  /** Dimensions of `sizes` in place of dimension `dim`. @throws {FulmarError} As {@link TensorSpec.reshape}. */
  unflatten(dim: number, sizes: readonly number[]): this[typeof RESHAPED] {
    return this.#operated({ op: 'unflatten', dim, sizes })
  }

  /** A dimension of length 1 before `dim`. @throws {FulmarError} `OUT_OF_RANGE` if `dim` is past the dimensions. */
  unsqueeze(dim: number): this[typeof RESHAPED] {
    return this.#operated({ op: 'unsqueeze', dim })
  }

  /**
   * Without dimension `dim`, of length 1; without `dim`, without every dimension of length 1.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension; `SHAPE_MISMATCH` if it is longer.
   */
  squeeze(dim?: number): this[typeof RESHAPED] {
    return this.#operated({ op: 'squeeze', dim })
  }

  /**
   * The spec of what values hold at `index`, which is read as `TensorDict.at` reads it, but with one list or mask at
   * most. The last dimension of one-hot, binary and multiple-choice specs cannot be indexed.
   * @throws {FulmarError} `OUT_OF_RANGE` for an index or a dimension that is not there, or a part of a dynamic dimension.
   */
  at(...index: BatchIndex[]): this[typeof RESHAPED] {
    return this.#derive((spec) => spec.operate(`{"op":"at","index":${indexJson(index)}}`))
  }

  /**
   * One spec for each index of dimension `dim`.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension or it is dynamic.
   */
  unbind(dim = 0): this[typeof RESHAPED][] {
    const fromFirst = dim < 0 ? dim + this.shape.length : dim
    return this.#listed((spec) => spec.unbind(fromFirst)) as this[typeof RESHAPED][]
  }

  /** The same spec of another dtype, leaf by leaf; bounds are rounded. @throws {FulmarError} `OUT_OF_RANGE` if it cannot hold all values. */
  to(dtype: Dtype): TensorSpec {
    return this.#derive((spec) => spec.operate(JSON.stringify({ op: 'to', dtype })))
  }

  /** A spec that is equal and changes by itself. */
  clone(): this {
    return this.#derive((spec) => spec.operate('{"op":"at","index":["..."]}'))
  }

  /** Returns true if class, shape, dtype, domain and masks are equal. */
  equals(other: TensorSpec): boolean {
    return this.#native.call((left) => other.#native.call((right) => left.equals(right)))
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }

  #operated<S extends TensorSpec>(operation: object): S {
    return this.#derive((spec) => spec.operate(JSON.stringify(operation)))
  }

  #derive<S extends TensorSpec>(make: (spec: RawTensorSpec) => RawTensorSpec): S {
    return specAround(() => this.#native.call(make)) as S
  }

  #listed(divide: (spec: RawTensorSpec) => RawTensorSpecList): TensorSpec[] {
    return specsOf(() => this.#native.call(divide))
  }
}

/** Makes `make`'s spec an instance of the class that the core names. */
export function specAround(make: () => RawTensorSpec): TensorSpec {
  const native = call(make)
  const target = CLASSES.get(call(() => native.kind())) ?? TensorSpec
  return Reflect.construct(TensorSpec, [() => native], target as unknown as NewableFunction) as TensorSpec
}

/** Names the class of the specs that the core calls `kind`. */
export function isClassOf(kind: string, target: { readonly prototype: TensorSpec }): void {
  CLASSES.set(kind, target)
}

/** Calls `body` with the raw spec. */
export function withRawSpec<R>(spec: TensorSpec, body: (raw: RawTensorSpec) => R): R {
  return unwrap(spec).call(body)
}

/** Applies `join` to a native list of `specs`. */
export function joinedSpecs<R>(specs: readonly TensorSpec[], join: (list: RawTensorSpecList) => R): R {
  const list = call(() => raw.TensorSpecList.empty())
  try {
    for (const spec of specs) withRawSpec(spec, (one) => list.push(one))
    return call(() => join(list))
  } finally {
    list.free()
  }
}

/** The specs of a list. */
export function specsOf(make: () => RawTensorSpecList): TensorSpec[] {
  const list = call(make)
  try {
    return Array.from({ length: list.count() }, (_, at) => specAround(() => present(list.get(at))))
  } finally {
    list.free()
  }
}

/** A tensor that the core may not have. */
export function tensorOr(
  tensor: Parameters<typeof tensorAround>[0] extends () => infer T ? T | null | undefined : never,
): Tensor | undefined {
  return tensor ? tensorAround(() => tensor) : undefined
}

function present<T>(value: T | null | undefined): T {
  if (value !== null && value !== undefined) return value
  throw new FulmarError('OUT_OF_RANGE', 'index must be one of the list: got another')
}

function strictOf(options: SpecCheckOptions): boolean {
  checkKnownKeys('options', options, ['strict'])
  return options.strict ?? false
}

function reviveNumber(_: string, value: unknown): unknown {
  return typeof value === 'string' ? Number(value) : value
}
