/** The addon: the build for this platform, from this tree or from the platform's own package. */

import { createRequire } from 'node:module'
import type * as Backend from './backend.js'

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'native'

/** See `backend.ts`. */
export const raw = createRequire(import.meta.url)('#addon') as typeof Backend.raw

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = () => ''
