// Counts how often the core is loaded by imports and by the first use, on the backend of this process's conditions.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

/** Codecs of other packages are smaller. */
const CORE_BYTES_MIN = 500_000

let loads = 0
const { dlopen } = process
process.dlopen = (...args) => {
  loads += 1
  return dlopen.apply(process, args)
}
WebAssembly.Module = class extends WebAssembly.Module {
  constructor(bytes) {
    loads += Number(bytes.byteLength >= CORE_BYTES_MIN)
    super(bytes)
  }
}
const { instantiate } = WebAssembly
WebAssembly.instantiate = (source, imports) => {
  loads += 1
  return instantiate(source, imports)
}

const require = createRequire(import.meta.url)
const { exports } = require('fulmar/package.json')
const entries = Object.keys(exports).filter((entry) => !entry.endsWith('.json'))
for (const entry of entries) await import(`fulmar${entry.slice(1)}`)
const afterImports = loads
const { describeBuild, FulmarError, init, Rng } = await import('fulmar')
const early = () => {
  try {
    return Rng.fromSeed(0).nextU32()
  } catch (error) {
    return { isOurs: error instanceof FulmarError, code: error.code, message: error.message }
  }
}
const first = early()
const module = readFileSync(require.resolve('../../../wasm/fulmar_wasm_bg.wasm'))
const refused = await init({ module: new Uint8Array(3) }).catch(({ code }) => code)
await Promise.all([init({ module }), init()])
const { backend } = describeBuild()
process.stdout.write(JSON.stringify({ afterImports, first, refused, again: early(), backend, loads }))
