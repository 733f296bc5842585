/** Random games of countdown. */

import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import { COUNTDOWN_NUMBERS_MAX } from './countdown.js'

/** Options of games. */
export interface CountdownProblemOptions {
  /** Number of numbers in a game. @default 4 */
  readonly numCount?: number
  /** Largest number. @default 100 */
  readonly maxNumber?: number
  /** Largest target. @default 1000 */
  readonly maxTarget?: number
  /**
   * If true, the target may be the sum of all numbers, as in six of ten games of TorchRL, where adding them
   * up wins.
   * @default false
   */
  readonly allowSum?: boolean
}

/** Source of uniform integers from 0 below a bound, such as `Rng`. */
export interface DrawsBelow {
  below(bound: number): number
}

/** A game as a row of a dataset. */
export interface CountdownRow {
  /** Task in words. */
  readonly query: string
  /** Answer such as `target=42, numbers=10,20,5,7`. */
  readonly answer: string
}

const PROBLEM_KEYS = ['numCount', 'maxNumber', 'maxTarget', 'allowSum'] as const

/** Maximum number of draws until the target of a game is not the sum of its numbers. */
const COUNTDOWN_DRAWS_MAX = 1000

/**
 * Draws a game as TorchRL does: numbers from 1 to `maxNumber`, combined from the left in random order by
 * random `+`, `-` and `*`. The target is the absolute result, or the sum of the numbers if that is 0 or above
 * `maxTarget`.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` for a number that is not a positive integer; `LIMIT_EXCEEDED` for more numbers than the parser takes;
 * `EMPTY` if 1,000 draws all have the sum as target, as with one number; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import { countdownProblem, isCountdownSolution, parseCountdown } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * const { answer } = countdownProblem(Rng.fromSeed(42), { numCount: 3, maxNumber: 9 })
 * const problem = parseCountdown(answer)
 * assert.equal(problem.numbers.length, 3)
 * assert.ok(!isCountdownSolution(problem.numbers.join('+'), problem))
 * ```
 */
export function countdownProblem(rng: DrawsBelow, options: CountdownProblemOptions = {}): CountdownRow {
  checkKnownKeys('options', options, PROBLEM_KEYS)
  checkGiven('rng', rng)
  const { numCount = 4, maxNumber = 100, maxTarget = 1000, allowSum = false } = options
  for (const [name, value] of Object.entries({ numCount, maxNumber, maxTarget })) {
    if (Number.isSafeInteger(value) && value >= 1) continue
    throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
  }
  if (numCount > COUNTDOWN_NUMBERS_MAX) {
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `numCount must be at most ${COUNTDOWN_NUMBERS_MAX}: got ${numCount}`,
    )
  }
  for (let draw = 0; draw < COUNTDOWN_DRAWS_MAX; draw++) {
    const numbers = Array.from({ length: numCount }, () => 1 + rng.below(maxNumber))
    const sum = numbers.reduce((total, number) => total + number, 0)
    const joined = joinedAtRandom(rng, numbers)
    const target = joined === 0 || joined > maxTarget ? sum : joined
    if (allowSum || target !== sum) return rowOf(numbers, target)
  }
  const detail = `games must have another target than the sum of their numbers: ${COUNTDOWN_DRAWS_MAX} draws made no such game`
  throw new FulmarError('EMPTY', detail)
}

function joinedAtRandom(rng: DrawsBelow, numbers: readonly number[]): number {
  const shuffled = [...numbers]
  for (let last = shuffled.length - 1; last > 0; last--) {
    const at = rng.below(last + 1)
    const [one, other] = [shuffled[last] ?? 0, shuffled[at] ?? 0]
    shuffled[last] = other
    shuffled[at] = one
  }
  const [first = 0, ...rest] = shuffled
  return Math.abs(
    rest.reduce(
      (value, number) => [value + number, value - number, value * number][rng.below(3)] ?? value,
      first,
    ),
  )
}

function rowOf(numbers: readonly number[], target: number): CountdownRow {
  const query = `Using the numbers [${numbers.join(', ')}], create an arithmetic expression that equals ${target}. \
You may use each number at most once. Only use +, -, *, / and parentheses.`
  return { query, answer: `target=${target}, numbers=${numbers.join(',')}` }
}
