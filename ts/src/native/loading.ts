/** Loads the core on its first use, so that an import costs no instance. */

import type { Raw } from './raw.js'

/** Placeholder for the core: reading any of its names calls `load`. The variable `raw` holds it until `load` replaces it by the core. */
export function onFirstUse(load: () => Raw): Raw {
  return new Proxy({} as Raw, { get: (_, name) => Reflect.get(load(), name) })
}

/** An error of this machine or runtime. Its caller makes a `FulmarError` of it. */
export function unavailable(message: string, cause?: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code: 'UNAVAILABLE' })
}
