/**
 * The proxy through which a browser reaches the network, so that each connection is asked for: navigations, redirects,
 * frames, sub-resources, popups, workers, sockets, downloads.
 *
 * ```text
 * browser -- CONNECT host:port, or GET http://host/ --> proxy: allowed? -> look the name up -> public? -> connect to that address
 * ```
 *
 * The address that was looked at is the one that is connected to, so a name cannot change in between.
 */

import { randomBytes, timingSafeEqual } from 'node:crypto'
import { lookup as systemLookup } from 'node:dns/promises'
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import { BlockList, connect, isIP, type Socket } from 'node:net'
import { hostName, isAllowedHost } from './browser-hosts.js'

/** Addresses of no public host, as RFC 6890 and its successors list them. */
const PRIVATE = new BlockList()
for (const [net, bits] of [
  ...[
    ['0.0.0.0', 8],
    ['10.0.0.0', 8],
    ['100.64.0.0', 10],
    ['127.0.0.0', 8],
    ['169.254.0.0', 16],
  ],
  ...[
    ['172.16.0.0', 12],
    ['192.0.0.0', 24],
    ['192.0.2.0', 24],
    ['192.88.99.0', 24],
    ['192.168.0.0', 16],
  ],
  ...[
    ['198.18.0.0', 15],
    ['198.51.100.0', 24],
    ['203.0.113.0', 24],
    ['224.0.0.0', 4],
    ['240.0.0.0', 4],
  ],
] as const)
  PRIVATE.addSubnet(net, bits, 'ipv4')
for (const [net, bits] of [
  ...[
    ['::', 96],
    ['64:ff9b::', 96],
    ['64:ff9b:1::', 48],
    ['100::', 64],
    ['2001::', 23],
    ['2001:db8::', 32],
  ],
  ...[
    ['2002::', 16],
    ['3fff::', 20],
    ['5f00::', 16],
    ['fc00::', 7],
    ['fe80::', 10],
    ['fec0::', 10],
    ['ff00::', 8],
  ],
] as const)
  PRIVATE.addSubnet(net, bits, 'ipv6')

/** Returns true for an address that is not of the public internet, also where IPv6 holds one of IPv4. */
export function isPrivateAddress(address: string): boolean {
  const version = isIP(address)
  return version === 0 || PRIVATE.check(address, version === 4 ? 'ipv4' : 'ipv6')
}

/** Looks the addresses of a name up. */
export type BrowserLookup = (host: string) => Promise<readonly string[]>

/** Rules of a proxy. */
export interface ProxyRules {
  /** Hosts as they are compared; `undefined` for all. */
  readonly allowedHosts: readonly string[] | undefined
  readonly allowsPrivate: boolean
  readonly lookup: BrowserLookup | undefined
}

/** Maximum number of connections of a browser at once. */
const SOCKETS_MAX = 512

/** Number of refused hosts that are kept for messages. */
const REFUSED_MAX = 100

/** A proxy on the loopback address, with a password. */
export class BrowserProxy {
  readonly password = randomBytes(24).toString('base64url')
  /** Hosts that were refused, the last ones. */
  readonly refused: string[] = []
  readonly #rules: ProxyRules
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(rules: ProxyRules) {
    this.#rules = rules
    this.#server = createServer((asked, answer) => void this.#forward(asked, answer))
    this.#server.maxConnections = SOCKETS_MAX
    this.#server.on(
      'connect',
      (asked: IncomingMessage, socket: Socket, head: Buffer) => void this.#tunnel(asked, socket, head),
    )
    this.#server.on('connection', (socket) => this.#keep(socket))
    this.#server.on('upgrade', (_: IncomingMessage, socket: Socket) => socket.destroy())
  }

  static async open(rules: ProxyRules): Promise<BrowserProxy> {
    const proxy = new BrowserProxy(rules)
    await new Promise<void>((resolve, reject) => {
      proxy.#server.once('error', reject)
      proxy.#server.listen(0, '127.0.0.1', resolve)
    })
    proxy.#server.unref()
    return proxy
  }

  get port(): number {
    const address = this.#server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => this.#sockets.delete(socket))
  }

  #isKnown({ headers }: IncomingMessage): boolean {
    const given = Buffer.from(headers['proxy-authorization'] ?? '')
    const wanted = Buffer.from(`Basic ${Buffer.from(`fulmar:${this.password}`).toString('base64')}`)
    return given.length === wanted.length && timingSafeEqual(given, wanted)
  }

  /** The address to connect to; `undefined` if the host is refused. */
  async #addressOf(host: string): Promise<string | undefined> {
    const { allowedHosts, allowsPrivate, lookup = lookUp } = this.#rules
    const name = hostName(host)
    try {
      if (isAllowedHost(name, allowedHosts)) {
        const addresses = isIP(name) === 0 ? await lookup(name) : [name]
        const [first] = addresses
        if (first !== undefined && (allowsPrivate || !addresses.some(isPrivateAddress))) return first
      }
    } catch {
      // A name without an address.
    }
    this.refused.push(name)
    if (this.refused.length > REFUSED_MAX) this.refused.shift()
    return undefined
  }

  async #forward(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    if (!this.#isKnown(asked)) {
      answer.writeHead(407, { 'proxy-authenticate': 'Basic realm="fulmar"' }).end()
      return
    }
    if (!URL.canParse(asked.url ?? '') || !asked.url?.startsWith('http://')) {
      answer.writeHead(400).end()
      return
    }
    const url = new URL(asked.url)
    const address = await this.#addressOf(url.hostname)
    if (address === undefined) {
      answer.writeHead(403, { 'content-type': 'text/plain' }).end('This host is not allowed.')
      return
    }
    const { 'proxy-authorization': _, 'proxy-connection': __, ...headers } = asked.headers
    const port = url.port === '' ? 80 : Number(url.port)
    const path = `${url.pathname}${url.search}`
    const outer = request(
      { host: address, port, path, method: asked.method, headers, agent: false },
      (inner) => {
        answer.writeHead(inner.statusCode ?? 502, inner.headers)
        inner.pipe(answer)
      },
    )
    outer.on('socket', (socket) => this.#keep(socket))
    outer.on('error', () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()))
    answer.on('close', () => outer.destroy())
    asked.pipe(outer)
  }

  async #tunnel(asked: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    if (!this.#isKnown(asked)) {
      socket.end(
        'HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="fulmar"\r\n\r\n',
      )
      return
    }
    const [, host = '', port = '443'] = /^(.*):(\d+)$/.exec(asked.url ?? '') ?? []
    const address = await this.#addressOf(host)
    if (address === undefined) {
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
      return
    }
    const outer = connect(Number(port), address, () => {
      socket.write('HTTP/1.1 200 Connection Established\r\n\r\n')
      outer.write(head)
      outer.pipe(socket).pipe(outer)
    })
    this.#keep(outer)
    outer.on('close', () => socket.destroy())
    socket.on('close', () => outer.destroy())
  }
}

async function lookUp(host: string): Promise<readonly string[]> {
  return (await systemLookup(host, { all: true })).map(({ address }) => address)
}
