/** Word problems of GSM8K as an environment. */

import { checkGiven } from '../../core/index.js'
import { GSM8K_PROMPT } from '../../reward/gsm8k.js'
import {
  GSM8KRewardParser,
  type GSM8KRewardParserOptions,
  type GSM8KRow,
  gsm8kTruth,
} from '../../reward/index.js'
import { AnswerRewardTransform } from './answer-reward-transform.js'
import { DatasetChatEnv } from './dataset-chat-env.js'
import { type TaskEnvOptions, taskEnvOptions, textOf } from './task-env.js'

/** Options of {@link GSM8KEnv}. */
export interface GSM8KEnvOptions extends TaskEnvOptions<GSM8KRow> {
  /** Options of the scoring. */
  readonly reward?: GSM8KRewardParserOptions
}

/**
 * A {@link DatasetChatEnv} over rows of GSM8K: the prompt is the question, an episode has one step by default, and the number in
 * `<answer>` is scored. Rows are checked first: one without a number is refused before any episode runs.
 *
 * @example
 * ```ts
 * import { GSM8KEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const dataset = [{ question: 'Ann has 3 apples and eats one. How many are left?', answer: '3-1=2\n#### 2' }]
 * const env = new GSM8KEnv({ dataset })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<think>3-1</think><answer>2</answer>' })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 4 })
 * assert.equal(step.tensor(['next', 'reward']).data[0], 1)
 * assert.throws(() => new GSM8KEnv({ dataset: [{ question: 'Why?', answer: 'Because.' }] }), { code: 'MALFORMED', message: /^dataset\[0\]/ })
 * ```
 */
export class GSM8KEnv extends DatasetChatEnv<GSM8KRow> {
  /** @throws {FulmarError} `MALFORMED` for a row without a question or a number; those of {@link DatasetChatEnv}. */
  constructor(options: GSM8KEnvOptions) {
    checkGiven('options', options)
    const { reward, ...rest } = options
    const { tokenizer } = rest
    super(
      taskEnvOptions(rest, {
        systemPrompt: GSM8K_PROMPT,
        collate: (row) => {
          const { question, ...columns } = row
          gsm8kTruth(textOf(row, 'answer'))
          return { query: textOf(row, 'question'), ...columns }
        },
        scored: () =>
          new AnswerRewardTransform({
            parser: new GSM8KRewardParser(reward),
            ...(tokenizer && { tokenizer }),
          }),
      }),
    )
  }
}
