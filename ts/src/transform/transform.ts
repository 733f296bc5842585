/** Base class of all transforms. */

import { call, checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import { type RawTransforms, raw } from '../native/index.js'
import type { TensorDict, TensorKey } from '../tensor/index.js'
import { dictAround, pathOf, withRawDict } from '../tensor/tensor-dict.js'

/** One name, or a list of names and paths: `['a', ['next', 'b']]` are the entries `a` and `b` of `next`. */
export type TransformKeys = string | readonly TensorKey[]

/** Options of transforms that put what they make of some entries in their place or elsewhere. */
export interface MappedKeys {
  /** Keys of the entries. */
  readonly inKeys?: TransformKeys
  /** Keys of the results, as many. @default in place */
  readonly outKeys?: TransformKeys
}

// Doors to the private parts, for this room only.
let unwrap: (transform: Transform) => Handle<RawTransforms>
let prepare: (transform: Transform) => void

/**
 * Changes dictionaries that are written to a buffer (`inverse`) or read from it (`forward`); other entries pass unchanged.
 * Its classes go into the `transforms` of a buffer, or are called directly. The input is not changed. Dispose it, declare
 * it with `using`, or leave it to the garbage collector.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { SignTransform, Transform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * const batch = TensorDict.from({ reward: Tensor.from([-3]) })
 * const read = (transform: Transform) => transform.forward(batch).tensor('reward').data[0]
 * assert.equal(read(new SignTransform()), -1)
 * assert.deepEqual(new SignTransform().inverse(batch)?.tensor('reward').data, Float32Array.of(-3))
 * ```
 */
export abstract class Transform {
  readonly #native: Handle<RawTransforms>
  readonly #beforeUse: ((transform: Transform) => void) | undefined

  /** @internal */
  protected constructor(make: () => RawTransforms, beforeUse?: (transform: Transform) => void) {
    this.#native = new Handle(new.target.name, make)
    this.#beforeUse = beforeUse
    // So that they can be taken out of the object, as `batches.map(transform.forward)` does.
    this.forward = this.forward.bind(this)
    this.inverse = this.inverse.bind(this)
  }

  static {
    unwrap = (transform) => transform.#native
    prepare = (transform) => transform.#beforeUse?.(transform)
  }

  /** Transforms a batch on read. @throws {FulmarError} `CLOSED` once disposed; those of the class. */
  forward(batch: TensorDict): TensorDict {
    prepare(this)
    return dictAround(() => this.#native.call((raw) => withRawDict(batch, (dict) => raw.forward(dict))))
  }

  /**
   * Transforms items on write; `undefined` if all of them are held back.
   * @throws {FulmarError} The errors of {@link Transform.forward}; then no item was held back.
   */
  inverse(items: TensorDict): TensorDict | undefined {
    prepare(this)
    return dictOr(this.#native.call((raw) => withRawDict(items, (dict) => raw.inverse(dict))))
  }

  /**
   * Returns the items that were held back, at the end of writing; `undefined` for none. None are held
   * afterwards.
   */
  flush(): TensorDict | undefined {
    prepare(this)
    return dictOr(this.#native.call((raw) => raw.flush()))
  }

  /** Forgets what was held back. */
  clear(): void {
    this.#native.call((raw) => raw.clear())
  }

  /** Returns the state for {@link Transform.loadStateDict}; empty without a state. */
  stateDict(): TensorDict {
    return dictAround(() => this.#native.call((raw) => raw.state()))
  }

  /**
   * Restores a state of a transform with the same options.
   * @throws {FulmarError} `UNKNOWN_NAME`, `INCOMPATIBLE` or `SHAPE_MISMATCH` for an invalid state; then
   * nothing has changed.
   */
  loadStateDict(state: TensorDict): void {
    this.#native.call((raw) => withRawDict(state, (dict) => raw.loadState(dict)))
  }

  /** Sets the current version of the policy, an integer from 0, for filters by age. */
  setPolicyVersion(version: number): void {
    this.#native.call((raw) => raw.setPolicyVersion(version))
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** Does what must be done before a transform is used by another one. */
export const prepareTransform = (transform: Transform): void => prepare(transform)

/** Calls `body` with the raw transforms. */
export function withRawTransform<R>(transform: Transform, body: (raw: RawTransforms) => R): R {
  return unwrap(transform).call(body)
}

/** The raw transform of that type. */
export function rawTransform(type: string, options: object): RawTransforms {
  checkKnownKeys('options', options, Object.keys(Object(options)))
  if (Object.hasOwn(options, 'type')) {
    throw new FulmarError('UNKNOWN_NAME', `options.type must be left out: the class is ${type}`)
  }
  return call(() => raw.Transforms.create(JSON.stringify([{ ...plainOptions(options), type }])))
}

/** Options as the core reads them: each key a list of names. @throws {FulmarError} `NON_FINITE` for such a number. */
export function plainOptions(options: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [name, plain(name, value)]))
}

function plain(name: string, value: unknown): unknown {
  if (typeof value === 'string' || Array.isArray(value)) {
    if (/keys(Inv)?$/i.test(name)) return typeof value === 'string' ? [[value]] : value.map(pathOf)
    if (/(key(Out)?|prefix)$/i.test(name)) return pathOf(value)
  }
  // JSON would write null, which means absent.
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw new FulmarError('NON_FINITE', `${name} must be finite: got ${value}`)
  }
  return value
}

function dictOr(dict: ReturnType<RawTransforms['flush']>): TensorDict | undefined {
  return dict ? dictAround(() => dict) : undefined
}
