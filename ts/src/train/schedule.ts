/** How large the steps of an optimiser are, over a run. */

import { FulmarError } from '../core/index.js'

/** The learning rate of step `step` (counted from 0) of `numSteps`. */
export type Schedule = (step: number, numSteps: number) => number

/** Options of {@link linearSchedule}. */
export interface LinearScheduleOptions {
  /** The largest rate, > 0. */
  readonly learningRate: number
  /**
   * Steps in which the rate rises to it in equal parts.
   * @default 0
   */
  readonly warmupSteps?: number
  /**
   * Share of the rate that is left at the end, in [0, 1]; 1 keeps it constant.
   * @default 1
   */
  readonly finalFraction?: number
}

/**
 * Rises linearly, then falls linearly.
 * @throws {FulmarError} `OUT_OF_RANGE` for an option outside its range.
 *
 * @example
 * ```ts
 * import { linearSchedule } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const rate = linearSchedule({ learningRate: 1, warmupSteps: 2, finalFraction: 0 })
 * assert.deepEqual([0, 1, 2, 4].map((step) => rate(step, 6)), [0.5, 1, 1, 0.5])
 * ```
 */
export function linearSchedule(options: LinearScheduleOptions): Schedule {
  const { learningRate, warmupSteps = 0, finalFraction = 1 } = options
  const rules: [string, number, string, boolean][] = [
    ['learningRate', learningRate, '> 0', Number.isFinite(learningRate) && learningRate > 0],
    ['warmupSteps', warmupSteps, 'an integer >= 0', Number.isSafeInteger(warmupSteps) && warmupSteps >= 0],
    ['finalFraction', finalFraction, 'in [0, 1]', finalFraction >= 0 && finalFraction <= 1],
  ]
  for (const [name, value, rule, holds] of rules) {
    if (!holds) throw new FulmarError('OUT_OF_RANGE', `${name} must be ${rule}: got ${value}`)
  }
  return (step, numSteps) => {
    if (step < warmupSteps) return (learningRate * (step + 1)) / warmupSteps
    const done = (step - warmupSteps) / Math.max(1, numSteps - warmupSteps)
    return learningRate * (1 - (1 - finalFraction) * done)
  }
}
