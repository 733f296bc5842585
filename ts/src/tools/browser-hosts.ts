/** Hosts that a browser may reach. */

import { BlockList, isIP } from 'node:net'
import { describeValue, FulmarError } from '../core/index.js'

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

/** Returns a host as it is compared: lower case, without brackets and the dot of the root. */
export function hostName(host: string): string {
  return host
    .toLowerCase()
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '')
}

/** Returns true if the host is one of `allowed`, or a subdomain of one of them. */
export function isAllowedHost(host: string, allowed: readonly string[] | undefined): boolean {
  if (allowed === undefined) return true
  const name = hostName(host)
  return allowed.some((one) => name === one || (isIP(one) === 0 && name.endsWith(`.${one}`)))
}

/** Returns the hosts as they are compared. @throws {FulmarError} `MALFORMED` for what is no host. */
export function checkedHosts(hosts: readonly string[] | undefined): readonly string[] | undefined {
  if (hosts === undefined) return undefined
  const isHost = (host: unknown) =>
    typeof host === 'string' && (isIP(hostName(host)) !== 0 || /^[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?$/i.test(host))
  const wrong = Array.isArray(hosts) ? hosts.find((host) => !isHost(host)) : hosts
  if (Array.isArray(hosts) && wrong === undefined) return hosts.map(hostName)
  const detail = `options.allowedHosts must be a list of hosts such as example.com: got ${describeValue(wrong)}`
  throw new FulmarError('MALFORMED', detail)
}
