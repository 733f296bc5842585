import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { fetchClient, RESPONSE_BYTES_MAX } from '../../src/native/http-client.js'
import { defaultHttpClient as nodeClient } from '../../src/native/http-node.js'
import { defaultHttpClient as webClient } from '../../src/native/http-web.js'

const MIB = 1024 * 1024

let onClosed = () => {}

/** Answers with what it was asked, or with as many bytes as the path says. */
async function withServer<T>(body: (url: string) => Promise<T>): Promise<T> {
  const server = createServer((request, response) => {
    if (request.url === '/parts') {
      const parts = ['one ', 'two ', '\u00e4'].map((text) => Buffer.from(text))
      const bytes = Buffer.concat(parts)
      // The last character comes in halves.
      return void response.write(bytes.subarray(0, -1), () =>
        setImmediate(() => response.end(bytes.subarray(-1))),
      )
    }
    if (request.url === '/endless') {
      request.socket.on('close', () => onClosed())
      return void response.write('first')
    }
    if (request.url === '/moved') return void response.writeHead(302, { location: '/port' }).end()
    if (request.url === '/port') return void response.end(String(request.socket.remotePort))
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

  it('streams an answer in parts that make its text, with its status and pause', async () => {
    await withServer(async (url) => {
      const client = make({ numConnections: 1 })
      const read = async (path: string) => {
        const { body, ...told } = await client.stream({ method: 'GET', url: url + path, headers: {} })
        let text = ''
        for await (const part of body) text += part
        return { ...told, text }
      }
      expect(await read('/parts')).toEqual({ status: 200, retryAfter: null, text: 'one two ä' })
      expect(await read('/a')).toMatchObject({ status: 429, retryAfter: '3' })
      await client.close()
    })
  })

  it('closes the connection of a stream that is left, or whose signal fires', async () => {
    await withServer(async (url) => {
      const client = make({ numConnections: 2 })
      const ask = (signal?: AbortSignal) =>
        client.stream({ method: 'GET', url: `${url}/endless`, headers: {}, ...(signal && { signal }) })
      const closed = () =>
        new Promise<void>((resolve) => {
          onClosed = resolve
        })
      const first = closed()
      for await (const part of (await ask()).body) {
        expect(part).toBe('first')
        break
      }
      await first
      const controller = new AbortController()
      const second = closed()
      const reading = (async () => {
        for await (const _ of (await ask(controller.signal)).body) controller.abort()
      })()
      await expect(reading).rejects.toThrow()
      await second
      await client.close()
    })
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

describe.each([
  ['Node', nodeClient],
  ['the web', webClient],
])('a download by the client of %s', (_, make) => {
  it('gives status, headers and bytes, of more than a text may have, and no body to HEAD', async () => {
    await withServer(async (url) => {
      const client = make({ numConnections: 1 })
      const read = async (method: 'GET' | 'HEAD', path: string) => {
        const { status, header, body } = await client.download({ method, url: url + path, headers: {} })
        let numBytes = 0
        for await (const bytes of body) numBytes += bytes.byteLength
        return { status, numBytes, retryAfter: header('retry-after'), none: header('x-none') }
      }
      const size = RESPONSE_BYTES_MAX + 1
      const none = { retryAfter: null, none: null }
      expect(await read('GET', `/bytes/${size}`)).toEqual({ status: 200, numBytes: size, ...none })
      expect(await read('HEAD', '/bytes/10')).toEqual({ status: 200, numBytes: 0, ...none })
      expect(await read('GET', '/a')).toMatchObject({ status: 429, retryAfter: '3' })
      await client.close()
    })
  })

  it('returns a redirect in place of following it', async () => {
    await withServer(async (url) => {
      const client = make({ numConnections: 1 })
      const { status, header } = await client.download({ method: 'HEAD', url: `${url}/moved`, headers: {} })
      expect([status, header('location')]).toEqual([302, '/port'])
      await client.close()
    })
  })
})

describe('the client of Node', () => {
  it('keeps as many connections as it may, whatever it is asked', async () => {
    await withServer(async (url) => {
      const client = nodeClient({ numConnections: 1 })
      const ports = new Set<string>()
      for (let asked = 0; asked < 3; asked++)
        ports.add((await client.send({ method: 'GET', url: `${url}/port`, headers: {} })).text)
      expect(ports.size).toBe(1)
      await client.close()
    })
  })

  it('closes the connections that it kept, and fails what is in flight, once it is closed', async () => {
    await withServer(async (url) => {
      const client = nodeClient({ numConnections: 1 })
      const closed = new Promise<void>((resolve) => {
        onClosed = resolve
      })
      const { body } = await client.stream({ method: 'GET', url: `${url}/endless`, headers: {} })
      const reading = (async () => {
        for await (const _ of body) await client.close()
      })()
      await expect(reading).rejects.toThrow()
      await closed
    })
  })
})

describe('fetchClient', () => {
  it('joins a character whose bytes come in two parts', async () => {
    const bytes = new TextEncoder().encode('a\u00e4b')
    const parts = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const part of [bytes.slice(0, 2), bytes.slice(2)]) controller.enqueue(part)
        controller.close()
      },
    })
    const client = fetchClient(async () => new Response(parts))
    const { text } = await client.send({ method: 'GET', url: 'http://localhost', headers: {} })
    expect(text).toBe('a\u00e4b')
  })

  it('reads an answer without a body as an empty one', async () => {
    const client = fetchClient(async () => new Response(null, { status: 204 }))
    const answer = await client.send({ method: 'GET', url: 'http://localhost', headers: {} })
    expect(answer).toEqual({ status: 204, retryAfter: null, text: '' })
  })
})
