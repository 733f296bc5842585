/** Checks of every request before it is answered, and the headers of every answer. */

import type { IncomingMessage } from 'node:http'

/** A request that is refused: a status, a code and a sentence. */
export class RequestRefusal extends Error {
  readonly status: number
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

/** Headers of every answer: nothing but what this server gives is loaded, run or embedded. */
export const SAFE_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}

/**
 * Returns the path and the query of a request.
 * @throws {RequestRefusal} 405 for another method than GET; 403 for a host that is not this server, which a foreign name that was made to
 * point here has; 400 for an address that cannot be read.
 */
export function checkedUrl(request: IncomingMessage, port: number): URL {
  const { host = '' } = request.headers
  if (!isOwnHost(host, port))
    throw new RequestRefusal(
      403,
      'foreign_host',
      `host must be 127.0.0.1:${port} or localhost:${port}: got ${host.slice(0, 64)}`,
    )
  if (request.method !== 'GET')
    throw new RequestRefusal(405, 'method_not_allowed', `method must be GET: got ${request.method}`)
  const { url = '/' } = request
  if (!url.startsWith('/'))
    throw new RequestRefusal(400, 'malformed_url', 'the address must be a path: it is not')
  try {
    return new URL(`http://localhost${url}`)
  } catch {
    throw new RequestRefusal(400, 'malformed_url', 'the address must be a path with a query: it is not')
  }
}

function isOwnHost(host: string, port: number): boolean {
  return ['127.0.0.1', 'localhost', '[::1]'].some((name) => host.toLowerCase() === `${name}:${port}`)
}

/**
 * Returns the parameters of a query, each at most once but those of `lists`.
 * @throws {RequestRefusal} 400 for a parameter that is not in `names` or `lists`, or comes twice.
 */
export function checkedQuery(
  url: URL,
  names: readonly string[],
  lists: readonly string[] = [],
): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>()
  for (const [name, value] of url.searchParams) {
    if (!names.includes(name) && !lists.includes(name))
      throw new RequestRefusal(
        400,
        'unknown_parameter',
        `${name.slice(0, 64)} must be one of ${[...names, ...lists].join(', ')}`,
      )
    const values = found.get(name) ?? []
    if (values.length > 0 && !lists.includes(name))
      throw new RequestRefusal(400, 'repeated_parameter', `${name} must be given once: it is given twice`)
    found.set(name, [...values, value])
  }
  return found
}

/** @throws {RequestRefusal} 400 if the parameter is not an integer of the range. `fallback` replaces an absent one. */
export function integerOf(
  query: ReadonlyMap<string, readonly string[]>,
  name: string,
  { max, fallback }: { readonly max: number; readonly fallback?: number },
): number {
  const text = query.get(name)?.[0]
  if (text === undefined && fallback !== undefined) return fallback
  const value = /^\d{1,15}$/.test(text ?? '') ? Number(text) : Number.NaN
  if (value <= max) return value
  throw new RequestRefusal(
    400,
    'invalid_parameter',
    `${name} must be an integer from 0 to ${max}: got ${text?.slice(0, 64) ?? 'no value'}`,
  )
}
