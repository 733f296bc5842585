/** The WebAssembly module in workerd, where a `.wasm` import is a compiled module and code may not be fetched. */

import * as wasm from '#wasm'
import module from '#wasm-binary'
import type * as Backend from './backend.js'

wasm.initSync({ module })

export const backend: typeof Backend.backend = 'wasm'

export const raw = wasm as unknown as typeof Backend.raw

export const lastPanic: typeof Backend.lastPanic = wasm.lastPanic
