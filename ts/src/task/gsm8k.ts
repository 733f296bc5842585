/** The task `gsm8k`: grade school mathematics with a number as answer ([paper](https://arxiv.org/abs/2110.14168)). */

import type { Message } from '../chat/index.js'
import { describeValue, FulmarError } from '../core/index.js'
import { lastCompletionText, type RewardFn, type Task } from '../env/index.js'
import { GSM8K_PROMPT } from '../reward/gsm8k.js'
import {
  GSM8KRewardParser,
  type GSM8KRewardParserOptions,
  type GSM8KRow,
  gsm8kTruth,
} from '../reward/index.js'
import {
  checkRowTaskOptions,
  questionTask,
  type RowTaskOptions,
  rowDatasets,
  textOf,
} from './question-task.js'

/** Options of {@link gsm8k}. */
export interface GSM8KTaskOptions extends RowTaskOptions<GSM8KRow> {
  /** Options of the scoring. */
  readonly reward?: GSM8KRewardParserOptions
  /**
   * Weight of a second reward, `form`, next to that of the answer, whose weight is 1: the share of `<think>`,
   * `</think>`, `<answer>` and `</answer>` that appear exactly once. It separates answers of a policy that is
   * rarely right or rarely finishes in time.
   * @default 0, and there is no second reward
   */
  readonly formWeight?: number
}

/** The task `gsm8k`, with worked examples for a supervised warm start. */
export interface GSM8KTask extends Task<GSM8KRow> {
  /** Returns the prompt of a row and its solution in the rewarded form, as an assistant's message. */
  workedExample(sample: GSM8KRow): readonly Message[]
}

/**
 * Constructs the task: one turn, and one reward, that of `GSM8KRewardParser`, or two. Rows without a right
 * answer throw here.
 *
 * @throws {FulmarError} `EMPTY` if there is no row; `MALFORMED` for a row whose `answer` is not of the form, with its index; `UNKNOWN_NAME` for
 * an unknown key; `OUT_OF_RANGE` for a `formWeight` that is not a number of at least 0.
 *
 * @example
 * ```ts
 * import { gsm8k } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const task = gsm8k({ rows: [{ question: 'What is 6 * 7?', answer: '6 * 7 = 42\n#### 42' }] })
 * const sample = task.makeDataset('train').next()
 * const completionMessage = { role: 'assistant', content: '<answer>42</answer>' }
 * const turns = [{ promptMessages: [], completionMessage, envMessages: [], envRewards: {} }]
 * assert.ok(task.isSolved({ status: 'completed', turns }, sample))
 * assert.throws(() => gsm8k({ rows: [{ question: '?', answer: '42' }] }), { code: 'MALFORMED' })
 * const [, , solution] = task.workedExample(sample)
 * assert.equal(solution?.content, '<think>6 * 7 = 42</think>\n<answer>42</answer>')
 * ```
 */
export function gsm8k(options: GSM8KTaskOptions): GSM8KTask {
  checkRowTaskOptions('gsm8k', options, ['reward', 'formWeight'])
  const { systemPrompt = GSM8K_PROMPT, formWeight = 0 } = options
  checkWeight(formWeight)
  const parser = new GSM8KRewardParser(options.reward)
  const sampleOf = (row: GSM8KRow): GSM8KRow => {
    const sample = { question: textOf(row, 'question'), answer: textOf(row, 'answer') }
    gsm8kTruth(sample.answer)
    return sample
  }
  const task = questionTask<GSM8KRow>({
    name: 'gsm8k',
    makeDataset: rowDatasets(options, sampleOf),
    systemPrompt,
    question: ({ question }) => question,
    judge: (response, { answer }) => parser.score(response, answer),
  })
  return {
    ...task,
    rewardFns: formWeight > 0 ? [...task.rewardFns, { ...formReward, weight: formWeight }] : task.rewardFns,
    workedExample: ({ question, answer }) => [
      ...(systemPrompt === null ? [] : [{ role: 'system', content: systemPrompt }]),
      { role: 'user', content: question },
      {
        role: 'assistant',
        content: `<think>${reasoningOf(answer)}</think>\n<answer>${gsm8kTruth(answer)}</answer>`,
      },
    ],
  }
}

const TAGS = ['<think>', '</think>', '<answer>', '</answer>']

const formReward: RewardFn<GSM8KRow> = {
  name: 'form',
  score: (rollout) => {
    const text = lastCompletionText(rollout)
    return TAGS.filter((tag) => text.split(tag, 3).length === 2).length / TAGS.length
  },
}

/** Returns the text before the number, without the dataset's calculator notes (`<<48/2=24>>`). */
function reasoningOf(answer: string): string {
  const [reasoning = ''] = answer.split('#### ')
  return reasoning.replace(/<<[^<>]*>>/g, '').trim()
}

function checkWeight(formWeight: number): void {
  if (Number.isFinite(formWeight) && formWeight >= 0) return
  const found = describeValue(formWeight)
  throw new FulmarError('OUT_OF_RANGE', `gsm8k.formWeight must be a number of at least 0: got ${found}`)
}
