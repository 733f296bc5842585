/**
 * The task `sumDigits`: add up all digits of a list of numbers and finish with `[ANSWER] <sum>`.
 *
 * Problems come from the seeded generator of this package, not from CPython's Mersenne Twister: for seed 42
 * the first problems are not the `[24, 13, 45, 41] -> 24`, `[27, 23] -> 14` of a Python program. Training and
 * validation are not two seeds of one stream, which would share problems of a short task. Every tenth problem
 * is held out by its content, in any order of its numbers, so no trained problem is in the evaluation.
 */

import type { Message } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError, type Rng } from '../core/index.js'
import { generatedDataset } from '../data/index.js'
import { lastCompletionText, type RewardFn, type RolloutView, type Split, type Task } from '../env/index.js'

/** One problem. */
export interface SumDigitsSample {
  /** The numbers whose digits are added. */
  readonly numbers: readonly number[]
  /** The sum of all digits. */
  readonly target: number
}

/** Options of {@link sumDigits}. */
export interface SumDigitsOptions {
  /**
   * Seed of both streams. A non-negative safe integer.
   * @default 0
   */
  readonly seed?: number
  /**
   * Minimum and maximum count of numbers in one problem.
   * @default [2, 4]
   */
  readonly numbers?: readonly [number, number]
  /**
   * The smallest number.
   * @default 10
   */
  readonly min?: number
  /**
   * The largest number.
   * @default 99
   */
  readonly max?: number
  /**
   * `contract`: a system prompt with a worked example and a question; `short`: one line for tiny policies; or
   * a function.
   * @default 'contract'
   */
  readonly prompt?: 'contract' | 'short' | ((numbers: readonly number[]) => readonly Message[])
}

/** The task `sumDigits`, with worked examples for a supervised warm start. */
export interface SumDigitsTask extends Task<SumDigitsSample> {
  /** Returns the prompt of a problem and the right answer as an assistant's message. */
  workedExample(sample: SumDigitsSample): readonly Message[]
}

/**
 * Constructs the task. One turn; rewards `answer` (weight 1: the last `[ANSWER] <int>` is the sum) and `form`
 * (weight 0.3: there is an `[ANSWER] <int>`).
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if a range is empty or not of non-negative integers. A dataset throws `EMPTY`
 * if its split has no problem, as with a single possible problem.
 *
 * @example
 * ```ts
 * import { sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const task = sumDigits({ seed: 42, prompt: 'short' })
 * const messages = task.workedExample({ numbers: [24, 13], target: 10 })
 * assert.deepEqual(messages.map(({ content }) => content), ['Sum of digits: [24, 13]', '[ANSWER] 10'])
 * ```
 */
export function sumDigits(options: SumDigitsOptions = {}): SumDigitsTask {
  checkKnownKeys('options', options, ['seed', 'numbers', 'min', 'max', 'prompt'])
  const { seed = 0, numbers = [2, 4], min = 10, max = 99, prompt = 'contract' } = options
  checkRange('numbers', numbers[0], numbers[1], 1)
  checkRange('min and max', min, max, 0)
  const ask = typeof prompt === 'function' ? prompt : PROMPTS[prompt]
  return {
    name: 'sumDigits',
    makeDataset: (split) => {
      const make = (rng: Rng) => drawProblem({ rng, split, numbers, min, max })
      return generatedDataset({ seed, name: `sumDigits/${split}`, make })
    },
    makeEnv: (sample) => ({
      init: () => ({ initPromptMessages: ask(sample.numbers) }),
      step: () => ({ done: true }),
      close: () => undefined,
    }),
    rewardFns: [answerReward, formReward],
    isSolved: (rollout, { target }) => lastAnswer(rollout) === target,
    workedExample: ({ numbers, target }) => [
      ...ask(numbers),
      { role: 'assistant', content: `[ANSWER] ${target}` },
    ],
  }
}

/**
 * Sums the decimal digits of non-negative integers.
 *
 * @example
 * ```ts
 * import { digitSum } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(digitSum([24, 13, 45, 41]), 24)
 * ```
 */
export function digitSum(numbers: readonly number[]): number {
  checkGiven('numbers', numbers)
  const digits = numbers.flatMap((number) => [...String(number)])
  return digits.reduce((sum, digit) => sum + Number(digit), 0)
}

const answerReward: RewardFn<SumDigitsSample> = {
  name: 'answer',
  weight: 1,
  score: (rollout, { target }) => Number(lastAnswer(rollout) === target),
}

const formReward: RewardFn<SumDigitsSample> = {
  name: 'form',
  weight: 0.3,
  score: (rollout) => Number(lastAnswer(rollout) !== undefined),
}

function lastAnswer(rollout: RolloutView): number | undefined {
  const match = [...lastCompletionText(rollout).matchAll(/\[ANSWER\]\s*(-?\d+)/g)].at(-1)
  return match === undefined ? undefined : Number(match[1])
}

const PROMPTS = {
  contract: (numbers: readonly number[]): readonly Message[] => [
    { role: 'system', content: SYSTEM_PROMPT },
    question(numbers),
  ],
  short: (numbers: readonly number[]): readonly Message[] => [
    { role: 'user', content: `Sum of digits: ${formatList(numbers)}` },
  ],
}

const SYSTEM_PROMPT = `You add up digits. For a list of whole numbers, take every single digit of every number and \
give the sum of all of them. You may reason first; your reply must end with the sum in the form "[ANSWER] <int>".

Example: for [59, 77] the digits are 5, 9, 7 and 7, and 5 + 9 + 7 + 7 = 28.
[ANSWER] 28`

function question(numbers: readonly number[]): Message {
  return { role: 'user', content: `What is the sum of all digits in ${formatList(numbers)}?` }
}

function formatList(numbers: readonly number[]): string {
  return `[${numbers.join(', ')}]`
}

interface ProblemRule {
  readonly rng: Rng
  readonly split: Split
  readonly numbers: readonly [number, number]
  readonly min: number
  readonly max: number
}

/**
 * Draws until a problem belongs to the split; one in ten is validation, so this ends soon unless the split is
 * empty.
 */
function drawProblem({ rng, split, numbers: [fewest, most], min, max }: ProblemRule): SumDigitsSample {
  for (let attempt = 0; attempt < DRAWS_MAX; attempt++) {
    const count = fewest + rng.below(most - fewest + 1)
    const numbers = Array.from({ length: count }, () => min + rng.below(max - min + 1))
    if (isHeldOut(numbers) === (split === 'validation')) return { numbers, target: digitSum(numbers) }
  }
  throw new FulmarError(
    'EMPTY',
    `the ${split} split of sumDigits must hold a problem: ${DRAWS_MAX} draws made no such problem`,
  )
}

/** Limit of draws: 1000 draws miss a non-empty tenth of the problems once in 10^45 times. */
const DRAWS_MAX = 1000

/**
 * Hashes the sorted numbers, so that the same problem in another order is in the same split. FNV-1a alone is
 * not enough: its lowest bit is the parity of the letters, so a tenth chosen by it would hold only problems
 * with odd sums.
 */
function isHeldOut(numbers: readonly number[]): boolean {
  let hash = 0x811c9dc5
  for (const letter of [...numbers].sort((a, b) => a - b).join()) {
    hash = Math.imul(hash ^ letter.charCodeAt(0), 0x01000193)
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return ((hash ^ (hash >>> 16)) >>> 0) % 10 === 0
}

function checkRange(name: string, low: number, high: number, least: number): void {
  const isRange = Number.isSafeInteger(low) && Number.isSafeInteger(high) && least <= low && low <= high
  if (isRange) return
  throw new FulmarError(
    'OUT_OF_RANGE',
    `${name} must be integers with ${least} <= low <= high: got ${low}, ${high}`,
  )
}
