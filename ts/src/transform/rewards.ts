/** Rewards in another measure, and what is still to come of them. */

import type { TensorKey } from '../tensor/index.js'
import { type MappedKeys, rawTransform, Transform } from './transform.js'

/** Options of {@link RewardScaling}; `inKeys` are `['reward']` unless given. */
export interface RewardScalingOptions extends MappedKeys {
  /** Value added to the reward. */
  readonly loc: number
  /** The factor. */
  readonly scale: number
}

/**
 * Reads `scale * reward + loc`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { RewardScaling } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using scaling = new RewardScaling({ loc: 1, scale: 0.5, inKeys: [['next', 'reward']] })
 * const batch = TensorDict.from().set(['next', 'reward'], Tensor.from([4]))
 * assert.deepEqual(scaling.forward(batch).tensor(['next', 'reward']).data, Float32Array.of(3))
 * ```
 */
export class RewardScaling extends Transform {
  /** @throws {FulmarError} `NON_FINITE` for such a number; `SHAPE_MISMATCH` if there are not as many keys out as in. */
  constructor(options: RewardScalingOptions) {
    super(() => rawTransform('RewardScaling', options))
  }
}

/** Options of {@link RewardClipping}; `inKeys` are `['reward']` unless given. */
export interface RewardClippingOptions extends MappedKeys {
  /** The lower bound. @default -1 */
  readonly clampMin?: number
  /** The upper bound. @default 1 */
  readonly clampMax?: number
}

/**
 * Clamps the reward to the bounds; NaN is kept.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { RewardClipping } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using clipping = new RewardClipping()
 * const batch = TensorDict.from({ reward: Tensor.from([4, -0.5]) })
 * assert.deepEqual(clipping.forward(batch).tensor('reward').data, Float32Array.of(1, -0.5))
 * ```
 */
export class RewardClipping extends Transform {
  /** @throws {FulmarError} `OUT_OF_RANGE` if `clampMin` is above `clampMax`; those of {@link RewardScaling}. */
  constructor(options: RewardClippingOptions = {}) {
    super(() => rawTransform('RewardClipping', options))
  }
}

/**
 * Reads 1 where the reward is more than 0, else 0, as `i8`. `inKeys` are `['reward']` unless given.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { BinarizeReward } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using binarize = new BinarizeReward()
 * const batch = TensorDict.from({ reward: Tensor.from([4, -0.5]) })
 * assert.deepEqual(binarize.forward(batch).tensor('reward').data, Int8Array.of(1, 0))
 * ```
 */
export class BinarizeReward extends Transform {
  /** @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many keys out as in. */
  constructor(options: MappedKeys = {}) {
    super(() => rawTransform('BinarizeReward', options))
  }
}

/**
 * Reads -1, 0 or 1 as the reward is negative, neither or positive. `inKeys` are `['reward']` unless given.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { SignTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using sign = new SignTransform()
 * const batch = TensorDict.from({ reward: Tensor.from([4, -0.5]) })
 * assert.deepEqual(sign.forward(batch).tensor('reward').data, Float32Array.of(1, -1))
 * ```
 */
export class SignTransform extends Transform {
  /** @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many keys out as in. */
  constructor(options: MappedKeys = {}) {
    super(() => rawTransform('SignTransform', options))
  }
}

/** Options of {@link Reward2GoTransform}; `inKeys` are `[['next', 'reward']]`, `outKeys` `['rtg']` unless given. */
export interface Reward2GoTransformOptions extends MappedKeys {
  /** By which a reward shrinks with every step before it, from 0 to 1. @default 1 */
  readonly gamma?: number
  /** Key of the end of a trajectory, below `next`; `truncated` there ends it, too. @default 'done' */
  readonly doneKey?: TensorKey
}

/**
 * Adds for each reward the discounted sum of it and the later ones (reward to go). Time is the last batch dimension; every
 * written sequence must contain the end of a trajectory, because the sum over a part of one would be too small.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Reward2GoTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using toGo = new Reward2GoTransform({ gamma: 0.5 })
 * const steps = TensorDict.from({}, { batchSize: [2] })
 *   .set(['next', 'reward'], Tensor.from([1, 2]))
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(0, 1), { dtype: 'bool' }))
 * assert.deepEqual(toGo.inverse(steps)?.tensor('rtg').data, Float32Array.of(2, 2))
 * ```
 */
export class Reward2GoTransform extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `gamma` is not from 0 to 1; `SHAPE_MISMATCH` if there are not as many keys out as
   *   in. `inverse`: `INCOMPATIBLE` if a sequence holds no end, or ends are not bools; `SHAPE_MISMATCH` without a batch
   *   dimension; `UNKNOWN_NAME` without rewards or ends.
   */
  constructor(options: Reward2GoTransformOptions = {}) {
    super(() => rawTransform('Reward2GoTransform', options))
  }
}

/** Options of {@link DensifyReward}. */
export interface DensifyRewardOptions {
  /** The reward, below `next`. @default 'reward' */
  readonly rewardKey?: TensorKey
  /** Key of the end of an episode, below `next`. @default 'done' */
  readonly doneKey?: TensorKey
  /** Key of the result, below `next`. @default in place */
  readonly rewardKeyOut?: TensorKey
  /** The batch dimension of time; negative from the last. @default -1 */
  readonly timeDim?: number
  /** By which a reward shrinks with every step before it, from 0 to 1. @default 1 */
  readonly discount?: number
}

/**
 * Gives every step that is read the discounted sum of its reward and those behind it: where only the last step of an episode
 * is rewarded, that is the reward of the episode.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { DensifyReward } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using densify = new DensifyReward()
 * const steps = TensorDict.from({}, { batchSize: [3] })
 *   .set(['next', 'reward'], Tensor.from([0, 3, 0]))
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(0, 1, 0), { dtype: 'bool' }))
 * assert.deepEqual(densify.forward(steps).tensor(['next', 'reward']).data, Float32Array.of(3, 3, 0))
 * ```
 */
export class DensifyReward extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `discount` is not from 0 to 1. `forward`: `OUT_OF_RANGE` if there is no such batch
   *   dimension; `UNKNOWN_NAME` without rewards or ends.
   */
  constructor(options: DensifyRewardOptions = {}) {
    super(() => rawTransform('DensifyReward', options))
  }
}
