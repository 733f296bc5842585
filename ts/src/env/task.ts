/** A task is everything about what is learnt and nothing about how: samples, environments, rewards. */

import type { Message } from '../chat/index.js'
import { checkGiven } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import type { MessageEnv } from './message-env.js'
import type { RolloutStatus } from './rollout-status.js'

/** Which stream of samples: the one that is trained on, or the one that is only measured. */
export type Split = 'train' | 'validation'

/** What a reward function may look at: a finished rollout as conversation. */
export interface RolloutView {
  /** How it ended. */
  readonly status: RolloutStatus
  /** The turns in order; none if the rollout failed before the first. */
  readonly turns: readonly TurnView[]
  /** What the reward functions gave together; `null` if one of them gave no score. Left out until all were asked. */
  readonly reward?: number | null
}

/** One turn of a {@link RolloutView}. */
export interface TurnView {
  /** The whole conversation that the policy saw. */
  readonly promptMessages: readonly Message[]
  /** What the policy said; `null` if its tokens could not be parsed. */
  readonly completionMessage: Message | null
  /** What the environment answered. */
  readonly envMessages: readonly Message[]
  /** Signals of the environment by name. */
  readonly envRewards: Readonly<Record<string, number>>
}

/** No score, and why. Not the same as a score of 0: the rollout counts for nothing. */
export interface Unscored {
  /** One sentence. */
  readonly unscored: string
}

/** What a reward function is given besides the rollout. */
export interface RewardContext {
  /** Fires when scoring takes too long or the run is stopped. */
  readonly signal: AbortSignal
}

/** One aspect of what is wanted. */
export interface RewardFn<Sample> {
  /** Unique within a rubric; the key of the breakdown and of the metrics. */
  readonly name: string
  /**
   * Its share of the reward before normalising.
   * @default 1
   */
  readonly weight?: number
  /** A finite number, or why there is none. May throw: then the rollout is unscored, not the run ended. */
  score(rollout: RolloutView, sample: Sample, context: RewardContext): RewardScore | Promise<RewardScore>
}

/** What a reward function answers. */
export type RewardScore = number | Unscored

/**
 * Samples, environments and rewards.
 *
 * @example
 * ```ts
 * import { listDataset, type Task } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const capitals: Task<{ country: string; capital: string }> = {
 *   name: 'capitals',
 *   makeDataset: () => listDataset({ items: [{ country: 'Norway', capital: 'Oslo' }] }),
 *   makeEnv: ({ country }) => ({
 *     init: () => ({ initPromptMessages: [{ role: 'user', content: `Capital of ${country}?` }] }),
 *     step: () => ({ done: true }),
 *     close: () => {},
 *   }),
 *   rewardFns: [{ name: 'answer', score: ({ turns }, { capital }) => Number(turns.at(-1)?.completionMessage?.content === capital) }],
 *   isSolved: ({ turns }, { capital }) => turns.at(-1)?.completionMessage?.content === capital,
 * }
 * assert.equal(capitals.makeDataset('train').next().capital, 'Oslo')
 * ```
 */
export interface Task<Sample> {
  /** Such as `sumDigits`. */
  readonly name: string
  /** A new stream at its beginning; the same samples each time it is asked for. */
  makeDataset(split: Split): Dataset<Sample>
  /** A new environment for one rollout. */
  makeEnv(sample: Sample): MessageEnv
  /** What is wanted; at least one. */
  readonly rewardFns: readonly RewardFn<Sample>[]
  /** Whether the rollout counts as a pass when a policy is measured. */
  isSolved(rollout: RolloutView, sample: Sample): boolean
  /**
   * The prompt of a sample and the right answer as an assistant's message, for a supervised warm start.
   * @default the task has none
   */
  workedExample?(sample: Sample): readonly Message[]
}

/**
 * The text that the policy said last; `''` if it said nothing or nothing that could be parsed.
 *
 * @example
 * ```ts
 * import { lastCompletionText } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(lastCompletionText({ status: 'error', turns: [] }), '')
 * ```
 */
export function lastCompletionText(rollout: RolloutView): string {
  checkGiven('rollout', rollout)
  const { turns } = rollout
  const content = turns.at(-1)?.completionMessage?.content
  return typeof content === 'string' ? content : ''
}

/**
 * The conversation of a rollout: the last prompt, what the policy said to it, and what was answered. Empty without a turn.
 *
 * @example
 * ```ts
 * import { messagesOf } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const [user, assistant] = [{ role: 'user', content: 'Hi' }, { role: 'assistant', content: 'Hello' }]
 * const turns = [{ promptMessages: [user], completionMessage: assistant, envMessages: [], envRewards: {} }]
 * assert.deepEqual(messagesOf({ status: 'completed', turns }), [user, assistant])
 * ```
 */
export function messagesOf(rollout: RolloutView): readonly Message[] {
  checkGiven('rollout', rollout)
  const { turns } = rollout
  const last = turns.at(-1)
  if (last === undefined) return []
  const { promptMessages, completionMessage, envMessages } = last
  return [...promptMessages, ...(completionMessage ? [completionMessage] : []), ...envMessages]
}
