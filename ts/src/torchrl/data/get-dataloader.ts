/** Batches of a token data set, whose position can be saved. */

import { checkKnownKeys, describeValue, FulmarError, field, Rng } from '../../core/index.js'
import { ReplayBuffer, Sampler, TensorStorage } from '../../replay/index.js'
import type { TensorDict } from '../../tensor/index.js'
import { PairwiseDataset } from './pairwise-dataset.js'
import { PromptData } from './prompt-data.js'
import { TOKEN_DATASET_KEYS, type TokenDatasetOptions } from './tokenized-dataset-loader.js'

/** Options of {@link getDataloader}. */
export interface DataloaderOptions<Records extends typeof PromptData | typeof PairwiseDataset>
  extends Omit<TokenDatasetOptions, 'maxLength' | 'split'> {
  /** Class of the batches: {@link PromptData} or {@link PairwiseDataset}, each with its own data set by default. */
  readonly tensorclassType: Records
  /** Rows of a batch, from 1. */
  readonly batchSize: number
  /** Tokens of a row. */
  readonly blockSize: number
  /** Name of the split. @default 'train' */
  readonly split?: string
  /** If true, passes follow one another without end; else there is one. @default true */
  readonly infinite?: boolean
  /** Number of batches that are copied in advance. @default 0 */
  readonly prefetch?: number
  /** Fixes the order of each pass, a non-negative safe integer. @default 0 */
  readonly seed?: number
}

/** Position of a {@link Dataloader}: plain JSON, for a checkpoint. */
export interface DataloaderState {
  /** Number of batches taken so far. */
  readonly position: number
}

/** Batches of records, `[batchSize]`. A new iteration continues where the last one ended. */
export interface Dataloader<Record> extends AsyncIterable<Record> {
  /** Number of batches of a pass. */
  readonly numBatches: number
  /** Returns the position. */
  stateDict(): DataloaderState
  /** Restores a position, for the next iteration. @throws {FulmarError} `MALFORMED` or `UNKNOWN_NAME` if it is no such state. */
  loadStateDict(state: unknown): void
}

const OWN = ['tensorclassType', 'batchSize', 'blockSize', 'infinite', 'prefetch', 'seed'] as const

/**
 * Batches of a split of a public data set, without replacement, in a new order for each pass; rows that fill no batch are left for
 * another pass. With the same seed the batches are the same, wherever the iteration was resumed. Native backend only.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` for another class; `OUT_OF_RANGE` for a number outside its range
 *   or a batch larger than the split; as `TokenizedDatasetLoader.load`.
 *
 * @example
 * ```ts
 * import { getDataloader, PromptData } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const options = { tensorclassType: PromptData, batchSize: 0, blockSize: 550 }
 * await assert.rejects(getDataloader(options), { code: 'OUT_OF_RANGE' })
 * ```
 */
export async function getDataloader(
  options: DataloaderOptions<typeof PromptData>,
): Promise<Dataloader<PromptData>>
export async function getDataloader(
  options: DataloaderOptions<typeof PairwiseDataset>,
): Promise<Dataloader<PairwiseDataset>>
export async function getDataloader(
  options: DataloaderOptions<typeof PromptData | typeof PairwiseDataset>,
): Promise<Dataloader<PromptData> | Dataloader<PairwiseDataset>> {
  const known = [...TOKEN_DATASET_KEYS.filter((name) => name !== 'maxLength'), ...OWN]
  checkKnownKeys('options', options, known, ['tensorclassType', 'batchSize', 'blockSize'])
  const {
    tensorclassType: records,
    batchSize,
    blockSize,
    infinite = true,
    prefetch = 0,
    seed = 0,
    ...rest
  } = options
  checkInteger('batchSize', batchSize, 1)
  checkInteger('blockSize', blockSize, 1)
  checkInteger('prefetch', prefetch, 0)
  checkInteger('seed', seed, 0)
  if (typeof infinite !== 'boolean')
    throw new FulmarError('MALFORMED', `options.infinite must be a boolean: got ${describeValue(infinite)}`)
  const source = { split: 'train', ...rest, maxLength: blockSize }
  const order = { batchSize, infinite, prefetch, seed }
  if (records === PromptData) {
    const { dict } = await PromptData.fromDataset(source)
    return loaderOf(dict, order, (batch) => PromptData.around(batch))
  }
  if (records === PairwiseDataset) {
    const { dict } = await PairwiseDataset.fromDataset(source)
    return loaderOf(dict, order, (batch) => PairwiseDataset.around(batch))
  }
  const got = describeValue(records)
  throw new FulmarError(
    'MALFORMED',
    `options.tensorclassType must be PromptData or PairwiseDataset: got ${got}`,
  )
}

/** Order and number of the batches. */
interface BatchOrder {
  readonly batchSize: number
  readonly infinite: boolean
  readonly prefetch: number
  readonly seed: number
}

const STATE = field.section({ position: field.integer({ min: 0 }) })

function loaderOf<Record>(
  dict: TensorDict,
  { batchSize, infinite, prefetch, seed }: BatchOrder,
  around: (batch: TensorDict) => Record,
): Dataloader<Record> {
  const [numRows = 0] = dict.batchSize
  if (batchSize > numRows)
    throw new FulmarError(
      'OUT_OF_RANGE',
      `options.batchSize must be at most the ${numRows} rows: got ${batchSize}`,
    )
  const numBatches = Math.floor(numRows / batchSize)
  const rowsAt = orderOf(numRows, batchSize, numBatches, seed)
  let position = 0
  async function* batches(): AsyncGenerator<Record, void, undefined> {
    if (!infinite && position >= numBatches) return
    const end = infinite ? Number.POSITIVE_INFINITY : numBatches
    const sampler = samplerFrom(position, end, rowsAt)
    const buffer = new ReplayBuffer({ storage: new TensorStorage(dict), sampler, batchSize, prefetch })
    for await (const batch of buffer.batches()) {
      position += 1
      yield around(batch)
    }
  }
  return {
    numBatches,
    [Symbol.asyncIterator]: batches,
    stateDict: () => ({ position }),
    loadStateDict: (state) => {
      position = STATE.read('state', state).position
    },
  }
}

/** Draws the batches from `start` on; the one before `end` is the last. */
function samplerFrom(start: number, end: number, rowsAt: (at: number) => readonly number[]): Sampler {
  let next = start
  return Sampler.from({
    sample: () => ({ rows: rowsAt(next++) }),
    get ranOut() {
      return next >= end
    },
  })
}

/** Returns the rows of each batch: a pass has an order of its own. */
function orderOf(numRows: number, batchSize: number, numBatches: number, seed: number) {
  const stream = Rng.fromSeed(seed).stream('getDataloader')
  let order: { readonly pass: number; readonly rows: Uint32Array } | undefined
  return (at: number): readonly number[] => {
    const [pass, place] = [Math.floor(at / numBatches), at % numBatches]
    if (order?.pass !== pass) {
      using rng = stream.fork(pass)
      order = { pass, rows: rng.permutation(numRows) }
    }
    return [...order.rows.subarray(place * batchSize, (place + 1) * batchSize)]
  }
}

function checkInteger(name: string, value: unknown, least: number): void {
  if (Number.isSafeInteger(value) && Number(value) >= least) return
  const got = describeValue(value)
  throw new FulmarError('OUT_OF_RANGE', `options.${name} must be an integer from ${least}: got ${got}`)
}
