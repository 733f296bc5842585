/** Checks of batches of sequences before they reach the core. */

import { checkKnownKeys, checkTypedArray, describeValue, FulmarError } from '../core/index.js'
import type { TokenBatch } from './decoder.js'

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
