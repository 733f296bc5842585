/** The address of the whole WebAssembly module, which bundlers understand. */

/** See `wasm.d.ts`. */
export const address = (): URL => new URL('../../wasm/fulmar_wasm_bg.wasm', import.meta.url)
