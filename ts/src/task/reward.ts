/** Rewards as functions of the conversation. */

import type { Message } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import {
  lastCompletionText,
  messagesOf,
  type RewardFn,
  type RewardScore,
  type RolloutView,
} from '../env/index.js'

/** Input of a reward of {@link reward}. */
export interface RewardInput<Sample> {
  /** Text of the policy's last message; `''` without one. */
  readonly text: string
  /** The row of the data set. */
  readonly sample: Sample
  /** The whole conversation, with all answers of the policy and of tools. */
  readonly messages: readonly Message[]
  /** Turns, status and signals of the environment. */
  readonly rollout: RolloutView
  /** Fires when scoring takes too long or the run is stopped. */
  readonly signal: AbortSignal
}

/** Options of {@link reward}. */
export interface RewardOptions {
  /** Weight in the total reward before normalization; at least 0. @default 1 */
  readonly weight?: number
}

/**
 * Constructs a reward function: `score` returns a finite number, `true` for 1 and `false` for 0, or `{
 * unscored: reason }`. May be asynchronous, such as a judge; if it throws, the rollout is unscored and the
 * run continues. The type of `sample` is any row; `reward<Row>(...)` checks the keys that `score` reads, and
 * `defineTask` then accepts the reward for such rows only.
 *
 * @throws {FulmarError} `MALFORMED` for a name that is not a text or a score that is not a function; `OUT_OF_RANGE` for a negative or
 * non-finite weight; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { reward } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const short = reward('short', ({ text }) => text.length <= 20, { weight: 0.5 })
 * const turns = [{ promptMessages: [], completionMessage: { role: 'assistant', content: 'Oslo' }, envMessages: [], envRewards: {} }]
 * const signal = new AbortController().signal
 * assert.equal(await short.score({ status: 'completed', turns }, {}, { signal }), 1)
 * ```
 */
export function reward<Sample = Readonly<Record<string, unknown>>>(
  name: string,
  score: (input: RewardInput<Sample>) => RewardScore | boolean | Promise<RewardScore | boolean>,
  options: RewardOptions = {},
): RewardFn<Sample> {
  checkKnownKeys('options', options, ['weight'])
  const { weight = 1 } = options
  if (typeof name !== 'string' || name === '')
    throw new FulmarError('MALFORMED', `name must be a text: got ${describeValue(name)}`)
  if (typeof score !== 'function')
    throw new FulmarError('MALFORMED', `score of ${name} must be a function: got ${describeValue(score)}`)
  if (!(Number.isFinite(weight) && weight >= 0))
    throw new FulmarError(
      'OUT_OF_RANGE',
      `weight of ${name} must be a number of at least 0: got ${describeValue(weight)}`,
    )
  return {
    name,
    weight,
    score: async (rollout, sample, { signal }) => {
      const given = await score({
        text: lastCompletionText(rollout),
        sample,
        messages: messagesOf(rollout),
        rollout,
        signal,
      })
      return typeof given === 'boolean' ? Number(given) : given
    },
  }
}
