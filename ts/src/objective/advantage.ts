/** Advantages of rollouts relative to the other rollouts of the same prompt. */

import { call, checkKnownKeys, describeValue, FulmarError, type OnDevice } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, optionsJson } from './argument.js'

/** Options of {@link groupAdvantage}: rewards, their groups, and the normalization. */
export interface GroupAdvantageOptions extends OnDevice {
  /**
   * `[R]` group after group; null for a rollout without a score. With `weights` `[R][F]`: a list for each
   * rollout, null where a function gave no reward; a rollout with only nulls has no score.
   */
  readonly rewards: ArrayLike<number | null> | ArrayLike<ArrayLike<number | null>>
  /** `[F]` weights of several rewards of a rollout. */
  readonly weights?: ArrayLike<number>
  /**
   * Order of aggregation of several rewards: `sumThenNormalize` compares their weighted sum within the group;
   * `normalizeThenSum` normalizes each within the group and their sum over the batch (GDPO,
   * <https://arxiv.org/abs/2601.05242>).
   * @default 'sumThenNormalize'
   */
  readonly aggregation?: 'sumThenNormalize' | 'normalizeThenSum'
  /** Number of consecutive rewards that share a prompt; at least 2. Give this or `groupOffsets`. */
  readonly groupSize?: number
  /** `[N + 1]` bounds of groups of unequal size. */
  readonly groupOffsets?: Uint32Array
  /** Baseline of a reward: the mean of its group, or of the other rewards in it (RLOO). @default 'group' */
  readonly baseline?: 'group' | 'leaveOneOut'
  /**
   * Standard deviation that divides: of the group or of the batch; `none` keeps the unit of the reward.
   * @default 'group'
   */
  readonly scale?: 'group' | 'batch' | 'none'
  /** Divisor of the variance: `n - 1` or `n`. @default 'unbiased' */
  readonly std?: 'unbiased' | 'population'
  /** Added to the standard deviation. @default 1e-4 */
  readonly epsilon?: number
  /** Lower bound of the standard deviation. @default 1e-3 */
  readonly stdFloor?: number
}

/** Advantages of `R` rollouts in `N` groups. */
export interface GroupAdvantageResult {
  /** `[R]` values for `LossBatch.advantage`; 0 for a rollout without a score. */
  readonly advantage: Float32Array
  /** `[N]` means of the scored rewards. */
  readonly mean: Float64Array
  /** `[N]` standard deviations of the scored rewards. */
  readonly std: Float64Array
  /**
   * `[N]` true for a group without a training signal: its scored rewards are all equal, or fewer than two.
   * Its advantages are 0.
   */
  readonly degenerate: readonly boolean[]
}

const SCALING_KEYS = {
  device: true,
  baseline: true,
  scale: true,
  std: true,
  epsilon: true,
  stdFloor: true,
} as const

/**
 * Computes `(reward - mean of the group) / (max(std, stdFloor) + epsilon)`, exactly 0 in a group of equal
 * rewards.
 *
 * @throws {FulmarError} `NON_FINITE` for a NaN or infinite reward, for an advantage beyond the range of f32,
 * with its index, and for rewards whose standard deviation overflows; `SHAPE_MISMATCH` if the groups do not
 * cover the rewards or a list of rewards has another length than `weights`; `OUT_OF_RANGE` for a group below
 * 2 or an option outside its range; `EMPTY` without rewards; `UNKNOWN_NAME` for an unknown key; `MALFORMED`
 * for a value of another type, or if not exactly one of `groupSize` and `groupOffsets` is given.
 *
 * @example
 * ```ts
 * import { groupAdvantage } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const { advantage, degenerate } = groupAdvantage({ rewards: [1, 0, 0.1, 0.1, 1, null], groupSize: 2, scale: 'none' })
 * assert.deepEqual([...advantage], [0.5, -0.5, 0, 0, 0, 0])
 * assert.deepEqual(degenerate, [false, true, true])
 * const loud = groupAdvantage({ rewards: [[1, 0], [0, 100]], weights: [1, 1], aggregation: 'normalizeThenSum', groupSize: 2 })
 * assert.ok(Math.abs(loud.advantage[0] ?? 1) < 0.2, 'both rewards count the same')
 * ```
 */
export function groupAdvantage(options: GroupAdvantageOptions): GroupAdvantageResult {
  checkKnownKeys('groupAdvantage', options, [
    ...['rewards', 'weights', 'aggregation', 'groupSize', 'groupOffsets'],
    ...Object.keys(SCALING_KEYS),
  ])
  const { rewards, weights, aggregation, groupSize, groupOffsets, ...scaling } = options
  checkArray(options, 'groupOffsets', 'Uint32Array', true)
  const json = optionsJson('groupAdvantage', scaling, SCALING_KEYS)
  if (weights === undefined && aggregation !== undefined) {
    throw new FulmarError('MALFORMED', 'weights must be given with aggregation: they are undefined')
  }
  const { reward, scored } = weights === undefined ? column(rewards) : table(rewards, weights.length)
  const result = call(() =>
    weights === undefined
      ? raw.groupAdvantage(json, reward, scored, groupSize, groupOffsets)
      : raw.multiRewardAdvantage(
          json,
          JSON.stringify(aggregation ?? 'sumThenNormalize'),
          reward,
          scored,
          Float64Array.from(weights),
          groupSize,
          groupOffsets,
        ),
  )
  const { advantage, mean, std, degenerate } = result
  return { advantage, mean, std, degenerate: booleans(degenerate) }
}

/**
 * Converts by index: the iterator of a typed array is four times slower, `Array.from` with a function twelve
 * times.
 */
function booleans(flags: Uint8Array): boolean[] {
  const booleans = new Array<boolean>(flags.length)
  for (let index = 0; index < flags.length; index++) booleans[index] = flags[index] === 1
  return booleans
}

type Column = { reward: Float64Array; scored: Uint8Array | undefined }

function column(rewards: ArrayLike<unknown>): Column {
  if (rewards instanceof Float64Array) return { reward: rewards, scored: undefined }
  const reward = Float64Array.from(rewards, rewardOf)
  return { reward, scored: Uint8Array.from(rewards, (value) => (value === null ? 0 : 1)) }
}

function table(rewards: ArrayLike<unknown>, width: number): Column {
  const all: unknown[] = []
  for (const [index, row] of Array.from(rewards).entries()) {
    const values =
      typeof row === 'object' && row !== null && 'length' in row ? Array.from(row as ArrayLike<unknown>) : []
    if (values.length !== width) {
      const got = describeValue(row)
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `rewards[${index}] must be a list of ${width} rewards: got ${got}`,
      )
    }
    all.push(...values)
  }
  return column(all)
}

function rewardOf(value: unknown, index: number): number {
  if (value === null) return 0
  if (typeof value === 'number') return value
  throw new FulmarError(
    'MALFORMED',
    `rewards[${index}] must be a number or null: got ${describeValue(value)}`,
  )
}
