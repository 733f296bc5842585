/** Rollouts and datasets as tests of tasks need them. */

import type { Message } from '../../src/chat/index.js'
import type { RewardScore, RolloutView, Task } from '../../src/env/index.js'

const { signal } = new AbortController()

/** A rollout in which the policy said these texts or messages, one a turn; `answers[i]` is what the environment said to turn `i`. */
export function said(
  turns: readonly (string | Message)[],
  answers: readonly (readonly Message[])[] = [],
): RolloutView {
  return {
    status: 'completed',
    turns: turns.map((turn, index) => ({
      promptMessages: [],
      completionMessage: typeof turn === 'string' ? { role: 'assistant', content: turn } : turn,
      envMessages: answers[index] ?? [],
      envRewards: {},
    })),
  }
}

/** Returns the score of the task's only reward function. */
export async function rewardOf<Sample>(
  task: Task<Sample>,
  rollout: RolloutView,
  sample: Sample,
): Promise<RewardScore> {
  const [rewardFn, ...others] = task.rewardFns
  if (rewardFn === undefined || others.length > 0) throw new Error('a task of one reward function')
  return await rewardFn.score(rollout, sample, { signal })
}

/** The first prompt of a sample. */
export async function promptOf<Sample>(task: Task<Sample>, sample: Sample): Promise<readonly Message[]> {
  return (await task.makeEnv(sample).init({ signal })).initPromptMessages
}

/** The first samples of a split. */
export function take<Sample>(task: Task<Sample>, split: 'train' | 'validation', count: number): Sample[] {
  const dataset = task.makeDataset(split)
  return Array.from({ length: count }, () => dataset.next())
}

/** The code of the error that `body` throws, or what it gives. */
export function codeOf(body: () => unknown): unknown {
  try {
    return body()
  } catch (error) {
    return error instanceof Error && 'code' in error ? error.code : error
  }
}
