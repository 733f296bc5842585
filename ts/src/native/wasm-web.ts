/** The WebAssembly module in a browser: `init` fetches it by its path relative to this file, which bundlers understand. */

import * as wasm from '#wasm'
import { address } from '#wasm-address'
import type * as Backend from './backend.js'
import { onFirstUse, unavailable } from './loading.js'

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'wasm'

/** See `backend.ts`. */
export let raw: typeof Backend.raw = onFirstUse(() => {
  throw unavailable('fulmar must be loaded before its first use in this runtime: call `await init()` first')
})

let loading: Promise<void> | undefined
let isLoaded = false

/** See `backend.ts`. */
export const init: typeof Backend.init = (module) => {
  loading ??= load(module)
  return loading
}

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = () => (isLoaded ? wasm.lastPanic() : '')

async function load(module: object | undefined): Promise<void> {
  try {
    await wasm.default({ module_or_path: module ?? address() })
  } catch (cause) {
    loading = undefined
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw unavailable(`the WebAssembly module of fulmar must be loaded: ${reason}`, cause)
  }
  isLoaded = true
  raw = wasm as unknown as typeof Backend.raw
}
