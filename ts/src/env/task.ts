/** Tasks: samples, environments and rewards, independent of the training algorithm. */

import type { Message } from '../chat/index.js'
import { checkGiven } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import type { MessageEnv } from './message-env.js'
import type { RolloutStatus } from './rollout-status.js'

/** Stream of samples: for training, or for evaluation only. */
export type Split = 'train' | 'validation'

/** A finished rollout as a conversation, for reward functions. */
export interface RolloutView {
  /** Final status. */
  readonly status: RolloutStatus
  /** Turns in order; empty if the rollout failed before the first. */
  readonly turns: readonly TurnView[]
  /**
   * Result of the program that ran the rollout itself, for a task of agents.
   * @default absent: the rollout is a conversation with an environment
   */
  readonly program?: ProgramResult
  /** Combined reward; `null` if a reward function returned no score. Absent until all functions ran. */
  readonly reward?: number | null
}

/** Result of a program that ran a rollout. */
export interface ProgramResult {
  /** Exit code; `null` for a function, and for a program that a signal ended or that did not start. */
  readonly exitCode: number | null
  /** Reward that it posted last; `null` if it posted none. */
  readonly posted: RewardScore | null
  /** Folder for its files, which is there until the rollout is scored, or longer if the task keeps it. */
  readonly folder: string
  /** End of its standard output and error, at most 65,536 bytes; `''` for a function. */
  readonly log: string
}

/** One turn of a {@link RolloutView}. */
export interface TurnView {
  /** Whole conversation before the policy's message. */
  readonly promptMessages: readonly Message[]
  /** Message of the policy; `null` if its tokens could not be parsed. */
  readonly completionMessage: Message | null
  /** Answer of the environment. */
  readonly envMessages: readonly Message[]
  /** Signals of the environment by name. */
  readonly envRewards: Readonly<Record<string, number>>
}

/** A missing score with its reason. Unlike a score of 0, it excludes the rollout from training. */
export interface Unscored {
  /** One sentence. */
  readonly unscored: string
}

/** Context of a reward function, besides the rollout. */
export interface RewardContext {
  /** Fires when scoring takes too long or the run is stopped. */
  readonly signal: AbortSignal
}

/** A reward function for one aspect of a rollout. */
export interface RewardFn<Sample> {
  /** Unique within a rubric; the key of the breakdown and of the metrics. */
  readonly name: string
  /**
   * Weight in the reward before normalization.
   * @default 1
   */
  readonly weight?: number
  /**
   * Returns a finite number, or the reason for no score. If it throws, the rollout is unscored and the run
   * continues. A property and no method, so that the compiler refuses a reward of other samples.
   */
  readonly score: (
    rollout: RolloutView,
    sample: Sample,
    context: RewardContext,
  ) => RewardScore | Promise<RewardScore>
}

/** Result of a reward function. */
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
  /** Name, such as `sumDigits`. */
  readonly name: string
  /** Creates a stream at its beginning, with the same samples on each call. */
  makeDataset(split: Split): Dataset<Sample>
  /** Creates an environment for one rollout. */
  makeEnv(sample: Sample): MessageEnv
  /** Reward functions, at least one. */
  readonly rewardFns: readonly RewardFn<Sample>[]
  /** Returns true if the rollout passes in an evaluation. */
  isSolved(rollout: RolloutView, sample: Sample): boolean
  /**
   * Returns the prompt of a sample and the right answer as an assistant's message, for a supervised warm
   * start.
   * @default the task has none
   */
  workedExample?(sample: Sample): readonly Message[]
}

/**
 * Returns the text of the policy's last message; `''` without one or if it could not be parsed.
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
 * Returns the conversation of a rollout: the last prompt, the policy's message, and the answer. Empty without
 * a turn.
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
