/** Names of entries of tensor dictionaries. */

import { FulmarError } from '../core/index.js'

/** A name, or a list of names and such lists. */
export type NestedKey = string | readonly NestedKey[]

/**
 * Returns the key of nested lists of names: one name, or the path of all of them.
 * @throws {FulmarError} `MALFORMED` if it holds anything but names and lists.
 *
 * @example
 * ```ts
 * import { unravelKey } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(unravelKey(['next', ['observation', 'pixels']]), ['next', 'observation', 'pixels'])
 * assert.equal(unravelKey(['reward']), 'reward')
 * ```
 */
export function unravelKey(key: NestedKey): string | string[] {
  const names = namesIn(key)
  return names.length === 1 ? (names[0] ?? names) : names
}

/** Returns the names of a key, outermost first. */
export function namesIn(key: NestedKey): string[] {
  if (typeof key === 'string') return [key]
  if (Array.isArray(key)) return key.flatMap(namesIn)
  throw new FulmarError('MALFORMED', `key must be names and lists of them: got ${typeof key}`)
}
