/** Predicates of trajectories as serializable data. */

import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'

/** Reduction of the values of a trajectory's steps to one number. */
export type TrajectoryReduction = 'sum' | 'mean' | 'max' | 'min' | 'first' | 'last' | 'any' | 'all'

/** One number of a trajectory. */
export type TrajectoryValue =
  | { readonly of: 'length' | 'totalReward' }
  | { readonly of: 'leaf'; readonly key: readonly string[]; readonly reduce: TrajectoryReduction }

/** Predicate of a trajectory: made by {@link traj}, combined by `and`, `or` and `not`. */
export type TrajectoryPredicate =
  | {
      readonly value: TrajectoryValue
      readonly is: '<' | '<=' | '==' | '!=' | '>=' | '>'
      readonly than: number
    }
  | { readonly and: readonly TrajectoryPredicate[] }
  | { readonly or: readonly TrajectoryPredicate[] }
  | { readonly not: TrajectoryPredicate }

/** A number of a trajectory that waits for what it is compared with. */
export interface TrajectoryNumber {
  readonly below: (than: number) => TrajectoryPredicate
  readonly atMost: (than: number) => TrajectoryPredicate
  readonly equals: (than: number) => TrajectoryPredicate
  readonly differs: (than: number) => TrajectoryPredicate
  readonly atLeast: (than: number) => TrajectoryPredicate
  readonly above: (than: number) => TrajectoryPredicate
}

const numberOf = (value: TrajectoryValue): TrajectoryNumber => ({
  below: (than) => ({ value, is: '<', than }),
  atMost: (than) => ({ value, is: '<=', than }),
  equals: (than) => ({ value, is: '==', than }),
  differs: (than) => ({ value, is: '!=', than }),
  atLeast: (than) => ({ value, is: '>=', than }),
  above: (than) => ({ value, is: '>', than }),
})

/**
 * Numbers of a trajectory for {@link ReplayBuffer.query}: its length, the sum of its rewards, and what its steps have at a key.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, traj } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
 * const episode = Tensor.from(BigInt64Array.of(0n, 0n, 1n, 1n, 1n))
 * buffer.extend(TensorDict.from({ episode, score: Tensor.from([1, 2, 3, 4, 5]) }, { batchSize: [5] }))
 * const found = buffer.query({ and: [traj.length.atLeast(2), { not: traj.of('score', 'max').above(4) }] })
 * assert.deepEqual(found.map((one) => one.batchSize), [[2]])
 * ```
 */
export const traj = {
  /** The number of steps. */
  length: numberOf({ of: 'length' }),
  /** The sum of what is at `['next', 'reward']`. */
  totalReward: numberOf({ of: 'totalReward' }),
  /** Reduces the values of the steps at a key to one number. */
  of: (key: TensorKey, reduce: TrajectoryReduction): TrajectoryNumber =>
    numberOf({ of: 'leaf', key: pathOf(key), reduce }),
} as const
