/** Rewards for length and repetition of completions, as in TRL. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError, numbersOf } from '../core/index.js'

/** Rewards at length 0 and at full length; between them the reward follows a half cosine. */
export interface CosineScaledRewardOptions {
  /** Number of tokens of the completion. A non-negative number. */
  readonly length: number
  /** Length at which the curve ends. More than 0. */
  readonly lengthMax: number
  /** True if the answer is right. Leave rollouts without a right answer to compare unscored. */
  readonly isRight: boolean
  /**
   * Reward of a right answer at full length and at length 0.
   * @default [0.5, 1]
   */
  readonly right?: readonly [number, number]
  /**
   * Reward of a wrong answer at full length and at length 0.
   * @default [-0.5, -1]
   */
  readonly wrong?: readonly [number, number]
}

/**
 * Rewards short right answers more than long ones, and short wrong ones less:
 * `low + (high - low) * (1 + cos(pi * min(length / lengthMax, 1))) / 2`, where `[low, high]` is `right` or `wrong`.
 * @throws {FulmarError} `OUT_OF_RANGE` if `length` is negative or `lengthMax` is not above 0.
 *
 * @example
 * ```ts
 * import { cosineScaledReward } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const worth = (length: number, isRight: boolean) => cosineScaledReward({ length, lengthMax: 100, isRight })
 * assert.deepEqual([worth(0, true), worth(50, true), worth(100, true)], [1, 0.75, 0.5])
 * assert.deepEqual([worth(0, false), worth(200, false)], [-1, -0.5])
 * ```
 */
export function cosineScaledReward(options: CosineScaledRewardOptions): number {
  checkKnownKeys(
    'options',
    options,
    ['length', 'lengthMax', 'isRight', 'right', 'wrong'],
    ['length', 'lengthMax', 'isRight'],
  )
  const { length, lengthMax, isRight, right = [0.5, 1], wrong = [-0.5, -1] } = options
  checkAtLeast('length', length, 0)
  checkAbove('lengthMax', lengthMax, 0)
  const [low, high] = isRight ? right : wrong
  return low + ((high - low) * (1 + Math.cos(Math.PI * Math.min(length / lengthMax, 1)))) / 2
}

/** Ids of one n-gram of {@link repetitionPenalty}. */
export const NGRAM_SIZE_MAX = 64

/** Options of {@link repetitionPenalty}. */
export interface RepetitionPenaltyOptions {
  /** Token ids of the completion. */
  readonly ids: ArrayLike<number>
  /**
   * Number of ids of one n-gram. From 1 to 64.
   * @default 3
   */
  readonly ngramSize?: number
  /**
   * Limit of the penalty for pure repetition. Not above 0.
   * @default -1
   */
  readonly maxPenalty?: number
}

/**
 * Penalizes repeated n-grams: `(1 - different / all) * maxPenalty`; 0 for a completion shorter than one
 * n-gram.
 * Costs `O(ids * ngramSize)`.
 * @throws {FulmarError} `OUT_OF_RANGE` if `ngramSize` is no integer from 1 to 64 or `maxPenalty` is
 * above 0.
 *
 * @example
 * ```ts
 * import { repetitionPenalty } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(repetitionPenalty({ ids: [5, 5, 5, 5, 5], ngramSize: 2 }), -0.75)
 * assert.equal(repetitionPenalty({ ids: [1, 2, 3, 4], ngramSize: 2 }), 0)
 * ```
 */
export function repetitionPenalty(options: RepetitionPenaltyOptions): number {
  checkKnownKeys('options', options, ['ids', 'ngramSize', 'maxPenalty'], ['ids'])
  const { ids, ngramSize = 3, maxPenalty = -1 } = options
  const isSize = Number.isSafeInteger(ngramSize) && ngramSize >= 1 && ngramSize <= NGRAM_SIZE_MAX
  if (!isSize) refuse('ngramSize', `an integer from 1 to ${NGRAM_SIZE_MAX}`, ngramSize)
  if (!(maxPenalty <= 0)) refuse('maxPenalty', '<= 0', maxPenalty)
  const list = numbersOf('ids', ids)
  const count = list.length - ngramSize + 1
  if (count < 1) return 0
  const different = new Set(Array.from({ length: count }, (_, at) => list.slice(at, at + ngramSize).join()))
  const penalty = (1 - different.size / count) * maxPenalty
  return penalty === 0 ? 0 : penalty
}

/** Options of {@link softOverlongPunishment}. */
export interface SoftOverlongPunishmentOptions {
  /** Tokens of the completion. */
  readonly length: number
  /** Tokens that it may have. */
  readonly lengthMax: number
  /**
   * Number of tokens before `lengthMax` where the penalty begins. With 0, only longer completions are
   * penalized.
   */
  readonly cache: number
}

/**
 * Penalizes completions near their limit: 0 up to `lengthMax - cache`, -1 above `lengthMax`, linear
 * between ([DAPO](https://arxiv.org/abs/2503.14476)).
 * @throws {FulmarError} `OUT_OF_RANGE` if a length is negative or `cache` is not in `[0, lengthMax]`.
 *
 * @example
 * ```ts
 * import { softOverlongPunishment } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const punish = (length: number) => softOverlongPunishment({ length, lengthMax: 100, cache: 20 })
 * assert.deepEqual([punish(80), punish(90), punish(100), punish(101)], [0, -0.5, -1, -1])
 * ```
 */
export function softOverlongPunishment(options: SoftOverlongPunishmentOptions): number {
  checkKnownKeys('options', options, ['length', 'lengthMax', 'cache'], ['length', 'lengthMax', 'cache'])
  const { length, lengthMax, cache } = options
  checkAtLeast('length', length, 0)
  checkAtLeast('cache', cache, 0)
  checkAtLeast('lengthMax', lengthMax, cache)
  const free = lengthMax - cache
  if (length <= free) return 0
  return length <= lengthMax ? (free - length) / cache : -1
}

/**
 * Returns 1 if a text begins with `<think>`, has no second one and closes it, else 0.
 *
 * @example
 * ```ts
 * import { thinkFormatReward } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const texts = ['<think>a</think>b', '<think></think>', 'x<think>a</think>', '<think>a<think>b</think>', '<think>a']
 * assert.deepEqual(texts.map(thinkFormatReward), [1, 1, 0, 0, 0])
 * ```
 */
export function thinkFormatReward(text: string): number {
  checkGiven('text', text)
  const isOne = text.startsWith('<think>') && text.lastIndexOf('<think>') === 0
  return Number(isOne && text.includes('</think>'))
}

function checkAtLeast(name: string, value: number, least: number): void {
  if (!(value >= least)) refuse(name, `>= ${least}`, value)
}

function checkAbove(name: string, value: number, bound: number): void {
  if (!(value > bound)) refuse(name, `> ${bound}`, value)
}

function refuse(name: string, rule: string, value: number): never {
  throw new FulmarError('OUT_OF_RANGE', `${name} must be ${rule}: got ${describeValue(value)}`)
}
