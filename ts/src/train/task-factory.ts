/** Tasks by name, for configurations. */

import { checkKnownKeys, FulmarError, nearestName } from '../core/index.js'
import type { Task } from '../env/index.js'
import type { IfEvalTaskOptions } from '../task/ifeval.js'
import {
  alphabetSort,
  countdown,
  gsm8k,
  math,
  readRows,
  type SearchDocument,
  type SearchTaskOptions,
  search,
  searchIndex,
  sumDigits,
} from '../task/index.js'
import type { CoreOptions, TaskConfig } from './config.js'

/** Makes a task of its options, with the seed of the run; checks them. */
export type TaskFactory = (
  options: CoreOptions,
  context: { readonly seed: number },
) => Task<unknown> | Promise<Task<unknown>>

/**
 * The tasks that every configuration may name: `sumDigits`, `alphabetSort` and `countdown`, which make their samples;
 * `gsm8k`, `math` and `ifeval`, which read theirs from the files of JSON lines `rows` and `validationRows`; `search`,
 * which reads its `documents` too. What else stands in the configuration are the options of the task.
 *
 * @example
 * ```ts
 * import { taskFactories } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const task = await taskFactories.sumDigits({ numbers: [2, 2] }, { seed: 0 })
 * assert.equal(task.name, 'sumDigits')
 * ```
 */
export const taskFactories = {
  sumDigits: made(sumDigits),
  alphabetSort: made(alphabetSort),
  countdown: made(countdown),
  gsm8k: made(gsm8k),
  math: made(math),
  // Its tables of languages and sentences are 0.6 MB.
  ifeval: made(async (options: IfEvalTaskOptions) => (await import('../task/ifeval.js')).ifeval(options)),
  search: made(searchIn),
} satisfies Readonly<Record<string, TaskFactory>>

/** The task of searching in documents, which a configuration has as rows. */
function searchIn({
  documents,
  ...options
}: Omit<SearchTaskOptions, 'index'> & { readonly documents: readonly SearchDocument[] }) {
  return search({ ...options, index: searchIndex(documents) })
}

/** Options whose value in a configuration is the path of a file of JSON lines. */
const FILES = ['rows', 'validationRows', 'documents']

/** The factory of a task whose options check themselves: files are read, and the run's seed stands where none is given. */
function made<Options, Sample>(
  make: (options: Options) => Task<Sample> | Promise<Task<Sample>>,
): TaskFactory {
  return async (options, context) => {
    checkKnownKeys('context', context, ['seed'], ['seed'])
    const { seed } = context
    const read = Object.entries({ seed, ...options }).map(async ([name, value]) => {
      const isFile = FILES.includes(name) && typeof value === 'string'
      return [name, isFile ? await readRows(value) : value] as const
    })
    return (await make(Object.fromEntries(await Promise.all(read)) as Options)) as unknown as Task<unknown>
  }
}

/** The task of a configuration. @throws {FulmarError} `UNKNOWN_NAME` with the nearest known one; what the task says of its options. */
export async function makeTask(
  { name, ...options }: TaskConfig,
  seed: number,
  own: Readonly<Record<string, TaskFactory>> = {},
): Promise<Task<unknown>> {
  return await taskFactory(name, own)(options, { seed })
}

/** The names of {@link taskFactories}. */
export const TASK_NAMES: readonly string[] = Object.keys(taskFactories)

/** The factory of a name. @throws {FulmarError} `UNKNOWN_NAME` with the nearest known one. */
export function taskFactory(name: string, own: Readonly<Record<string, TaskFactory>> = {}): TaskFactory {
  const known: Readonly<Record<string, TaskFactory>> = { ...taskFactories, ...own }
  const factory = Object.hasOwn(known, name) ? known[name] : undefined
  if (factory) return factory
  const near = nearestName(name, Object.keys(known))
  const hint = near === undefined ? `known are ${Object.keys(known).join(', ')}` : `did you mean '${near}'?`
  throw new FulmarError('UNKNOWN_NAME', `config.task.name must be a known task: got "${name}"; ${hint}`)
}
