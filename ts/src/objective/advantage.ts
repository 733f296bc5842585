/** Advantages of rollouts against their siblings on the same prompt. */

import { call, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, optionsJson } from './argument.js'

/** Options of {@link groupAdvantage}: rewards, how they are grouped, and what divides them. */
export interface GroupAdvantageOptions {
  /** `[R]` group after group; null for a rollout that nobody could score. */
  readonly rewards: ArrayLike<number | null>
  /** Every so many rewards in a row share a prompt; at least 2. Give this or `groupOffsets`. */
  readonly groupSize?: number
  /** `[N + 1]` bounds of groups of unequal size. */
  readonly groupOffsets?: Uint32Array
  /** Whose standard deviation divides; none keeps the unit of the reward. @default 'group' */
  readonly scale?: 'group' | 'batch' | 'none'
  /** Divisor of the variance: `n - 1` or `n`. @default 'unbiased' */
  readonly std?: 'unbiased' | 'population'
  /** Added to the standard deviation. @default 1e-4 */
  readonly epsilon?: number
  /** The least standard deviation. @default 1e-3 */
  readonly stdFloor?: number
}

/** Advantages of `R` rollouts in `N` groups. */
export interface GroupAdvantageResult {
  /** `[R]` ready for `LossBatch.advantage`; 0 for a rollout without a score. */
  readonly advantage: Float32Array
  /** `[N]` mean scored reward. */
  readonly mean: Float64Array
  /** `[N]` standard deviation of the scored rewards. */
  readonly std: Float64Array
  /** `[N]` whether a group teaches nothing: its scored rewards are all equal, or fewer than two. Its advantages are 0. */
  readonly degenerate: readonly boolean[]
}

const SCALING_KEYS = { scale: true, std: true, epsilon: true, stdFloor: true } as const

/**
 * `(reward - mean of the group) / (max(std, stdFloor) + epsilon)`, exactly 0 in a group of equal rewards.
 *
 * @throws {FulmarError} `NON_FINITE` for a NaN or infinite reward, naming its index; `SHAPE_MISMATCH` if the groups do
 * not cover the rewards; `OUT_OF_RANGE` for a group below 2 or an option outside its range; `EMPTY` without rewards;
 * `UNKNOWN_NAME` for an unknown key; `MALFORMED` for a value of another type, or groups given twice or not at all.
 *
 * @example
 * ```ts
 * import { groupAdvantage } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const { advantage, degenerate } = groupAdvantage({ rewards: [1, 0, 0.1, 0.1, 1, null], groupSize: 2, scale: 'none' })
 * assert.deepEqual([...advantage], [0.5, -0.5, 0, 0, 0, 0])
 * assert.deepEqual(degenerate, [false, true, true])
 * ```
 */
export function groupAdvantage(options: GroupAdvantageOptions): GroupAdvantageResult {
  checkKnownKeys('groupAdvantage', options, [
    'rewards',
    'groupSize',
    'groupOffsets',
    ...Object.keys(SCALING_KEYS),
  ])
  const { rewards, groupSize, groupOffsets, ...scaling } = options
  checkArray(options, 'groupOffsets', 'Uint32Array', true)
  const reward = Float64Array.from(rewards, rewardOf)
  const isScored = Uint8Array.from(rewards, (value: number | null) => (value === null ? 0 : 1))
  const json = optionsJson('groupAdvantage', scaling, SCALING_KEYS)
  const result = call(() => raw.groupAdvantage(json, reward, isScored, groupSize, groupOffsets))
  const { advantage, mean, std, degenerate } = result
  return { advantage, mean, std, degenerate: Array.from(degenerate, (flag) => flag === 1) }
}

function rewardOf(value: unknown, index: number): number {
  if (value === null) return 0
  if (typeof value === 'number') return value
  throw new FulmarError(
    'MALFORMED',
    `rewards[${index}] must be a number or null: got ${describeValue(value)}`,
  )
}
