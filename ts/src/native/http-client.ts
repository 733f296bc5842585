/** HTTP as an argument: the client that engines are reached by. */

/** Most bytes of an answer that is read as text. */
export const RESPONSE_BYTES_MAX = 64 * 1024 * 1024

/** Most bytes of all headers of an answer. */
export const HEADERS_BYTES_MAX = 32 * 1024

/** One call of an HTTP server. */
export interface HttpRequest {
  readonly method: 'GET' | 'HEAD' | 'POST'
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

/** An answer whose bytes are read while they come, however many they are. */
export interface HttpDownload {
  readonly status: number
  /** Returns the header of a lowercase name, or `null`; several of one name are joined by `, `. */
  readonly header: (name: string) => string | null
  /** The bytes in parts. Iterate it once; leaving early closes the connection. A break of the connection rejects. */
  readonly body: AsyncIterable<Uint8Array>
}

/** Sends requests. Rejects if no whole answer comes; one that is read as text has at most 64 MiB. */
export interface HttpClient {
  send(request: HttpRequest): Promise<HttpResponse>
  /** As {@link HttpClient.send}, as soon as the status is there. */
  stream(request: HttpRequest): Promise<HttpStream>
  /** As soon as the headers are there, with the bytes of the body. Redirects are returned, not followed. */
  download(request: HttpRequest): Promise<HttpDownload>
  /** Gives connections back. */
  close(): Promise<void>
}

/** The part of `fetch` that {@link fetchClient} needs. */
export type FetchLike = (
  url: string,
  init: Pick<HttpRequest, 'method' | 'headers' | 'body' | 'signal'> & { readonly redirect?: 'manual' },
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
  const ask = ({ method, url, headers, body, signal }: HttpRequest, redirect?: 'manual') =>
    fetch(url, {
      ...{ method, headers },
      ...(body !== undefined && { body }),
      ...(signal && { signal }),
      ...(redirect && { redirect }),
    })
  const stream = async (request: HttpRequest): Promise<HttpStream> => {
    const { status, headers, body } = await ask(request)
    return { status, retryAfter: headers.get('retry-after'), body: textOf(body) }
  }
  return {
    async send(request) {
      const { body, ...answer } = await stream(request)
      let text = ''
      for await (const part of body) text += part
      return { ...answer, text }
    },
    stream,
    async download(request) {
      const { status, headers, body } = await ask(request, 'manual')
      return { status, header: (name) => headers.get(name), body: bytesOf(body) }
    },
    close: async () => {},
  }
}

async function* textOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder()
  let numBytes = 0
  for await (const bytes of bytesOf(body)) {
    numBytes += bytes.byteLength
    if (numBytes > RESPONSE_BYTES_MAX)
      throw new Error(`an answer must have at most ${RESPONSE_BYTES_MAX} bytes: it has more`)
    yield decoder.decode(bytes, { stream: true })
  }
  yield decoder.decode()
}

async function* bytesOf(
  body: ReadableStream<Uint8Array> | null,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (body === null) return
  const reader = body.getReader()
  let isWhole = false
  try {
    for (;;) {
      const { done, value } = await reader.read()
      isWhole = done
      if (done) return
      yield value
    }
  } finally {
    if (!isWhole) await reader.cancel().catch(() => {})
  }
}
