/** The files that wasm-bindgen generates, so that types do not depend on a build of them. */

/** A `WebAssembly.Module`, which the type library of Node does not name. */
type CompiledModule = { readonly compiledModule: unique symbol }

declare module '#wasm' {
  /** Starts the module from a file on the network; the functions below work after it. */
  export default function start(source: URL): Promise<unknown>
  /** Starts the module from its bytes or its compiled form. */
  export function initSync(options: { module: CompiledModule | Uint8Array }): unknown
  export function lastPanic(): string
}

declare module '#wasm-binary' {
  const module: CompiledModule
  export default module
}
