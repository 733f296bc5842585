/** The addon: the build for this platform, from this tree or from the platform's own package. */

import { createRequire } from 'node:module'
import type * as Backend from './backend.js'
import { onFirstUse, unavailable } from './loading.js'

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'native'

/** See `backend.ts`. */
export let raw: typeof Backend.raw = onFirstUse(load)

/** See `backend.ts`. */
export const init: typeof Backend.init = async () => {
  load()
}

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = () => ''

function load(): typeof Backend.raw {
  try {
    raw = createRequire(import.meta.url)('#addon') as typeof Backend.raw
    return raw
  } catch (cause) {
    throw unavailable(reasonOf(cause), cause)
  }
}

/**
 * Explains why there is no addon. Where not even the name `#addon` is known, this file is no longer in its package: a bundler
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
