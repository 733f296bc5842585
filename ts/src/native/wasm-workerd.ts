/** The WebAssembly module in workerd, where a `.wasm` import is a compiled module and code may not be fetched. */

import * as wasm from '#wasm'
import module from '#wasm-binary'
import type * as Backend from './backend.js'

wasm.initSync({ module })

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'wasm'

/** See `backend.ts`. */
export const raw = wasm as unknown as typeof Backend.raw

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = wasm.lastPanic
