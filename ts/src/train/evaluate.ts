/** Evaluation of a model on a task. */

import type { Renderer } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { MessagePolicy, Policy } from '../policy/index.js'
import {
  type Evaluation,
  type MeasureOptions,
  MessageRollouter,
  Rollouter,
  type RollouterOptions,
} from '../rollout/index.js'
import { MESSAGE_ROLLOUTER_KEYS } from '../rollout/message-rollouter.js'
import { MEASURE_KEYS, ROLLOUTER_KEYS } from '../rollout/rollouter-options.js'
import { Model } from './model.js'
import { only } from './model-training.js'

/** Options of {@link evaluate}: those of `Rollouter` as well. */
export interface EvaluateOptions<Sample>
  extends Omit<MeasureOptions<Sample>, 'numProblems'>,
    Omit<RollouterOptions<Sample>, 'policy' | 'renderer' | 'maxTokens' | 'groupSize' | 'stdNormalize'> {
  /**
   * Model to evaluate; or a policy, such as a server's, with the renderer of its model; or a policy that answers
   * with messages, such as a `ChatEndpoint`, for which options of tokens are refused.
   */
  readonly model: Model | { readonly policy: Policy; readonly renderer: Renderer } | MessagePolicy
  /**
   * Number of held-out samples.
   * @default 100
   */
  readonly numProblems?: number
  /**
   * Maximum number of tokens of a completion, including the stop token.
   * @default 512; for a policy that answers with messages its own
   */
  readonly maxTokens?: number
}

/**
 * Evaluates a model, or a policy with a renderer, on the validation samples of a task. Returns the pass rate
 * with its interval, pass@k, mean reward, and every answer. Uses the same samples and seeds each time. Pass
 * `onError: 'drop'` to keep failures of servers and environments out of the rewards.
 *
 * @throws {FulmarError} `MALFORMED` for a model of another form; `UNKNOWN_NAME` for an unknown option; `OUT_OF_RANGE` for a number outside its
 * range; `ABORTED` if the signal fires; `USER_CODE` if the task's `isSolved` throws.
 *
 * @example
 * ```ts
 * import { createModel, defineTask, evaluate, reward } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const task = defineTask({ rows: ['a', 'b'], prompt: String, rewards: [reward<string>('any', ({ text }) => text.length > 0)] })
 * const model = createModel({ seed: 1 })
 * const { passRate, interval, passAt, samples } = await evaluate({ model, task, numProblems: 2, numAnswers: 4, maxTokens: 3 })
 * assert.equal(samples.length, 8)
 * assert.ok(interval[0] <= passRate && passRate <= interval[1])
 * assert.ok(passAt[4] >= passAt[1])
 * ```
 */
export async function evaluate<Sample>(options: EvaluateOptions<Sample>): Promise<Evaluation<Sample>> {
  checkKnownKeys('options', options, ALL_KEYS, ['model', 'task'])
  const { model, numProblems = 100 } = options
  const measured = { ...only(options, MEASURE_KEYS), numProblems }
  return await rollouterOf(model, options).evaluate(measured as MeasureOptions<Sample>)
}

/** Options of a rollouter that an evaluation ignores, or takes from the model. */
const REPLACED: readonly string[] = ['policy', 'renderer', 'groupSize', 'stdNormalize']

const FOR_ROLLOUTER = ROLLOUTER_KEYS.filter((key) => !REPLACED.includes(key))
const ALL_KEYS = ['model', ...FOR_ROLLOUTER, ...MEASURE_KEYS]

function rollouterOf<Sample>(
  model: EvaluateOptions<Sample>['model'],
  options: EvaluateOptions<Sample>,
): Rollouter<Sample> | MessageRollouter<Sample> {
  const { task, maxTokens = 512 } = options
  if (isMessagePolicy(model)) {
    checkKnownKeys('options', options, ['model', ...MESSAGE_ROLLOUTER_KEYS, ...MEASURE_KEYS])
    return new MessageRollouter<Sample>({ ...only(options, FOR_ROLLOUTER), policy: model, task })
  }
  if (!(model instanceof Model)) checkPolicy(model)
  const { policy, renderer } = model
  return new Rollouter<Sample>({ ...only(options, FOR_ROLLOUTER), policy, renderer, task, maxTokens })
}

function isMessagePolicy(model: unknown): model is MessagePolicy {
  return typeof model === 'object' && model !== null && 'reply' in model
}

function checkPolicy(model: unknown): void {
  const isPair = typeof model === 'object' && model !== null && 'policy' in model && 'renderer' in model
  if (!isPair) {
    const detail = `options.model must be a Model, { policy, renderer } or a policy with reply: got ${describeValue(model)}`
    throw new FulmarError('MALFORMED', detail)
  }
  checkKnownKeys('options.model', model, ['policy', 'renderer'])
}
