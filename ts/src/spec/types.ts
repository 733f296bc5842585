/** Types of the values of specs. */

import type { Dtype, Json, Tensor, TensorDict, TensorDictEntry } from '../tensor/index.js'
import type { TensorSpec } from './tensor-spec.js'

/**
 * The length of each dimension, row-major; -1 for a dimension of any length.
 */
export type SpecShape = readonly number[]

/** A number or bool, or nested arrays of them, or a tensor: what is broadcast to the shape of a spec. */
export type SpecTable<E = number | boolean | bigint> = E | readonly SpecTable<E>[] | Tensor

/** The value of a spec: `Tensor<'f32'>` of an `Unbounded<'f32'>`, a dictionary with known keys of a `Composite`. */
export type ValueOf<S> = S extends TensorSpec<infer V, infer _> ? V : TensorDictEntry | undefined

/** The plain JSON of a value, as `encode` takes and `decode` gives it. */
export type PlainOf<S> = S extends TensorSpec<infer _, infer P> ? P : unknown

/** Element of plain JSON for a dtype. */
export type PlainElement<D extends Dtype> = D extends 'bool' ? boolean : number

/** Arrays nested as deeply as `S` is long; of any depth where that is not known. */
export type NestedPlain<E, S extends SpecShape> = number extends S['length']
  ? NestedAny<E>
  : S extends readonly [number, ...infer Rest extends readonly number[]]
    ? readonly NestedPlain<E, Rest>[]
    : E

/** Arrays of any depth. */
export type NestedAny<E> = E | readonly NestedAny<E>[]

/** A shape without its last dimension. */
export type WithoutLast<S extends SpecShape> = S extends readonly [
  ...infer Front extends readonly number[],
  number,
]
  ? Front
  : readonly number[]

/**
 * Any spec, without the types of its values: where a literal of specs is expected, each keeps the type that it has alone.
 */
export interface AnySpec {
  /** The name of the class in JSON. */
  readonly kind: string
  /** The length of each dimension, -1 for a dynamic one. */
  readonly shape: SpecShape
  /** Returns true if class, shape, dtype, domain and masks are equal. */
  equals(other: TensorSpec): boolean
  [Symbol.dispose](): void
}

/** Specs of a dictionary, by name; `null` allows any value. */
export type SpecEntries = Readonly<Record<string, AnySpec | null>>

/** A dictionary whose keys and the types of whose entries are known. */
export type DictOf<E extends SpecEntries> = TensorDict<{
  readonly [K in keyof E as string extends K ? never : K]: ValueOf<E[K]>
}>

/** The plain object of a dictionary. */
export type PlainDict<E extends SpecEntries> = {
  readonly [K in keyof E as E[K] extends null ? never : K]: PlainOf<E[K]>
}

/** One step of the way to a leaf: a name in a dictionary, or an index of a stack. */
export type SpecPlace = string | number

/** The first rule that a value breaks. */
export interface SpecViolation {
  /** The path of the wrong leaf, or of the missing or surplus key. */
  readonly path: readonly SpecPlace[]
  /** The rule; `kind` means another kind of entry, such as a tensor in place of a dictionary. */
  readonly rule: 'shape' | 'dtype' | 'kind' | 'key' | 'domain' | 'nan'
  /** Rule for the leaf. */
  readonly expected: string
  /** Value of the leaf. */
  readonly got: string
}

/** Options of {@link TensorSpec.check} and {@link TensorSpec.explain}. */
export interface SpecCheckOptions {
  /** If true, keys that are not in the spec are errors. @default false */
  readonly strict?: boolean
}

/** The JSON of a spec: `type`, `shape` and what the type needs. */
export type SpecJson = { readonly type: string } & { readonly [key: string]: Json }
