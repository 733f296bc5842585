/** The game of countdown: reach a target with `+ - * /` and some numbers, each used at most once. */

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

/** One game. */
export interface CountdownProblem {
  /** A safe integer. */
  readonly target: number
  /** Non-negative safe integers, at least one. */
  readonly numbers: readonly number[]
}

/** Required uses of each number: at most once, or exactly once. */
export type CountdownUse = 'atMostOnce' | 'exactlyOnce'

/** Options of {@link CountdownRewardParser}. */
export interface CountdownRewardParserOptions extends AnswerRewardOptions {
  /**
   * Required uses of each number.
   * @default 'atMostOnce'
   */
  readonly use?: CountdownUse
}

/** Numbers of one game. */
export const COUNTDOWN_NUMBERS_MAX = 64

/**
 * Maximum number of UTF-16 units of an expression; a longer one is wrong. It also bounds the nesting of
 * parentheses.
 */
export const COUNTDOWN_EXPRESSION_LENGTH_MAX = 1024

/**
 * Rewards an expression that reaches the target. `answer` is of the form `target=42, numbers=10,20,5,7`.
 *
 * @example
 * ```ts
 * import { CountdownRewardParser } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const parser = new CountdownRewardParser()
 * assert.equal(parser.score('<answer>(25 + 3) * 4</answer>', 'target=112, numbers=25,3,4').reward, 1)
 * assert.equal(parser.score('<answer>25 + 3</answer>', 'target=112, numbers=25,3,4').reward, 0.1)
 * ```
 */
export class CountdownRewardParser implements AnswerRewardParser {
  readonly #options: CheckedAnswerRewardOptions
  readonly #use: CountdownUse

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key or choice; `NON_FINITE` for such a reward. */
  constructor(options: CountdownRewardParserOptions = {}) {
    this.#options = checkAnswerRewardOptions('CountdownRewardParser', options, ['use'])
    this.#use = options.use ?? 'atMostOnce'
    checkOneOf('CountdownRewardParser.use', this.#use, ['atMostOnce', 'exactlyOnce'])
  }

  /** @throws {FulmarError} As {@link AnswerRewardParser.score}. */
  score(response: string, answer: string): AnswerReward {
    const problem = parseCountdown(answer)
    return rewardOfAnswer(response, (said) => isCountdownSolution(said, problem, this.#use), this.#options)
  }
}

/**
 * Reads `target=42, numbers=10,20,5,7`.
 * @throws {FulmarError} `MALFORMED` if the text is not of this form; `OUT_OF_RANGE` if a number is not safe;
 * `LIMIT_EXCEEDED` if there are more than 64.
 *
 * @example
 * ```ts
 * import { parseCountdown } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(parseCountdown('target=42, numbers=10,20,5,7'), { target: 42, numbers: [10, 20, 5, 7] })
 * assert.throws(() => parseCountdown('42 from 10, 20'), { code: 'MALFORMED' })
 * ```
 */
export function parseCountdown(answer: string): CountdownProblem {
  const [, target, list = ''] = /^target=(-?[0-9]{1,16}), numbers=([0-9,]+)$/.exec(answer) ?? []
  const texts = list.split(',')
  if (target === undefined || texts.includes('')) {
    throw new FulmarError(
      'MALFORMED',
      `answer must be of the form "target=42, numbers=10,20,5,7": got ${describeValue(answer)}`,
    )
  }
  if (texts.length > COUNTDOWN_NUMBERS_MAX) {
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `answer must have at most ${COUNTDOWN_NUMBERS_MAX} numbers: got ${texts.length}`,
    )
  }
  return { target: safeInteger(target), numbers: texts.map(safeInteger) }
}

/**
 * Returns true if an expression reaches the target. It may hold the numbers of the game, each at most once
 * (or exactly once), `+ - * /` with parentheses and signs, and white space. It is evaluated in exact
 * fractions by a small parser: no powers, no decimals, no division by zero, no code execution.
 *
 * @example
 * ```ts
 * import { isCountdownSolution } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const problem = { target: 112, numbers: [25, 3, 4, 1] }
 * assert.ok(isCountdownSolution('(25 + 3) * 4', problem))
 * assert.ok(!isCountdownSolution('(25 + 3) * 4', problem, 'exactlyOnce'))
 * assert.ok(!isCountdownSolution('25**3', problem))
 * ```
 */
export function isCountdownSolution(
  expression: string,
  problem: CountdownProblem,
  use: CountdownUse = 'atMostOnce',
): boolean {
  checkGiven('expression', expression)
  checkGiven('problem', problem)
  const { target, numbers } = problem
  if (expression.length > COUNTDOWN_EXPRESSION_LENGTH_MAX) return false
  const tokens = tokensOf(expression)
  if (tokens === undefined) return false
  const left = unused(tokens, numbers)
  if (left === undefined || (use === 'exactlyOnce' && left > 0)) return false
  const value = new ExpressionReader(tokens).value()
  return value !== undefined && value.over === BigInt(target) * value.under
}

/**
 * Returns numbers and signs in order; `undefined` if there is anything else. Numbers have no leading zeros.
 */
function tokensOf(expression: string): readonly string[] | undefined {
  const tokens = expression.match(/[0-9]+|[^0-9\s]/g) ?? []
  const areKnown = tokens.every((token) => /^[-+*/()]$/.test(token) || /^(?:0|[1-9][0-9]{0,15})$/.test(token))
  return areKnown ? tokens : undefined
}

/** Returns the number of unused numbers; `undefined` if a number is used that is not available. */
function unused(tokens: readonly string[], numbers: readonly number[]): number | undefined {
  const left = numbers.map(String)
  for (const token of tokens) {
    if (!/^[0-9]/.test(token)) continue
    const place = left.indexOf(token)
    if (place < 0) return undefined
    left.splice(place, 1)
  }
  return left.length
}

/**
 * An exact fraction; `under` is never 0. It stays small, as the numbers of a game do and each is used at most
 * once.
 */
interface Fraction {
  readonly over: bigint
  readonly under: bigint
}

/** Evaluates an expression: sums of products of signed numbers and parentheses. */
class ExpressionReader {
  readonly #tokens: readonly string[]
  #at = 0

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens
  }

  /** Returns `undefined` for an incomplete expression or a division by zero. */
  value(): Fraction | undefined {
    const sum = this.#sum()
    return this.#at === this.#tokens.length ? sum : undefined
  }

  #sum(): Fraction | undefined {
    let sum = this.#product()
    for (let sign = this.#take('+', '-'); sign !== undefined; sign = this.#take('+', '-')) {
      sum = add(sum, this.#product(), sign === '+' ? 1n : -1n)
    }
    return sum
  }

  #product(): Fraction | undefined {
    let product = this.#factor()
    for (let sign = this.#take('*', '/'); sign !== undefined; sign = this.#take('*', '/')) {
      const factor = this.#factor()
      product = multiply(product, sign === '*' ? factor : inverse(factor))
    }
    return product
  }

  #factor(): Fraction | undefined {
    const sign = this.#take('+', '-')
    if (sign !== undefined) return multiply(this.#factor(), { over: sign === '+' ? 1n : -1n, under: 1n })
    if (this.#take('(') !== undefined) {
      const inside = this.#sum()
      return this.#take(')') === undefined ? undefined : inside
    }
    const token = this.#tokens[this.#at]
    if (token === undefined || !/^[0-9]/.test(token)) return undefined
    this.#at++
    return { over: BigInt(token), under: 1n }
  }

  #take(...wanted: readonly string[]): string | undefined {
    const token = this.#tokens[this.#at]
    if (token === undefined || !wanted.includes(token)) return undefined
    this.#at++
    return token
  }
}

function add(a: Fraction | undefined, b: Fraction | undefined, sign: bigint): Fraction | undefined {
  if (a === undefined || b === undefined) return undefined
  return { over: a.over * b.under + sign * b.over * a.under, under: a.under * b.under }
}

function multiply(a: Fraction | undefined, b: Fraction | undefined): Fraction | undefined {
  return a && b && { over: a.over * b.over, under: a.under * b.under }
}

function inverse(a: Fraction | undefined): Fraction | undefined {
  return a === undefined || a.over === 0n ? undefined : { over: a.under, under: a.over }
}

function safeInteger(text: string): number {
  const number = Number(text)
  if (Number.isSafeInteger(number)) return number
  throw new FulmarError('OUT_OF_RANGE', `answer must hold safe integers: got ${describeValue(text)}`)
}

/** System prompt of the task: the form of an answer that the parser reads. */
export const COUNTDOWN_PROMPT = `You play a game with numbers. First think about how to reach the target, then give an arithmetic expression.
The reasoning and the expression are enclosed within <think></think> and <answer></answer> tags, respectively,
i.e., <think>reasoning process here</think> <answer>expression here</answer>.`
