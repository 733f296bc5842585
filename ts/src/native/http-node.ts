/** The client of Node: connections that are kept, without what the global `fetch` costs on top of them. */

import type { Pool } from 'undici'
import type * as Http from './http.js'
import { HEADERS_BYTES_MAX, type HttpRequest, RESPONSE_BYTES_MAX } from './http-client.js'

/** The pool's word for no bound. */
const UNBOUNDED = -1

/** See `http.ts`. */
export const defaultHttpClient: typeof Http.defaultHttpClient = ({ numConnections }) => {
  const pools = new Map<string, Promise<Pool>>()
  // A pool bounds the bytes of its answers, so downloads have one of their own.
  const poolOf = (origin: string, maxResponseSize: number) => {
    const key = `${maxResponseSize} ${origin}`
    const known = pools.get(key)
    if (known) return known
    // Deadlines are the caller's: a completion may take minutes until its first byte.
    const options = {
      connections: numConnections,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxResponseSize,
      maxHeaderSize: HEADERS_BYTES_MAX,
    }
    const made = import('undici').then(({ Pool }) => new Pool(origin, options))
    pools.set(key, made)
    return made
  }
  const ask = async ({ method, url, headers, body, signal }: HttpRequest, bytesMax = RESPONSE_BYTES_MAX) => {
    const { origin, pathname, search } = new URL(url)
    const pool = await poolOf(origin, bytesMax)
    const path = pathname + search
    const answer = await pool.request({
      ...{ method, path, headers, body: body ?? null },
      ...(signal && { signal }),
    })
    const header = (name: string) => {
      const value = answer.headers[name]
      return Array.isArray(value) ? value.join(', ') : (value ?? null)
    }
    return { status: answer.statusCode, header, body: answer.body }
  }
  return {
    async send(request) {
      const { status, header, body } = await ask(request)
      return { status, retryAfter: header('retry-after'), text: await body.text() }
    },
    async stream(request) {
      const { status, header, body } = await ask(request)
      return { status, retryAfter: header('retry-after'), body: partsOf(body) }
    },
    download: (request) => ask(request, UNBOUNDED),
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
