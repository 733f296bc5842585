/** The client of Node: connections that are kept, without what the global `fetch` costs on top of them. */

import type { Pool } from 'undici'
import type * as Http from './http.js'
import { RESPONSE_BYTES_MAX } from './http-client.js'

/** See `http.ts`. */
export const defaultHttpClient: typeof Http.defaultHttpClient = ({ numConnections }) => {
  const pools = new Map<string, Promise<Pool>>()
  const poolOf = (origin: string) => {
    const known = pools.get(origin)
    if (known) return known
    // Deadlines are the caller's: a completion may take minutes until its first byte.
    const options = {
      connections: numConnections,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxResponseSize: RESPONSE_BYTES_MAX,
    }
    const made = import('undici').then(({ Pool }) => new Pool(origin, options))
    pools.set(origin, made)
    return made
  }
  return {
    async send({ method, url, headers, body = null, signal }) {
      const { origin, pathname, search } = new URL(url)
      const pool = await poolOf(origin)
      const path = pathname + search
      const answer = await pool.request({ method, path, headers, body, ...(signal && { signal }) })
      const retryAfter = answer.headers['retry-after']
      const text = await answer.body.text()
      return {
        status: answer.statusCode,
        retryAfter: typeof retryAfter === 'string' ? retryAfter : null,
        text,
      }
    },
    async close() {
      const all = [...pools.values()]
      pools.clear()
      await Promise.all(all.map(async (pool) => (await pool).destroy()))
    },
  }
}
