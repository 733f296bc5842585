/** Which rows a batch takes. */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import type { RawMailbox } from '../native/index.js'
import type { Json, TensorKey } from '../tensor/index.js'
import { indices } from '../tensor/tensor.js'
import { dictAround, pathOf, type TensorDict, withRawDict } from '../tensor/tensor-dict.js'

/** Reader and writer of a sampler's parameters once a buffer uses it. */
export interface SamplerOwner {
  parameter(name: string): number
  setParameter(name: string, value: number): void
  ranOut(): boolean
}

/** Rows that a {@link SamplerSource} draws, and what it says of them: leaves of batch size `[rows]`. */
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
   */
  extend(rows: readonly number[], items: TensorDict): void
  /** Draws `count` rows, or as many as there are, of a buffer that holds `length`; at least one. */
  sample(length: number, count: number): DrawnRows
  /** Sets the priorities of rows. @default nothing */
  updatePriority?(rows: readonly number[], priorities: readonly number[]): void
  /** Forgets all rows. */
  clear(): void
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
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import { LazyTensorStorage, ReplayBuffer, Sampler } from 'fulmar/replay'
   * import assert from 'node:assert/strict'
   *
   * const newest = Sampler.from({
   *   extend: () => {},
   *   sample: (length, count) => ({ rows: Array.from({ length: count }, () => length - 1) }),
   *   clear: () => {},
   * })
   * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler: newest })
   * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
   * assert.deepEqual(buffer.sample(2).tensor('id').data, Float32Array.of(3, 3))
   * ```
   */
  static from(source: SamplerSource): Sampler {
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
    extend: (rows) => withItems((items) => source.extend(rows, items)),
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
    clear: () => source.clear(),
    state: () => mailbox.putText(JSON.stringify(source.state?.() ?? null)),
    restore: () => source.restore?.(JSON.parse(mailbox.takeText() ?? 'null') as Json),
  }
}

/** Returns true if an object of the caller draws the rows. */
export const isSourceSampler = (sampler: Sampler): boolean => sampler instanceof SourceSampler

/** The sampler of a buffer that another thread made, from what the core built it from there. */
export function samplerAround(options: { readonly kind: string }): Sampler {
  const classes: Record<string, typeof Sampler> = {
    prioritized: PrioritizedSampler,
    prioritizedSlice: PrioritizedSliceSampler,
    stalenessAware: StalenessAwareSampler,
    withoutReplacement: SamplerWithoutReplacement,
    consuming: ConsumingSampler,
    slice: SliceSampler,
    sliceWithoutReplacement: SliceSamplerWithoutReplacement,
    streamingSlice: StreamingSliceSampler,
    promptGroup: PromptGroupSampler,
  }
  // Their own constructors take other options; what they are made of is the same.
  return Reflect.construct(Sampler, [options], classes[options.kind] ?? RandomSampler) as Sampler
}

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

/** Options of {@link PrioritizedSampler}. */
export interface PrioritizedSamplerOptions {
  /** Exponent of the priorities, >= 0; at 0 draws are uniform. @default 0.7 */
  readonly alpha?: number
  /** Exponent of the weights, >= 0; at 0 all are 1. @default 0.9 */
  readonly beta?: number
  /** Added to each priority, >= 0; at 0 a priority of 0 keeps batches from being drawn. @default 1e-8 */
  readonly eps?: number
  /**
   * If true, new items get the largest priority of the current rows, not of all rows ever written.
   * @default false
   */
  readonly maxPriorityWithinBuffer?: boolean
}

const PRIORITIES = ['alpha', 'beta', 'eps', 'maxPriorityWithinBuffer'] as const

/** A sampler whose exponents can be changed, by a schedule for example. */
abstract class Weighted extends Sampler {
  /** Exponent of the priorities. Setting it costs O(rows); one of 0 has forgotten them: after it all count as 1. */
  get alpha(): number {
    return this.owner().parameter('alpha')
  }

  set alpha(value: number) {
    this.owner().setParameter('alpha', value)
  }

  /** Exponent of the weights. */
  get beta(): number {
    return this.owner().parameter('beta')
  }

  set beta(value: number) {
    this.owner().setParameter('beta', value)
  }
}

/**
 * Rows with replacement, in proportion to `(priority + eps) ^ alpha`, with weights `(leaf / smallest leaf) ^ -beta` at
 * `priority_weight` (Schaul et al., <https://arxiv.org/abs/1511.05952>). Costs O(log rows) a draw or update; every row with
 * a priority above 0 can be drawn, at any number of rows.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, PrioritizedSampler, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ alpha: 1, beta: 0.4 })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
 * buffer.updatePriority([0, 1, 2], [0, 0, 5])
 * assert.deepEqual(buffer.sample(2).tensor('id').data, Float32Array.of(3, 3))
 * ```
 */
export class PrioritizedSampler extends Weighted {
  constructor(options: PrioritizedSamplerOptions = {}) {
    checkKnownKeys('options', options, ['alpha', 'beta', 'eps', 'maxPriorityWithinBuffer'])
    super({ kind: 'prioritized', priorities: options })
  }
}

/** Keys that identify the trajectory of an item. */
export interface TrajectoryOptions {
  /** The id of the trajectory, a whole number; comes before the flags. @default `['collector', 'traj_ids']` or `'episode'`, if stored */
  readonly trajKey?: TensorKey
  /** Flags of last steps, any of which ends a trajectory. @default `done`, `truncated` and `terminated` of `next` */
  readonly endKeys?: readonly TensorKey[]
}

/** Steps of a slice that an end of its trajectory may cut off: none, up to a number, or all but one. */
export type Span = boolean | number

/** Options of {@link SliceSampler}: `numSlices` or `sliceLen` must be given. */
export interface SliceSamplerOptions extends TrajectoryOptions {
  /** Slices of a batch, from 1. */
  readonly numSlices?: number
  /** Steps of a slice, from 1. */
  readonly sliceLen?: number
  /** If true, shorter trajectories are left out; else they are taken whole. @default true */
  readonly strictLength?: boolean
  /**
   * If true, slices that are too short repeat their last row, with a mask at `['collector', 'mask']`.
   * @default false
   */
  readonly padOutput?: boolean
  /**
   * Steps that the ends of a trajectory may cut off: one for both, or for the beginning and the end.
   * @default false
   */
  readonly span?: Span | readonly [Span, Span]
  /**
   * Uniform over trajectories of any length, or over the steps where a slice may begin.
   * @default 'trajectories'
   */
  readonly by?: 'trajectories' | 'steps'
  /**
   * Key of the flag of the last step of each slice, next to `done` and `terminated`; null for none.
   * @default `['next', 'truncated']`
   */
  readonly truncatedKey?: TensorKey | null
  /** The flag of first steps, set at that of each slice where it is stored; null: left as it is. @default 'is_init' */
  readonly initKey?: TensorKey | null
}

/** Options of {@link SliceSampler} alone. */
export interface FragmentOptions {
  /**
   * If true, steps of a trajectory may be interleaved with those of others; consecutive step counts belong
   * together. Needs an id of trajectories; spans and `by` are not supported.
   * @default false
   */
  readonly fragmented?: boolean
  /** Key of step counts, integers, for fragmented trajectories. @default 'step_count' */
  readonly stepKey?: TensorKey
}

const SLICES = ['numSlices', 'sliceLen', 'strictLength', 'padOutput', 'by', 'span'] as const
const FLAGS = ['truncatedKey', 'initKey'] as const
const TRAJECTORIES = ['trajKey', 'endKeys'] as const

/**
 * Slices of consecutive steps of one trajectory each. The last step of a slice is flagged at `['next', 'truncated']`.
 * Boundaries are kept as items are written, so a draw costs the same however many rows there are.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; when a buffer is made `OUT_OF_RANGE` unless one of `numSlices`
 *   and `sliceLen` is given.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, SliceSampler } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new SliceSampler({ sliceLen: 2, trajKey: 'episode' })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * const episode = Tensor.from(BigInt64Array.of(0n, 0n, 1n, 1n))
 * buffer.extend(TensorDict.from({ episode, step: Tensor.from([0, 1, 0, 1]) }, { batchSize: [4] }))
 * assert.deepEqual(buffer.sample(4).tensor('step').data, Float32Array.of(0, 1, 0, 1))
 * ```
 */
export class SliceSampler extends Sampler {
  constructor(options: SliceSamplerOptions & FragmentOptions) {
    checkKnownKeys('options', options, [...SLICES, ...FLAGS, ...TRAJECTORIES, 'fragmented', 'stepKey'])
    const { fragmented = false, stepKey } = options
    if (stepKey !== undefined && !fragmented) {
      throw new FulmarError('INCOMPATIBLE', 'stepKey must come with fragmented: got it alone')
    }
    const core = {
      kind: fragmented ? 'fragmentedSlice' : 'slice',
      slices: slicesOf(options),
      trajectories: trajectoriesOf(options),
      ...(stepKey !== undefined && { stepKey: pathOf(stepKey) }),
    }
    super(core, flagsOf(options))
  }
}

/** Options of {@link SliceSamplerWithoutReplacement}. */
export interface SliceSamplerWithoutReplacementOptions
  extends Omit<SliceSamplerOptions, 'span' | 'by'>,
    SamplerWithoutReplacementOptions {}

/**
 * Slices of which each trajectory gives at most one an epoch.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, SliceSamplerWithoutReplacement } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new SliceSamplerWithoutReplacement({ sliceLen: 2, trajKey: 'episode' })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler })
 * buffer.extend(TensorDict.from({ episode: Tensor.from(BigInt64Array.of(0n, 0n, 1n, 1n)) }, { batchSize: [4] }))
 * assert.equal(buffer.sample(8).batchSize[0], 4)
 * ```
 */
export class SliceSamplerWithoutReplacement extends Sampler {
  constructor(options: SliceSamplerWithoutReplacementOptions) {
    const known = SLICES.filter((name) => name !== 'span' && name !== 'by')
    checkKnownKeys('options', options, [...known, ...FLAGS, 'dropLast', 'shuffle', ...TRAJECTORIES])
    const core = {
      kind: 'sliceWithoutReplacement',
      slices: slicesOf(options),
      epochs: picked(options, ['dropLast', 'shuffle']),
      trajectories: trajectoriesOf(options),
    }
    super(core, flagsOf(options))
  }
}

/** Options of {@link PrioritizedSliceSampler}. */
export interface PrioritizedSliceSamplerOptions extends SliceSamplerOptions, PrioritizedSamplerOptions {}

/**
 * Slices in proportion to the priority of their first step; a step too near the end of its trajectory begins none.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, PrioritizedSliceSampler, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSliceSampler({ sliceLen: 2, trajKey: 'episode', alpha: 1 })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * const episode = Tensor.from(BigInt64Array.of(0n, 0n, 0n))
 * buffer.extend(TensorDict.from({ episode, step: Tensor.from([0, 1, 2]) }, { batchSize: [3] }))
 * buffer.updatePriority([0, 1, 2], [0, 1, 9])
 * assert.deepEqual(buffer.sample(2).tensor('step').data, Float32Array.of(1, 2))
 * ```
 */
export class PrioritizedSliceSampler extends Weighted {
  constructor(options: PrioritizedSliceSamplerOptions) {
    checkKnownKeys('options', options, [...SLICES, ...FLAGS, ...PRIORITIES, ...TRAJECTORIES])
    const core = {
      kind: 'prioritizedSlice',
      slices: slicesOf(options),
      priorities: picked(options, PRIORITIES),
      trajectories: trajectoriesOf(options),
    }
    super(core, flagsOf(options))
  }
}

/** Options of {@link StreamingSliceSampler}. */
export interface StreamingSliceSamplerOptions extends TrajectoryOptions {
  /** Steps of a slice, from 1. */
  readonly sliceLen: number
}

/**
 * The slices of all trajectories one after another, as they were written. Ids and flags both end a trajectory; with no
 * `endKeys` the flag at `['next', 'done']` does.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, StreamingSliceSampler } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new StreamingSliceSampler({ sliceLen: 2, trajKey: 'episode', endKeys: [] })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler })
 * const episode = Tensor.from(BigInt64Array.of(0n, 0n, 1n, 1n))
 * buffer.extend(TensorDict.from({ episode, step: Tensor.from([0, 1, 2, 3]) }, { batchSize: [4] }))
 * assert.equal(buffer.sample(2).batchSize[0], 2)
 * ```
 */
export class StreamingSliceSampler extends Sampler {
  constructor(options: StreamingSliceSamplerOptions) {
    checkKnownKeys('options', options, ['sliceLen', ...TRAJECTORIES])
    const { sliceLen } = options
    super({ kind: 'streamingSlice', sliceLen, trajectories: trajectoriesOf(options) })
  }
}

/** Maximum number of weights requested from a staleness function. */
const WEIGHTS_MAX = 65_536

/** Options of {@link StalenessAwareSampler}. */
export interface StalenessAwareSamplerOptions {
  /** Maximum number of versions that a row may be behind, from 0. @default no limit */
  readonly maxStaleness?: number
  /** Key of the version of an item. @default 'policy_version' */
  readonly versionKey?: TensorKey
  /**
   * The weight of each staleness from 0, the last for all beyond; or a function of it, asked once for each up to `maxStaleness`, which must
   * be given then. Rows of a weight of 0 are not drawn. @default `1 / (1 + staleness)`
   */
  readonly stalenessWeight?: readonly number[] | ((staleness: number) => number)
}

/**
 * Rows with replacement, in proportion to `1 / (1 + staleness)` or to weights of your own, where staleness is how far the version of the row is behind
 * {@link StalenessAwareSampler.consumerVersion}; it stands at `staleness` of a batch.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, StalenessAwareSampler } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new StalenessAwareSampler({ maxStaleness: 0 })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * const policy_version = Tensor.from(BigInt64Array.of(1n, 2n))
 * buffer.extend(TensorDict.from({ policy_version, id: Tensor.from([5, 6]) }, { batchSize: [2] }))
 * sampler.consumerVersion = 2
 * assert.deepEqual(buffer.sample(2).tensor('id').data, Float32Array.of(6, 6))
 * ```
 */
export class StalenessAwareSampler extends Sampler {
  constructor(options: StalenessAwareSamplerOptions = {}) {
    checkKnownKeys('options', options, ['maxStaleness', 'versionKey', 'stalenessWeight'])
    const { versionKey, stalenessWeight, ...rest } = options
    super({
      kind: 'stalenessAware',
      ...rest,
      ...(stalenessWeight !== undefined && { weights: weightsOf(stalenessWeight, rest.maxStaleness) }),
      ...(versionKey !== undefined && { versionKey: pathOf(versionKey) }),
    })
  }

  /** The version of the learner, a whole number. */
  get consumerVersion(): number {
    return this.owner().parameter('consumerVersion')
  }

  set consumerVersion(value: number) {
    this.owner().setParameter('consumerVersion', value)
  }
}

/** A table of weights, which the core can ask in any thread. */
function weightsOf(
  weight: readonly number[] | ((staleness: number) => number),
  maxStaleness: number | undefined,
): readonly number[] {
  if (typeof weight === 'function' && !Number.isInteger(maxStaleness)) {
    throw new FulmarError(
      'OUT_OF_RANGE',
      'maxStaleness must be given with a function of weights: it is undefined',
    )
  }
  const length = (maxStaleness ?? 0) + 1
  if (typeof weight === 'function' && length > WEIGHTS_MAX) {
    throw new FulmarError('LIMIT_EXCEEDED', `maxStaleness must be < ${WEIGHTS_MAX}: got ${maxStaleness}`)
  }
  const weights =
    typeof weight === 'function' ? Array.from({ length }, (_, staleness) => weight(staleness)) : weight
  const wrong = weights.find((one) => !Number.isFinite(one))
  // JSON would write null, which means absent.
  if (wrong !== undefined) {
    throw new FulmarError('NON_FINITE', `stalenessWeight must give finite numbers: got ${wrong}`)
  }
  if (weights.length === 0) throw new FulmarError('EMPTY', 'stalenessWeight must hold a weight: it is empty')
  return weights
}

/** Options of {@link PromptGroupSampler}: `numGroups` or `samplesPerGroup` must be given. */
export interface PromptGroupSamplerOptions {
  /** Groups of a batch, from 1. */
  readonly numGroups?: number
  /** Rows of each group, from 1. */
  readonly samplesPerGroup?: number
  /** Which rows of a group: any, the latest, those of the highest reward, or those that make its variance largest. @default 'random' */
  readonly strategy?: 'random' | 'recency' | 'reward' | 'variance'
  /** Key of the prompt of an item. @default 'query' */
  readonly groupKey?: TensorKey
  /** Key of the reward of an item; read only by strategies that rank by it. @default ['next', 'reward'] */
  readonly rewardKey?: TensorKey
}

/**
 * Groups of rows that answer one prompt.
 *
 * @example
 * ```ts
 * import { ListStorage, PromptGroupSampler, ReplayBuffer } from 'fulmar/replay'
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new ListStorage(10), sampler: new PromptGroupSampler({ numGroups: 1 }) })
 * buffer.extend(TensorDict.from({ query: new NonTensorStack(['a', 'b', 'a', 'b']) }, { batchSize: [4] }))
 * const group = buffer.sample(2)
 * assert.equal(group.index(0).value('query'), group.index(1).value('query'))
 * ```
 */
export class PromptGroupSampler extends Sampler {
  constructor(options: PromptGroupSamplerOptions) {
    const groups = ['numGroups', 'samplesPerGroup', 'strategy'] as const
    checkKnownKeys('options', options, [...groups, 'groupKey', 'rewardKey'])
    const { groupKey, rewardKey } = options
    super({
      kind: 'promptGroup',
      groups: picked(options, groups),
      ...(groupKey !== undefined && { groupKey: pathOf(groupKey) }),
      ...(rewardKey !== undefined && { rewardKey: pathOf(rewardKey) }),
    })
  }
}

function slicesOf(options: SliceSamplerOptions): object {
  const { span = false } = options
  const [left, right] = Array.isArray(span) ? (span as [Span, Span]) : [span as Span, span as Span]
  const spans = { leftSpan: spanOf(left), rightSpan: spanOf(right) }
  return { ...picked(options, SLICES.slice(0, 5)), ...spans }
}

/** Returns the keys of the flags of slices. */
function flagsOf({ truncatedKey, initKey }: SliceSamplerOptions): object {
  const path = (key: TensorKey | null) => (key === null ? null : pathOf(key))
  return {
    ...(truncatedKey !== undefined && { truncatedKey: path(truncatedKey) }),
    ...(initKey !== undefined && { initKey: path(initKey) }),
  }
}

const spanOf = (span: Span) => (typeof span === 'number' ? { upTo: span } : span ? 'any' : 'none')

/** Returns the keys of trajectories for the core. */
export function trajectoriesOf({ trajKey, endKeys }: TrajectoryOptions): object {
  return {
    ...(trajKey !== undefined && { idKey: pathOf(trajKey) }),
    ...(endKeys && { endKeys: endKeys.map(pathOf) }),
  }
}

/** Only what was given under these names. */
function picked<O extends object>(options: O, names: readonly (keyof O)[]): Partial<O> {
  const given = names.filter((name) => options[name] !== undefined).map((name) => [name, options[name]])
  return Object.fromEntries(given) as Partial<O>
}
