/** Draws of slices of trajectories. */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import { PRIORITIES, type PrioritizedSamplerOptions, Weighted } from './prioritized-sampler.js'
import { picked, Sampler, type SamplerWithoutReplacementOptions } from './sampler.js'

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
