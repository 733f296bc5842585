/** Specs of dictionaries. */

import { checkKnownKeys, FulmarError, type Rng } from '../core/index.js'
import { raw } from '../native/index.js'
import type { TensorDict, TensorDictEntry, TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import { emptied, entryOf, keysOf, leafKeysOf, nestedKeysOf } from './dict-spec.js'
import { specText, textOf } from './spec-json.js'
import { isClassOf, type RESHAPED, specAround, TensorSpec, withRawSpec } from './tensor-spec.js'
import type { AnySpec, DictOf, PlainDict, SpecEntries, SpecShape } from './types.js'

/** Options of {@link Composite}. */
export interface CompositeOptions {
  /** The batch size, with which the shape of every entry begins; -1 for any length. @default [] */
  readonly shape?: SpecShape
  /** The names of the dimensions of the batch, `null` for none. @default none */
  readonly names?: readonly (string | null)[]
}

/** Options of {@link Composite.lock} and {@link Composite.unlock}. */
export interface LockOptions {
  /** If true, nested dictionaries are included. @default true */
  readonly recurse?: boolean
}

/** Type of the entries of a reshaped dictionary. */
export type ReshapedEntries<E extends SpecEntries> = {
  readonly [K in keyof E]: E[K] extends TensorSpec ? E[K][typeof RESHAPED] : E[K]
}

interface Lock {
  /** True if nested dictionaries are locked too. */
  readonly recurse: boolean
  /** True if the dictionary is part of a locked one. */
  readonly isPart: boolean
}

/** The dictionaries that are locked. */
const LOCKS = new WeakMap<TensorSpec, Lock>()

/**
 * A dictionary of specs whose shapes all begin with one batch size. An entry of `null` allows any value, or
 * none.
 * The types of values and of plain JSON follow from the entries.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import { Binary, Categorical, Composite, Unbounded } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using step = new Composite({
 *   observation: new Unbounded({ shape: [4] }),
 *   action: new Categorical(2),
 *   next: new Composite({ done: new Binary(1, { dtype: 'bool' }) }),
 * })
 * const batch = step.rand(Rng.fromSeed(1), [8])
 * assert.deepEqual(batch.get('observation').shape, [8, 4]) // a Tensor<'f32'>, for the compiler
 * assert.ok(step.contains(batch))
 * batch.delete(['next', 'done'])
 * assert.deepEqual(step.explain(batch)?.path, ['next', 'done'])
 * const plain = { observation: [0, 1, 2, 3], action: 1, next: { done: [false] } }
 * assert.deepEqual(step.decode(step.encode(plain)), plain)
 * ```
 */
export class Composite<E extends SpecEntries = SpecEntries> extends TensorSpec<DictOf<E>, PlainDict<E>> {
  declare readonly [RESHAPED]: Composite<ReshapedEntries<E>>

  /**
   * @throws {FulmarError} `SHAPE_MISMATCH`, with the key, if a shape does not begin with the batch size, or names are more or
   *   fewer than its dimensions; `OUT_OF_RANGE` for a name that every spec has (`shape`, `device`, `dtype`, `space`) or two
   *   equal names; `LIMIT_EXCEEDED` above 32 nested specs; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(entries: E = {} as E, options: CompositeOptions = {}) {
    checkKnownKeys('options', options, ['shape', 'names'])
    const text = specText('Composite', {
      shape: textOf(options.shape),
      names: textOf(options.names),
      entries: '{}',
    })
    super(() => raw.TensorSpec.fromJson(text))
    for (const [name, spec] of Object.entries(entries)) this.set(name, spec as TensorSpec | null)
  }

  static {
    isClassOf('Composite', Composite)
  }

  /** The names of the dimensions of the batch, `null` for none; nothing if no dimension has one. */
  get names(): readonly (string | null)[] | undefined {
    return this.toJson().names as readonly (string | null)[] | undefined
  }

  /**
   * The same with names for dimensions that have none: `null` leaves one as it is, `'...'` as many as there are.
   * @throws {FulmarError} `SHAPE_MISMATCH` for more or fewer names than dimensions; `INCOMPATIBLE` if one has another name;
   *   `OUT_OF_RANGE` if two are the same.
   *
   * @example
   * ```ts
   * import { Composite } from 'fulmar/spec'
   * import assert from 'node:assert/strict'
   *
   * const windows = new Composite({}, { shape: [8, 100] }).refineNames('...', 'time')
   * assert.deepEqual(windows.names, [null, 'time'])
   * assert.deepEqual(windows.unsqueeze(0).names, [null, null, 'time'])
   * ```
   */
  refineNames(...names: readonly (string | null)[]): Composite<E> {
    const operation = JSON.stringify({ op: 'refineNames', names })
    return specAround(() => withRawSpec(this, (spec) => spec.operate(operation))) as Composite<E>
  }

  /**
   * Sets the spec at `key`; `null` allows any value. Missing nested specs are created. Returns this spec.
   * @throws {FulmarError} `CLOSED` if this is locked; `INCOMPATIBLE` if the way leads through another spec; those of the
   *   constructor. After an error nothing has changed.
   */
  set(key: TensorKey, spec: TensorSpec | null): this {
    const path = changeable(this, key)
    withRawSpec(this, (one) =>
      spec === null ? one.setAny(path) : withRawSpec(spec, (entry) => one.set(path, entry)),
    )
    return this
  }

  /** Returns a copy of the spec at `key`; `null` where any value is allowed, `undefined` without such a key. */
  get<K extends keyof E & string>(key: K): E[K]
  get(key: TensorKey): TensorSpec | null | undefined
  get(key: TensorKey): AnySpec | null | undefined {
    const found = entryOf(this, key)
    const lock = LOCKS.get(this)
    if (found instanceof Composite && lock?.recurse) LOCKS.set(found, { recurse: true, isPart: true })
    return found
  }

  /** Returns true if there is an entry at `key`. */
  has(key: TensorKey): boolean {
    return withRawSpec(this, (spec) => spec.has(pathOf(key)))
  }

  /** Takes the entry at `key` out. Whether there was one. @throws {FulmarError} `CLOSED` if this is locked. */
  delete(key: TensorKey): boolean {
    const path = changeable(this, key)
    return withRawSpec(this, (spec) => spec.remove(path))
  }

  /**
   * Removes the entry at `key` and returns it.
   * @throws {FulmarError} `UNKNOWN_NAME` for a missing entry; `CLOSED` if this is locked.
   */
  pop(key: TensorKey): TensorSpec | null {
    const found = this.get(key)
    if (this.delete(key) && found !== undefined) return found
    const known = this.keys().join(', ') || 'the entries, and there are none'
    throw new FulmarError('UNKNOWN_NAME', `key must be one of ${known}: got ${pathOf(key)}`)
  }

  /**
   * Takes the entries at `keys` out, into a spec of their own; keys without one are passed over.
   * @throws {FulmarError} `CLOSED` if this is locked.
   */
  separates(...keys: readonly TensorKey[]): Composite {
    const separate: Composite = new Composite({}, { shape: this.shape })
    for (const key of keys) if (this.has(key)) separate.set(key, this.pop(key))
    return separate
  }

  /**
   * Puts all entries of `other` here, over those at the same keys; nested dictionaries merge. Returns this spec.
   * @throws {FulmarError} The errors of {@link Composite.set}. After an error nothing has changed.
   */
  update(other: Composite | SpecEntries): this {
    changeable(this, [])
    const entries = other instanceof Composite ? other : new Composite(other, { shape: this.shape })
    withRawSpec(this, (spec) => withRawSpec(entries, (one) => spec.update(one)))
    return this
  }

  /** The names of the entries, nested ones not visited, in order. */
  keys(): string[] {
    return keysOf(this)
  }

  /** The paths of all entries, nested ones before the dictionary that holds them. */
  nestedKeys(): string[][] {
    return nestedKeysOf(this)
  }

  /** The paths of all entries that are not dictionaries. */
  leafKeys(): string[][] {
    return leafKeysOf(this)
  }

  /** True if there are no entries. */
  get isEmpty(): boolean {
    return this.keys().length === 0
  }

  /** The same batch size without entries and names. */
  empty(): Composite {
    return emptied(this) as Composite
  }

  /**
   * Draws every entry into `dict` and overwrites existing values; other keys are kept. Returns `dict`.
   * @throws {FulmarError} `SHAPE_MISMATCH` if its batch size does not end with that of this spec; those of
   *   {@link TensorSpec.rand}.
   *
   * @example
   * ```ts
   * import { Rng, TensorDict } from 'fulmar'
   * import { Categorical, Composite } from 'fulmar/spec'
   * import assert from 'node:assert/strict'
   *
   * const actions = new Composite({ action: new Categorical(4) })
   * const step = actions.randUpdate(TensorDict.from({}, { batchSize: [3] }), Rng.fromSeed(1))
   * assert.deepEqual(step.tensor('action').shape, [3])
   * ```
   */
  randUpdate(dict: TensorDict, rng: Rng): TensorDict {
    return dict.update(this.rand(rng, batchBefore(this, dict)))
  }

  /** Puts zeros at every key of `dict`, as {@link Composite.randUpdate} draws. */
  zerosUpdate(dict: TensorDict): TensorDict {
    return dict.update(this.zero(batchBefore(this, dict)))
  }

  /** Puts ones at every key of `dict`, as {@link Composite.randUpdate} draws. */
  onesUpdate(dict: TensorDict): TensorDict {
    return dict.update(this.one(batchBefore(this, dict)))
  }

  /** The plain JSON of a dictionary. A batch is kept. @throws {FulmarError} As {@link TensorSpec.check}. */
  override decode(value: TensorDictEntry): PlainDict<E> {
    this.check(value)
    const dict = value as TensorDict
    const plain = this.keys().flatMap((name) => {
      const [spec, entry] = [entryOf(this, [name]), dict.get([name])]
      return spec && entry !== undefined ? [[name, spec.decode(entry)]] : []
    })
    return Object.fromEntries(plain) as PlainDict<E>
  }

  /** Refuses changes from now on, with `CLOSED`. Returns this spec. */
  lock(options: LockOptions = {}): this {
    checkKnownKeys('options', options, ['recurse'])
    LOCKS.set(this, { recurse: options.recurse ?? true, isPart: LOCKS.get(this)?.isPart ?? false })
    return this
  }

  /** Lets it change again. Returns this spec. @throws {FulmarError} `CLOSED` if it came out of a locked one. */
  unlock(): this {
    if (LOCKS.get(this)?.isPart) {
      throw new FulmarError(
        'CLOSED',
        'a spec must be no part of a locked one to be unlocked: got one that is',
      )
    }
    LOCKS.delete(this)
    return this
  }

  /** True if keys cannot change. */
  get isLocked(): boolean {
    return LOCKS.has(this)
  }
}

/** The path of `key`, if `spec` may be changed there. */
function changeable(spec: TensorSpec, key: TensorKey): string[] {
  const path = pathOf(key)
  const lock = LOCKS.get(spec)
  // Without `recurse` the dictionaries inside are free.
  if (!lock || (!lock.recurse && path.length > 1 && entryOf(spec, path.slice(0, 1)))) return path
  throw new FulmarError('CLOSED', 'a spec must be unlocked to be changed: got a locked one')
}

/** The batch of `dict` before that of `spec`. */
function batchBefore(spec: TensorSpec, dict: TensorDict): number[] {
  const count = dict.batchSize.length - spec.shape.length
  const fits = (length: number, dim: number) => length === -1 || length === dict.batchSize[count + dim]
  if (count >= 0 && spec.shape.every(fits)) return dict.batchSize.slice(0, count)
  const detail = `batchSize must end with ${JSON.stringify(spec.shape)}: got ${JSON.stringify(dict.batchSize)}`
  throw new FulmarError('SHAPE_MISMATCH', detail)
}
