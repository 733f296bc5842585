/** The exports of `#backend`; package.json chooses the file by import condition. */

import type { Raw } from './raw.js'

/** Build of the core. */
export declare const backend: 'native' | 'wasm'

/** The functions and classes of the core. Reading one loads the core where that can be done at once. */
export declare let raw: Raw

/** Loads the core, unless it is loaded. `module` is a WebAssembly module or its source, for builds that take one. */
export declare function init(module?: object): Promise<void>

/** Text of the panic that the last trap came from; empty where an error carries its own text. */
export declare function lastPanic(): string
