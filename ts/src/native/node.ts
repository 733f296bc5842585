/** The addon: the build for this platform, from this tree or from the platform's own package. */

import { createRequire } from 'node:module'
import type * as Backend from './backend.js'

export const backend: typeof Backend.backend = 'native'

export const raw = createRequire(import.meta.url)('#addon') as typeof Backend.raw

export const lastPanic: typeof Backend.lastPanic = () => ''
