/** The address of the edge module, which bundlers understand. */

/** See `wasm.d.ts`. */
export const address = (): URL => new URL('../../wasm/fulmar_edge_bg.wasm', import.meta.url)
