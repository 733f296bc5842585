/** The task `math`: competition mathematics with an answer in TeX ([paper](https://arxiv.org/abs/2103.03874)). */

import { FulmarError } from '../core/index.js'
import type { Task } from '../env/index.js'
import {
  extractMathAnswer,
  isSameMath,
  MATHRewardParser,
  type MATHRewardParserOptions,
  type MATHRow,
  mathTruth,
} from '../reward/index.js'
import { MATH_PROMPT } from '../reward/math.js'
import {
  checkRowTaskOptions,
  questionTask,
  type RowTaskOptions,
  rowDatasets,
  textOf,
  type Verdict,
} from './question-task.js'

/** Options of {@link math}. */
export interface MathTaskOptions extends RowTaskOptions<MATHRow> {
  /**
   * Position of the policy's answer. `tags`: between `<answer>` tags, scored by `MATHRewardParser`. `boxed`:
   * in its last `\boxed{...}`, else after its last `Answer:`; 1 if right, else 0.
   * @default 'tags'
   */
  readonly form?: 'tags' | 'boxed'
  /** Options of the scoring; the form `boxed` uses only `compare`. */
  readonly reward?: MATHRewardParserOptions
}

/**
 * Constructs the task: one turn and one reward. Rows without a right answer throw here.
 *
 * @throws {FulmarError} `EMPTY` if there is no row; `MALFORMED` for a row without problem or answer, with its index; `UNKNOWN_NAME` for an unknown
 * key or form.
 *
 * @example
 * ```ts
 * import { math } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const task = math({ rows: [{ problem: 'Which angle?', solution: '\\boxed{336^\\circ}' }], form: 'boxed' })
 * const [rewardFn] = task.rewardFns
 * const score = (content: string) => {
 *   const completionMessage = { role: 'assistant', content }
 *   const turns = [{ promptMessages: [], completionMessage, envMessages: [], envRewards: {} }]
 *   const context = { signal: new AbortController().signal }
 *   return rewardFn?.score({ status: 'completed', turns }, task.makeDataset('train').next(), context)
 * }
 * assert.deepEqual([score('Answer: $336$'), score('\\boxed{335}'), score('it mentions 336')], [1, 0, 0])
 * ```
 */
export function math(options: MathTaskOptions): Task<MATHRow> {
  checkRowTaskOptions('math', options, ['form', 'reward'])
  const { form = 'tags', reward, systemPrompt = form === 'tags' ? MATH_PROMPT : BOXED_PROMPT } = options
  if (form !== 'tags' && form !== 'boxed') {
    throw new FulmarError('UNKNOWN_NAME', `math.form must be tags or boxed: got ${String(form)}`)
  }
  const parser = new MATHRewardParser(reward)
  const boxed = (response: string, truth: string): Verdict => {
    const said = extractMathAnswer(response)
    const success = said !== undefined && isSameMath(said, truth, reward?.compare)
    return { reward: Number(success), success }
  }
  return questionTask({
    name: 'math',
    makeDataset: rowDatasets(options, (row) => {
      const sample = { problem: textOf(row, 'problem'), solution: textOf(row, 'solution') }
      mathTruth(sample.solution)
      return sample
    }),
    systemPrompt,
    question: ({ problem }) => problem,
    judge: (response, { solution }) =>
      form === 'tags' ? parser.score(response, solution) : boxed(response, mathTruth(solution)),
  })
}

const BOXED_PROMPT = 'Reason step by step, and put your final answer within \\boxed{}.'
