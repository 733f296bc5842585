/** Number of different held-out problems of a task: data sets have no end, but those of rows repeat. */

import type { Task } from '../env/index.js'
import { CliError } from './io.js'

/** Most problems that are drawn to find the end of a task. */
const HELD_OUT_MAX = 32_768

/**
 * Returns the number of problems to ask: `wanted`, or fewer if the task repeats its problems earlier, as each should
 * be asked once; -1 wants all.
 * @throws {CliError} `OUT_OF_RANGE` for another number than -1 or a positive integer, and for all of an endless task.
 */
export function numHeldOut(task: Task<unknown>, wanted: number): number {
  if (wanted !== -1 && !(Number.isSafeInteger(wanted) && wanted >= 1))
    throw new CliError(
      'OUT_OF_RANGE',
      `--num-problems must be a positive integer, or -1 for all: got ${wanted}`,
    )
  const dataset = task.makeDataset('validation')
  const problems: string[] = []
  const take = (count: number) => {
    while (problems.length < count) problems.push(String(JSON.stringify(dataset.next())))
  }
  for (let count = wanted === -1 ? 64 : 2 * wanted; count <= HELD_OUT_MAX; count *= 2) {
    take(count)
    const period = periodOf(problems)
    if (period !== undefined) return wanted === -1 ? period : Math.min(period, wanted)
    if (wanted !== -1) return wanted
  }
  if (wanted !== -1) return wanted
  const detail = `--num-problems -1 must have a task with an end: ${task.name} repeats no problem within ${HELD_OUT_MAX}`
  throw new CliError('OUT_OF_RANGE', detail)
}

/** Returns the shortest period of which the list holds two; `undefined` without one. */
function periodOf(problems: readonly string[]): number | undefined {
  for (let period = 1; 2 * period <= problems.length; period++) {
    if (problems[period] !== problems[0]) continue
    if (problems.every((problem, index) => index < period || problem === problems[index - period]))
      return period
  }
  return undefined
}
