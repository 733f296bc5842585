/** The client of Node: connections that are kept, without what the global `fetch` costs on top of them. */

import type { Pool } from 'undici'
import type * as Http from './http.js'
import { type HttpRequest, RESPONSE_BYTES_MAX } from './http-client.js'

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
  const ask = async ({ method, url, headers, body, signal }: HttpRequest) => {
    const { origin, pathname, search } = new URL(url)
    const pool = await poolOf(origin)
    const path = pathname + search
    const answer = await pool.request({
      ...{ method, path, headers, body: body ?? null },
      ...(signal && { signal }),
    })
    const retryAfter = answer.headers['retry-after']
    const told = { status: answer.statusCode, retryAfter: typeof retryAfter === 'string' ? retryAfter : null }
    return { told, body: answer.body }
  }
  return {
    async send(request) {
      const { told, body } = await ask(request)
      return { ...told, text: await body.text() }
    },
    async stream(request) {
      const { told, body } = await ask(request)
      return { ...told, body: partsOf(body) }
    },
    async close() {
      const all = [...pools.values()]
      pools.clear()
      await Promise.all(all.map(async (pool) => (await pool).destroy()))
    },
  }
}

async function* partsOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder()
  // The pool bounds the bytes, and a loop that is left closes the connection.
  for await (const bytes of body) yield decoder.decode(bytes, { stream: true })
  yield decoder.decode()
}
