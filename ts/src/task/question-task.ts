/** Tasks of one question and one answer: shared code of gsm8k, math, ifeval and countdown. */

import type { Message } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import { type Dataset, listDataset } from '../data/index.js'
import { lastCompletionText, type MessageEnv, type RolloutView, type Split, type Task } from '../env/index.js'

/** Options of every task over rows. */
export interface RowTaskOptions<Row> {
  /** Rows to train on. At least one. */
  readonly rows: readonly Row[]
  /**
   * Rows for evaluation only, in order.
   * @default rows
   */
  readonly validationRows?: readonly Row[]
  /**
   * Seed of the order of each pass over `rows`.
   * @default 0
   */
  readonly seed?: number
  /**
   * System message; `null` for none.
   * @default the task's description of the form of an answer
   */
  readonly systemPrompt?: string | null
}

/** The keys of {@link RowTaskOptions}. */
const ROW_TASK_KEYS = ['rows', 'validationRows', 'seed', 'systemPrompt'] as const

/** Score of a response. */
export interface Verdict {
  /** The reward. */
  readonly reward: number
  /** True if it passes in an evaluation. */
  readonly success: boolean
}

/** Parts of a task of one question. */
export interface QuestionTaskParts<Sample> {
  readonly name: string
  readonly makeDataset: (split: Split) => Dataset<Sample>
  readonly systemPrompt: string | null
  readonly question: (sample: Sample) => string
  /** Scores the policy's response, without the prompt. */
  readonly judge: (response: string, sample: Sample) => Verdict
}

/** A conversation that ends with the first answer. */
export function questionEnv(prompt: () => readonly Message[]): MessageEnv {
  return {
    init: () => ({ initPromptMessages: prompt() }),
    step: () => ({ done: true }),
    close: () => undefined,
  }
}

/**
 * Constructs a task of one turn, whose one reward function, named like the task, returns the verdict's
 * reward.
 */
export function questionTask<Sample>(parts: QuestionTaskParts<Sample>): Task<Sample> {
  const { name, makeDataset, systemPrompt, question, judge } = parts
  const verdict = (rollout: RolloutView, sample: Sample) => judge(lastCompletionText(rollout), sample)
  const system = systemPrompt === null ? [] : [{ role: 'system', content: systemPrompt }]
  return {
    name,
    makeDataset,
    makeEnv: (sample) => questionEnv(() => [...system, { role: 'user', content: question(sample) }]),
    rewardFns: [{ name, score: (rollout, sample) => verdict(rollout, sample).reward }],
    isSolved: (rollout, sample) => verdict(rollout, sample).success,
  }
}

/**
 * Creates datasets of rows, each checked and converted to a sample up front; training rows come in a new
 * order each pass.
 * @throws {FulmarError} `EMPTY` if there is no row; the code of `sampleOf` with the row's name before its message.
 */
export function rowDatasets<Row, Sample>(
  { rows, validationRows = rows, seed = 0 }: RowTaskOptions<Row>,
  sampleOf: (row: Row) => Sample,
): (split: Split) => Dataset<Sample> {
  const samples = {
    train: samplesOf('rows', rows, sampleOf),
    validation: validationRows === rows ? undefined : samplesOf('validationRows', validationRows, sampleOf),
  }
  return (split) =>
    split === 'train'
      ? listDataset({ items: samples.train, shuffleSeed: seed })
      : listDataset({ items: samples.validation ?? samples.train })
}

function samplesOf<Row, Sample>(
  name: string,
  rows: readonly Row[],
  sampleOf: (row: Row) => Sample,
): Sample[] {
  if (!Array.isArray(rows) || rows.length === 0) {
    throw new FulmarError('EMPTY', `${name} must hold a row: got ${describeValue(rows)}`)
  }
  return rows.map((row: Row, index) => {
    try {
      return sampleOf(row)
    } catch (error) {
      const code = error instanceof FulmarError ? error.code : 'MALFORMED'
      throw new FulmarError(code, `${name}[${index}]: ${messageOf(error)}`, { cause: error })
    }
  })
}

/** Returns a text of a row. @throws {FulmarError} `MALFORMED` for another value. */
export function textOf(row: object, key: string): string {
  const value: unknown = Object.entries(row).find(([name]) => name === key)?.[1]
  if (typeof value === 'string' && value !== '') return value
  throw new FulmarError('MALFORMED', `${key} must be a text: got ${describeValue(value)}`)
}

/** Checks options against the keys of rows and of the task itself. @throws {FulmarError} `UNKNOWN_NAME`. */
export function checkRowTaskOptions(name: string, options: object, ownKeys: readonly string[]): void {
  checkKnownKeys(name, options, [...ROW_TASK_KEYS, ...ownKeys])
}
