/** Description of the compiled core and of this machine's processor. */

import { raw } from '../native/index.js'
import { call } from './error.js'

/** Result of {@link describeBuild}. */
export interface BuildDescription {
  /** The version of the compiled core. */
  readonly version: string
  /** The build that is loaded. */
  readonly backend: 'native' | 'wasm'
  /** Vector instruction sets that the core may use on this processor, the scalar one first. */
  readonly lanes: readonly string[]
  /** Number of threads that the core may use. */
  readonly threads: number
}

/**
 * Describes the compiled core that is loaded.
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
