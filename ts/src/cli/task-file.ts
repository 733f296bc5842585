/** A task that a program of the user's exports. */

import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Task } from '../env/index.js'
import type { CoreOptions, TaskFactory } from '../train/index.js'
import { CliError } from './io.js'

/**
 * The task that a module exports by default: the task itself, or a function that makes it of `{ seed, ...args }`.
 * @throws {CliError} `IO` if the file cannot be loaded; `MALFORMED` if it exports no task.
 */
export async function readTask(
  path: string,
  args: CoreOptions = {},
): Promise<{ readonly name: string; readonly factory: TaskFactory }> {
  const module: { readonly default?: unknown } = await import(pathToFileURL(resolve(path)).href).catch(
    (cause: unknown) => {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw new CliError('IO', `task must be a module that can be loaded: got ${path} (${why})`)
    },
  )
  const { default: exported } = module
  const task = typeof exported === 'function' ? await exported({ seed: 0, ...args }) : exported
  if (!isTask(task))
    throw new CliError('MALFORMED', `${path} must export a task by default, as defineTask makes one`)
  const factory: TaskFactory = async (_, { seed }) => {
    const made: unknown = typeof exported === 'function' ? await exported({ seed, ...args }) : exported
    return isTask(made) ? made : task
  }
  return { name: task.name, factory }
}

function isTask(value: unknown): value is Task<unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    'makeDataset' in value &&
    'rewardFns' in value &&
    'name' in value
  )
}
