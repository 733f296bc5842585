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
  /** Closes the connection, which cancels the request at the server. */
  readonly signal?: AbortSignal
}

/** Response of a server. */
export interface HttpResponse {
  readonly status: number
  /** The header `retry-after`, if there is one. */
  readonly retryAfter: string | null
  readonly text: string
}

/** An answer that is read while it comes. */
export interface HttpStream extends Omit<HttpResponse, 'text'> {
  /** The text in parts, cut anywhere. Iterate it once; leaving early closes the connection. */
  readonly body: AsyncIterable<string>
}

/** Sends requests. Rejects if no whole answer of at most 64 MiB comes. */
export interface HttpClient {
  send(request: HttpRequest): Promise<HttpResponse>
  /** As {@link HttpClient.send}, as soon as the status is there. */
  stream(request: HttpRequest): Promise<HttpStream>
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
  const stream = async ({ method, url, headers, body, signal }: HttpRequest): Promise<HttpStream> => {
    const init = { method, headers, ...(body !== undefined && { body }), ...(signal && { signal }) }
    const answer = await fetch(url, init)
    const { status } = answer
    return { status, retryAfter: answer.headers.get('retry-after'), body: partsOf(answer.body) }
  }
  return {
    async send(request) {
      const { body, ...answer } = await stream(request)
      let text = ''
      for await (const part of body) text += part
      return { ...answer, text }
    },
    stream,
    close: async () => {},
  }
}

async function* partsOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<string, void, undefined> {
  if (body === null) return
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let [numBytes, isWhole] = [0, false]
  try {
    for (;;) {
      const { done, value } = await reader.read()
      isWhole = done
      if (done) {
        yield decoder.decode()
        return
      }
      numBytes += value.byteLength
      if (numBytes > RESPONSE_BYTES_MAX)
        throw new Error(`an answer must have at most ${RESPONSE_BYTES_MAX} bytes: it has more`)
      yield decoder.decode(value, { stream: true })
    }
  } finally {
    if (!isWhole) await reader.cancel().catch(() => {})
  }
}
