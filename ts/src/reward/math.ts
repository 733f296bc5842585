/** Answers in TeX: the last `\boxed{...}` of a solution, and comparison of answers. */

import { checkGiven, FulmarError } from '../core/index.js'
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

/** A row of MATH. */
export interface MATHRow {
  readonly problem: string
  /** The worked solution, with the answer in its last `\\boxed{}`. */
  readonly solution: string
}

/** Comparison of {@link isSameMath}. */
export type MathComparison = 'value' | 'text'

/** Options of {@link MATHRewardParser}. */
export interface MATHRewardParserOptions extends AnswerRewardOptions {
  /**
   * `value`: fractions and decimals by what they are worth, without units. `text`: letter for letter once normalised,
   * as TorchRL does where `math_verify` is not installed.
   * @default 'value'
   */
  readonly compare?: MathComparison
}

/**
 * Rewards the right answer to a problem of MATH. The truth is the last `\boxed{...}` of the solution, or the whole of it if
 * it has none; the policy's answer is between `<answer>` tags.
 *
 * @example
 * ```ts
 * import { MATHRewardParser } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const solution = 'So $x = \\boxed{\\frac{1}{2}}$.'
 * assert.equal(new MATHRewardParser().score('<answer>0.5</answer>', solution).reward, 1)
 * assert.equal(new MATHRewardParser({ compare: 'text' }).score('<answer>0.5</answer>', solution).reward, 0.1)
 * ```
 */
export class MATHRewardParser implements AnswerRewardParser {
  readonly #options: CheckedAnswerRewardOptions
  readonly #compare: MathComparison

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key or choice; `NON_FINITE` for such a reward. */
  constructor(options: MATHRewardParserOptions = {}) {
    this.#options = checkAnswerRewardOptions('MATHRewardParser', options, ['compare'])
    this.#compare = options.compare ?? 'value'
    checkOneOf('MATHRewardParser.compare', this.#compare, ['value', 'text'])
  }

  /** @throws {FulmarError} As {@link AnswerRewardParser.score}. */
  score(response: string, answer: string): AnswerReward {
    const truth = mathTruth(answer)
    return rewardOfAnswer(response, (said) => isSameMath(said, truth, this.#compare), this.#options)
  }
}

/**
 * The right answer in a solution: {@link extractBoxed} of it.
 * @throws {FulmarError} `MALFORMED` if that is nothing but spaces; `LIMIT_EXCEEDED` if the solution is too long.
 *
 * @example
 * ```ts
 * import { mathTruth } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(mathTruth('Thus $\\boxed{42}$.'), '42')
 * assert.throws(() => mathTruth('\\boxed{}'), { code: 'MALFORMED' })
 * ```
 */
export function mathTruth(solution: string): string {
  checkRewardText('answer', solution)
  const truth = extractBoxed(solution)
  if (strip(truth) !== '') return truth
  throw new FulmarError('MALFORMED', 'answer must hold a \\boxed{...} or be a text: it is empty')
}

/**
 * Returns the content of the last `\boxed{...}`, with the braces inside it, up to the end of the text if its brace is never
 * closed; the whole text if there is no box. White space at both ends is left off.
 *
 * @example
 * ```ts
 * import { extractBoxed } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(extractBoxed('$\\boxed{1}$ or rather $\\boxed{\\frac{1}{2}}$'), '\\frac{1}{2}')
 * assert.equal(extractBoxed('\\boxed{ 7\n} or so'), '7')
 * assert.equal(extractBoxed(' no box '), 'no box')
 * ```
 */
export function extractBoxed(text: string): string {
  checkGiven('text', text)
  return strip(lastBox(text) ?? text)
}

/**
 * The answer in free text: the last `\boxed{...}`, else the text after the last `Answer:` on its line, without `$`.
 * `undefined` if there is neither.
 *
 * @example
 * ```ts
 * import { extractMathAnswer } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(extractMathAnswer('Answer: $34$'), '34')
 * assert.equal(extractMathAnswer('Answer: 1, or rather \\boxed{34}'), '34')
 * assert.equal(extractMathAnswer('it mentions 34'), undefined)
 * ```
 */
export function extractMathAnswer(text: string): string | undefined {
  checkGiven('text', text)
  const box = lastBox(text)
  if (box !== undefined) return strip(box)
  const start = text.lastIndexOf(ANSWER_MARK)
  if (start < 0) return undefined
  const [line = ''] = text.slice(start + ANSWER_MARK.length).split('\n', 1)
  return strip(line.replaceAll('$', ''))
}

const ANSWER_MARK = 'Answer:'

/**
 * Returns true if two answers are the same. `text`: equal without spaces, commas, `$`, `\left`, `\right` and
 * thin spaces. `value`:
 * equal as exact fractions if both are numbers, `a/b` or `\frac{a}{b}`; else equal as `text` once styles of fractions and
 * units (`\text{...}`, degrees, `%`) are left off.
 *
 * @example
 * ```ts
 * import { isSameMath } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.ok(isSameMath('\\dfrac12', '\\frac{2}{4}'))
 * assert.ok(isSameMath('336', '336^\\circ'))
 * assert.ok(!isSameMath('\\frac12', '\\frac{1}{2}', 'text'))
 * ```
 */
export function isSameMath(predicted: string, truth: string, compare: MathComparison = 'value'): boolean {
  checkGiven('predicted', predicted)
  if (normalizeMath(predicted) === normalizeMath(truth)) return true
  if (compare === 'text') return false
  const [said, right] = [withoutStyle(predicted), withoutStyle(truth)]
  if (said === right) return said !== ''
  const [a, b] = [fractionOf(said), fractionOf(right)]
  return a !== undefined && b !== undefined && a.over * b.under === b.over * a.under
}

/**
 * Returns an answer without what changes only how it looks: white space at its ends, spaces, commas, `$`, `\left`, `\right`, `\!`, `\,`, `\;`, `\:`.
 *
 * @example
 * ```ts
 * import { normalizeMath } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(normalizeMath('$\\left( 1,000 \\right)$'), '(1000)')
 * ```
 */
export function normalizeMath(answer: string): string {
  checkGiven('answer', answer)
  return strip(answer).replace(/\\left|\\right|\\[!,;:]|[ ,$]/g, '')
}

function lastBox(text: string): string | undefined {
  const start = text.lastIndexOf(BOX)
  if (start < 0) return undefined
  const inside = start + BOX.length
  return text.slice(inside, closingBrace(text, inside))
}

const BOX = '\\boxed{'

/** Returns the index of the brace that closes the one before `from`; the length of the text without one. */
function closingBrace(text: string, from: number): number {
  let depth = 1
  for (let at = from; at < text.length; at++) {
    if (text[at] === '{') depth++
    else if (text[at] === '}') depth--
    if (depth === 0) return at
  }
  return text.length
}

/** `\frac12` for `\dfrac12`, nothing for units; a text that is all unit is its inside. */
function withoutStyle(answer: string): string {
  const plain = ['\\text{', '\\mbox{', '\\mathrm{'].reduce(withoutGroups, normalizeMath(answer))
  return plain
    .replace(/\^\{?\\circ\}?|\\%|%|\.$/g, '')
    .replace(/\\[dtc]frac/g, '\\frac')
    .replace(/\\frac([0-9])/g, '\\frac{$1}')
    .replace(/(\\frac\{[0-9]\})([0-9])/g, '$1{$2}')
}

/** Leaves off each group that `opening` begins, inside and all; keeps the inside of one that is the whole text. */
function withoutGroups(text: string, opening: string): string {
  let [kept, from] = ['', 0]
  for (;;) {
    const start = text.indexOf(opening, from)
    const end = start < 0 ? text.length : closingBrace(text, start + opening.length)
    if (end === text.length) return kept + text.slice(from)
    if (start === 0 && end === text.length - 1) return text.slice(opening.length, end)
    kept += text.slice(from, start)
    from = end + 1
  }
}

interface Fraction {
  readonly over: bigint
  readonly under: bigint
}

/**
 * Parses a number, `a/b` or `\frac{a}{b}`, with an optional sign; `undefined` for another or too long text.
 */
function fractionOf(text: string): Fraction | undefined {
  if (text.length > FRACTION_LENGTH_MAX) return undefined
  const sign = /^[+-]/.exec(text)?.[0] ?? ''
  const [before, top, bottom, after, ...rest] = text.slice(sign.length).split(/\\frac\{|\}\{|\}$/)
  const isTex =
    before === '' && after === '' && rest.length === 0 && top !== undefined && bottom !== undefined
  const [over, under = '1', ...more] = isTex ? [sign + top, bottom] : text.split('/')
  const [a, b] = [decimalOf(over), decimalOf(under)]
  if (more.length > 0 || a === undefined || b === undefined || b.over === 0n) return undefined
  return { over: a.over * b.under, under: a.under * b.over }
}

/** Letters of a number that is compared by its value; longer ones are compared as text. */
const FRACTION_LENGTH_MAX = 256

function decimalOf(text = ''): Fraction | undefined {
  const number = canonicalDecimal(text)
  if (number === undefined) return undefined
  const [whole = '', fraction = ''] = number.split('.')
  return { over: BigInt(whole + fraction), under: 10n ** BigInt(fraction.length) }
}

/** System prompt of the task: the form of an answer that the parser reads. */
export const MATH_PROMPT = `You solve problems of mathematics. First think step by step, then give the final answer alone.
The reasoning and the answer are enclosed within <think></think> and <answer></answer> tags, respectively,
i.e., <think>reasoning process here</think> <answer>answer here</answer>. The answer should be an expression in LaTeX.`
