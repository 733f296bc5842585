/** The hub on loopback, as two servers: the hub itself, and the one of large files, which the hub redirects to. */

import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

/** A request as it came. */
export interface SeenRequest {
  readonly method: string
  readonly host: 'hub' | 'files'
  /** Decoded, without the query. */
  readonly path: string
  readonly range: string | null
  readonly ifRange: string | null
  readonly authorization: string | null
  status: number
  /** Bytes of the body that were written. */
  bytes: number
}

/** Answers a request in place of the servers; returns `false` to leave it to them. */
export type Fault = (seen: SeenRequest, response: ServerResponse, body: Uint8Array | undefined) => boolean

/** Parts of {@link startHub}. */
export interface HubOptions {
  readonly kind?: 'model' | 'dataset'
  readonly repo?: string
  readonly commit?: string
  readonly files: Readonly<Record<string, Uint8Array | string>>
  /** Names in the listing in place of those of `files`. */
  readonly listed?: readonly unknown[]
}

export const COMMIT = '0123456789abcdef0123456789abcdef01234567'

/** A running hub. */
export interface FakeHub {
  readonly endpoint: string
  readonly repo: string
  readonly seen: SeenRequest[]
  readonly files: Map<string, Uint8Array>
  fault: Fault
}

/** Starts a hub, which stops at the end of the test. */
export async function startHub(options: HubOptions): Promise<FakeHub> {
  const { kind = 'model', repo = 'Org/Name', commit = COMMIT, listed } = options
  const files = new Map(Object.entries(options.files).map(([name, body]) => [name, Buffer.from(body)]))
  const prefix = kind === 'dataset' ? '/datasets' : ''
  const cdn = `/cdn${prefix || '/models'}/${repo}/`
  const notFound = (response: ServerResponse, errorCode: string) => {
    response.writeHead(404, {
      'x-error-code': errorCode,
      ...(errorCode === 'EntryNotFound' && { 'x-repo-commit': commit }),
    })
    response.end()
  }
  const api = (seen: SeenRequest, response: ServerResponse, query: URLSearchParams) => {
    const rest = seen.path.slice(`/api/${kind}s/${repo}/`.length)
    if (rest.startsWith('revision/'))
      return rest === 'revision/main' || rest === `revision/${commit}`
        ? json(response, { sha: commit })
        : notFound(response, 'RevisionNotFound')
    if (rest !== `tree/${commit}`) return notFound(response, 'RevisionNotFound')
    const entries = listed ?? [...files].map(([path, body]) => ({ type: 'file', path, size: body.length }))
    const from = Number(query.get('cursor') ?? 0)
    const next = `http://127.0.0.1:${portOf(hub)}${seen.path}?recursive=true&expand=false&cursor=${from + 2}`
    if (from + 2 < entries.length) response.setHeader('link', `<${next}>; rel="next"`)
    json(response, entries.slice(from, from + 2))
  }
  const resolve = (seen: SeenRequest, response: ServerResponse) => {
    const [revision = '', ...name] = seen.path.slice(`${prefix}/${repo}/resolve/`.length).split('/')
    const body = files.get(name.join('/'))
    if (revision !== 'main' && revision !== commit) return notFound(response, 'RevisionNotFound')
    if (body === undefined) return notFound(response, 'EntryNotFound')
    response.setHeader('x-repo-commit', commit)
    if (!isLarge(name.join('/'))) return serve(seen, response, body, `"${gitId(body)}"`)
    const etag = `"${sha256(body)}"`
    const location = `http://127.0.0.1:${portOf(cdnServer)}${cdn}${name.map(encodeURIComponent).join('/')}?sign=secret`
    response.writeHead(302, { location, 'x-linked-etag': etag, 'x-linked-size': body.length })
    response.end()
  }
  const server = (host: 'hub' | 'files') =>
    createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
      const seen = seenOf(request, host, decodeURIComponent(pathname))
      const write = response.write.bind(response)
      fake.seen.push(seen)
      response.on('finish', () => (seen.status = response.statusCode))
      response.write = (chunk: Uint8Array, ...rest: never[]) => {
        seen.bytes += chunk.length
        return write(chunk, ...rest)
      }
      const name = host === 'files' ? seen.path.slice(cdn.length) : seen.path.split(/\/resolve\/[^/]+\//)[1]
      const body = files.get(name ?? '')
      if (fake.fault(seen, response, body)) return
      if (host === 'files')
        return body === undefined ? notFound(response, '') : serve(seen, response, body, `"${sha256(body)}"`)
      if (seen.path.startsWith(`/api/${kind}s/${repo}/`)) return void api(seen, response, searchParams)
      if (seen.path.startsWith(`${prefix}/${repo}/resolve/`)) return void resolve(seen, response)
      notFound(response, 'RepoNotFound')
    })
  const hub = await started(server('hub'))
  const cdnServer = await started(server('files'))
  const fake: FakeHub = {
    endpoint: `http://127.0.0.1:${portOf(hub)}`,
    repo,
    seen: [],
    files,
    fault: () => false,
  }
  return fake
}

/** Serves bytes, or the rest that a range asks for. */
export function serve(seen: SeenRequest, response: ServerResponse, body: Uint8Array, etag: string): void {
  const start = Number(/^bytes=(\d+)-$/.exec(seen.range ?? '')?.[1] ?? 0)
  const isRange = seen.range !== null && (seen.ifRange === null || seen.ifRange === etag)
  if (isRange && start >= body.length) {
    response.writeHead(416, { 'content-range': `bytes */${body.length}` })
    return void response.end()
  }
  const rest = isRange ? body.subarray(start) : body
  const range = { 'content-range': `bytes ${start}-${body.length - 1}/${body.length}` }
  response.writeHead(isRange ? 206 : 200, { etag, 'content-length': rest.length, ...(isRange && range) })
  if (seen.method !== 'HEAD') response.write(rest)
  response.end()
}

/** Sends the headers of all bytes, then the first `count`, then closes the connection. */
export function cut(
  response: ServerResponse,
  body: Uint8Array,
  count: number,
  etag = `"${sha256(body)}"`,
): void {
  response.writeHead(200, { etag, 'content-length': body.length })
  response.write(body.subarray(0, count), () => setImmediate(() => response.destroy()))
}

export function sha256(body: Uint8Array): string {
  return createHash('sha256').update(body).digest('hex')
}

function gitId(body: Uint8Array): string {
  return createHash('sha1').update(`blob ${body.length}\0`).update(body).digest('hex')
}

/** Bytes that differ at each place. */
export function someBytes(count: number): Uint8Array {
  return Uint8Array.from({ length: count }, (_, at) => (at * 31 + (at >> 8)) & 255)
}

/** Starts a server on loopback, which stops at the end of the test. */
export async function started(server: Server): Promise<Server> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return server
}

export function portOf(server: Server): number {
  return (server.address() as AddressInfo).port
}

function seenOf(
  { method = '', headers }: IncomingMessage,
  host: SeenRequest['host'],
  path: string,
): SeenRequest {
  const { range = null, authorization = null } = headers
  const ifRange = headers['if-range'] ?? null
  return {
    method,
    host,
    path,
    range,
    ifRange: String(ifRange) === 'null' ? null : String(ifRange),
    authorization,
    status: 0,
    bytes: 0,
  }
}

function json(response: ServerResponse, value: unknown): void {
  response.end(JSON.stringify(value))
}

function isLarge(name: string): boolean {
  return /\.(?:h5|hdf5|safetensors|gguf)$/.test(name)
}
