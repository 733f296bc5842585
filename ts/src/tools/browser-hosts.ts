/** Hosts that a browser may reach. */

import { describeValue, FulmarError } from '../core/index.js'

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
  return allowed.some((one) => name === one || (!isAddress(one) && name.endsWith(`.${one}`)))
}

/** Returns the hosts as they are compared. @throws {FulmarError} `MALFORMED` for what is no host. */
export function checkedHosts(hosts: readonly string[] | undefined): readonly string[] | undefined {
  if (hosts === undefined) return undefined
  const isHost = (host: unknown) =>
    typeof host === 'string' &&
    ((isAddress(hostName(host)) && /^[\d.:a-f[\]]+$/i.test(host)) ||
      /^[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?$/i.test(host))
  const wrong = Array.isArray(hosts) ? hosts.find((host) => !isHost(host)) : hosts
  if (Array.isArray(hosts) && wrong === undefined) return hosts.map(hostName)
  const detail = `options.allowedHosts must be a list of hosts such as example.com: got ${describeValue(wrong)}`
  throw new FulmarError('MALFORMED', detail)
}

/** @throws {FulmarError} `FORBIDDEN` for an address that a page must not show. */
export function checkAddress(address: string, allowedHosts: readonly string[] | undefined): void {
  if (address === 'about:blank') return
  const url = URL.canParse(address) ? new URL(address) : undefined
  const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:'
  if (url && isHttp && isAllowedHost(url.hostname, allowedHosts)) return
  const rule =
    allowedHosts === undefined ? 'of http or https' : `of http or https, at ${allowedHosts.join(', ')}`
  throw new FulmarError('FORBIDDEN', `url must be ${rule}: got ${JSON.stringify(address.slice(0, 200))}`)
}

/** Returns true for a number of IPv4 or IPv6. This module has no import of Node's, as options are checked on each runtime. */
function isAddress(host: string): boolean {
  return host.includes(':') || /^\d{1,3}(\.\d{1,3}){3}$/.test(host)
}
