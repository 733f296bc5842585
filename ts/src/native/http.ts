/** What `#http` must export; package.json says which file stands behind it, by condition. */

import type { HttpClient } from './http-client.js'

/** The client of the runtime. `numConnections` is the most for each server. */
export declare function defaultHttpClient(options: { readonly numConnections: number }): HttpClient
