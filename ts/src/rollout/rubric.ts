/**
 * Reward of a rollout: a weighted mean of reward functions.
 *
 * ```text
 * reward = sum_i (w_i / sum w) * r_i
 * ```
 *
 * Functions are isolated from each other. If one throws, times out, declines or returns a NaN, its rollout is
 * unscored. That is not a reward of 0: an unscored rollout is not trained.
 */

import { type DeadlineResult, withDeadline } from '../async/index.js'
import { checkGiven, checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import {
  isError,
  isTruncated,
  type RewardContext,
  type RewardFn,
  type RewardScore,
  type RolloutView,
} from '../env/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import type { UnscoredCause } from './rollout.js'

/** Options of {@link Rubric}. */
export interface RubricOptions<Sample> {
  /** At least one, with different names; their weights add up to more than 0. */
  readonly rewardFns: readonly RewardFn<Sample>[]
  /**
   * Reward of a truncated rollout, instead of the functions.
   * @default null, the functions run
   */
  readonly truncationReward?: number | null
  /**
   * Reward of a rollout that ended with an error, instead of the functions.
   * @default null, the functions run
   */
  readonly errorReward?: number | null
  /**
   * Deadline of each function in milliseconds; `null` for none.
   * @default 60_000
   */
  readonly timeoutMs?: number | null
  /** Clock of deadlines. @default systemClock */
  readonly clock?: Clock
}

/** Result of {@link Rubric.score}. */
export interface RubricOutput {
  /** Weighted mean; `null` if a function returned no score. */
  readonly reward: number | null
  /** Raw, unweighted scores by function; `truncated` or `errored` for a fixed reward. */
  readonly rewardBreakdown: Readonly<Record<string, number>>
  /** Reasons of missing scores, by function. Empty if there are all scores. */
  readonly unscored: Readonly<Record<string, UnscoredCause>>
}

const TIMEOUT_MS_DEFAULT = 60_000

/**
 * Scores finished rollouts.
 *
 * @example
 * ```ts
 * import { Rubric } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const rubric = new Rubric({
 *   rewardFns: [
 *     { name: 'answer', weight: 1, score: () => 0 },
 *     { name: 'form', weight: 0.3, score: () => 1 },
 *   ],
 * })
 * const { reward, rewardBreakdown } = await rubric.score({ status: 'completed', turns: [] }, undefined)
 * assert.equal(reward?.toFixed(5), '0.23077')
 * assert.deepEqual(rewardBreakdown, { answer: 0, form: 1 })
 * ```
 */
export class Rubric<Sample> {
  readonly #rewardFns: readonly RewardFn<Sample>[]
  readonly #totalWeight: number
  readonly #truncationReward: number | null
  readonly #errorReward: number | null
  readonly #timeoutMs: number | null
  readonly #clock: Clock

  /**
   * @throws {FulmarError} `EMPTY` without a function; `INCOMPATIBLE` if two share a name; `NON_FINITE` or `OUT_OF_RANGE`
   * if a weight or fixed reward is not finite, or the weights do not add up to more than 0.
   */
  constructor(options: RubricOptions<Sample>) {
    checkKnownKeys(
      'options',
      options,
      ['rewardFns', 'truncationReward', 'errorReward', 'timeoutMs', 'clock'],
      ['rewardFns'],
    )
    const { rewardFns, truncationReward = null, errorReward = null, clock = systemClock } = options
    if (rewardFns.length === 0)
      throw new FulmarError('EMPTY', 'rewardFns must hold a function: they are empty')
    for (const [index, rewardFn] of rewardFns.entries()) checkRewardFn(`rewardFns[${index}]`, rewardFn)
    const names = rewardFns.map(({ name }) => name)
    const twice = names.find((name, index) => names.indexOf(name) !== index)
    if (twice !== undefined)
      throw new FulmarError('INCOMPATIBLE', `rewardFns must differ in name: got ${twice} twice`)
    this.#totalWeight = rewardFns.reduce((sum, { weight = 1 }) => sum + weight, 0)
    const numbers = {
      truncationReward: truncationReward ?? 0,
      errorReward: errorReward ?? 0,
      weight: this.#totalWeight,
    }
    for (const [name, value] of Object.entries(numbers)) {
      if (!Number.isFinite(value)) throw new FulmarError('NON_FINITE', `${name} must be finite: got ${value}`)
    }
    if (this.#totalWeight <= 0) {
      throw new FulmarError('OUT_OF_RANGE', `sum of weights must be > 0: got ${this.#totalWeight}`)
    }
    this.#rewardFns = [...rewardFns]
    this.#truncationReward = truncationReward
    this.#errorReward = errorReward
    this.#timeoutMs = options.timeoutMs === undefined ? TIMEOUT_MS_DEFAULT : options.timeoutMs
    this.#clock = clock
  }

  /**
   * Scores one rollout; all functions run concurrently.
   * @throws {FulmarError} `ABORTED` if `signal` fires. Never for an error of a function.
   */
  async score(rollout: RolloutView, sample: Sample, signal?: AbortSignal): Promise<RubricOutput> {
    if (this.#truncationReward !== null && isTruncated(rollout.status)) {
      return fixed('truncated', this.#truncationReward)
    }
    if (this.#errorReward !== null && isError(rollout.status)) return fixed('errored', this.#errorReward)
    const results = await Promise.all(this.#rewardFns.map((fn) => this.#ask(fn, rollout, sample, signal)))
    const rewardBreakdown = new Map<string, number>()
    const unscored = new Map<string, UnscoredCause>()
    let total = 0
    this.#rewardFns.forEach(({ name, weight = 1 }, index) => {
      const score = readScore(name, results[index])
      if (typeof score !== 'number') {
        unscored.set(name, score)
        return
      }
      rewardBreakdown.set(name, score)
      total += weight * score
    })
    return {
      reward: unscored.size === 0 ? total / this.#totalWeight : null,
      rewardBreakdown: Object.fromEntries(rewardBreakdown),
      unscored: Object.fromEntries(unscored),
    }
  }

  #ask(
    fn: RewardFn<Sample>,
    rollout: RolloutView,
    sample: Sample,
    signal: AbortSignal | undefined,
  ): Promise<DeadlineResult<RewardScore>> {
    const run = (context: RewardContext) => fn.score(rollout, sample, context)
    return withDeadline({ clock: this.#clock, timeoutMs: this.#timeoutMs, signal, run })
  }
}

/**
 * Rejects values that are not reward functions. A plain object must have only known keys, so that `wieght` is
 * an error; an instance of a class may have any.
 */
function checkRewardFn(place: string, rewardFn: RewardFn<never>): void {
  checkGiven(place, rewardFn)
  const isPlain = Object.getPrototypeOf(rewardFn) === Object.prototype
  if (isPlain) checkKnownKeys(place, rewardFn, ['name', 'weight', 'score'], ['name', 'score'])
  if (typeof rewardFn.score === 'function') return
  const detail = `${place} must be an object with a function score: got ${describeValue(rewardFn.score)}`
  throw new FulmarError('MALFORMED', detail)
}

function fixed(name: string, reward: number): RubricOutput {
  return { reward, rewardBreakdown: { [name]: reward }, unscored: {} }
}

/** Returns the score, or the reason for none. User code may have returned any value. */
function readScore(name: string, result: DeadlineResult<unknown> | undefined): number | UnscoredCause {
  if (result === undefined || result.kind === 'timeout') {
    return { code: 'TIMEOUT', message: `reward of ${name} must end in time: it did not` }
  }
  if (result.kind === 'thrown') return { code: 'USER_CODE', message: `${name}: ${messageOf(result.error)}` }
  const { value } = result
  if (typeof value === 'number' && Number.isFinite(value)) return value
  if (typeof value === 'object' && value !== null && 'unscored' in value) {
    return { code: 'DECLINED', message: `${name}: ${String(value.unscored)}` }
  }
  return { code: 'NON_FINITE', message: `reward of ${name} must be a finite number: got ${String(value)}` }
}
