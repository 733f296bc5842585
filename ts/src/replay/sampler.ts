/** Samplers: the choice of the rows of a batch. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { RawMailbox } from '../native/index.js'
import type { Json } from '../tensor/index.js'
import { indices } from '../tensor/tensor.js'
import { dictAround, type TensorDict, withRawDict } from '../tensor/tensor-dict.js'

/** Reader and writer of a sampler's parameters once a buffer uses it. */
export interface SamplerOwner {
  parameter(name: string): number
  setParameter(name: string, value: number): void
  ranOut(): boolean
}

/** Rows that a {@link SamplerSource} samples, and columns for them, of batch size `[rows]`. */
export interface DrawnRows {
  readonly rows: readonly number[]
  readonly info?: TensorDict
}

/** A sampler of your own: what {@link Sampler.from} makes one of. */
export interface SamplerSource {
  /** True if the last draw ended an epoch. @default false */
  readonly ranOut?: boolean
  /** Throws what {@link SamplerSource.extend} would; asked before the items are stored, so that what it refuses is not. @default nothing */
  check?(rows: readonly number[], items: TensorDict): void
  /**
   * Takes note that `items`, one for each of `rows`, were written there, in this order. The items are stored by then: they stay, and the
   * write throws, if it throws.
   * @default nothing
   */
  extend?(rows: readonly number[], items: TensorDict): void
  /** Draws `count` rows, or as many as there are, of a buffer that holds `length`; at least one. */
  sample(length: number, count: number): DrawnRows
  /** Sets the priorities of rows. @default nothing */
  updatePriority?(rows: readonly number[], priorities: readonly number[]): void
  /** Forgets all rows. @default nothing */
  clear?(): void
  /** All that must be kept to draw the same rows again. @default null */
  state?(): Json
  /** Restores a state. @default nothing */
  restore?(state: Json): void
}

// The doors to the private parts, for buffers.
let describe: (sampler: Sampler) => object
let flag: (sampler: Sampler) => object
let attach: (sampler: Sampler, owner: SamplerOwner) => void

/**
 * Draws rows of one buffer: give one of its classes to a {@link ReplayBuffer}. Its draws are fixed by the buffer's seed.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new SamplerWithoutReplacement()
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), sampler })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2]) }, { batchSize: [2] }))
 * buffer.sample(2)
 * assert.ok(sampler.ranOut)
 * ```
 */
export abstract class Sampler {
  readonly #options: object
  readonly #flags: object
  #owner: SamplerOwner | undefined

  /** @internal */
  protected constructor(options: object, flags: object = {}) {
    this.#options = options
    this.#flags = flags
  }

  static {
    describe = (sampler) => sampler.#options
    flag = (sampler) => sampler.#flags
    attach = (sampler, owner) => {
      if (sampler.#owner) {
        throw new FulmarError('INCOMPATIBLE', 'sampler must belong to one buffer: got one that another has')
      }
      sampler.#owner = owner
    }
  }

  /**
   * A sampler that your object keeps; only the thread that made it may use it. While one of its functions is called, the buffer refuses
   * it with `FORBIDDEN`. What your object throws, and rows that hold no item, become `USER_CODE`.
   * @throws {FulmarError} `MALFORMED` if `source.sample` is not a function.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import { LazyTensorStorage, ReplayBuffer, Sampler } from 'fulmar/replay'
   * import assert from 'node:assert/strict'
   *
   * const newest = Sampler.from({
   *   sample: (length, count) => ({ rows: Array.from({ length: count }, () => length - 1) }),
   * })
   * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler: newest })
   * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
   * assert.deepEqual(buffer.sample(2).tensor('id').data, Float32Array.of(3, 3))
   * ```
   */
  static from(source: SamplerSource): Sampler {
    if (typeof source?.sample !== 'function') {
      const detail = `source.sample must be a function of length and count: got ${describeValue(source?.sample)}`
      throw new FulmarError('MALFORMED', detail)
    }
    return new SourceSampler(source)
  }

  /** True if the last draw ended an epoch; always false for draws with replacement. */
  get ranOut(): boolean {
    return this.#owner?.ranOut() ?? false
  }

  /** @internal */
  protected owner(): SamplerOwner {
    if (this.#owner) return this.#owner
    throw new FulmarError('INCOMPATIBLE', 'sampler must belong to a buffer for this: got one that does not')
  }
}

/** A sampler behind the functions of the caller. */
class SourceSampler extends Sampler {
  readonly source: SamplerSource

  constructor(source: SamplerSource) {
    super({ kind: 'random' })
    this.source = source
  }

  override get ranOut(): boolean {
    return this.source.ranOut ?? false
  }
}

/** Functions that the core calls for a part in JavaScript: one for each operation, with its numbers. */
export type Answers = Readonly<Record<string, (numbers: number[]) => void>>

/** Functions that the core calls for a sampler in JavaScript; `undefined` for one of the core. */
export function samplerAnswers(sampler: Sampler, mailbox: RawMailbox): Answers | undefined {
  if (!(sampler instanceof SourceSampler)) return undefined
  const { source } = sampler
  const withItems = (take: (items: TensorDict) => void) => {
    const items = mailbox.takeItems()
    if (items) take(dictAround(() => items))
  }
  return {
    check: (rows) => withItems((items) => source.check?.(rows, items)),
    extend: (rows) => withItems((items) => source.extend?.(rows, items)),
    ranOut: () => mailbox.putNumbers(indices([Number(source.ranOut ?? false)])),
    sample: ([length = 0, count = 0]) => {
      const { rows, info } = source.sample(length, count)
      mailbox.putNumbers(indices(rows))
      if (info) withRawDict(info, (dict) => mailbox.putItems(dict))
    },
    updatePriority: (numbers) => {
      const half = numbers.length / 2
      source.updatePriority?.(numbers.slice(0, half), numbers.slice(half))
    },
    clear: () => source.clear?.(),
    state: () => mailbox.putText(JSON.stringify(source.state?.() ?? null)),
    restore: () => source.restore?.(JSON.parse(mailbox.takeText() ?? 'null') as Json),
  }
}

/** Returns true if an object of the caller draws the rows. */
export const isSourceSampler = (sampler: Sampler): boolean => sampler instanceof SourceSampler

/** Returns the description from which the core builds the sampler. */
export const samplerOptions = (sampler: Sampler): object => describe(sampler)
/** Returns the options of the buffer for batches of the sampler. */
export const samplerFlags = (sampler: Sampler): object => flag(sampler)
/** Makes the buffer the owner of the sampler. */
export const attachSampler = (sampler: Sampler, owner: SamplerOwner): void => attach(sampler, owner)

/**
 * Rows with replacement, each as likely as any other.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, RandomSampler, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler: new RandomSampler(), seed: 3 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2]) }, { batchSize: [2] }))
 * assert.equal(buffer.sample(5).batchSize[0], 5)
 * ```
 */
export class RandomSampler extends Sampler {
  constructor() {
    super({ kind: 'random' })
  }
}

/** Options of {@link SamplerWithoutReplacement}. */
export interface SamplerWithoutReplacementOptions {
  /** If true, a short last batch of an epoch is dropped. @default false */
  readonly dropLast?: boolean
  /** If true, rows come in random order. @default true */
  readonly shuffle?: boolean
}

/**
 * Every row once an epoch, which begins anew when the number of rows changes.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new SamplerWithoutReplacement({ shuffle: false })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, batchSize: 2 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
 * const sizes = [...buffer].map((batch) => batch.batchSize[0])
 * assert.deepEqual(sizes, [2, 1])
 * ```
 */
export class SamplerWithoutReplacement extends Sampler {
  constructor(options: SamplerWithoutReplacementOptions = {}) {
    checkKnownKeys('options', options, ['dropLast', 'shuffle'])
    super({ kind: 'withoutReplacement', ...options })
  }
}

/** Options of {@link ConsumingSampler}. */
export interface ConsumingSamplerOptions {
  /** After how many draws a row is freed, from 1. @default 1 */
  readonly maxSampleCount?: number
}

/**
 * Distinct rows, each of which is freed after some draws; new items take freed rows first.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ConsumingSampler, LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler: new ConsumingSampler() })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
 * buffer.sample(2)
 * assert.equal(buffer.length, 1)
 * ```
 */
export class ConsumingSampler extends Sampler {
  constructor(options: ConsumingSamplerOptions = {}) {
    checkKnownKeys('options', options, ['maxSampleCount'])
    super({ kind: 'consuming', ...options })
  }
}

/** Returns the options that were given under these names. */
export function picked<O extends object>(options: O, names: readonly (keyof O)[]): Partial<O> {
  const given = names.filter((name) => options[name] !== undefined).map((name) => [name, options[name]])
  return Object.fromEntries(given) as Partial<O>
}
