/** A bundle as a module of a page in headless Chromium, served from a loopback port. */

import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { chromium } from 'playwright-core'
import { root } from './steps.mjs'

const PAGE = `<!doctype html><title>Fulmar</title><script type="module">
import worker from './build/edge/chromium.js'
globalThis.post = async (path, body) => {
  const response = await worker.fetch(new Request(path, { method: 'POST', body }))
  return { status: response.status, body: await response.json() }
}
</script>`

/** The path of a browser: CHROMIUM_PATH, or that of Debian's package; `undefined` without a browser. */
export function findChromium() {
  const path = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium'
  return existsSync(path) ? path : undefined
}

/** Opens a page that imports `bundle`. `post` resolves with the status and the JSON of an answer. */
export async function openChromium(bundle) {
  const server = await serve(bundle)
  const browser = await launchChromium().catch((error) => {
    server.close()
    throw error
  })
  const close = async () => {
    await browser.close()
    server.close()
  }
  try {
    const page = await browser.newPage()
    const problems = []
    page.on('pageerror', (error) => problems.push(error.stack ?? error.message))
    await page.goto(`http://127.0.0.1:${server.address().port}/`)
    await page
      .waitForFunction(() => globalThis.post !== undefined)
      .catch((error) => {
        throw new Error(`the page did not load: ${[error.message, ...problems].join('\n')}`)
      })
    return {
      post: (path, body) => page.evaluate(([path, body]) => globalThis.post(path, body), [path, body]),
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** A headless browser. */
export function launchChromium() {
  // The page is ours and local; Chromium's sandbox refuses to start for root, the user of containers.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : []
  return chromium.launch({ executablePath: findChromium(), headless: true, args })
}

/** Serves the page, the bundle and the modules, and nothing else, where the bundle's own URLs expect them. */
async function serve(bundle) {
  const module = (name) => ['application/wasm', () => readFileSync(`${root}wasm/${name}`)]
  const files = {
    '/': ['text/html', () => PAGE],
    '/build/edge/chromium.js': ['text/javascript', () => readFileSync(bundle)],
    '/wasm/fulmar_wasm_bg.wasm': module('fulmar_wasm_bg.wasm'),
    '/wasm/fulmar_sandbox.wasm': module('fulmar_sandbox.wasm'),
  }
  const server = createServer(({ url }, response) => {
    const [type, read] = files[url] ?? []
    if (read === undefined) response.writeHead(404).end()
    else response.writeHead(200, { 'content-type': type }).end(read())
  })
  await new Promise((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', resolve)
  })
  return server
}
