/** Tasks of machine learning as a `Task` for recipes and as an environment over dictionaries. */

import { checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { listDataset } from '../../data/index.js'
import type { RewardScore, RolloutView, Task } from '../../env/index.js'
import { ML_GYM_ENV_KEYS, ML_GYM_UNSCORED, MLGymEnv, type MLGymEnvOptions } from './ml-gym-env.js'
import { checkMLGymTask, type MLGymTask } from './ml-gym-task.js'

/** Options of {@link mlGym}. */
export interface MLGymOptions extends Omit<MLGymEnvOptions, 'baseline'> {
  /** Tasks to train on, at least one; in a new order each pass. */
  readonly tasks: readonly MLGymTask[]
  /** Tasks for evaluation only, in order. @default tasks */
  readonly validationTasks?: readonly MLGymTask[]
  /** Seed of the order of each pass over `tasks`. @default 0 */
  readonly seed?: number
  /**
   * Reward of an episode in which the agent left no submission, or one that fails; `null` for none: it is not trained.
   * @default null
   */
  readonly failureReward?: number | null
  /** Added to the reward for each reply without code. @default 0 */
  readonly rewardWrongFormat?: number
}

/** The names of {@link MLGymOptions}. */
export const ML_GYM_KEYS = [
  ...(['tasks', 'validationTasks', 'seed', 'failureReward', 'rewardWrongFormat'] as const),
  ...ML_GYM_ENV_KEYS.filter((name) => name !== 'baseline'),
]

/**
 * Makes a task of an {@link MLGymEnv} for each of `tasks`, for `grpo`, `evaluate` and `Rollouter`. Its reward is `improvement`:
 * the score less the baseline, which is measured once a task. An episode without a score is unscored, which is not a reward
 * of 0. Give a rollouter a `stepTimeoutMs` above the deadlines of a step, and more turns than `maxSteps + maxRetries`.
 *
 * @throws {FulmarError} `EMPTY` without a task; `NON_FINITE` for a reward; those of {@link MLGymEnv}.
 *
 * @example
 * ```ts
 * import { fitTable, mlGym } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const task = mlGym({ tasks: [fitTable({ seed: 1 }), fitTable({ seed: 2 })], budgetMs: 120_000 })
 * assert.equal(task.makeDataset('validation').next().name, 'fitTable')
 * assert.deepEqual(task.rewardFns.map(({ name }) => name), ['improvement'])
 * ```
 */
export function mlGym(options: MLGymOptions): Task<MLGymTask> {
  checkOptions(options)
  const {
    tasks,
    validationTasks = tasks,
    seed = 0,
    failureReward = null,
    rewardWrongFormat = 0,
    ...rest
  } = options
  const baselines = new Map<MLGymTask, Promise<number>>()
  const makeEnv = (task: MLGymTask) =>
    new MLGymEnv(task, { ...rest, baseline: () => baselineOf(baselines, task, rest) })
  for (const task of [...tasks, ...validationTasks]) makeEnv(task)
  return {
    name: 'mlGym',
    makeDataset: (split) =>
      split === 'train'
        ? listDataset({ items: tasks, shuffleSeed: seed })
        : listDataset({ items: validationTasks }),
    makeEnv,
    rewardFns: [
      {
        name: 'improvement',
        score: (rollout) => improvementOf(rollout, { failureReward, rewardWrongFormat }),
      },
    ],
    isSolved: ({ turns }) => (turns.at(-1)?.envRewards.improvement ?? 0) > 0,
  }
}

/** Measures a baseline once; one that fails is measured again by the next episode. */
function baselineOf(
  baselines: Map<MLGymTask, Promise<number>>,
  task: MLGymTask,
  options: MLGymEnvOptions,
): Promise<number> {
  const measured = baselines.get(task) ?? new MLGymEnv(task, options).measureBaseline()
  baselines.set(task, measured)
  measured.catch(() => baselines.delete(task))
  return measured
}

function improvementOf(
  { turns, status }: RolloutView,
  {
    failureReward,
    rewardWrongFormat,
  }: { readonly failureReward: number | null; readonly rewardWrongFormat: number },
): RewardScore {
  const numRetries = turns.filter(({ envRewards }) => envRewards.retry === 1).length
  const last = turns.at(-1)
  const { improvement, failed } = last?.envRewards ?? {}
  const reward = improvement ?? (failed === 1 ? failureReward : null)
  if (reward !== null) return reward + numRetries * rewardWrongFormat
  const said = String(last?.envMessages.at(-1)?.content ?? '')
  const at = said.lastIndexOf(ML_GYM_UNSCORED)
  if (at >= 0) return { unscored: said.slice(at + ML_GYM_UNSCORED.length) }
  return { unscored: `the episode must end with a score: it ended as ${status}` }
}

function checkOptions(options: MLGymOptions): void {
  checkKnownKeys('options', options, ML_GYM_KEYS, ['tasks'])
  const { tasks, validationTasks = tasks, failureReward = null, rewardWrongFormat = 0 } = options
  for (const [name, list] of Object.entries({ tasks, validationTasks })) {
    if (!Array.isArray(list) || list.length === 0)
      throw new FulmarError('EMPTY', `${name} must hold a task: got ${describeValue(list)}`)
    for (const task of list) checkMLGymTask(task)
  }
  for (const [name, value] of Object.entries({ failureReward: failureReward ?? 0, rewardWrongFormat }))
    if (!Number.isFinite(value))
      throw new FulmarError('NON_FINITE', `${name} must be finite: got ${describeValue(value)}`)
}
