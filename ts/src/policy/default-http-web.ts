/** The client of browsers and edge runtimes: their `fetch`. */

import type * as DefaultHttp from './default-http.js'
import { fetchClient } from './http.js'

/** See `default-http.ts`. The runtime bounds its connections itself. */
export const defaultHttpClient: typeof DefaultHttp.defaultHttpClient = () =>
  fetchClient((url, init) => globalThis.fetch(url, init))
