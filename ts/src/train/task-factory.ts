/** Tasks by name, for configurations. */

import type { AgentTaskOptions } from '../agent/index.js'
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
import { mlGymOf } from './ml-gym-config.js'

/** Constructs a task from its options and the seed of the run; checks the options. */
export type TaskFactory = (
  options: CoreOptions,
  context: { readonly seed: number },
) => Task<unknown> | Promise<Task<unknown>>

/**
 * Tasks that every configuration may name: `sumDigits`, `alphabetSort` and `countdown`, which generate their
 * samples; `gsm8k`, `math` and `ifeval`, which read theirs from the JSON Lines files `rows` and
 * `validationRows`; `search`, which also reads its `documents`. All other keys are options of the task.
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

/** Tasks that a configuration makes by a `kind`. Node only, so they are loaded where a configuration asks for them. */
const KINDS = {
  agent: made(async (options: AgentTaskOptions<unknown>) =>
    (await import('../agent/index.js')).agentTask(options),
  ),
  mlgym: made(mlGymOf),
} satisfies Readonly<Record<string, TaskFactory>>

/** Names of the kinds of tasks. */
export const TASK_KINDS = ['agent', 'mlgym'] as const

/** Constructs the search task from documents given as rows. */
function searchIn({
  documents,
  ...options
}: Omit<SearchTaskOptions, 'index'> & { readonly documents: readonly SearchDocument[] }) {
  return search({ ...options, index: searchIndex(documents) })
}

/** Options whose value in a configuration is the path of a file of JSON lines. */
const FILES = ['rows', 'validationRows', 'documents', 'samples', 'validationSamples']

/**
 * Returns the factory of a task that checks its own options: reads files, and uses the run's seed by default.
 */
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

/**
 * Constructs the task of a configuration.
 * @throws {FulmarError} `UNKNOWN_NAME` with the nearest known one; errors of the task for its options.
 */
export async function makeTask(
  { name, kind, ...options }: TaskConfig,
  seed: number,
  own: Readonly<Record<string, TaskFactory>> = {},
): Promise<Task<unknown>> {
  if (kind !== undefined) return await KINDS[kind]({ name, ...options }, { seed })
  return await taskFactory(name, own)(options, { seed })
}

/** The names of {@link taskFactories}. */
export const TASK_NAMES: readonly string[] = Object.keys(taskFactories)

/** Returns the factory of a name. @throws {FulmarError} `UNKNOWN_NAME` with the nearest known one. */
export function taskFactory(name: string, own: Readonly<Record<string, TaskFactory>> = {}): TaskFactory {
  const known: Readonly<Record<string, TaskFactory>> = { ...taskFactories, ...own }
  const factory = Object.hasOwn(known, name) ? known[name] : undefined
  if (factory) return factory
  const near = nearestName(name, Object.keys(known))
  const hint = near === undefined ? `known are ${Object.keys(known).join(', ')}` : `did you mean '${near}'?`
  throw new FulmarError('UNKNOWN_NAME', `config.task.name must be a known task: got "${name}"; ${hint}`)
}
