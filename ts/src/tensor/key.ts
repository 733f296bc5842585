/** Names of entries of tensor dictionaries. */

import { FulmarError } from '../core/index.js'

/** A name, or a list of names and such lists. */
export type NestedKey = string | readonly NestedKey[]

/**
 * The key that nested lists of names stand for: one name, or the path of all of them.
 * @throws {FulmarError} `MALFORMED` if there is something else in it.
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

/** The names of a key, outermost first. */
export function namesIn(key: NestedKey): string[] {
  if (typeof key === 'string') return [key]
  if (Array.isArray(key)) return key.flatMap(namesIn)
  throw new FulmarError('MALFORMED', `key must be names and lists of them: got ${typeof key}`)
}
