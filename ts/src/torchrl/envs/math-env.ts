/** Competition problems of MATH as an environment. */

import { checkGiven } from '../../core/index.js'
import {
  MATHRewardParser,
  type MATHRewardParserOptions,
  type MATHRow,
  mathTruth,
} from '../../reward/index.js'
import { MATH_PROMPT } from '../../reward/math.js'
import { AnswerRewardTransform } from './answer-reward-transform.js'
import { DatasetChatEnv } from './dataset-chat-env.js'
import { type TaskEnvOptions, taskEnvOptions, textOf } from './task-env.js'

/** Options of {@link MATHEnv}. */
export interface MATHEnvOptions extends TaskEnvOptions<MATHRow> {
  /** Options of the scoring. */
  readonly reward?: MATHRewardParserOptions
}

/**
 * A {@link DatasetChatEnv} over rows of MATH: the prompt is `problem`, the box of `solution` is the right answer for the text in
 * `<answer>`, and an episode has one step by default.
 *
 * @example
 * ```ts
 * import { MATHEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new MATHEnv({ dataset: [{ problem: 'Half of one?', solution: 'It is $\\boxed{\\frac{1}{2}}$.' }] })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<answer>\\frac{1}{2}</answer>' })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 1 })
 * assert.equal(step.tensor(['next', 'reward']).data[0], 1)
 * ```
 */
export class MATHEnv extends DatasetChatEnv<MATHRow> {
  /** @throws {FulmarError} `MALFORMED` for a row without a problem or an answer; those of {@link DatasetChatEnv}. */
  constructor(options: MATHEnvOptions) {
    checkGiven('options', options)
    const { reward, ...rest } = options
    const { tokenizer } = rest
    super(
      taskEnvOptions(rest, {
        systemPrompt: MATH_PROMPT,
        collate: (row) => {
          const { problem, solution, ...columns } = row
          mathTruth(textOf(row, 'solution'))
          return { query: textOf(row, 'problem'), answer: solution, ...columns }
        },
        scored: () =>
          new AnswerRewardTransform({
            parser: new MATHRewardParser(reward),
            ...(tokenizer && { tokenizer }),
          }),
      }),
    )
  }
}
