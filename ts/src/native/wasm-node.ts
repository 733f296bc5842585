/** The WebAssembly module in Node, for `node --conditions=fulmar-wasm`. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import * as wasm from '#wasm'
import type * as Backend from './backend.js'

wasm.initSync({ module: readFileSync(createRequire(import.meta.url).resolve('#wasm-binary')) })

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'wasm'

/** See `backend.ts`. */
export const raw = wasm as unknown as typeof Backend.raw

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = wasm.lastPanic
