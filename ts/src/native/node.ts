/** The addon: the build for this platform, from this tree or from the platform's own package. */

import { createRequire } from 'node:module'
import type * as Backend from './backend.js'

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'native'

/** See `backend.ts`. */
export const raw = loadAddon()

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = () => ''

function loadAddon(): typeof Backend.raw {
  try {
    return createRequire(import.meta.url)('#addon') as typeof Backend.raw
  } catch (cause) {
    const platform = `${process.platform}-${process.arch}`
    const remedy = 'install the package of this platform, or run node --conditions=fulmar-wasm'
    const error = new Error(`the native addon must be there for ${platform}: got none (${remedy})`, { cause })
    throw Object.assign(error, { code: 'UNAVAILABLE' })
  }
}
