/** The task `gsm8k`: grade school mathematics with a number as answer ([paper](https://arxiv.org/abs/2110.14168)). */

import type { Task } from '../env/index.js'
import { GSM8KRewardParser, type GSM8KRewardParserOptions, gsm8kTruth } from '../reward/index.js'
import {
  checkRowTaskOptions,
  questionTask,
  type RowTaskOptions,
  rowDatasets,
  TAGS_PROMPT,
  textOf,
} from './question-task.js'

/** A row of GSM8K. */
export interface GSM8KTaskRow {
  /** What is asked. */
  readonly question: string
  /** The solution, its number behind `#### `. */
  readonly answer: string
}

/** Options of {@link gsm8k}. */
export interface GSM8KTaskOptions extends RowTaskOptions<GSM8KTaskRow> {
  /** How answers are scored. */
  readonly reward?: GSM8KRewardParserOptions
}

/**
 * Makes the task: one turn, and one reward, that of `GSM8KRewardParser`. Rows without a right answer are refused here.
 *
 * @throws {FulmarError} `EMPTY` if there is no row; `MALFORMED` for a row whose `answer` is not of the form, with its index; `UNKNOWN_NAME` for
 * an unknown key.
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
 * ```
 */
export function gsm8k(options: GSM8KTaskOptions): Task<GSM8KTaskRow> {
  checkRowTaskOptions('gsm8k', options, ['reward'])
  const parser = new GSM8KRewardParser(options.reward)
  const sampleOf = (row: GSM8KTaskRow): GSM8KTaskRow => {
    const sample = { question: textOf(row, 'question'), answer: textOf(row, 'answer') }
    gsm8kTruth(sample.answer)
    return sample
  }
  return questionTask({
    name: 'gsm8k',
    makeDataset: rowDatasets(options, sampleOf),
    systemPrompt: options.systemPrompt === undefined ? TAGS_PROMPT : options.systemPrompt,
    question: ({ question }) => question,
    judge: (response, { answer }) => parser.score(response, answer),
  })
}
