/** What `#backend` must export; package.json says which file stands behind it, by condition. */

import type { Raw } from './raw.js'

/** Which build of the core answers. */
export declare const backend: 'native' | 'wasm'

/** The functions and classes of the core. */
export declare const raw: Raw

/** Text of the panic that the last trap came from; empty where an error carries its own text. */
export declare function lastPanic(): string
