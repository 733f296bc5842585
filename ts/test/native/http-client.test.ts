import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { fetchClient, RESPONSE_BYTES_MAX } from '../../src/native/http-client.js'
import { defaultHttpClient as nodeClient } from '../../src/native/http-node.js'
import { defaultHttpClient as webClient } from '../../src/native/http-web.js'

const MIB = 1024 * 1024

/** Answers with what it was asked, or with as many bytes as the path says. */
async function withServer<T>(body: (url: string) => Promise<T>): Promise<T> {
  const server = createServer((request, response) => {
    const size = Number(/^\/bytes\/(\d+)$/.exec(request.url ?? '')?.[1] ?? Number.NaN)
    if (size >= 0) return void response.end(Buffer.alloc(size, 120))
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      response.writeHead(429, { 'retry-after': '3' })
      response.end(`${request.method} ${request.url} ${request.headers['x-key']} ${text} \u00e4`)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    return await body(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

describe.each([
  ['Node', nodeClient],
  ['the web', webClient],
])('the client of %s', (_, make) => {
  it('sends method, path, headers and body, and gives status, pause and text', async () => {
    await withServer(async (url) => {
      const client = make({ numConnections: 1 })
      const headers = { 'x-key': 'k' }
      const answer = await client.send({ method: 'POST', url: `${url}/a/b?c=d`, headers, body: 'ö' })
      expect(answer).toEqual({ status: 429, retryAfter: '3', text: 'POST /a/b?c=d k ö ä' })
      const asked = await client.send({ method: 'GET', url: `${url}/a`, headers })
      expect(asked.text).toBe('GET /a k  ä')
      await client.close()
    })
  })

  it('rejects where nobody answers, and once its signal fires', async () => {
    const client = make({ numConnections: 1 })
    await expect(client.send({ method: 'GET', url: 'http://127.0.0.1:1/', headers: {} })).rejects.toThrow()
    await withServer(async (url) => {
      const signal = AbortSignal.abort()
      await expect(client.send({ method: 'GET', url, headers: {}, signal })).rejects.toThrow()
    })
    await client.close()
  })

  it('reads as many bytes as an answer may have, and no more', async () => {
    await withServer(async (url) => {
      const client = make({ numConnections: 1 })
      const read = (size: number) => client.send({ method: 'GET', url: `${url}/bytes/${size}`, headers: {} })
      expect((await read(RESPONSE_BYTES_MAX)).text).toHaveLength(64 * MIB)
      await expect(read(RESPONSE_BYTES_MAX + 1)).rejects.toThrow()
      await client.close()
    })
  })
})

describe('fetchClient', () => {
  it('reads an answer without a body as an empty one', async () => {
    const client = fetchClient(async () => new Response(null, { status: 204 }))
    const answer = await client.send({ method: 'GET', url: 'http://localhost', headers: {} })
    expect(answer).toEqual({ status: 204, retryAfter: null, text: '' })
  })
})
