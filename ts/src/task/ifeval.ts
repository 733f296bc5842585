/** The task `ifeval`: prompts with instructions that a program can verify ([paper](https://arxiv.org/abs/2311.07911)). */

import { FulmarError } from '../core/index.js'
import type { Task } from '../env/index.js'
import { IFEVAL_PROMPT } from '../reward/ifeval/ifeval.js'
import {
  type IFEvalRow,
  type IfEvalInstructions,
  IfEvalScorer,
  type IfEvalScorerOptions,
  ifEvalChecks,
  ifEvalReward,
  scoreIfEval,
} from '../reward/ifeval/index.js'
import {
  checkRowTaskOptions,
  questionTask,
  type RowTaskOptions,
  rowDatasets,
  textOf,
  type Verdict,
} from './question-task.js'

/** One prompt. */
export interface IfEvalSample extends IfEvalInstructions {
  /** Prompt of the sample. */
  readonly prompt: string
}

/** Options of {@link ifeval}. */
export interface IfEvalTaskOptions extends RowTaskOptions<IFEvalRow> {
  /**
   * Scored part of a response. `tags`: the first `<answer>`, with the rewards for the form of a response.
   * `whole`: the whole text of the policy, with a reward from 0 to the sum of the weights.
   * @default 'tags'
   */
  readonly form?: 'tags' | 'whole'
  /** Options of the scoring. */
  readonly reward?: Omit<IfEvalScorerOptions, 'aggregateReward' | 'setDoneIfAnswer'>
}

/**
 * Makes the task: one turn and one reward, that of `IfEvalScorer`. A rollout solves it if it follows every instruction, read strictly. Rows with
 * unknown instructions throw here.
 *
 * @throws {FulmarError} `EMPTY` if there is no row; the codes of `ifEvalChecks` for a row, with its index; `UNKNOWN_NAME` for an unknown key or form.
 *
 * @example
 * ```ts
 * import { ifeval } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const row = { prompt: 'Say hello without commas.', instruction_id_list: ['punctuation:no_comma'], kwargs: [{}] }
 * const task = ifeval({ rows: [row], form: 'whole' })
 * const completionMessage = { role: 'assistant', content: 'Hello!' }
 * const turns = [{ promptMessages: [], completionMessage, envMessages: [], envRewards: {} }]
 * assert.ok(task.isSolved({ status: 'completed', turns }, task.makeDataset('train').next()))
 * const unknown = { ...row, instruction_id_list: ['punctuation:no_coma'] }
 * assert.throws(() => ifeval({ rows: [unknown] }), { code: 'UNKNOWN_NAME', message: /^rows\[0\]/ })
 * ```
 */
export function ifeval(options: IfEvalTaskOptions): Task<IfEvalSample> {
  checkRowTaskOptions('ifeval', options, ['form', 'reward'])
  const { form = 'tags', reward, systemPrompt = form === 'tags' ? IFEVAL_PROMPT : null } = options
  if (form !== 'tags' && form !== 'whole') {
    throw new FulmarError('UNKNOWN_NAME', `ifeval.form must be tags or whole: got ${String(form)}`)
  }
  const scorer = new IfEvalScorer(reward)
  const checkOptions = reward?.json === undefined ? {} : { json: reward.json }
  const whole = (response: string, sample: IfEvalSample): Verdict => {
    const score = scoreIfEval(response, ifEvalChecks(sample, checkOptions))
    const blocks = { thinkBlocks: [], answerBlocks: [], complete: false }
    return { reward: ifEvalReward(score, blocks, reward?.formatWeights), success: score.promptLevelStrictAcc }
  }
  const tagged = (response: string, sample: IfEvalSample): Verdict => {
    const { score, reward: worth = 0 } = scorer.score(response, sample)
    return { reward: worth, success: score.promptLevelStrictAcc }
  }
  return questionTask({
    name: 'ifeval',
    makeDataset: rowDatasets(options, (row) => {
      const { instruction_id_list: instructionIdList, kwargs } = row
      ifEvalChecks({ instructionIdList, kwargs }, checkOptions)
      return { prompt: textOf(row, 'prompt'), instructionIdList, kwargs }
    }),
    systemPrompt,
    question: ({ prompt }) => prompt,
    judge: form === 'whole' ? whole : tagged,
  })
}
