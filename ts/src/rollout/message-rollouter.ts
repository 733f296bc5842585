/** Evaluation of a model that is known by its messages alone. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { MessagePolicy } from '../policy/index.js'
import type { Evaluation } from './evaluation.js'
import { measure } from './measure.js'
import { type MessageLoopOptions, runMessageRollout } from './message-loop.js'
import { MEASURE_KEYS, type MeasureOptions, type RollouterOptions } from './rollouter-options.js'
import { checkCounts, type SiblingOptions, SiblingRunner } from './sibling-runner.js'

/** Options of {@link MessageRollouter}: those of a `Rollouter` that need no tokens. */
export interface MessageRollouterOptions<Sample>
  extends SiblingOptions<Sample>,
    Pick<
      RollouterOptions<Sample>,
      'temperature' | 'maxTurns' | 'stepTimeoutMs' | 'onTruncation' | 'generateTimeoutMs'
    > {
  /** Model. */
  readonly policy: MessagePolicy
  /**
   * Maximum number of sampled tokens of an answer.
   * @default the model's own
   */
  readonly maxTokens?: number
}

/** The keys of {@link MessageRollouterOptions}. */
export const MESSAGE_ROLLOUTER_KEYS = [
  ...(['policy', 'task', 'seed', 'rubric', 'concurrency', 'rolloutTimeoutMs', 'retries', 'onError'] as const),
  ...(['closeTimeoutMs', 'clock', 'temperature', 'maxTurns', 'stepTimeoutMs', 'onTruncation'] as const),
  ...(['generateTimeoutMs', 'maxTokens'] as const),
] as const satisfies readonly (keyof MessageRollouterOptions<never>)[]

const STEP_TIMEOUT_MS_DEFAULT = 1_800_000

/**
 * Evaluates a {@link MessagePolicy}. Its rollouts have conversations and rewards, and empty ledgers: they cannot be
 * trained on. `evaluate` of `fulmar` is the short form.
 *
 * @example
 * ```ts
 * import { sumDigits } from 'fulmar'
 * import { MessageRollouter } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const message = { role: 'assistant', content: '[ANSWER] 10' }
 * const policy = { reply: async () => ({ message, finishReason: 'stop' as const, numPromptTokens: 20, numCompletionTokens: 5 }) }
 * const rollouter = new MessageRollouter({ policy, task: sumDigits() })
 * const { samples } = await rollouter.evaluate({ numProblems: 3 })
 * assert.deepEqual(samples.map(({ numCompletionTokens }) => numCompletionTokens), [5, 5, 5])
 * ```
 */
export class MessageRollouter<Sample> {
  readonly #runner: SiblingRunner<Sample>

  /** @throws {FulmarError} `MALFORMED` for a policy of another form; others as `Rollouter`. */
  constructor(options: MessageRollouterOptions<Sample>) {
    checkKnownKeys('options', options, MESSAGE_ROLLOUTER_KEYS, ['policy', 'task'])
    const { policy, maxTokens, temperature, maxTurns = Number.POSITIVE_INFINITY } = options
    const { stepTimeoutMs = STEP_TIMEOUT_MS_DEFAULT, generateTimeoutMs = null, onTruncation } = options
    if (typeof policy?.reply !== 'function') {
      const detail = `options.policy must have a function reply: got ${describeValue(policy)}`
      throw new FulmarError('MALFORMED', detail)
    }
    checkCounts({ maxTokens: maxTokens ?? 1, maxTurns: Number.isFinite(maxTurns) ? maxTurns : 1 })
    const loop: MessageLoopOptions = {
      policy,
      sampling: {
        ...(maxTokens !== undefined && { maxTokens }),
        ...(temperature !== undefined && { temperature }),
      },
      ...{ maxTurns, stepTimeoutMs, generateTimeoutMs, continuesTruncated: onTruncation === 'continue' },
    }
    this.#runner = new SiblingRunner(options, (play) => runMessageRollout(loop, play))
  }

  /** As `Rollouter.evaluate`. @throws {FulmarError} As `Rollouter.evaluate`. */
  async evaluate(options: MeasureOptions<Sample>): Promise<Evaluation<Sample>> {
    checkKnownKeys('options', options, MEASURE_KEYS, ['numProblems'])
    return await measure(this.#runner, options)
  }
}
