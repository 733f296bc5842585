/** What is built and what this machine offers. */

import { raw } from '../native/index.js'
import { call } from './error.js'

/** The answer of {@link describeBuild}. */
export interface BuildDescription {
  /** The version of the compiled core. */
  readonly version: string
  /** Which build of the core answers. */
  readonly backend: 'native' | 'wasm'
  /** The vector instruction sets that the core may use on this processor, the plain one first. */
  readonly lanes: readonly string[]
  /** How many threads the core may use. */
  readonly threads: number
}

/**
 * Asks the compiled core what it is.
 *
 * @example
 * ```ts
 * import { describeBuild } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(describeBuild().lanes[0], 'scalar')
 * ```
 */
export function describeBuild(): BuildDescription {
  return call(() => JSON.parse(raw.describe()) as BuildDescription)
}
