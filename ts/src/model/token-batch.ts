/** Batches of sequences, and the checks before they reach the core. */

import { checkKnownKeys, checkTypedArray, describeValue, FulmarError } from '../core/index.js'

/** Sequences in flat arrays: sequence `s` is `ids[offsets[s]..offsets[s + 1]]`. */
export interface TokenBatch {
  /** Token ids. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Bounds of the sequences, from 0 to T. Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 where the log-prob of that token is wanted, else 0; 0 at each sequence's first token. Shape `[T]`. */
  readonly mask: Uint8Array
  /**
   * Position of each token for the rotary angles, below the model's `max_position_embeddings`; a token always
   * attends to all tokens before it in its sequence. Shape `[T]`.
   * @default counted from 0 in each sequence
   */
  readonly positions?: Uint32Array
}

/** The columns of a {@link TokenBatch}, and those that a batch of the trainer has besides, which decoders do not read. */
const COLUMNS = [
  ...['ids', 'offsets', 'mask', 'positions'],
  ...['logProbs', 'sampledLogProbs', 'advantages', 'versions'],
  ...['numTrained', 'minPolicyVersion', 'maxPolicyVersion'],
]

/**
 * The batch.
 * @throws {FulmarError} `MALFORMED` if an array is missing or does not have its type in {@link TokenBatch}, with its name; `UNKNOWN_NAME` for
 * another key than those of `TokenBatch` and `TrainingBatch`.
 */
export function checkTokenBatch(batch: TokenBatch): TokenBatch {
  checkKnownKeys('batch', batch, COLUMNS)
  const { ids, offsets, mask, positions } = batch
  checkTypedArray('ids', ids, Uint32Array)
  checkTypedArray('offsets', offsets, Uint32Array)
  checkTypedArray('mask', mask, Uint8Array)
  if (positions !== undefined) checkTypedArray('positions', positions, Uint32Array)
  return batch
}

/** The JSON of a configuration. @throws {FulmarError} `MALFORMED` if it is not an object. */
export function configJson(config: object): string {
  const isPlain = Object.prototype.toString.call(config) === '[object Object]'
  if (!isPlain) throw new FulmarError('MALFORMED', `config must be an object: got ${describeValue(config)}`)
  return JSON.stringify(config)
}
