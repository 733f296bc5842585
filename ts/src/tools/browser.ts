/** Browsers, with a context for each conversation. */

import type { Browser, BrowserContext, Page } from 'playwright-core'
import { onAbort } from '../async/index.js'
import { FulmarError } from '../core/index.js'
import { BrowserProxy, type ProxyRules } from './browser-proxy.js'

/** Options of browsers. */
export interface BrowsersOptions extends ProxyRules {
  readonly executablePath: string | undefined
  /** Deadline of an action in milliseconds. */
  readonly timeoutMs: number
  readonly maxBrowsers: number
  readonly maxContexts: number
}

/** Flags of Chromium: no connection past the proxy, none of its own. */
const FLAGS = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-domain-reliability',
  '--force-webrtc-ip-handling-policy=disable_non_proxied_udp',
  '--dns-prefetch-disable',
]

/** Paths of Chromium where none is given. */
const SYSTEM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

/** In a constant, so that bundlers do not look for a package that is optional. */
const PACKAGE: string = 'playwright-core'

/** A process, and how many contexts are in it. */
interface Running {
  readonly browser: Browser
  numContexts: number
}

/** The page of a conversation. */
export interface BrowserSession {
  readonly context: BrowserContext
  readonly page: Page
  /** Addresses of popups, which are closed, since the last action. */
  readonly popups: string[]
}

/** Starts browsers as contexts need them, and again after one died. */
export class Browsers {
  readonly #options: BrowsersOptions
  readonly #running: Running[] = []
  readonly #sessions = new Map<AbortSignal, Promise<BrowserSession>>()
  #proxy: Promise<BrowserProxy> | undefined
  #starting: Promise<Running> | undefined
  #isClosed = false

  constructor(options: BrowsersOptions) {
    this.#options = options
  }

  /**
   * Returns the page of a conversation, in a context of its own.
   * @throws {FulmarError} `UNAVAILABLE` without `playwright-core` or a browser; `LIMIT_EXCEEDED` above `maxContexts`;
   * `INCOMPATIBLE` without a conversation; `CLOSED` after its end.
   */
  async session(conversation: AbortSignal | undefined): Promise<BrowserSession> {
    if (this.#isClosed) throw new FulmarError('CLOSED', 'browsers must be open: they were closed')
    if (conversation === undefined)
      throw new FulmarError('INCOMPATIBLE', 'conversation must be given for a browser: it is undefined')
    if (conversation.aborted) throw new FulmarError('CLOSED', 'conversation must be under way: it has ended')
    const known = this.#sessions.get(conversation)
    if (known) return await known
    if (this.#sessions.size >= this.#options.maxContexts) {
      const detail = `contexts must be at most ${this.#options.maxContexts} at once: got one more; raise maxContexts`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
    const opening = this.#open(conversation)
    this.#sessions.set(conversation, opening)
    onAbort(conversation, () => void this.end(conversation))
    try {
      return await opening
    } catch (error) {
      this.#sessions.delete(conversation)
      throw error
    }
  }

  /** Ends the context of a conversation; a later call begins with a new one. */
  async end(conversation: AbortSignal): Promise<void> {
    const session = this.#sessions.get(conversation)
    this.#sessions.delete(conversation)
    await (await session?.catch(() => undefined))?.context.close().catch(() => {})
  }

  /** Number of browsers that run. */
  get numBrowsers(): number {
    return this.#running.length
  }

  /** Hosts that were refused, the last ones. */
  async refused(): Promise<readonly string[]> {
    return (await this.#proxy)?.refused ?? []
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#sessions.keys()].map((conversation) => this.end(conversation)))
    await this.#starting?.catch(() => {})
    await Promise.all(this.#running.map(({ browser }) => browser.close().catch(() => {})))
    ;(await this.#proxy)?.close()
  }

  async #open(conversation: AbortSignal): Promise<BrowserSession> {
    const running = await this.#taken()
    running.numContexts += 1
    const context = await running.browser.newContext({ serviceWorkers: 'block', acceptDownloads: false })
    context.on('close', () => {
      running.numContexts -= 1
      this.#sessions.delete(conversation)
    })
    context.setDefaultTimeout(this.#options.timeoutMs)
    await context.route(
      (url) => !/^(https?|data|blob|about):$/.test(url.protocol),
      (route) => route.abort('blockedbyclient'),
    )
    const page = await context.newPage()
    const popups: string[] = []
    context.on('page', (popup) => {
      popups.push(popup.url())
      void popup.close().catch(() => {})
    })
    return { context, page, popups }
  }

  /** Returns the browser with the fewest contexts, or starts one. */
  async #taken(): Promise<Running> {
    const [least] = [...this.#running].sort((a, b) => a.numContexts - b.numContexts)
    if (least && (least.numContexts === 0 || this.#running.length >= this.#options.maxBrowsers)) return least
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined
    })
    return await this.#starting
  }

  async #start(): Promise<Running> {
    const { chromium } = await importPlaywright()
    this.#proxy ??= BrowserProxy.open(this.#options)
    const proxy = await this.#proxy
    const isRoot = process.getuid?.() === 0
    let browser: Browser
    try {
      browser = await chromium.launch({
        executablePath: await this.#path(),
        args: FLAGS,
        chromiumSandbox: !isRoot,
        // Without this bypass, requests to the loopback address would not pass the proxy.
        proxy: {
          ...{ server: `http://127.0.0.1:${proxy.port}`, bypass: '<-loopback>' },
          ...{ username: 'fulmar', password: proxy.password },
        },
      })
    } catch (cause) {
      throw new FulmarError('UNAVAILABLE', `browser must start: got ${String(cause).split('\n')[0]}`, {
        cause,
      })
    }
    const running = { browser, numContexts: 0 }
    this.#running.push(running)
    browser.on('disconnected', () => void this.#running.splice(this.#running.indexOf(running), 1))
    return running
  }

  async #path(): Promise<string> {
    const { existsSync } = await import('node:fs')
    const path = this.#options.executablePath ?? SYSTEM.find((one) => existsSync(one))
    if (path !== undefined && existsSync(path)) return path
    const detail = `executablePath must be that of Chromium: got ${path ?? `none of ${SYSTEM.join(', ')}`}`
    throw new FulmarError('UNAVAILABLE', detail)
  }
}

async function importPlaywright(): Promise<typeof import('playwright-core')> {
  try {
    return (await import(/* @vite-ignore */ PACKAGE)) as typeof import('playwright-core')
  } catch (cause) {
    const detail = 'playwright-core must be installed: it could not be imported (npm install playwright-core)'
    throw new FulmarError('UNAVAILABLE', detail, { cause })
  }
}
