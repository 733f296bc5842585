/** Comparison of two evaluations on the same problems. */

import { checkGiven, FulmarError } from '../core/index.js'
import { type Evaluation, type EvaluationSample, numSolved, scoredAnswers } from './evaluation.js'
import { type Interval, mean, meanInterval } from './problem-statistics.js'

/** Change of a mean over the same problems. */
export interface PairedDifference {
  /** Mean of the first evaluation. */
  readonly before: number
  /** Mean of the second evaluation. */
  readonly after: number
  /** `after - before`. */
  readonly difference: number
  /** 95 % interval of the difference, `[low, high]`; `null` for fewer than two problems. */
  readonly interval: Interval | null
}

/** Result of {@link compareEvaluations}. */
export interface EvaluationComparison {
  /** Number of problems with a scored answer in both evaluations; only these are compared. */
  readonly numProblems: number
  /** Change of the mean reward. */
  readonly meanReward: PairedDifference
  /** Change of the pass rate. */
  readonly passRate: PairedDifference
  /** Number of problems whose mean reward rose. */
  readonly numBetter: number
  /** Number of problems whose mean reward fell. */
  readonly numWorse: number
}

/**
 * Compares two evaluations problem by problem. The difficulty of a problem is in both, so the interval of the
 * difference is narrower than those of the two results: Student's t over the differences
 * (https://arxiv.org/abs/2411.00640, section 4.2).
 *
 * @throws {FulmarError} `INCOMPATIBLE` if a problem has another sample in the other evaluation; `EMPTY` if no
 * problem has a scored answer in both.
 *
 * @example
 * ```ts
 * import { createModel, defineTask, evaluate, reward } from 'fulmar'
 * import { compareEvaluations } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const task = defineTask({ rows: ['a', 'b', 'c'], prompt: String, rewards: [reward<string>('short', ({ text }) => 1 / (1 + text.length))] })
 * const measure = (seed: number) => evaluate({ model: createModel({ seed }), task, numProblems: 3, maxTokens: 4 })
 * const { numProblems, meanReward } = compareEvaluations(await measure(1), await measure(2))
 * assert.equal(numProblems, 3)
 * assert.ok(meanReward.interval && meanReward.interval[0] <= meanReward.difference)
 * ```
 */
export function compareEvaluations(before: Evaluation, after: Evaluation): EvaluationComparison {
  checkGiven('before', before)
  checkGiven('after', after)
  const others = scoredAnswers(after.samples)
  const pairs = [...scoredAnswers(before.samples)].flatMap(([problemIndex, answers]) => {
    const other = others.get(problemIndex)
    return other === undefined ? [] : [{ problemIndex, answers, other }]
  })
  if (pairs.length === 0)
    throw new FulmarError(
      'EMPTY',
      'two evaluations must share a problem with a scored answer: they share none',
    )
  for (const { problemIndex, answers, other } of pairs) checkSame(problemIndex, answers, other)
  const meanReward = paired(pairs, (answers) => mean(answers.map(({ reward }) => reward ?? 0)))
  const passRate = paired(pairs, (answers) => numSolved(answers) / answers.length)
  const numChanged = (sign: number) =>
    meanReward.changes.filter((change) => Math.sign(change) === sign).length
  return {
    numProblems: pairs.length,
    meanReward: meanReward.difference,
    passRate: { ...passRate.difference, interval: withinShares(passRate.difference.interval) },
    numBetter: numChanged(1),
    numWorse: numChanged(-1),
  }
}

/** Scored answers to one problem in both evaluations. */
interface Pair {
  readonly answers: readonly EvaluationSample[]
  readonly other: readonly EvaluationSample[]
}

function paired(
  pairs: readonly Pair[],
  valueFrom: (answers: readonly EvaluationSample[]) => number,
): { readonly difference: PairedDifference; readonly changes: readonly number[] } {
  const values = pairs.map(({ answers, other }) => [valueFrom(answers), valueFrom(other)] as const)
  const changes = values.map(([before, after]) => after - before)
  const [before, after] = [mean(values.map(([value]) => value)), mean(values.map(([, value]) => value))]
  return {
    difference: { before, after, difference: mean(changes), interval: meanInterval(changes) },
    changes,
  }
}

/** A difference of shares is at least -1 and at most 1. */
function withinShares(interval: Interval | null): Interval | null {
  return interval && [Math.max(-1, interval[0]), Math.min(1, interval[1])]
}

function checkSame(
  problemIndex: number,
  [first]: readonly EvaluationSample[],
  [second]: readonly EvaluationSample[],
): void {
  const [one, other] = [first, second].map((answer) => JSON.stringify(answer?.sample))
  if (one === other) return
  const detail = `problem ${problemIndex} must be the same in both evaluations: got ${one?.slice(0, 80)} and ${other?.slice(0, 80)}`
  throw new FulmarError('INCOMPATIBLE', detail)
}
