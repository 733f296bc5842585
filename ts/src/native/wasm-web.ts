/** The WebAssembly module in a browser: fetched from beside this file, which bundlers understand. */

import * as wasm from '#wasm'
import type * as Backend from './backend.js'

await wasm.default(new URL('../../wasm/fulmar_wasm_bg.wasm', import.meta.url))

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'wasm'

/** See `backend.ts`. */
export const raw = wasm as unknown as typeof Backend.raw

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = wasm.lastPanic
