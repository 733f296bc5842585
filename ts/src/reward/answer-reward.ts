/** Reward of a task with one right answer: 1 for it, 0.1 for any other answer, 0 without one. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { extractTags } from './tags.js'
import { checkRewardText } from './text.js'

/** Shared options of parsers of answers. */
export interface AnswerRewardOptions {
  /**
   * Text of the end token; it is removed from the end of a response, and so is `<|im_end|>`.
   * @default none
   */
  readonly eosToken?: string
  /**
   * If true, an answer ends the episode.
   * @default true
   */
  readonly setDoneIfAnswer?: boolean
  /**
   * Reward of a wrong answer.
   * @default 0.1
   */
  readonly formatReward?: number
  /**
   * Reward of the right answer.
   * @default 1
   */
  readonly correctReward?: number
  /**
   * The `<answer>` that counts if there are several.
   * @default 'first'
   */
  readonly block?: 'first' | 'last'
}

/** Score of a response, in parts. */
export interface AnswerReward {
  /** 1 if there is an answer, else 0. */
  readonly rewardAnswer: number
  /** 1 if there is a thought, else 0. */
  readonly rewardThink: number
  /** Same as `reward`. */
  readonly rewardRight: number
  /** `correctReward`, `formatReward` or 0. */
  readonly reward: number
  /** True if the answer is right. */
  readonly success: boolean
  /** True if the episode is over: there is an answer, and `setDoneIfAnswer`. */
  readonly done: boolean
}

/**
 * Scores responses of one kind of task.
 *
 * @example
 * ```ts
 * import { type AnswerRewardParser, CountdownRewardParser, GSM8KRewardParser, MATHRewardParser } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const parsers: AnswerRewardParser[] = [new GSM8KRewardParser(), new MATHRewardParser(), new CountdownRewardParser()]
 * const answers = ['6 * 7 = 42\n#### 42', '$\\boxed{42}$', 'target=42, numbers=42']
 * const rewards = parsers.map((parser, index) => parser.score('<answer>42</answer>', answers[index] ?? '').reward)
 * assert.deepEqual(rewards, [1, 1, 1])
 * ```
 */
export interface AnswerRewardParser {
  /**
   * Scores the policy's response, without the prompt, against the `answer` of the dataset.
   * @throws {FulmarError} `MALFORMED` if no right answer can be read from `answer`; `LIMIT_EXCEEDED` if a text is longer
   * than 1,048,576 characters.
   */
  score(response: string, answer: string): AnswerReward
}

/** Shared options; a parser adds its own. */
const ANSWER_REWARD_KEYS = ['eosToken', 'setDoneIfAnswer', 'formatReward', 'correctReward', 'block']

/** Checked options with defaults. */
export type CheckedAnswerRewardOptions = Required<AnswerRewardOptions>

/** @throws {FulmarError} `UNKNOWN_NAME`, `NON_FINITE` or `MALFORMED`. */
export function checkAnswerRewardOptions(
  place: string,
  options: AnswerRewardOptions,
  ownKeys: readonly string[],
): CheckedAnswerRewardOptions {
  checkKnownKeys(place, options, [...ANSWER_REWARD_KEYS, ...ownKeys])
  const {
    eosToken = '',
    setDoneIfAnswer = true,
    formatReward = 0.1,
    correctReward = 1,
    block = 'first',
  } = options
  for (const [name, reward] of Object.entries({ formatReward, correctReward })) {
    if (Number.isFinite(reward)) continue
    throw new FulmarError('NON_FINITE', `${place}.${name} must be finite: got ${describeValue(reward)}`)
  }
  checkOneOf(`${place}.block`, block, ['first', 'last'])
  return { eosToken, setDoneIfAnswer, formatReward, correctReward, block }
}

/** @throws {FulmarError} `UNKNOWN_NAME` if `value` is not one of `choices`. */
export function checkOneOf(place: string, value: string, choices: readonly string[]): void {
  if (choices.includes(value)) return
  throw new FulmarError(
    'UNKNOWN_NAME',
    `${place} must be one of ${choices.join(', ')}: got ${describeValue(value)}`,
  )
}

/** Scores a response; `isRight` is called only if there is an answer. */
export function rewardOfAnswer(
  response: string,
  isRight: (answer: string) => boolean,
  options: CheckedAnswerRewardOptions,
): AnswerReward {
  checkRewardText('response', response)
  const { eosToken, setDoneIfAnswer, formatReward, correctReward, block } = options
  const { think, answer } = extractTags(withoutEnd(withoutEnd(response, eosToken), '<|im_end|>'), block)
  const hasAnswer = answer !== ''
  const success = hasAnswer && isRight(answer)
  const reward = success ? correctReward : hasAnswer ? formatReward : 0
  return {
    rewardAnswer: Number(hasAnswer),
    rewardThink: Number(think !== ''),
    rewardRight: reward,
    reward,
    success,
    done: hasAnswer && setDoneIfAnswer,
  }
}

function withoutEnd(text: string, end: string): string {
  return end !== '' && text.endsWith(end) ? text.slice(0, -end.length) : text
}
