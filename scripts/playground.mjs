/**
 * `node scripts/playground.mjs`: builds the page of examples/edge/playground into build/playground, for any static server.
 * With `--check` it opens the page in Chromium and uses it; without a browser its checks count as skipped, and fail where CI is set.
 */

import { copyFileSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { rolldown } from 'rolldown'
import { findChromium, launchChromium } from './edge-chromium.mjs'
import { asProgram, isAllRequired, Refusal, root } from './steps.mjs'

const SOURCE = `${root}examples/edge/playground`
const OUT = `${root}build/playground`
const TYPES = {
  html: 'text/html',
  css: 'text/css',
  js: 'text/javascript',
  json: 'application/json',
  wasm: 'application/wasm',
}
const FILES = ['index.html', 'style.css', 'playground.js', 'fulmar_edge_bg.wasm', 'smollm2.json']

asProgram(async () => {
  await build()
  process.stdout.write(`playground: built into ${OUT}\n`)
  if (!process.argv.includes('--check')) return 0
  if (findChromium() === undefined) {
    const count = { passed: 0, failed: Number(isAllRequired), skipped: Number(!isAllRequired) }
    return report(
      count,
      "no browser was found; install Debian's package chromium, or name one in CHROMIUM_PATH\n",
    )
  }
  const problems = await check()
  return report({ passed: problems === '' ? 1 : 0, failed: problems === '' ? 0 : 1, skipped: 0 }, problems)
})

function report({ passed, failed, skipped }, text) {
  process.stdout.write(`${text}playground: ${passed} passed, ${failed} failed, ${skipped} skipped\n`)
  return failed === 0 ? 0 : 1
}

async function build() {
  rmSync(OUT, { recursive: true, force: true })
  mkdirSync(OUT, { recursive: true })
  const bundle = await rolldown({
    input: `${SOURCE}/playground.ts`,
    platform: 'browser',
    external: /^node:/,
    resolve: { conditionNames: ['fulmar-edge', 'browser', 'import', 'default'] },
    // The page looks for the module in its own folder.
    plugins: [
      {
        name: 'module-beside',
        resolveId: (id) => (id === '#wasm-address' ? id : null),
        load: (id) =>
          id === '#wasm-address'
            ? "export const address = () => new URL('fulmar_edge_bg.wasm', import.meta.url)"
            : null,
      },
    ],
  })
  await bundle.write({ file: `${OUT}/playground.js`, format: 'esm', codeSplitting: false, minify: true })
  await bundle.close()
  for (const file of ['index.html', 'style.css']) copyFileSync(`${SOURCE}/${file}`, `${OUT}/${file}`)
  copyFileSync(`${root}wasm/fulmar_edge_bg.wasm`, `${OUT}/fulmar_edge_bg.wasm`)
  copyFileSync(`${root}tests/golden/tokenizer/smollm2/tokenizer.json`, `${OUT}/smollm2.json`)
}

/** Uses the page as a person would; returns what was wrong with it. */
async function check() {
  const server = await serve()
  const browser = await launchChromium()
  try {
    const context = await browser.newContext({ permissions: ['clipboard-read', 'clipboard-write'] })
    const page = await context.newPage()
    const problems = []
    page.on('pageerror', (error) => problems.push(error.message))
    page.on('requestfailed', (request) => problems.push(`${request.url()} failed`))
    await page.goto(`http://127.0.0.1:${server.address().port}/`)
    const expectText = async (selector, text) => {
      const found = await page
        .waitForFunction(
          ([selector, text]) => document.querySelector(selector)?.textContent.includes(text),
          [selector, text],
          { timeout: 10_000 },
        )
        .catch(() => undefined)
      if (!found) problems.push(`${selector} must hold ${text}: got ${await page.textContent(selector)}`)
    }
    await expectText('#count', 'trained')
    await page.hover('.token.assistant')
    await expectText('[data-fact=owner]', 'message 2, assistant')
    await expectText('[data-fact=trained]', 'yes')
    await page.click('#copy')
    await expectText('#copy', 'Copied')
    const ids = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()))
    await expectText('#count', `${ids.length} tokens`)
    if (process.env.PLAYGROUND_PICTURE)
      await page.screenshot({ path: process.env.PLAYGROUND_PICTURE, fullPage: true })
    await page.check('[name=colour][value=mask]')
    await expectText('#legend', 'untrained')
    for (const family of await page.$$eval('#family option', (options) =>
      options.map(({ value }) => value),
    )) {
      await page.selectOption('#family', family)
      await page.waitForSelector(`#tokens[data-family=${family}]`)
      if (await page.isVisible('#error')) problems.push(`${family}: ${await page.textContent('#error')}`)
    }
    await page.selectOption('#family', 'chatml')
    await page.selectOption('#tokenizer', 'smollm2')
    await expectText('#tokens', 'twice')
    await page.fill('#messages', '[{ "role": "pirate", "content": "x" }]')
    await expectText('#error', 'UNKNOWN_NAME')
    return problems.map((problem) => `${problem}\n`).join('')
  } finally {
    await browser.close()
    server.close()
  }
}

async function serve() {
  const server = createServer(({ url }, response) => {
    const name = url === '/' ? 'index.html' : url.slice(1)
    if (!FILES.includes(name)) response.writeHead(404).end()
    else
      response
        .writeHead(200, { 'content-type': TYPES[name.split('.').at(-1)] })
        .end(readFileSync(`${OUT}/${name}`))
  })
  await new Promise((resolve, reject) => {
    server.once('error', (error) => reject(new Refusal(error.message))).listen(0, '127.0.0.1', resolve)
  })
  return server
}
