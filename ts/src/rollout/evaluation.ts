/** Evaluation of a policy on held-out samples. */

import type { Message } from '../chat/index.js'
import { isError, type RolloutStatus } from '../env/index.js'
import { type Interval, mean, meanInterval, passChance, shareInterval } from './problem-statistics.js'
import type { RolloutCause, UnscoredCause } from './rollout.js'

/** One answer of an evaluation. */
export interface EvaluationSample<Sample = unknown> {
  /** Row of the data set. */
  readonly sample: Sample
  /** Index of the problem, from 0. */
  readonly problemIndex: number
  /** Index of the answer among those to its problem, from 0. */
  readonly answerIndex: number
  /** Conversation, from the prompt to the last message. */
  readonly messages: readonly Message[]
  /** Combined reward; `null` if a reward function returned no score. */
  readonly reward: number | null
  /** Raw scores by reward function. */
  readonly rewardBreakdown: Readonly<Record<string, number>>
  /** Reasons of missing scores, by reward function. */
  readonly unscored: Readonly<Record<string, UnscoredCause>>
  /** True if the answer passes; false without a reward. */
  readonly isSolved: boolean
  /** Final status of the rollout. */
  readonly status: RolloutStatus
  /** Reason of an error status; else `null`. */
  readonly cause: RolloutCause | null
  /** Number of tokens of the prompts of all turns together; `null` if a server did not tell. */
  readonly numPromptTokens: number | null
  /** Number of sampled tokens of all turns together; `null` if a server did not tell. */
  readonly numCompletionTokens: number | null
}

/**
 * Result of an evaluation on held-out samples. An answer without a reward counts in no share and no mean: a
 * failure of a server or a judge is not a wrong answer. Shares and means are of problems: first over the scored
 * answers to a problem, then over the problems that have one.
 */
export interface Evaluation<Sample = unknown> {
  /** Share of answers that pass, in [0, 1]; 0 if none was scored. */
  readonly passRate: number
  /**
   * 95 % interval of the pass rate, clustered by problem: `[low, high]`. Wilson's score
   * (https://doi.org/10.1080/01621459.1927.10502953) for as many independent answers as vary as much as the
   * problems' shares do; with one answer per problem, for as many as there are problems.
   */
  readonly interval: Interval
  /**
   * Unbiased probability that one of `k` answers to a problem passes, for k = 1, 2, 4, ... up to the number
   * of answers per problem (M. Chen et al., https://arxiv.org/abs/2107.03374). Over the problems with at least
   * `k` scored answers.
   */
  readonly passAt: Readonly<Record<number, number>>
  /** 95 % intervals of `passAt`, as `interval`. */
  readonly passAtIntervals: Readonly<Record<number, Interval>>
  /** Mean reward; `null` if no answer was scored. */
  readonly meanReward: number | null
  /**
   * 95 % interval of the mean reward by Student's t over the problems' means
   * (https://arxiv.org/abs/2411.00640); `null` for fewer than two problems with a scored answer.
   */
  readonly meanRewardInterval: Interval | null
  /** Number of problems. */
  readonly numProblems: number
  /** Number of answers with a reward. */
  readonly numScored: number
  /** Number of answers without a reward that ended with an error. */
  readonly numErrors: number
  /** Number of answers without a reward that ended without an error: a reward function failed or declined. */
  readonly numUnscored: number
  /** Every answer, by problem. */
  readonly samples: readonly EvaluationSample<Sample>[]
}

/** Summarizes the answers to `numProblems` problems. */
export function evaluationOf<Sample>(
  samples: readonly EvaluationSample<Sample>[],
  numProblems: number,
): Evaluation<Sample> {
  const problems = [...scoredAnswers(samples).values()]
  const numScored = problems.reduce((sum, answers) => sum + answers.length, 0)
  const numErrors = samples.filter(({ reward, status }) => reward === null && isError(status)).length
  const rewards = problems.map((answers) => mean(answers.map(({ reward }) => reward ?? 0)))
  const passAt: Record<number, number> = {}
  const passAtIntervals: Record<number, Interval> = {}
  const numAnswersMax = Math.max(0, ...problems.map(({ length }) => length))
  for (let k = 1; k <= numAnswersMax; k *= 2) {
    const enough = problems.filter(({ length }) => length >= k)
    const chances = enough.map((answers) => passChance(answers.length, numSolved(answers), k))
    passAt[k] = mean(chances)
    passAtIntervals[k] = shareInterval(chances, enough.flat().length)
  }
  return {
    passRate: passAt[1] ?? 0,
    interval: passAtIntervals[1] ?? shareInterval([], 0),
    passAt,
    passAtIntervals,
    meanReward: rewards.length === 0 ? null : mean(rewards),
    meanRewardInterval: meanInterval(rewards),
    numProblems,
    numScored,
    numErrors,
    numUnscored: samples.length - numScored - numErrors,
    samples,
  }
}

/** Returns the scored answers to each problem that has one, by its index. */
export function scoredAnswers<Sample>(
  samples: readonly EvaluationSample<Sample>[],
): ReadonlyMap<number, readonly EvaluationSample<Sample>[]> {
  const problems = new Map<number, EvaluationSample<Sample>[]>()
  for (const answer of samples) {
    if (answer.reward === null) continue
    const answers = problems.get(answer.problemIndex)
    if (answers) answers.push(answer)
    else problems.set(answer.problemIndex, [answer])
  }
  return problems
}

/** Returns the number of answers that pass. */
export function numSolved(answers: readonly EvaluationSample[]): number {
  return answers.filter(({ isSolved }) => isSolved).length
}
