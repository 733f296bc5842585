/**
 * Tasks of machine learning in a configuration, for agents at work in sandboxes:
 *
 * ```json
 * { "task": { "kind": "mlgym", "tasks": ["fitTable", { "name": "fitTable", "seed": 3 }, { "folder": "tasks/mine" }] } }
 * ```
 */

import { type Field, FulmarError, field } from '../core/index.js'
import type { Task } from '../env/index.js'
import type { MLGymOptions, MLGymTask } from '../torchrl/index.js'

/** A task that ships, or one in a folder. */
type TaskEntry = { readonly name: 'fitTable'; readonly seed?: number } | { readonly folder: string }

const ENTRY = field.section({
  name: field.optional(field.oneOf(['fitTable'])),
  seed: field.optional(field.integer({ min: 0 })),
  folder: field.optional(field.text()),
})

/** The name of a task that ships, or an object. */
const TASK: Field<TaskEntry> = {
  read: (place, value) => {
    const { name, seed, folder } = ENTRY.read(place, typeof value === 'string' ? { name: value } : value)
    if ((name === undefined) === (folder === undefined)) {
      const got = name === undefined ? 'neither' : 'both'
      throw new FulmarError('MALFORMED', `${place} must have either a name or a folder: got ${got}`)
    }
    if (name !== undefined) return { name, ...(seed !== undefined && { seed }) }
    if (seed !== undefined)
      throw new FulmarError('MALFORMED', `${place}.seed must be left out beside a folder: got ${seed}`)
    return { folder: folder ?? '' }
  },
  schema: { anyOf: [field.oneOf(['fitTable']).schema, ENTRY.schema] },
}

const LIST = field.list(TASK)
const TASKS: Field<readonly TaskEntry[]> = {
  read: (place, value) => {
    if (value === undefined) throw new FulmarError('MALFORMED', `${place} must be a list: it is missing`)
    const tasks = LIST.read(place, value)
    if (tasks.length > 0) return tasks
    throw new FulmarError('EMPTY', `${place} must hold a task: it is empty`)
  },
  schema: { type: 'array', items: TASK.schema, minItems: 1 },
}

const NUMBER = field.number()
const FAILURE_REWARD: Field<number | null> = {
  read: (place, value) => (value === null ? null : NUMBER.read(place, value)),
  schema: { type: ['number', 'null'] },
}

const COUNT = field.optional(field.integer({ min: 1 }))
const LIMITS = field.section({
  ...{ timeoutMs: COUNT, cpuSeconds: COUNT, memoryBytes: COUNT, homeBytes: COUNT, fileBytes: COUNT },
  ...{ numProcesses: COUNT, numFiles: COUNT, outputBytes: COUNT },
})

/** The options of `mlGym` that JSON can hold; `name` is that of the task in metrics and of the run folder. */
export const ML_GYM = field.section({
  kind: field.oneOf(['mlgym'], 'mlgym'),
  name: field.text('mlgym'),
  tasks: TASKS,
  validationTasks: field.optional(TASKS),
  failureReward: field.optional(FAILURE_REWARD),
  rewardWrongFormat: field.optional(NUMBER),
  ...{ maxSteps: COUNT, budgetMs: COUNT, maxChars: COUNT },
  maxRetries: field.optional(field.integer({ min: 0 })),
  ...{ limits: field.optional(LIMITS), scoreLimits: field.optional(LIMITS) },
  bwrap: field.optional(field.text()),
})

/** Options of {@link mlGymOf}: those of a configuration, and the seed of the run. */
type MLGymConfig = Omit<MLGymOptions, 'tasks' | 'validationTasks' | 'clock'> & {
  readonly name: string
  readonly tasks: readonly TaskEntry[]
  readonly validationTasks?: readonly TaskEntry[]
}

/** Makes the task of a configuration. @throws {FulmarError} As `mlGym`, and as `readMLGymTask` for a folder. */
export async function mlGymOf({
  name,
  tasks,
  validationTasks,
  ...options
}: MLGymConfig): Promise<Task<MLGymTask>> {
  // Node only, so it is loaded where a configuration asks for it.
  const { fitTable, mlGym, readMLGymTask } = await import('../torchrl/index.js')
  const open = (entries: readonly TaskEntry[]) =>
    Promise.all(
      entries.map((entry) =>
        'folder' in entry ? readMLGymTask(entry.folder) : fitTable({ seed: entry.seed ?? 0 }),
      ),
    )
  const held = validationTasks && { validationTasks: await open(validationTasks) }
  return { ...mlGym({ ...options, ...held, tasks: await open(tasks) }), name }
}
