/** HTTP as an argument: the client that engines are reached by. */

/** Most bytes of an answer that is read. */
export const RESPONSE_BYTES_MAX = 64 * 1024 * 1024

/** One call of an HTTP server. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST'
  /** An absolute `http:` or `https:` URL. */
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** @default none */
  readonly body?: string
  /** Closes the connection, by which a server learns that nobody waits any more. */
  readonly signal?: AbortSignal
}

/** What a server answered. */
export interface HttpResponse {
  readonly status: number
  /** The header `retry-after`, if there is one. */
  readonly retryAfter: string | null
  readonly text: string
}

/** Sends requests. Rejects if no whole answer of at most 64 MiB comes. */
export interface HttpClient {
  send(request: HttpRequest): Promise<HttpResponse>
  /** Gives connections back. */
  close(): Promise<void>
}

/** The part of `fetch` that {@link fetchClient} needs. */
export type FetchLike = (
  url: string,
  init: Pick<HttpRequest, 'method' | 'headers' | 'body' | 'signal'>,
) => Promise<{
  readonly status: number
  readonly headers: { get(name: string): string | null }
  readonly body: ReadableStream<Uint8Array> | null
}>

/**
 * A client over a `fetch`: that of a browser or an edge runtime, or one of your own.
 *
 * @example
 * ```ts
 * import { fetchClient } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const client = fetchClient(async (url) => new Response(`you asked for ${url}`, { status: 201 }))
 * const answer = await client.send({ method: 'GET', url: 'http://localhost/x', headers: {} })
 * assert.deepEqual(answer, { status: 201, retryAfter: null, text: 'you asked for http://localhost/x' })
 * ```
 */
export function fetchClient(fetch: FetchLike): HttpClient {
  return {
    async send({ method, url, headers, body, signal }) {
      const init = { method, headers, ...(body !== undefined && { body }), ...(signal && { signal }) }
      const answer = await fetch(url, init)
      return {
        status: answer.status,
        retryAfter: answer.headers.get('retry-after'),
        text: answer.body ? await readText(answer.body) : '',
      }
    },
    close: async () => {},
  }
}

async function readText(body: ReadableStream<Uint8Array>): Promise<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let [text, numBytes] = ['', 0]
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return text + decoder.decode()
    numBytes += value.byteLength
    if (numBytes > RESPONSE_BYTES_MAX) {
      await reader.cancel()
      throw new Error(`an answer must have at most ${RESPONSE_BYTES_MAX} bytes: got more`)
    }
    text += decoder.decode(value, { stream: true })
  }
}
