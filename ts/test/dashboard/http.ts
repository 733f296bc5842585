/** Requests with any header, which `fetch` does not send. */

import { type IncomingHttpHeaders, request } from 'node:http'

/** An answer as it came. */
export interface HttpAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** Sends a request whose path is not made tidy. */
export async function ask(
  url: string,
  path: string,
  options: { readonly method?: string; readonly headers?: Readonly<Record<string, string>> } = {},
): Promise<HttpAnswer> {
  const { hostname, port } = new URL(url)
  return await new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, ...options }, (response) => {
      let body = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }))
    })
    sent.on('error', reject)
    sent.end()
  })
}
