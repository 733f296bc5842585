/** A task that a program of the user's exports. */

import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Task } from '../env/index.js'
import type { CoreOptions, TaskFactory } from '../train/index.js'
import { CliError } from './io.js'

/** A task by its name. */
export interface TaskModule {
  readonly name: string
  readonly factory: TaskFactory
  /** True if the task has worked examples, which SFT trains on. */
  readonly hasExamples: boolean
}

/**
 * The task that a module exports by default: the task itself, or a function that makes it of `{ seed, ...args }`.
 * @throws {CliError} `IO` if the file cannot be loaded; `MALFORMED` if it exports no task.
 */
export async function readTask(path: string, args: CoreOptions = {}): Promise<TaskModule> {
  const module: { readonly default?: unknown } = await import(pathToFileURL(resolve(path)).href).catch(
    (cause: unknown) => {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw new CliError(
        'IO',
        `task must be a module that can be loaded: got ${path} (${why}${remedyOf(why)})`,
      )
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
  return { name: task.name, factory, hasExamples: task.workedExample !== undefined }
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

/** Returns what to do where Node takes a module for another kind of file. */
function remedyOf(why: string): string {
  if (/import statement outside a module|Unexpected token 'export'/.test(why))
    return '; end its name with .mjs, or write "type": "module" into package.json'
  return why.includes('Unknown file extension ".ts"') ? '; compile it, or run Node 22.18 or later' : ''
}
