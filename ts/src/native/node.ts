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
    throw Object.assign(new Error(reasonOf(cause), { cause }), { code: 'UNAVAILABLE' })
  }
}

/**
 * Says why there is no addon. Where not even the name `#addon` is known, this file is no longer in its package: a bundler
 * moved it.
 */
function reasonOf(cause: unknown): string {
  if (cause instanceof Error && cause.message.includes('#addon')) {
    const remedy =
      "leave it out of the bundle: external: ['fulmar'] in esbuild, [/^fulmar/] in rollup, rolldown and Vite"
    return `fulmar must be loaded from its own package, where its native addon is; bundled, it cannot find it (${remedy})`
  }
  const platform = `${process.platform}-${process.arch}`
  const remedy = 'install the package of this platform, or run node --conditions=fulmar-wasm'
  return `the native addon must be there for ${platform}: it could not be loaded (${remedy})`
}
