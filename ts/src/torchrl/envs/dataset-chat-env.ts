/** Conversations that begin with the rows of a dataset. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { type Dataset, listDataset } from '../../data/index.js'
import type { TensorKey } from '../../tensor/index.js'
import { CHAT_ENV_KEYS, ChatEnv, type ChatEnvOptions } from './chat-env.js'
import { DataLoadingPrimer, type DataLoadingPrimerState, type DatasetRow } from './data-loading-primer.js'
import { type EnvTransform, TransformedEnv } from './transformed-env.js'

/** Options of {@link DatasetChatEnv}. */
export interface DatasetChatEnvOptions<Row> extends Omit<ChatEnvOptions, 'batchSize'> {
  /** Rows: a list, or a stream that is taken as it comes. */
  readonly dataset: Dataset<Row> | Iterable<Row>
  /**
   * If true, a list has a new random order in each pass; a stream is never shuffled.
   * @default true
   */
  readonly shuffle?: boolean
  /** Fixes the order. @default 0 */
  readonly seed?: number
  /** Number of conversations. @default 1 */
  readonly numEnvs?: number
  /** Number of consecutive episodes with the same row: the group size. @default 1 */
  readonly repeats?: number
  /**
   * If true, all members of a group begin at the same reset, with `numEnvs * repeats` conversations.
   * @default false
   */
  readonly groupRepeats?: boolean
  /** Makes the columns of a row. @default the row, its column `text` named `query` */
  readonly collate?: (row: Row) => DatasetRow
  /** Transforms around the chat in addition to its data, innermost first. @default none */
  readonly transforms?: readonly EnvTransform[]
}

/** The names of {@link DatasetChatEnvOptions} that are not options of the chat. */
const OWN_KEYS = [
  'dataset',
  'shuffle',
  'seed',
  'numEnvs',
  'repeats',
  'groupRepeats',
  'collate',
  'transforms',
] as const

/**
 * A {@link ChatEnv} whose resets take the next rows of a dataset: TorchRL's environment of that name, and its
 * `DatasetChatEnv.from_dataloader` where `dataset` is a stream.
 *
 * @example
 * ```ts
 * import { DatasetChatEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const dataset = [{ text: '1+1?', answer: '2' }, { text: '2+2?', answer: '4' }]
 * const env = new DatasetChatEnv({ dataset, shuffle: false, repeats: 2, groupRepeats: true })
 * assert.deepEqual(env.batchSize, [2])
 * assert.deepEqual((await env.reset()).value('answer'), ['2', '2'])
 * assert.deepEqual((await env.reset()).value('query'), ['2+2?', '2+2?'])
 * ```
 */
export class DatasetChatEnv<Row = DatasetRow> extends TransformedEnv {
  /** Source of the rows. */
  readonly primer: DataLoadingPrimer<Row>

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `numEnvs` or `repeats` is no positive integer; `INCOMPATIBLE` if rows have no query; those of
   * {@link ChatEnv} and {@link DataLoadingPrimer}; the errors of a transform.
   */
  constructor(options: DatasetChatEnvOptions<Row>) {
    checkKnownKeys('options', options, [...OWN_KEYS, ...CHAT_ENV_KEYS.filter((key) => key !== 'batchSize')])
    const {
      dataset,
      shuffle = true,
      seed = 0,
      numEnvs = 1,
      repeats = 1,
      groupRepeats = false,
      collate = textToQuery as (row: Row) => DatasetRow,
      transforms = [],
      ...chat
    } = options
    const isStream = 'next' in dataset && 'stateDict' in dataset
    const stream = isStream ? dataset : listDataset({ items: dataset, ...(shuffle && { shuffleSeed: seed }) })
    const primer = new DataLoadingPrimer<Row>({ dataset: stream, repeats, collate })
    const env = new ChatEnv({ ...chat, batchSize: groupRepeats ? numEnvs * repeats : numEnvs })
    checkQuery(primer.columns, chat.dataKey ?? 'query')
    super(env, [primer, ...transforms])
    this.primer = primer
  }

  /** Begins the dataset again. */
  resetDataloader(): this {
    this.primer.resetDataloader()
    return this
  }

  /** Returns the position of the dataset. */
  stateDict(): DataLoadingPrimerState {
    return this.primer.stateDict()
  }

  /** Goes to where `state` was taken. @throws {FulmarError} As {@link DataLoadingPrimer.loadStateDict}. */
  loadStateDict(state: unknown): void {
    this.primer.loadStateDict(state)
  }
}

function textToQuery(row: DatasetRow): DatasetRow {
  const { text, ...rest } = row
  return text === undefined || 'query' in row ? row : { query: text, ...rest }
}

function checkQuery(columns: readonly string[], dataKey: TensorKey): void {
  const [name = '', ...inner] = typeof dataKey === 'string' ? [dataKey] : dataKey
  if (inner.length === 0 && columns.includes(name)) return
  throw new FulmarError(
    'INCOMPATIBLE',
    `dataset must have the column ${JSON.stringify(dataKey)}: got ${columns}`,
  )
}
