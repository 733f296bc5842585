/** Advantages of rollouts within their group. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import { groupAdvantage } from '../objective/index.js'

/** Options of {@link estimateAdvantages}. */
export interface AdvantageEstimatorOptions {
  /**
   * If true, divides by the group's population standard deviation plus 1e-6.
   * @default false
   */
  readonly stdNormalize?: boolean
}

/**
 * Subtracts the mean of the scored rewards of one group; `null` rewards get a `null` advantage and are not in
 * the mean.
 * A group with a single score, or with equal ones, has advantages of 0.
 *
 * @throws {FulmarError} `NON_FINITE` if a reward is NaN or infinite.
 *
 * @example
 * ```ts
 * import { estimateAdvantages } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(estimateAdvantages([1, 0, null, 0.5]), [0.5, -0.5, null, 0])
 * ```
 */
export function estimateAdvantages(
  rewards: readonly (number | null)[],
  options: AdvantageEstimatorOptions = {},
): (number | null)[] {
  checkKnownKeys('options', options, ['stdNormalize'])
  checkGiven('rewards', rewards)
  const { stdNormalize = false } = options
  if (rewards.length < 2) return rewards.map((reward) => (reward === null ? null : 0))
  const { advantage } = groupAdvantage({
    rewards,
    groupSize: rewards.length,
    scale: stdNormalize ? 'group' : 'none',
    std: 'population',
    epsilon: 1e-6,
    stdFloor: 0,
  })
  return rewards.map((reward, index) => (reward === null ? null : (advantage[index] ?? 0)))
}
