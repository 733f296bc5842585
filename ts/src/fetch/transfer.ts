/** Exchanges over HTTP: redirects, retries and time limits, and which host receives a token. */

import { aborted, onAbort, withDeadline } from '../async/index.js'
import { FulmarError, messageOf } from '../core/index.js'
import type { HttpClient, HttpDownload } from '../native/index.js'
import type { Clock } from '../telemetry/index.js'

/** Most redirects of one exchange. */
export const REDIRECTS_MAX = 10

/** Longest wait that a server can ask for. */
const RETRY_AFTER_MS_MAX = 300_000

/** First wait before a retry; each further one is twice as long, up to the last. */
const BACKOFF_MS = 500
const BACKOFF_MS_MAX = 30_000

/** Most bytes that are read of a body that has no use, to keep its connection. */
const UNUSED_BYTES_MAX = 64 * 1024

/** Options of exchanges. */
export interface Transfer {
  readonly client: HttpClient
  readonly clock: Clock
  readonly signal: AbortSignal | undefined
  /** Most repetitions of a failed exchange. */
  readonly retries: number
  /** Longest time without a byte. */
  readonly stallTimeoutMs: number
}

/** A request whose redirects are followed. */
export interface Exchange {
  readonly method: 'GET' | 'HEAD'
  readonly url: string
  readonly headers?: Readonly<Record<string, string>>
  /** Sent to the origin of `url`, and to no other. */
  readonly token?: string | undefined
  /** Returns true for an answer that is the result even if it is a redirect. */
  readonly isResult?: (answer: HttpDownload) => boolean
}

/** The answer to an {@link Exchange}. */
export interface Answer extends HttpDownload {
  /** The URL that gave it. */
  readonly url: string
}

/** A failure that may pass: it is thrown to {@link retrying}. */
export class Passing extends Error {
  readonly error: FulmarError
  /** The wait that the server asked for. */
  readonly delayMs: number | undefined

  constructor(error: FulmarError, delayMs?: number) {
    super(error.message)
    this.error = error
    this.delayMs = delayMs
  }
}

/**
 * Runs `attempt` until it does not throw {@link Passing}, at most `retries + 1` times.
 * @throws {FulmarError} That of the last attempt; `ABORTED` if the signal fires.
 */
export async function retrying<T>(transfer: Transfer, attempt: () => Promise<T>): Promise<T> {
  const { retries, signal } = transfer
  for (let numFailures = 0; ; numFailures++) {
    if (signal?.aborted) throw aborted(signal)
    try {
      return await attempt()
    } catch (failure) {
      if (!(failure instanceof Passing)) throw failure
      if (numFailures >= retries) throw givenUp(failure.error, numFailures + 1)
      const backoffMs = Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** numFailures)
      await pause(transfer, failure.delayMs ?? backoffMs)
    }
  }
}

function givenUp({ code, message, cause }: FulmarError, numAttempts: number): FulmarError {
  return new FulmarError(code, numAttempts === 1 ? message : `${message}, ${numAttempts} times`, { cause })
}

async function pause({ clock, signal }: Transfer, delayMs: number): Promise<void> {
  await withDeadline({ clock, timeoutMs: delayMs, signal, run: () => new Promise<never>(() => {}) })
}

/**
 * Asks once, follows redirects, and calls `read` with the answer; the connection is closed if `read` leaves bytes of it.
 * @throws {Passing} If the connection fails, stalls, or the server asks to come again.
 * @throws {FulmarError} `FORBIDDEN` for a redirect to another scheme; `LIMIT_EXCEEDED` for too many.
 */
export async function exchange<T>(
  transfer: Transfer,
  request: Exchange,
  read: (answer: Answer) => Promise<T>,
): Promise<T> {
  const { clock, signal, stallTimeoutMs } = transfer
  const { origin } = checkUrl('url', request.url)
  const closing = new AbortController()
  const stopListening = onAbort(signal, () => closing.abort(signal?.reason))
  try {
    for (let url = request.url, numRedirects = 0; ; numRedirects++) {
      if (numRedirects > REDIRECTS_MAX) {
        const detail = `redirects must be at most ${REDIRECTS_MAX}: got ${REDIRECTS_MAX + 1} from ${shownUrl(request.url)}`
        throw new FulmarError('LIMIT_EXCEEDED', detail)
      }
      const got = await withDeadline({
        ...{ clock, signal, timeoutMs: stallTimeoutMs },
        run: () => transfer.client.download(requestTo(url, request, origin, closing.signal)),
      })
      if (got.kind === 'thrown') throw unreachable(url, got.error)
      if (got.kind === 'timeout') throw stalled(url, stallTimeoutMs)
      const answer = { ...got.value, url, body: guarded(transfer, url, got.value.body) }
      if (isPassing(answer.status)) throw new Passing(unexpected(answer), retryAfterMs(answer))
      if (!isRedirect(answer.status) || request.isResult?.(answer)) {
        return await read(answer)
      }
      url = locationOf(answer)
      await skip(answer)
    }
  } finally {
    stopListening()
    // Closes the connection if bytes are left; after the last byte it does nothing.
    closing.abort()
  }
}

function requestTo(url: string, request: Exchange, origin: string, signal: AbortSignal) {
  const { method, token, headers = {} } = request
  const isOwn = token !== undefined && new URL(url).origin === origin
  const authorization = isOwn ? { authorization: `Bearer ${token}` } : {}
  const plain = { 'user-agent': 'fulmar', 'accept-encoding': 'identity' }
  return { method, url, headers: { ...plain, ...headers, ...authorization }, signal }
}

/**
 * Returns the URL that a redirect leads to.
 * @throws {FulmarError} `CORRUPT` without one; `FORBIDDEN` for another scheme, or from `https:` to `http:`.
 */
export function locationOf({ url, status, header }: Answer): string {
  const location = header('location')
  if (location === null || !URL.canParse(location, url)) {
    const detail = `a redirect must have a location: ${shownUrl(url)} answered ${status} without one`
    throw new FulmarError('CORRUPT', detail)
  }
  const next = new URL(location, url)
  next.username = next.password = next.hash = ''
  const isDowngrade = new URL(url).protocol === 'https:' && next.protocol !== 'https:'
  if (isDowngrade || !/^https?:$/.test(next.protocol)) {
    const rule = isDowngrade ? 'must stay on https' : 'must lead to http or https'
    throw new FulmarError('FORBIDDEN', `redirects ${rule}: got ${shownUrl(next.href)} from ${shownUrl(url)}`)
  }
  return next.href
}

/**
 * Returns a URL of HTTP without a name or a password in it.
 * @throws {FulmarError} `MALFORMED`.
 */
export function checkUrl(what: string, url: unknown): URL {
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
    const shown = parsed === undefined ? JSON.stringify(String(url).slice(0, 200)) : shownUrl(parsed.href)
    throw new FulmarError('MALFORMED', `${what} must be an http or https URL: got ${shown}`)
  }
  if (parsed.username !== '' || parsed.password !== '')
    throw new FulmarError(
      'MALFORMED',
      `${what} must have no name or password in it: got ${shownUrl(parsed.href)}`,
    )
  return parsed
}

/** A URL for messages: without query, name and password, which may be secrets. */
export function shownUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url)
  return `${protocol}//${host}${pathname}`
}

/** The error of an answer whose status has no use. */
export function unexpected({ url, status }: Answer): FulmarError {
  return new FulmarError('IO', `${shownUrl(url)} must answer with the file: got status ${status}`)
}

function unreachable(url: string, cause: unknown): FulmarError | Passing {
  const code = (cause as { readonly code?: unknown } | null | undefined)?.code
  const message = `${shownUrl(url)} must be reachable: got ${messageOf(cause)}`
  if (code === 'UND_ERR_HEADERS_OVERFLOW' || code === 'HPE_HEADER_OVERFLOW')
    return new FulmarError(
      'LIMIT_EXCEEDED',
      `${shownUrl(url)} must have shorter headers: got ${messageOf(cause)}`,
    )
  return new Passing(new FulmarError('IO', message, { cause }))
}

function stalled(url: string, stallTimeoutMs: number): Passing {
  const detail = `${shownUrl(url)} must send bytes within ${stallTimeoutMs} ms: it did not`
  return new Passing(new FulmarError('TIMEOUT', detail))
}

/** The bytes of a body, each part within the time limit. */
async function* guarded(
  { clock, signal, stallTimeoutMs: timeoutMs }: Transfer,
  url: string,
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const parts = body[Symbol.asyncIterator]()
  let isOver = false
  try {
    for (;;) {
      const got = await withDeadline({ clock, signal, timeoutMs, run: () => parts.next() })
      if (got.kind === 'thrown') throw unreachable(url, got.error)
      if (got.kind === 'timeout') throw stalled(url, timeoutMs)
      isOver = got.value.done === true
      if (got.value.done) return
      yield got.value.value
    }
  } finally {
    // A body that stalls would never answer, so it is not awaited; the exchange closes its connection.
    if (!isOver) parts.return?.().catch(() => {})
  }
}

async function skip({ body }: Answer): Promise<void> {
  let numBytes = 0
  for await (const bytes of body) {
    numBytes += bytes.byteLength
    if (numBytes > UNUSED_BYTES_MAX) return
  }
}

function isRedirect(status: number): boolean {
  return [301, 302, 303, 307, 308].includes(status)
}

function isPassing(status: number): boolean {
  return status === 408 || status === 429 || status >= 500
}

/** The wait that a server asked for: seconds, or a date, which is measured from the date of the answer. */
function retryAfterMs({ header }: Answer): number | undefined {
  const asked = header('retry-after')?.trim()
  if (!asked) return undefined
  const ms = /^\d+$/.test(asked) ? Number(asked) * 1000 : Date.parse(asked) - Date.parse(header('date') ?? '')
  return Number.isFinite(ms) ? Math.min(RETRY_AFTER_MS_MAX, Math.max(0, ms)) : undefined
}
