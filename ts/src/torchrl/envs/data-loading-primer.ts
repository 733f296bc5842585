/** Rows of a dataset for the episodes of an environment. */

import { checkKnownKeys, describeValue, FulmarError, field } from '../../core/index.js'
import { type Dataset, type DatasetState, listDataset } from '../../data/index.js'
import { NonTensor } from '../../spec/index.js'
import { type Json, NonTensorStack, type TensorDict } from '../../tensor/index.js'
import { nestedLike, sizeOf } from '../data/batch.js'
import type { ChatTurnTransform } from './chat-turn.js'
import type { EnvSpecs } from './env.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** One row: the values of its columns. */
export type DatasetRow = Readonly<Record<string, Json>>

/** Options of {@link DataLoadingPrimer}. */
export interface DataLoadingPrimerOptions<Row> {
  /** Source of rows: a stream, or a list, which repeats in its order. */
  readonly dataset: Dataset<Row> | Iterable<Row>
  /**
   * Number of consecutive episodes with the same row: the group size.
   * @default 1
   */
  readonly repeats?: number
  /** Makes the columns of a row, and is where a row that no environment can use is refused. @default the row itself */
  readonly collate?: (row: Row) => DatasetRow
}

/** Position of a {@link DataLoadingPrimer}: plain JSON, for a checkpoint. */
export interface DataLoadingPrimerState {
  /** Position of the dataset before the current row. */
  readonly dataset: DatasetState
  /** Number of episodes that got the current row. */
  readonly numTaken: number
}

/** Most episodes that may get the same row. */
const REPEATS_MAX = 65_536

/**
 * TorchRL's primer: each element that is reset gets the next row, and keeps its columns to the end of its episode. A reset that brings
 * every column itself takes no row. Values are JSON, one for each element.
 *
 * @example
 * ```ts
 * import { ChatEnv, DataLoadingPrimer, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const primer = new DataLoadingPrimer({ dataset: [{ query: 'a' }, { query: 'b' }], repeats: 2 })
 * const env = new TransformedEnv(new ChatEnv({ batchSize: 3 }), [primer])
 * assert.deepEqual((await env.reset()).value('query'), ['a', 'a', 'b'])
 * const state = primer.stateDict()
 * assert.deepEqual((await env.reset()).value('query'), ['b', 'a', 'a'])
 * primer.loadStateDict(state)
 * assert.deepEqual((await env.reset()).value('query'), ['b', 'a', 'a'])
 * ```
 */
export class DataLoadingPrimer<Row = DatasetRow> implements EnvTransform {
  /** Number of consecutive episodes with the same row. */
  readonly repeats: number
  readonly #dataset: Dataset<Row>
  readonly #collate: (row: Row) => DatasetRow
  readonly #start: DatasetState
  #before: DatasetState
  #row: DatasetRow
  #numTaken = 0

  /**
   * Takes the first row, whose keys are the columns.
   * @throws {FulmarError} `OUT_OF_RANGE` if `repeats` is no positive integer, `LIMIT_EXCEEDED` above 65,536; `EMPTY` for a
   * list without rows; `MALFORMED` for a row that is no object; `UNKNOWN_NAME` for an unknown option; what `collate` throws.
   */
  constructor(options: DataLoadingPrimerOptions<Row>) {
    checkKnownKeys('options', options, ['dataset', 'repeats', 'collate'])
    const { dataset, repeats = 1, collate = (row: Row) => row as DatasetRow } = options
    if (!Number.isSafeInteger(repeats) || repeats < 1) {
      throw new FulmarError('OUT_OF_RANGE', `repeats must be a positive integer: got ${repeats}`)
    }
    if (repeats > REPEATS_MAX) {
      throw new FulmarError('LIMIT_EXCEEDED', `repeats must be at most ${REPEATS_MAX}: got ${repeats}`)
    }
    this.repeats = repeats
    this.#dataset = 'next' in dataset && 'stateDict' in dataset ? dataset : listDataset({ items: dataset })
    this.#collate = collate
    this.#start = this.#dataset.stateDict()
    this.#before = this.#start
    this.#row = this.#nextRow()
  }

  /** The names of the columns. */
  get columns(): string[] {
    return Object.keys(this.#row)
  }

  /** The columns of a row. @throws {FulmarError} `MALFORMED` for a row that is no object; what `collate` throws. */
  columnsOf(row: Row): DatasetRow {
    const columns: unknown = this.#collate(row)
    if (typeof columns === 'object' && columns !== null && !Array.isArray(columns))
      return columns as DatasetRow
    throw new FulmarError('MALFORMED', `dataset must give rows with columns: got ${describeValue(columns)}`)
  }

  /** Gives rows to the elements of a reset. @throws {FulmarError} `INCOMPATIBLE` for a row of other columns; as the constructor. */
  beforeReset(dict: TensorDict): TensorDict {
    const { columns } = this
    if (columns.every((name) => dict.has(name))) return dict
    const rows = Array.from({ length: sizeOf(dict.batchSize) }, () => this.#take())
    for (const name of columns) {
      if (dict.has(name)) continue
      const values = nestedLike(
        rows.map((row) => row[name] ?? null),
        dict.batchSize,
      )
      dict.set(name, new NonTensorStack(values as readonly Json[]))
    }
    return dict
  }

  afterStep(next: TensorDict, root: TensorDict): TensorDict {
    for (const name of this.columns) {
      const column = root.get(name)
      if (column !== undefined && !next.has(name)) next.set(name, column)
    }
    return next
  }

  /** Columns are carried along; a conversation has no use for them. */
  chatTurns(): ChatTurnTransform {
    return () => undefined
  }

  transformSpecs(env: EnvView): EnvSpecs {
    return changedSpecs(env, ({ observationSpec, stateSpec }) => {
      for (const name of this.columns) {
        const example = this.#row[name] ?? null
        stateSpec.delete(name)
        observationSpec.set(name, new NonTensor({ shape: env.batchSize, batched: true, example }))
      }
    })
  }

  /** Begins the dataset again. */
  resetDataloader(): void {
    this.loadStateDict({ dataset: this.#start, numTaken: 0 })
  }

  /** Continues with row `seed` of the stream. */
  setSeed(seed: number): void {
    this.loadStateDict({ dataset: { position: seed }, numTaken: 0 })
  }

  /** Returns the position of the stream. */
  stateDict(): DataLoadingPrimerState {
    return { dataset: this.#before, numTaken: this.#numTaken }
  }

  /**
   * Goes to where `state` was taken.
   * @throws {FulmarError} `MALFORMED`, `UNKNOWN_NAME` or `OUT_OF_RANGE` if it is not such a state; then nothing has changed.
   */
  loadStateDict(state: unknown): void {
    const numTaken = field.integer({ min: 0, max: this.repeats })
    const given = field.section({ dataset: field.json(), numTaken }).read('state', state)
    const here = this.#dataset.stateDict()
    try {
      this.#dataset.loadStateDict(given.dataset)
      this.#before = this.#dataset.stateDict()
      this.#row = this.#nextRow()
      this.#numTaken = given.numTaken
    } catch (error) {
      this.#dataset.loadStateDict(here)
      throw error
    }
  }

  #take(): DatasetRow {
    if (this.#numTaken >= this.repeats) {
      this.#before = this.#dataset.stateDict()
      this.#row = this.#nextRow(this.columns)
      this.#numTaken = 0
    }
    this.#numTaken += 1
    return this.#row
  }

  #nextRow(columns?: readonly string[]): DatasetRow {
    const row = this.columnsOf(this.#dataset.next())
    const names = Object.keys(row)
    if (columns !== undefined && `${[...names].sort()}` !== `${[...columns].sort()}`) {
      throw new FulmarError('INCOMPATIBLE', `dataset must give rows of the columns ${columns}: got ${names}`)
    }
    return row
  }
}
