/** Evaluation of a player on the held-out samples of a task. */

import { FulmarError, messageOf } from '../core/index.js'
import { messagesOf, type Task } from '../env/index.js'
import { allOrNone } from './all-or-none.js'
import { type Evaluation, type EvaluationSample, evaluationOf } from './evaluation.js'
import type { Rollout } from './rollout.js'
import type { MeasureOptions } from './rollouter-options.js'
import { checkCounts, disposeLedger, type SiblingRunner } from './sibling-runner.js'

/**
 * Runs the answers to the first `numProblems` held-out samples that are not known yet, always with the same
 * seeds, and summarizes all of them.
 * @throws {FulmarError} As `Rollouter.evaluate`.
 */
export async function measure<Sample>(
  runner: SiblingRunner<Sample>,
  options: MeasureOptions<Sample>,
): Promise<Evaluation<Sample>> {
  const { numProblems, numAnswers = 1, temperature, signal, known = [], onAnswer } = options
  checkCounts({ numProblems, numAnswers })
  const isKnown = new Set(known.map(({ problemIndex, answerIndex }) => `${problemIndex} ${answerIndex}`))
  const kept = known.filter(
    ({ problemIndex, answerIndex }) => problemIndex < numProblems && answerIndex < numAnswers,
  )
  const dataset = runner.task.makeDataset('validation')
  const samples = Array.from({ length: numProblems }, () => dataset.next())
  const runs = samples.map(async (sample, problemIndex) => {
    const indices = Array.from({ length: numAnswers }, (_, answerIndex) => answerIndex)
    const missing = indices.filter((answerIndex) => !isKnown.has(`${problemIndex} ${answerIndex}`))
    if (missing.length === 0) return []
    const group = { sample, groupId: problemIndex, split: 'validation' as const, ...(signal && { signal }) }
    const sampling = temperature === undefined ? {} : { temperature }
    const { rollouts } = await runner.run(group, missing, sampling)
    try {
      return rollouts.map((rollout) => {
        const answer = answerOf(runner.task, rollout, sample)
        onAnswer?.(answer, rollout)
        return answer
      })
    } finally {
      rollouts.forEach(disposeLedger)
    }
  })
  const answers = await allOrNone(runs, () => undefined)
  const all = [...kept, ...answers.flat()]
  all.sort((a, b) => a.problemIndex - b.problemIndex || a.answerIndex - b.answerIndex)
  return evaluationOf(all, numProblems)
}

function answerOf<Sample>(task: Task<Sample>, rollout: Rollout, sample: Sample): EvaluationSample<Sample> {
  const { groupId, rolloutId, reward, rewardBreakdown, unscored, status, cause, turns } = rollout
  return {
    ...{ sample, problemIndex: groupId, answerIndex: rolloutId, messages: messagesOf(rollout) },
    ...{ reward, rewardBreakdown, unscored, status, cause },
    isSolved: reward !== null && isSolved(task, rollout, sample),
    numPromptTokens: total(
      turns.map(({ usage, promptIds }) => (usage ? usage.numPromptTokens : promptIds.length)),
    ),
    numCompletionTokens: total(
      turns.map(({ usage, completionIds }) => (usage ? usage.numCompletionTokens : completionIds.length)),
    ),
  }
}

function total(counts: readonly (number | null)[]): number | null {
  return counts.reduce((sum, count) => (sum === null || count === null ? null : sum + count), 0)
}

function isSolved<Sample>(task: Task<Sample>, rollout: Rollout, sample: Sample): boolean {
  try {
    return task.isSolved(rollout, sample)
  } catch (error) {
    throw new FulmarError('USER_CODE', `isSolved must not throw: got ${messageOf(error)}`, { cause: error })
  }
}
