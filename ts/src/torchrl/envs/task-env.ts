/** Shared code of the environments of tasks: checked rows, a step count, rewards. */

import { describeValue, FulmarError, messageOf } from '../../core/index.js'
import type { Dataset } from '../../data/index.js'
import type { DatasetRow } from './data-loading-primer.js'
import type { DatasetChatEnvOptions } from './dataset-chat-env.js'
import { StepCounter } from './step-counter.js'
import type { EnvTransform } from './transformed-env.js'

/** Options of the environments of tasks; their queries are at `query`. */
export interface TaskEnvOptions<Row> extends Omit<DatasetChatEnvOptions<Row>, 'collate' | 'dataKey'> {
  /** If true, turns are scored. @default true */
  readonly computeReward?: boolean
  /** After so many steps an episode is truncated. @default 1 */
  readonly maxSteps?: number
}

/** Parts that make a chat a task. */
export interface TaskParts<Row> {
  /** The columns of a row; refuses one without ground truth. */
  readonly collate: (row: Row) => DatasetRow
  /** Unless another is given. */
  readonly systemPrompt: string
  /** Scores turns. */
  readonly scored: () => EnvTransform
}

/** The options of the chat of a task. A list of rows is looked at before any is used, a stream as it comes. */
export function taskEnvOptions<Row>(
  options: TaskEnvOptions<Row>,
  { collate, systemPrompt, scored }: TaskParts<Row>,
): DatasetChatEnvOptions<Row> {
  const { dataset, computeReward = true, maxSteps = 1, transforms = [], ...chat } = options
  const around = [new StepCounter({ maxSteps }), ...(computeReward ? [scored()] : []), ...transforms]
  return { systemPrompt, ...chat, dataset: checkedRows(dataset, collate), collate, transforms: around }
}

/** A text of a row. */
export function textOf(row: unknown, name: string): string {
  const value = new Map(Object.entries(Object(row))).get(name)
  if (typeof value === 'string') return value
  throw new FulmarError('MALFORMED', `a row must have a text at "${name}": got ${typeof value}`)
}

function checkedRows<Row>(
  rows: Dataset<Row> | Iterable<Row>,
  check: (row: Row) => unknown,
): Dataset<Row> | Row[] {
  if (typeof rows !== 'object' || rows === null) {
    const detail = `options.dataset must be a data set or a list of rows: got ${describeValue(rows)}`
    throw new FulmarError('MALFORMED', detail)
  }
  if ('next' in rows && 'stateDict' in rows) return rows
  const all = [...rows]
  for (const [at, row] of all.entries()) {
    try {
      check(row)
    } catch (error) {
      if (!(error instanceof FulmarError)) throw error
      throw new FulmarError(error.code, `dataset[${at}]: ${messageOf(error)}`, { cause: error })
    }
  }
  return all
}
