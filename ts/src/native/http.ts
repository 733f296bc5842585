/** Exports of `#http`; package.json selects its file by condition. */

import type { HttpClient } from './http-client.js'

/** The client of the runtime. `numConnections` is the most for each server. */
export declare function defaultHttpClient(options: { readonly numConnections: number }): HttpClient
