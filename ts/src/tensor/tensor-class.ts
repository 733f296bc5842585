/**
 * Typed classes around tensor dictionaries: each field has a kind, known to the compiler and checked at run
 * time.
 */

import { checkGiven, checkKnownKeys, checkList, FulmarError } from '../core/index.js'
import type { BatchIndex } from './batch-index.js'
import type { Dtype } from './dtype.js'
import { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
import { Ragged } from './ragged.js'
import { Tensor } from './tensor.js'
import { checkDict, TensorDict, type TensorDictEntry } from './tensor-dict.js'
import type { TensorDictOptions } from './tensor-dict-options.js'

/** Kind of a field: a tensor of one dtype or of any, rows, a dictionary, or a JSON value. */
export type FieldKind = Dtype | 'tensor' | 'ragged' | 'dict' | 'json'

/** Members of a class that a field of its instances needs. */
export interface FieldClass {
  around(dict: TensorDict): { readonly dict: TensorDict }
}

/** Fields and their kinds; `?` marks an optional field, a class a field that holds an instance of it. */
export type TensorFields = { readonly [name: string]: FieldKind | `${FieldKind}?` | FieldClass }

/** Type of the value of a field. */
export type FieldOf<K> =
  K extends TensorClass<infer F>
    ? TensorClassInstance<F>
    : K extends `${infer Kind}?`
      ? FieldOf<Kind> | undefined
      : K extends Dtype
        ? Tensor<K>
        : K extends 'tensor'
          ? Tensor
          : K extends 'ragged'
            ? Ragged
            : K extends 'dict'
              ? TensorDict
              : Json

/** Fields to construct an instance from; optional ones may be left out. */
export type FieldsOf<F extends TensorFields> = {
  readonly [N in keyof F as F[N] extends `${string}?` ? never : N]: FieldOf<F[N]>
} & { readonly [N in keyof F as F[N] extends `${string}?` ? N : never]?: FieldOf<F[N]> }

/** Members of every instance besides its fields. */
export interface TensorClassMembers<F extends TensorFields> {
  /** The dictionary that holds the fields. */
  readonly dict: TensorDict
  /** Leading dimensions that the shape of every tensor has. */
  readonly batchSize: readonly number[]
  /** Returns the batch elements at `index`, as `TensorDict.at` does. */
  at(...index: BatchIndex[]): TensorClassInstance<F>
  /** Returns an instance around the result of `to`, which must still have the fields. */
  map(to: (dict: TensorDict) => TensorDict): TensorClassInstance<F>
  /** Returns true if batch size and fields are equal. */
  equals(other: TensorClassInstance<F>): boolean
  /** Frees the native memory of the dictionary. */
  [Symbol.dispose](): void
}

/** An instance: its members and its fields, which can be set unless the class is frozen. */
export type TensorClassInstance<F extends TensorFields> = {
  -readonly [N in keyof F]: FieldOf<F[N]>
} & TensorClassMembers<F>

/** Options of {@link tensorClass}. */
export interface TensorClassOptions {
  /** If true, casts a tensor of another dtype than its field's instead of throwing. @default false */
  readonly autocast?: boolean
  /** If true, fields cannot be set after construction, and the dictionary is locked. @default false */
  readonly frozen?: boolean
}

/** A class of {@link tensorClass}. */
export interface TensorClass<F extends TensorFields = TensorFields> {
  /** The fields with their kinds. */
  readonly fields: F
  /**
   * Constructs an instance from its fields.
   * @throws {FulmarError} `UNKNOWN_NAME` if a field is missing or unknown; `INCOMPATIBLE`, with the field, if one is of another
   *   kind or dtype; those of {@link TensorDict.from}.
   */
  from(fields: FieldsOf<F>, options?: TensorDictOptions): TensorClassInstance<F>
  /**
   * Wraps a dictionary without a copy.
   * @throws {FulmarError} As `from`; also for keys that are not fields.
   */
  around(dict: TensorDict): TensorClassInstance<F>
  /** Joins instances along a new batch dimension, as {@link TensorDict.stack} does. */
  stack(parts: readonly TensorClassInstance<F>[], dim?: number): TensorClassInstance<F>
  /** Joins instances along a batch dimension, as {@link TensorDict.cat} does. */
  cat(parts: readonly TensorClassInstance<F>[], dim?: number): TensorClassInstance<F>
}

const MEMBERS = ['dict', 'batchSize', 'at', 'map', 'equals', 'constructor']

/**
 * Creates a class around a {@link TensorDict} whose fields the compiler checks.
 * @throws {FulmarError} `INCOMPATIBLE` if a field has the name of a member; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, tensorClass } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const Next = tensorClass({ reward: 'f32', done: 'bool' })
 * const Step = tensorClass({ action: 'i64', note: 'json?', next: Next })
 * const step = Step.from(
 *   {
 *     action: Tensor.zeros('i64', [2]),
 *     next: Next.from({ reward: Tensor.from([0.5, 1]), done: Tensor.zeros('bool', [2]) }, { batchSize: [2] }),
 *   },
 *   { batchSize: [2] },
 * )
 * assert.deepEqual(step.at(1).next.reward.data, Float32Array.of(1)) // a Tensor<'f32'> to the compiler
 * assert.equal(step.note, undefined)
 * assert.throws(() => Step.around(step.next.dict), { code: 'UNKNOWN_NAME' })
 * ```
 */
export function tensorClass<const F extends TensorFields>(
  fields: F,
  options: TensorClassOptions = {},
): TensorClass<F> {
  checkKnownKeys('options', options, ['autocast', 'frozen'])
  checkGiven('fields', fields)
  const { autocast = false, frozen = false } = options
  const taken = Object.keys(fields).find((name) => MEMBERS.includes(name))
  if (taken !== undefined) {
    throw new FulmarError('INCOMPATIBLE', `fields must not be called ${MEMBERS.join(', ')}: got ${taken}`)
  }

  function put(dict: TensorDict, name: string, value: unknown): void {
    const kind = fields[name]
    if (value === undefined && typeof kind === 'string' && kind.endsWith('?')) dict.delete([name])
    else dict.set([name], entryOf(name, kind, value, autocast))
  }

  function around(dict: TensorDict): TensorClassInstance<F> {
    checkDict(dict)
    checkKnownKeys('fields', Object.fromEntries(dict.keys().map((name) => [name, 0])), Object.keys(fields))
    const members: TensorClassMembers<F> = {
      dict,
      batchSize: dict.batchSize,
      at: (...index) => around(dict.at(...index)),
      map: (to) => around(to(dict)),
      equals: (other) => dict.equals(other.dict),
      [Symbol.dispose]: () => dict[Symbol.dispose](),
    }
    const instance = Object.defineProperties(members, descriptors(dict)) as TensorClassInstance<F>
    for (const [name, kind] of Object.entries(fields)) {
      const value = fieldOf(dict, name, kind)
      if (value !== undefined || !isOptional(kind)) entryOf(name, kind, value, false)
    }
    if (frozen) dict.lock()
    return Object.preventExtensions(instance)
  }

  function descriptors(dict: TensorDict): PropertyDescriptorMap {
    const one = ([name, kind]: [string, TensorFields[string]]) => [
      name,
      {
        enumerable: true,
        get: () => fieldOf(dict, name, kind),
        set: (value: unknown) => put(dict, name, value),
      },
    ]
    return Object.fromEntries(Object.entries(fields).map(one))
  }

  return {
    fields,
    around,
    from(values, dictOptions) {
      const dict = TensorDict.from({}, dictOptions)
      checkKnownKeys('fields', values, Object.keys(fields))
      const given: { readonly [name: string]: unknown } = values
      for (const name of Object.keys(fields)) put(dict, name, given[name])
      return around(dict)
    },
    stack: (parts, dim) => around(TensorDict.stack(dictsOf(parts), dim)),
    cat: (parts, dim) => around(TensorDict.cat(dictsOf(parts), dim)),
  }
}

function dictsOf(parts: readonly { readonly dict: TensorDict }[]): TensorDict[] {
  checkList('parts', parts)
  return Array.from(parts, (part) => part?.dict)
}

function isOptional(kind: TensorFields[string]): boolean {
  return typeof kind === 'string' && kind.endsWith('?')
}

/** Returns the entry of a dictionary at a field. */
function fieldOf(dict: TensorDict, name: string, kind: TensorFields[string]): unknown {
  const entry = dict.get([name])
  if (entry instanceof NonTensorData) return entry.value
  if (entry instanceof NonTensorStack) return entry.values
  return entry instanceof TensorDict && typeof kind !== 'string' ? kind.around(entry) : entry
}

/** Converts `value` to the entry of a field of a kind. */
function entryOf(
  name: string,
  kind: TensorFields[string] | undefined,
  value: unknown,
  cast: boolean,
): TensorDictEntry {
  if (value === undefined)
    throw new FulmarError('UNKNOWN_NAME', `fields.${name} must be given: it is undefined`)
  if (typeof kind !== 'string') {
    const dict = typeof value === 'object' && value !== null && 'dict' in value ? value.dict : undefined
    if (kind !== undefined && dict instanceof TensorDict) return kind.around(dict).dict
    throw wrongKind(name, 'an instance of its class', value)
  }
  const bare = kind.endsWith('?') ? kind.slice(0, -1) : kind
  if (bare === 'json') return new NonTensorData(value as Json)
  if (bare === 'ragged' && value instanceof Ragged) return value
  if (bare === 'dict' && value instanceof TensorDict) return value
  if (value instanceof Tensor && bare !== 'ragged' && bare !== 'dict') {
    if (bare === 'tensor' || value.dtype === bare) return value
    if (cast) return value.to(bare as Dtype)
  }
  throw wrongKind(name, bare, value)
}

function wrongKind(name: string, wanted: string, got: unknown): FulmarError {
  const shown = got instanceof Tensor ? got.dtype : typeof got
  return new FulmarError('INCOMPATIBLE', `fields.${name} must be ${wanted}: got ${shown}`)
}
