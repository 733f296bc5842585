/** Answers of GSM8K: a number after `#### ` in the dataset, between `<answer>` tags in a response. */

import { checkGiven, describeValue, FulmarError } from '../core/index.js'
import {
  type AnswerReward,
  type AnswerRewardOptions,
  type AnswerRewardParser,
  type CheckedAnswerRewardOptions,
  checkAnswerRewardOptions,
  checkOneOf,
  rewardOfAnswer,
} from './answer-reward.js'
import { canonicalDecimal } from './decimal.js'
import { checkRewardText, strip } from './text.js'

/** A row of GSM8K. */
export interface GSM8KRow {
  readonly question: string
  /** The worked answer, with the number behind `#### `. */
  readonly answer: string
}

/** Options of {@link GSM8KRewardParser}. */
export interface GSM8KRewardParserOptions extends AnswerRewardOptions {
  /**
   * Comparison of answers. `numeric`: as exact decimal numbers, so that `.5` is `0.5` and `+5` is `5`; `1e3`
   * is not a number. Other texts are compared as `text`. `text`: exact comparison after normalization, as in
   * TorchRL.
   * @default 'numeric'
   */
  readonly compare?: 'numeric' | 'text'
}

/**
 * Scores the right number as {@link AnswerReward}.
 *
 * @example
 * ```ts
 * import { GSM8KRewardParser } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const parser = new GSM8KRewardParser()
 * const answer = '48 / 2 = <<48/2=24>>24\n#### 1,224'
 * assert.equal(parser.score('<think>hm</think><answer>$1224.00</answer>', answer).reward, 1)
 * assert.equal(parser.score('<answer>99</answer>', answer).reward, 0.1)
 * assert.equal(parser.score('1224', answer).reward, 0)
 * assert.throws(() => parser.score('<answer>1</answer>', 'no mark'), { code: 'MALFORMED' })
 * ```
 */
export class GSM8KRewardParser implements AnswerRewardParser {
  readonly #options: CheckedAnswerRewardOptions
  readonly #isSame: (answer: string, truth: string) => boolean

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key or choice; `NON_FINITE` for such a reward. */
  constructor(options: GSM8KRewardParserOptions = {}) {
    this.#options = checkAnswerRewardOptions('GSM8KRewardParser', options, ['compare'])
    const { compare = 'numeric' } = options
    checkOneOf('GSM8KRewardParser.compare', compare, ['numeric', 'text'])
    this.#isSame = compare === 'numeric' ? isSameNumber : isSameText
  }

  /** @throws {FulmarError} As {@link AnswerRewardParser.score}. */
  score(response: string, answer: string): AnswerReward {
    const truth = gsm8kTruth(answer)
    return rewardOfAnswer(response, (said) => this.#isSame(said, truth), this.#options)
  }
}

/**
 * Returns the right answer in an `answer` of the dataset: the text after its only `#### `.
 * @throws {FulmarError} `MALFORMED` if the mark is missing, repeated or has no text after it.
 *
 * @example
 * ```ts
 * import { gsm8kTruth } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(gsm8kTruth('48 / 2 = 24 clips\n#### 24'), '24')
 * assert.throws(() => gsm8kTruth('24'), { code: 'MALFORMED' })
 * ```
 */
export function gsm8kTruth(answer: string): string {
  checkRewardText('answer', answer)
  const [, truth, ...rest] = answer.split('#### ')
  if (truth !== undefined && strip(truth) !== '' && rest.length === 0) return strip(truth)
  throw new FulmarError(
    'MALFORMED',
    `answer must hold "#### " once, with a number after it: got ${describeValue(answer)}`,
  )
}

/**
 * Normalizes a number for comparison with GSM8K's answers: without outer spaces, commas, `$`, `%`, final
 * dots, and trailing zeros of a fraction.
 *
 * @example
 * ```ts
 * import { normalizeGsm8kAnswer } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(['1,234', ' $120.50 ', '120.', '-0.0', '+5'].map(normalizeGsm8kAnswer), ['1234', '120.5', '120', '-0', '+5'])
 * ```
 */
export function normalizeGsm8kAnswer(answer: string): string {
  checkGiven('answer', answer)
  const bare = withoutEnds(strip(answer).replace(/[,$%]/g, ''), '.')
  return bare.includes('.') ? withoutEnds(withoutEnds(bare, '0'), '.') : bare
}

function isSameText(answer: string, truth: string): boolean {
  return normalizeGsm8kAnswer(answer) === normalizeGsm8kAnswer(truth)
}

function isSameNumber(answer: string, truth: string): boolean {
  const [said, right] = [canonicalDecimal(answer), canonicalDecimal(truth)]
  return said !== undefined && right !== undefined ? said === right : isSameText(answer, truth)
}

function withoutEnds(text: string, letter: string): string {
  let end = text.length
  while (end > 0 && text[end - 1] === letter) end--
  return text.slice(0, end)
}

/** System prompt of the task: the form of an answer that the parser reads. */
export const GSM8K_PROMPT = `A conversation between User and Assistant. The user asks a question, and the Assistant solves it.
The assistant first thinks about the reasoning process in the mind and then provides the user with the answer.
The reasoning process and answer are enclosed within <think></think> and <answer></answer> tags, respectively,
i.e., <think>reasoning process here</think> <answer>answer here</answer>. The answer should be a number.`
