/** The task `countdown`: reach a target with some numbers, each used once at most. */

import { checkKnownKeys } from '../core/index.js'
import { generatedDataset } from '../data/index.js'
import type { Task } from '../env/index.js'
import { COUNTDOWN_PROMPT } from '../reward/countdown.js'
import {
  type CountdownProblem,
  type CountdownProblemOptions,
  CountdownRewardParser,
  type CountdownRewardParserOptions,
  countdownProblem,
  parseCountdown,
} from '../reward/index.js'
import { questionTask } from './question-task.js'

/** One game in words. */
export interface CountdownSample extends CountdownProblem {
  /** Question of the game. */
  readonly query: string
  /** Answer such as `target=42, numbers=10,20,5,7`. */
  readonly answer: string
}

/** Options of {@link countdown}. */
export interface CountdownTaskOptions extends CountdownProblemOptions {
  /**
   * Seed of both streams of games. A non-negative safe integer.
   * @default 0
   */
  readonly seed?: number
  /**
   * System message; `null` for none.
   * @default a description of the form of an answer
   */
  readonly systemPrompt?: string | null
  /** Options of the scoring. */
  readonly reward?: CountdownRewardParserOptions
}

/**
 * Makes the task: one turn, endless games, and one reward, that of `CountdownRewardParser`. Training and validation are two streams of one seed.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key; datasets throw what `countdownProblem` does.
 *
 * @example
 * ```ts
 * import { countdown } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const task = countdown({ seed: 42, numCount: 3 })
 * const { query, numbers, target } = task.makeDataset('train').next()
 * assert.equal(numbers.length, 3)
 * assert.ok(query.includes(String(target)))
 * ```
 */
export function countdown(options: CountdownTaskOptions = {}): Task<CountdownSample> {
  checkKnownKeys('countdown', options, COUNTDOWN_KEYS)
  const { seed = 0, systemPrompt = COUNTDOWN_PROMPT, reward, ...problem } = options
  const parser = new CountdownRewardParser(reward)
  return questionTask({
    name: 'countdown',
    makeDataset: (split) =>
      generatedDataset({
        seed,
        name: `countdown/${split}`,
        make: (rng) => {
          const row = countdownProblem(rng, problem)
          return { ...row, ...parseCountdown(row.answer) }
        },
      }),
    systemPrompt,
    question: ({ query }) => query,
    judge: (response, { answer }) => parser.score(response, answer),
  })
}

const COUNTDOWN_KEYS = ['seed', 'systemPrompt', 'reward', 'numCount', 'maxNumber', 'maxTarget', 'allowSum']
