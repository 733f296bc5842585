/** Learning rate schedules. */

import { call, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'

/** Returns the learning rate of step `step` (counted from 0) of `numSteps`. */
export type Schedule = (step: number, numSteps: number) => number

/** Options of {@link constantSchedule}. */
export interface ConstantScheduleOptions {
  /** Peak rate, above 0. */
  readonly learningRate: number
  /**
   * Number of warmup steps, in which the rate rises linearly; the first step has one part of the peak, not 0.
   * @default 0
   */
  readonly warmupSteps?: number
}

/** Options of {@link linearSchedule} and {@link cosineSchedule}. */
export interface FallingScheduleOptions extends ConstantScheduleOptions {
  /**
   * Share of the peak rate at the end, in [0, 1].
   * @default 0
   */
  readonly finalFraction?: number
}

/**
 * Rises linearly, then decays linearly: by `1 - (1 - f) done`, where `done` is the completed share of the
 * steps after the warmup and `f` the final fraction.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option, `OUT_OF_RANGE` for one outside its range.
 *
 * @example
 * ```ts
 * import { linearSchedule } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const rate = linearSchedule({ learningRate: 1, warmupSteps: 2 })
 * assert.deepEqual([0, 1, 2, 4].map((step) => rate(step, 6)), [0.5, 1, 1, 0.5])
 * ```
 */
export function linearSchedule(options: FallingScheduleOptions): Schedule {
  return schedule('linear', options, FALLING_KEYS)
}

/**
 * Rises linearly, then decays along half a cosine (https://arxiv.org/abs/1608.03983): by `f + (1 - f) (1 +
 * cos(pi done)) / 2`, with `done`
 * and `f` as in {@link linearSchedule}. Gives the same bits on every target.
 * @throws {FulmarError} As {@link linearSchedule}.
 *
 * @example
 * ```ts
 * import { cosineSchedule } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const rate = cosineSchedule({ learningRate: 1, warmupSteps: 2, finalFraction: 0.5 })
 * assert.deepEqual([0, 1, 2, 4, 6].map((step) => rate(step, 6)), [0.5, 1, 1, 0.75, 0.5])
 * ```
 */
export function cosineSchedule(options: FallingScheduleOptions): Schedule {
  return schedule('cosine', options, FALLING_KEYS)
}

/**
 * Rises linearly, then stays constant.
 * @throws {FulmarError} As {@link linearSchedule}.
 *
 * @example
 * ```ts
 * import { constantSchedule } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const rate = constantSchedule({ learningRate: 1, warmupSteps: 2 })
 * assert.deepEqual([0, 1, 2, 5].map((step) => rate(step, 6)), [0.5, 1, 1, 1])
 * ```
 */
export function constantSchedule(options: ConstantScheduleOptions): Schedule {
  return schedule('constant', options, CONSTANT_KEYS)
}

const CONSTANT_KEYS = ['learningRate', 'warmupSteps'] as const
const FALLING_KEYS = [...CONSTANT_KEYS, 'finalFraction'] as const

function schedule(decline: string, options: object, keys: readonly string[]): Schedule {
  checkKnownKeys('options', options, keys)
  const json = JSON.stringify({ ...options, decline })
  const rate: Schedule = (step, numSteps) => call(() => raw.scheduledRate(json, step, numSteps))
  rate(0, 1)
  return rate
}
