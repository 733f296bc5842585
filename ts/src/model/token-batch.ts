/** What a batch of sequences must be before it crosses into the core. */

import { checkTypedArray, describeValue, FulmarError } from '../core/index.js'
import type { TokenBatch } from './decoder.js'

/** The batch. @throws {FulmarError} `MALFORMED` if an array is of another type than {@link TokenBatch} says, by its name. */
export function checkTokenBatch(batch: TokenBatch): TokenBatch {
  const { ids, offsets, mask, positions } = batch
  checkTypedArray('ids', ids, Uint32Array)
  checkTypedArray('offsets', offsets, Uint32Array)
  checkTypedArray('mask', mask, Uint8Array)
  if (positions !== undefined) checkTypedArray('positions', positions, Uint32Array)
  return batch
}

/** The JSON of a configuration. @throws {FulmarError} `MALFORMED` if it is no object of fields. */
export function configJson(config: object): string {
  const isPlain = Object.prototype.toString.call(config) === '[object Object]'
  if (!isPlain) throw new FulmarError('MALFORMED', `config must be an object: got ${describeValue(config)}`)
  return JSON.stringify(config)
}
