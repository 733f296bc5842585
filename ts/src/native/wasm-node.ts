/** The WebAssembly module in Node, for `node --conditions=fulmar-wasm`. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import * as wasm from '#wasm'
import type * as Backend from './backend.js'
import { onFirstUse } from './loading.js'

/** See `backend.ts`. */
export const backend: typeof Backend.backend = 'wasm'

/** See `backend.ts`. */
export let raw: typeof Backend.raw = onFirstUse(load)

let isLoaded = false

/** See `backend.ts`. */
export const init: typeof Backend.init = async (module) => {
  if (isLoaded) return
  if (module === undefined) load()
  else {
    // `fetch` of Node reads no files.
    const isFile = module instanceof URL && module.protocol === 'file:'
    await wasm.default({ module_or_path: isFile ? readFileSync(module) : module })
    loaded()
  }
}

/** See `backend.ts`. */
export const lastPanic: typeof Backend.lastPanic = () => (isLoaded ? wasm.lastPanic() : '')

function load(): typeof Backend.raw {
  if (!isLoaded)
    wasm.initSync({ module: readFileSync(createRequire(import.meta.url).resolve('#wasm-binary')) })
  return loaded()
}

function loaded(): typeof Backend.raw {
  isLoaded = true
  raw = wasm as unknown as typeof Backend.raw
  return raw
}
