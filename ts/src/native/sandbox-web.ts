/** The sandbox in a browser: an instance on the page's own thread. Steps and memory are bounded; there is no deadline. */

import type * as Sandbox from './sandbox.js'
import { renderOnce } from './sandbox.js'

let compiled: Promise<WebAssembly.Module> | undefined

/** See `sandbox.ts`. */
export const renderInSandbox: typeof Sandbox.renderInSandbox = async (request) => {
  compiled ??= WebAssembly.compileStreaming(fetch(new URL('../../wasm/fulmar_sandbox.wasm', import.meta.url)))
  return renderOnce(await compiled, request)
}
