/** Environments over dictionaries with agents at work on tasks of machine learning. */

import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { fitTable } from './fit-table.js'
import { ML_GYM_KEYS, type MLGymOptions, mlGym } from './ml-gym.js'
import type { MLGymTask } from './ml-gym-task.js'
import { TaskChatEnv, type TaskChatEnvOptions } from './task-chat-env.js'

/** Options of {@link MLGymWrapper}. */
export interface MLGymWrapperOptions extends MLGymOptions, Omit<TaskChatEnvOptions, 'maxTurns'> {}

/** Name of a task that ships. */
export type MLGymTaskName = 'fitTable'

/** Options of {@link makeMLGym}: either `task` or `tasks`. */
export interface MakeMLGymOptions extends Omit<MLGymWrapperOptions, 'tasks'> {
  /** The task, or its name. */
  readonly task?: MLGymTaskName | MLGymTask
  /** Several of them. */
  readonly tasks?: readonly (MLGymTaskName | MLGymTask)[]
}

const BATCH_KEYS = ['split', 'numEnvs', 'repeats', 'groupRepeats', 'rubric'] as const
const SHIPPED: Readonly<Record<MLGymTaskName, () => MLGymTask>> = { fitTable: () => fitTable() }

/**
 * A batch of {@link MLGymEnv}, one sandbox an element, as a {@link TaskChatEnv} of {@link mlGym}: messages at
 * `['history', 'prompt']`, the reward at the end, NaN without a score, with the reason at `unscored`. Close it at the end.
 *
 * @example
 * ```ts
 * import { fitTable, MLGymWrapper } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new MLGymWrapper({ tasks: [fitTable({ seed: 3 })], numEnvs: 2, maxSteps: 5 })
 * assert.deepEqual(env.batchSize, [2])
 * assert.deepEqual(env.rewardSpec.keys(), ['reward', 'rewards', 'scored', 'unscored'])
 * await env.close()
 * ```
 */
export class MLGymWrapper extends TaskChatEnv<MLGymTask> {
  /** @throws {FulmarError} As {@link mlGym} and {@link TaskChatEnv}. */
  constructor(options: MLGymWrapperOptions) {
    checkKnownKeys('options', options, [...ML_GYM_KEYS, ...BATCH_KEYS], ['tasks'])
    const { split, numEnvs, repeats, groupRepeats, rubric, ...rest } = options
    const batch = Object.entries({ split, numEnvs, repeats, groupRepeats, rubric })
    super(mlGym(rest), Object.fromEntries(batch.filter(([, value]) => value !== undefined)))
  }
}

/**
 * Makes an environment over dictionaries in which agents work on a task of machine learning, by name (`fitTable`), by
 * {@link fitTable} with a seed, or from a folder by {@link readMLGymTask}. Wrap it in a `TransformedEnv` for transforms.
 *
 * @throws {FulmarError} `MALFORMED` for both or neither of `task` and `tasks`; `UNKNOWN_NAME` for another name; those of
 * {@link MLGymWrapper}.
 *
 * @example
 * ```ts
 * import { Sandbox } from 'fulmar/tools'
 * import { makeMLGym, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = makeMLGym({ task: 'fitTable', maxSteps: 1 })
 * const fence = '`'.repeat(3)
 * const reply = () => `${fence}write predict.py\nprint("no idea")\n${fence}`
 * const { isUsable } = await Sandbox.support({ backend: 'bubblewrap' })
 * if (isUsable) {
 *   const { parts: [step] } = await rollout(env, replyPolicy({ inputMode: 'history', reply }), { maxSteps: 4 })
 *   assert.deepEqual([...step.tensor(['next', 'scored']).data], [0]) // not a reward of 0
 *   assert.match(JSON.stringify(step.value(['next', 'unscored'])), /submission_failed/)
 * }
 * await env.close()
 * ```
 */
export function makeMLGym(options: MakeMLGymOptions): MLGymWrapper {
  checkKnownKeys('options', options, ['task', ...ML_GYM_KEYS, ...BATCH_KEYS])
  const { task, tasks, ...rest } = options
  if ((task === undefined) === (tasks === undefined)) {
    const got = task === undefined ? 'neither' : 'both'
    throw new FulmarError('MALFORMED', `options must have either a task or tasks: got ${got}`)
  }
  const all = task === undefined ? (tasks ?? []) : [task]
  if (!Array.isArray(all))
    throw new FulmarError('MALFORMED', `tasks must be a list: got ${describeValue(all)}`)
  return new MLGymWrapper({ ...rest, tasks: all.map(named) })
}

function named(task: MLGymTaskName | MLGymTask): MLGymTask {
  if (typeof task !== 'string') return task
  const make = Object.hasOwn(SHIPPED, task) ? SHIPPED[task] : undefined
  if (make !== undefined) return make()
  const detail = `task must be ${Object.keys(SHIPPED).join(' or ')}, or a task: got ${describeValue(task)}`
  throw new FulmarError('UNKNOWN_NAME', detail)
}
