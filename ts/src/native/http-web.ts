/** The client of browsers and edge runtimes: their `fetch`. */

import type * as Http from './http.js'
import { fetchClient } from './http-client.js'

/** See `http.ts`. The runtime bounds its connections itself. */
export const defaultHttpClient: typeof Http.defaultHttpClient = () =>
  fetchClient((url, init) => globalThis.fetch(url, init))
