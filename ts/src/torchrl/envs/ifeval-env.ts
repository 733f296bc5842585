/** Prompts of IFEval as an environment. */

import { checkGiven } from '../../core/index.js'
import { IFEVAL_PROMPT } from '../../reward/ifeval/ifeval.js'
import { type IFEvalRow, type IfEvalScorerOptions, ifEvalChecks } from '../../reward/ifeval/index.js'
import type { Json } from '../../tensor/index.js'
import { DatasetChatEnv } from './dataset-chat-env.js'
import { IfEvalRewardTransform } from './ifeval-reward-transform.js'
import { type TaskEnvOptions, taskEnvOptions, textOf } from './task-env.js'

/** Options of {@link IFEvalEnv}. */
export interface IFEvalEnvOptions extends TaskEnvOptions<IFEvalRow> {
  /** Options of the scoring. */
  readonly reward?: IfEvalScorerOptions
}

/**
 * A {@link DatasetChatEnv} over rows of IFEval: asks `prompt`, checks the text in `<answer>` against the
 * instructions, and ends the episode after one step by default. Rows with unknown instructions throw up
 * front.
 *
 * @example
 * ```ts
 * import { IFEvalEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const row = { prompt: 'Say hello, without commas.', instruction_id_list: ['punctuation:no_comma'], kwargs: [{}] }
 * const env = new IFEvalEnv({ dataset: [row] })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<answer>Hello, you.</answer>' })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 1 })
 * assert.deepEqual([...step.tensor(['next', 'ifeval_score', 'prompt_level_strict_acc']).data], [0])
 * const unknown = { ...row, instruction_id_list: ['punctuation:no_coma'] }
 * assert.throws(() => new IFEvalEnv({ dataset: [unknown] }), { code: 'UNKNOWN_NAME', message: /^dataset\[0\]/ })
 * ```
 */
export class IFEvalEnv extends DatasetChatEnv<IFEvalRow> {
  /** @throws {FulmarError} As `ifEvalChecks` for a row; those of {@link DatasetChatEnv}. */
  constructor(options: IFEvalEnvOptions) {
    checkGiven('options', options)
    const { reward, ...rest } = options
    const { tokenizer } = rest
    super(
      taskEnvOptions(rest, {
        systemPrompt: IFEVAL_PROMPT,
        collate: (row) => {
          const { prompt: _, ...columns } = row
          ifEvalChecks({ instructionIdList: row.instruction_id_list, kwargs: row.kwargs })
          return { query: textOf(row, 'prompt'), ...(columns as Record<string, Json>) }
        },
        scored: () => new IfEvalRewardTransform({ ...reward, ...(tokenizer && { tokenizer }) }),
      }),
    )
  }
}
