/** Evaluation of a policy on held-out samples. */

import type { Message } from '../chat/index.js'
import type { RolloutStatus } from '../env/index.js'

/** One answer of an evaluation. */
export interface EvaluationSample<Sample = unknown> {
  /** Row of the data set. */
  readonly sample: Sample
  /** Index of the problem, from 0. */
  readonly problemIndex: number
  /** Conversation, from the prompt to the last message. */
  readonly messages: readonly Message[]
  /** Combined reward; `null` if a reward function returned no score. */
  readonly reward: number | null
  /** Raw scores by reward function. */
  readonly rewardBreakdown: Readonly<Record<string, number>>
  /** True if the answer passes. */
  readonly isSolved: boolean
  /** Final status of the rollout. */
  readonly status: RolloutStatus
}

/** Result of an evaluation on held-out samples. */
export interface Evaluation<Sample = unknown> {
  /** Share of answers that pass, in [0, 1]. */
  readonly passRate: number
  /**
   * 95 % interval of the pass rate by Wilson's score, for as many independent problems: `[low, high]`
   * (https://doi.org/10.1080/01621459.1927.10502953). With several answers per problem it is conservative.
   */
  readonly interval: readonly [low: number, high: number]
  /**
   * Unbiased probability that one of `k` answers to a problem passes, for k = 1, 2, 4, ... up to the number
   * of answers per problem (M. Chen et al., https://arxiv.org/abs/2107.03374).
   */
  readonly passAt: Readonly<Record<number, number>>
  /** Mean reward of the scored answers; `null` without one. */
  readonly meanReward: number | null
  /** Number of problems. */
  readonly numProblems: number
  /** Every answer, by problem. */
  readonly samples: readonly EvaluationSample<Sample>[]
}

/** Summarizes the answers to `numProblems` problems. */
export function evaluationOf<Sample>(
  samples: readonly EvaluationSample<Sample>[],
  numProblems: number,
): Evaluation<Sample> {
  const rewards = samples.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const numSolved = new Array<number>(numProblems).fill(0)
  for (const { problemIndex, isSolved } of samples)
    if (isSolved) numSolved[problemIndex] = (numSolved[problemIndex] ?? 0) + 1
  const numAnswers = samples.length / numProblems
  const passAt: Record<number, number> = {}
  for (let k = 1; k <= numAnswers; k *= 2)
    passAt[k] = mean(numSolved.map((solved) => passChance(numAnswers, solved, k)))
  const passRate = mean(numSolved) / numAnswers
  return {
    passRate,
    interval: wilsonInterval(passRate, numProblems),
    passAt,
    meanReward: rewards.length === 0 ? null : mean(rewards),
    numProblems,
    samples,
  }
}

/**
 * Probability that one of `k` answers, drawn from `count` of which `solved` pass, passes: `1 - C(count -
 * solved, k) / C(count, k)`.
 */
function passChance(count: number, solved: number, k: number): number {
  if (count - solved < k) return 1
  let missing = 1
  for (let index = count - solved + 1; index <= count; index++) missing *= 1 - k / index
  return 1 - missing
}

/** The 97.5 % quantile of the normal distribution. */
const Z = 1.959964

function wilsonInterval(share: number, count: number): readonly [number, number] {
  const scale = 1 + Z ** 2 / count
  const middle = (share + Z ** 2 / (2 * count)) / scale
  const half = (Z * Math.sqrt((share * (1 - share)) / count + Z ** 2 / (4 * count ** 2))) / scale
  return [Math.max(0, middle - half), Math.min(1, middle + half)]
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
