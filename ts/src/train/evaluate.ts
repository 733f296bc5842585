/** Evaluation of a model on a task. */

import type { Renderer } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Policy } from '../policy/index.js'
import { type Evaluation, type MeasureOptions, Rollouter, type RollouterOptions } from '../rollout/index.js'
import { MEASURE_KEYS, ROLLOUTER_KEYS } from '../rollout/rollouter-options.js'
import { Model } from './model.js'
import { only } from './model-training.js'

/** Options of {@link evaluate}: those of `Rollouter` as well. */
export interface EvaluateOptions<Sample>
  extends Omit<MeasureOptions, 'numProblems'>,
    Omit<RollouterOptions<Sample>, 'policy' | 'renderer' | 'maxTokens' | 'groupSize' | 'stdNormalize'> {
  /** Model to evaluate; or a policy, such as a server's, with the renderer of its model. */
  readonly model: Model | { readonly policy: Policy; readonly renderer: Renderer }
  /**
   * Number of held-out samples.
   * @default 100
   */
  readonly numProblems?: number
  /**
   * Maximum number of tokens of a completion, including the stop token.
   * @default 512
   */
  readonly maxTokens?: number
}

/**
 * Evaluates a model, or a policy with a renderer, on the validation samples of a task. Returns the pass rate
 * with its interval, pass@k, mean reward, and every answer. Uses the same samples and seeds each time.
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
  const forRollouter = ROLLOUTER_KEYS.filter((key) => !REPLACED.includes(key))
  checkKnownKeys('options', options, ['model', ...forRollouter, ...MEASURE_KEYS], ['model', 'task'])
  const { model, task, numProblems = 100, maxTokens = 512 } = options
  if (!(model instanceof Model)) checkPolicy(model)
  const { policy, renderer } = model
  const rollouter = new Rollouter<Sample>({
    ...only(options, forRollouter),
    policy,
    renderer,
    task,
    maxTokens,
  })
  return await rollouter.evaluate({ ...only(options, MEASURE_KEYS), numProblems })
}

/** Options of a rollouter that an evaluation ignores, or takes from the model. */
const REPLACED: readonly string[] = ['policy', 'renderer', 'groupSize', 'stdNormalize']

function checkPolicy(model: unknown): void {
  const isPair = typeof model === 'object' && model !== null && 'policy' in model && 'renderer' in model
  if (!isPair) {
    const detail = `options.model must be a Model or { policy, renderer }: got ${describeValue(model)}`
    throw new FulmarError('MALFORMED', detail)
  }
  checkKnownKeys('options.model', model, ['policy', 'renderer'])
}
