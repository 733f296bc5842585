/** The files that wasm-bindgen generates, so that types do not depend on a build of them. */

declare module '#wasm' {
  /** Starts the module from any source; the functions below work after it. */
  export default function start(source: { module_or_path: object }): Promise<unknown>
  /** Starts the module from its bytes or its compiled form. */
  export function initSync(source: { module: object }): unknown
  export function lastPanic(): string
}

declare module '#wasm-address' {
  /** The file of the module. */
  export function address(): URL
}

declare module '#wasm-binary' {
  const module: object
  export default module
}

declare module '#sandbox-binary' {
  const module: WebAssembly.Module
  export default module
}

/** Parts of WebAssembly that the sandbox uses, which the type library of Node lacks. */
declare namespace WebAssembly {
  interface Module {
    readonly compiledModule: unique symbol
  }
  class Memory {
    constructor(size: { initial: number; maximum: number })
    readonly buffer: ArrayBuffer
  }
  class Instance {
    constructor(module: Module, imports: { env: { memory: Memory } })
    readonly exports: Record<string, unknown>
  }
  function compile(bytes: Uint8Array): Promise<Module>
  function compileStreaming(response: Promise<unknown>): Promise<Module>
}
