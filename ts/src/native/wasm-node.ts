/** The WebAssembly module in Node, for `node --conditions=fulmar-wasm`. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import * as wasm from '#wasm'
import type * as Backend from './backend.js'

wasm.initSync({ module: readFileSync(createRequire(import.meta.url).resolve('#wasm-binary')) })

export const backend: typeof Backend.backend = 'wasm'

export const raw = wasm as unknown as typeof Backend.raw

export const lastPanic: typeof Backend.lastPanic = wasm.lastPanic
