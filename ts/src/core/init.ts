/** Loading of the compiled core. */

import { init as load } from '../native/index.js'
import { callAsync, FulmarError } from './error.js'
import { checkKnownKeys, describeValue } from './options.js'

/** A `WebAssembly.Module`, where the type library names one. */
type CompiledModule = typeof globalThis extends {
  WebAssembly: { Module: { prototype: infer Compiled extends object } }
}
  ? Compiled
  : object

/** Options of {@link init}. */
export interface InitOptions {
  /**
   * The WebAssembly module: its URL, a response, its bytes, or a compiled module. The native addon ignores
   * it.
   * @default the file of this package
   */
  readonly module?: URL | Response | ArrayBuffer | ArrayBufferView | CompiledModule
}

/**
 * Loads the compiled core. A browser must await this before it uses anything else; elsewhere the first use
 * loads the core. Does nothing once the core is loaded; after a failure, another call tries again.
 *
 * @throws {FulmarError} `UNAVAILABLE` if the core cannot be loaded.
 *
 * @example
 * ```ts
 * import { init, Rng } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * await init()
 * assert.equal(Rng.fromSeed(0).nextU32(), 0x6627e8d5)
 * ```
 */
export function init(options: InitOptions = {}): Promise<void> {
  return callAsync(() => {
    checkKnownKeys('options', options, ['module'])
    const { module } = options
    if (module !== undefined && (typeof module !== 'object' || module === null))
      throw new FulmarError(
        'MALFORMED',
        `options.module must be a URL, a response, bytes or a compiled module: got ${describeValue(module)}`,
      )
    return load(module)
  })
}
