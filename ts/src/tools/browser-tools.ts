/** The tool `browser`: pages of the web, in a browser whose every connection is asked for. */

import { checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import type { Json } from '../tensor/index.js'
import type { BrowserSession, Browsers } from './browser.js'
import { checkAddress, checkedHosts } from './browser-hosts.js'
import type { BrowserLookup } from './browser-proxy.js'
import { tool } from './tool.js'
import { ToolContent } from './tool-content.js'
import type { Tool } from './tool-registry.js'

/** Options of {@link browserTools}. */
export interface BrowserToolsOptions {
  /** Hosts that pages, and all that they load, may be from; subdomains included. @default any public host */
  readonly allowedHosts?: readonly string[]
  /** If true, addresses of this machine and of private networks are reached as well. @default false */
  readonly allowsPrivate?: boolean
  /** Deadline of an action in milliseconds. @default 8_000 */
  readonly timeoutMs?: number
  /** Maximum length of extracted text. @default 16_384 */
  readonly maxChars?: number
  /** Maximum number of conversations with a page at once. @default 16 */
  readonly maxContexts?: number
  /** Maximum number of browser processes. @default 1 */
  readonly maxBrowsers?: number
  /** If `part`, a screenshot is a part of the message, for models that see; if `text`, a line of text. @default 'text' */
  readonly images?: 'text' | 'part'
  /** Path of Chromium. @default that of the system */
  readonly executablePath?: string
  /** Looks names up. @default the system's resolver */
  readonly lookup?: BrowserLookup
}

/** The names of {@link BrowserToolsOptions}. */
export const BROWSER_KEYS = [
  ...['allowedHosts', 'allowsPrivate', 'timeoutMs', 'maxChars', 'maxContexts', 'maxBrowsers'],
  ...['images', 'executablePath', 'lookup'],
] as const

/** The tool `browser`. Dispose it to end its browsers. */
export type BrowserTool = Tool<BrowserAction> & AsyncDisposable

/** Arguments of a call. */
export type BrowserAction = {
  readonly action: 'navigate' | 'click' | 'type' | 'scroll' | 'extract' | 'screenshot'
  /** Address to navigate to. */
  readonly url?: string
  /** CSS selector of what is clicked, typed into or extracted. */
  readonly selector?: string
  /** Text to type. */
  readonly text?: string
  /** Pixels to scroll down; negative for up. */
  readonly amount?: number
}

const DESCRIPTION =
  'A browser with one page. Actions: navigate (url), click (selector), type (selector, text), scroll (amount), extract (selector; the text of the page without one), screenshot.'

const SCHEMA = {
  type: 'object',
  properties: {
    action: { type: 'string', enum: ['navigate', 'click', 'type', 'scroll', 'extract', 'screenshot'] },
    url: { type: 'string' },
    selector: { type: 'string' },
    text: { type: 'string' },
    amount: { type: 'number' },
  },
  required: ['action'],
} as const

/** Time for a page to begin a navigation that a click or a script started. */
const SETTLE_MS = 250

/**
 * Makes the tool `browser` for `withTools` and `ToolRunner`, over `playwright-core` and the system's Chromium. Each
 * conversation has a context of its own, without cookies, service workers, downloads and popups, which ends with it. Every connection
 * passes a proxy that asks for its host and its address: pages, redirects, frames, images, scripts and sockets. Text
 * of a page is data of strangers: it may try to instruct the policy.
 *
 * @throws {FulmarError} `UNKNOWN_NAME`, `MALFORMED` or `OUT_OF_RANGE` for an option; its calls fail with `FORBIDDEN` for a host
 * that is not allowed, and with `UNAVAILABLE` without `playwright-core` or Chromium.
 *
 * @example
 * ```ts
 * import { ToolRunner } from 'fulmar'
 * import { browserTools } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const [browser] = browserTools({ allowedHosts: ['example.com'] })
 * const runner = new ToolRunner({ tools: [browser] })
 * const call = { tool: 'browser', args: { action: 'navigate', url: 'https://evilexample.com' }, tag: null }
 * const { signal: conversation } = new AbortController()
 * const [result] = await runner.run([call], { messages: [], conversation })
 * assert.match(result?.ok === false ? result.error.message : '', /url must be of http or https, at example\.com: got/)
 * await browser[Symbol.asyncDispose]()
 * ```
 */
export function browserTools(options: BrowserToolsOptions = {}): readonly [BrowserTool] {
  checkKnownKeys('options', options, BROWSER_KEYS)
  const { timeoutMs = 8_000, maxChars = 16_384, maxContexts = 16, maxBrowsers = 1, images = 'text' } = options
  for (const [name, value] of Object.entries({ timeoutMs, maxChars, maxContexts, maxBrowsers })) {
    if (Number.isSafeInteger(value) && value >= 1) continue
    const detail = `options.${name} must be a positive integer: got ${describeValue(value)}`
    throw new FulmarError('OUT_OF_RANGE', detail)
  }
  if (images !== 'text' && images !== 'part')
    throw new FulmarError('UNKNOWN_NAME', `options.images must be text or part: got ${describeValue(images)}`)
  const allowedHosts = checkedHosts(options.allowedHosts)
  const { allowsPrivate = false, executablePath, lookup } = options
  const rules = { allowedHosts, allowsPrivate, executablePath, lookup, timeoutMs, maxBrowsers, maxContexts }
  let browsers: Promise<Browsers> | undefined
  // Processes and servers are of Node alone.
  const started = () => {
    browsers ??= import('./browser.js').then((room) => new room.Browsers(rules))
    return browsers
  }
  const made = tool({
    name: 'browser',
    description: DESCRIPTION,
    schema: SCHEMA,
    perConversation: true,
    async run(args, { signal, conversation }) {
      if (args.action === 'navigate') checkAddress(args.url ?? '', allowedHosts)
      const pool = await started()
      const session = await pool.session(conversation)
      const drop = () => void (conversation && pool.end(conversation))
      signal.addEventListener('abort', drop, { once: true })
      try {
        return await acted(session, args, { allowedHosts, maxChars, images })
      } finally {
        signal.removeEventListener('abort', drop)
      }
    },
  })
  return [Object.freeze({ ...made, [Symbol.asyncDispose]: async () => await (await started()).close() })]
}

interface Showing {
  readonly allowedHosts: readonly string[] | undefined
  readonly maxChars: number
  readonly images: 'text' | 'part'
}

/** Does an action, and leaves a page that is not allowed. */
async function acted(session: BrowserSession, action: BrowserAction, showing: Showing): Promise<unknown> {
  const { page, popups } = session
  popups.length = 0
  let result: Json | ToolContent
  try {
    result = await done(session, action, showing)
    if (action.action === 'click' || action.action === 'type') await page.waitForTimeout(SETTLE_MS)
    checkAddress(page.url(), showing.allowedHosts)
  } catch (error) {
    if (!page.isClosed() && !page.url().startsWith('about:')) await leaveIfRefused(session, showing)
    if (error instanceof FulmarError) throw error
    throw new FulmarError('USER_CODE', messageOf(error).split('\n')[0] ?? 'the action failed', {
      cause: error,
    })
  }
  if (result instanceof ToolContent || typeof result !== 'object') return result
  return {
    ...result,
    url: page.url(),
    title: await page.title(),
    ...(popups.length > 0 && { popups: [...popups] }),
  }
}

async function leaveIfRefused({ page }: BrowserSession, { allowedHosts }: Showing): Promise<void> {
  try {
    checkAddress(page.url(), allowedHosts)
  } catch {
    await page.goto('about:blank').catch(() => {})
  }
}

async function done(
  { page }: BrowserSession,
  { action, url = '', selector, text, amount = 600 }: BrowserAction,
  { maxChars, images }: Showing,
): Promise<Json | ToolContent> {
  if (action === 'navigate') {
    const response = await page.goto(url, { waitUntil: 'domcontentloaded' })
    return { status: response?.status() ?? null }
  }
  if (action === 'scroll') {
    await page.mouse.wheel(0, amount)
    return {}
  }
  if (action === 'screenshot') return shown(await page.screenshot(), images)
  if (action === 'extract') return await extracted(page, selector ?? 'body', maxChars)
  const target = page.locator(given('selector', selector, action)).first()
  if (action === 'click') await target.click()
  else await target.fill(given('text', text, action))
  return {}
}

async function extracted(page: BrowserSession['page'], selector: string, maxChars: number): Promise<Json> {
  // biome-ignore lint/performance/useDomNodeTextContent: hidden text is no part of what a reader sees
  const text = await page.locator(selector).first().innerText()
  return { text: text.slice(0, maxChars), isCut: text.length > maxChars }
}

function shown(png: Uint8Array, images: 'text' | 'part'): Json | ToolContent {
  if (images === 'text') return `[image image/png, ${png.length} bytes]`
  const url = `data:image/png;base64,${Buffer.from(png).toString('base64')}`
  return new ToolContent([{ type: 'image_url', image_url: { url } }])
}

function given(name: string, value: string | undefined, action: string): string {
  if (value !== undefined) return value
  throw new FulmarError('MALFORMED', `${name} must be given to ${action}: it is undefined`)
}
