/** The WebAssembly module in workerd, where a `.wasm` import is a compiled module and code may not be fetched. */

import * as wasm from '#wasm'
import compiled from '#wasm-binary'
import type * as Backend from './backend.js'
import { onFirstUse } from './loading.js'

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'wasm'

/** See `backend.ts`. */
export let raw: typeof Backend.raw = onFirstUse(() => load(compiled))

let isLoaded = false

/** See `backend.ts`. */
export const init: typeof Backend.init = async (module = compiled) => {
  load(module)
}

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = () => (isLoaded ? wasm.lastPanic() : '')

function load(module: object): typeof Backend.raw {
  if (!isLoaded) wasm.initSync({ module })
  isLoaded = true
  raw = wasm as unknown as typeof Backend.raw
  return raw
}
