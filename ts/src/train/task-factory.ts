/** Tasks by name, for configurations. */

import type { Message } from '../chat/index.js'
import { FulmarError, nearestName } from '../core/index.js'
import { type SumDigitsOptions, sumDigits, type Task } from '../env/index.js'
import type { CoreOptions, TaskConfig } from './config.js'

/** A task that a configuration names. */
export interface NamedTask extends Task<unknown> {
  /**
   * The prompt of a sample and the right answer as an assistant's message, for a supervised warm start.
   * @default the task has none
   */
  workedExample?(sample: unknown): readonly Message[]
}

/** Makes a task of its options, with the seed of the run; checks them. */
export type TaskFactory = (
  options: CoreOptions,
  context: { readonly seed: number },
) => NamedTask | Promise<NamedTask>

/**
 * The tasks that every configuration may name.
 *
 * @example
 * ```ts
 * import { taskFactories } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const task = await taskFactories.sumDigits({ numbers: [2, 2] }, { seed: 0 })
 * assert.equal(task.name, 'sumDigits')
 * ```
 */
export const taskFactories = {
  sumDigits: (options, { seed }) =>
    sumDigits({ seed, ...(options as SumDigitsOptions) }) as unknown as NamedTask,
} satisfies Readonly<Record<string, TaskFactory>>

/** The task of a configuration. @throws {FulmarError} `UNKNOWN_NAME` with the nearest known one; what the task says of its options. */
export async function makeTask(
  { name, ...options }: TaskConfig,
  seed: number,
  own: Readonly<Record<string, TaskFactory>> = {},
): Promise<NamedTask> {
  const known: Readonly<Record<string, TaskFactory>> = { ...taskFactories, ...own }
  const factory = Object.hasOwn(known, name) ? known[name] : undefined
  if (factory) return await factory(options, { seed })
  const near = nearestName(name, Object.keys(known))
  const hint = near === undefined ? `known are ${Object.keys(known).join(', ')}` : `did you mean '${near}'?`
  throw new FulmarError('UNKNOWN_NAME', `config.task.name must be a known task: got "${name}"; ${hint}`)
}
