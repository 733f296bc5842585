import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkedHosts, isAllowedHost } from '../../src/tools/browser-hosts.js'
import { BrowserProxy, isPrivateAddress } from '../../src/tools/browser-proxy.js'
import { type BrowserToolsOptions, browserTools } from '../../src/tools/browser-tools.js'
import { ToolRunner } from '../../src/tools/tool-runner.js'
import { has } from '../needs.js'
import { failing } from '../torchrl/envs/chats.js'

const executablePath = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium'
const isUsable = process.env.FULMAR_TEST_BACKEND !== 'wasm' && has('Chromium', existsSync(executablePath))

describe('isAllowedHost', () => {
  it('takes a host and its subdomains, and nothing that only ends with it', () => {
    const allowed = checkedHosts(['Example.com', '1.2.3.4', '[::1]'])
    for (const host of [
      'example.com',
      'EXAMPLE.COM.',
      'a.example.com',
      'a.b.example.com',
      '1.2.3.4',
      '[::1]',
      '::1',
    ])
      expect([host, isAllowedHost(host, allowed)]).toEqual([host, true])
    for (const host of [
      'evilexample.com',
      'example.com.evil',
      'xample.com',
      'com',
      '',
      '.',
      '9.1.2.3.4',
      '::2',
    ])
      expect([host, isAllowedHost(host, allowed)]).toEqual([host, false])
    for (const hosts of ['example.com', ['https://example.com'], ['a b'], [''], [7], ['*.a']])
      expect(() => checkedHosts(hosts as never)).toThrow(failing('MALFORMED', /allowedHosts/))
  })
})

describe('isPrivateAddress', () => {
  it('knows the ranges of no public host', () => {
    const inside = [
      '127.0.0.1',
      '10.1.1.1',
      '172.16.0.1',
      '192.168.1.1',
      '169.254.169.254',
      '100.64.0.1',
      '0.0.0.0',
      '224.0.0.1',
      '255.255.255.255',
    ]
    for (const address of [
      ...inside,
      '::1',
      '::',
      'fe80::1',
      'fd00::1',
      'ff02::1',
      '::ffff:127.0.0.1',
      '::ffff:10.0.0.1',
      '64:ff9b::7f00:1',
      '2002:7f00:1::',
      'no address',
      '',
    ])
      expect([address, isPrivateAddress(address)]).toEqual([address, true])
    for (const address of ['8.8.8.8', '172.32.0.1', '2606:4700::1111'])
      expect([address, isPrivateAddress(address)]).toEqual([address, false])
  })
})

describe.runIf(isUsable)('browserTools', () => {
  let [port, seen]: [number, string[]] = [0, []]
  const pages: Readonly<Record<string, string>> = {
    '/': '<title>Home</title><h1>Hello</h1><p hidden>secret</p><input id=name><a id=go href="/form">go</a><div style="height:3000px"></div>',
    '/form': '<title>Form</title>here',
    '/meta': '<meta http-equiv="refresh" content="0;url=http://evilsite.test:PORT/meta">',
    '/script': '<script>location = "http://evilsite.test:PORT/script"</script>',
    '/link': '<a id=out href="http://evilsite.test:PORT/link">out</a>',
    '/form-out': '<form action="http://evilsite.test:PORT/form"><button id=out>send</button></form>',
    '/open': '<button id=out onclick="window.open(\'http://evilsite.test:PORT/open\')">open</button>',
    '/resources':
      '<img src="http://evilsite.test:PORT/img"><script src="http://evilsite.test:PORT/js"></script><link rel=stylesheet href="http://evilsite.test:PORT/css"><iframe src="http://evilsite.test:PORT/frame"></iframe><link rel=preconnect href="http://evilsite.test:PORT"><link rel=prefetch href="http://evilsite.test:PORT/prefetch">',
    '/fetch':
      '<script>fetch("http://evilsite.test:PORT/fetch", {mode: "no-cors"}); navigator.sendBeacon("http://evilsite.test:PORT/beacon"); new WebSocket("ws://evilsite.test:PORT/ws"); new EventSource("http://evilsite.test:PORT/events")</script>',
    '/worker':
      '<script>navigator.serviceWorker?.register("/sw.js").then(() => document.title = "registered", () => document.title = "blocked"); new Worker(URL.createObjectURL(new Blob(["fetch(\'http://evilsite.test:PORT/worker\', {mode: \'no-cors\'})"])))</script>',
    '/local':
      '<iframe src="file:///etc/passwd"></iframe><img src="http://127.0.0.1:PORT/local"><img src="http://[::1]:PORT/local6"><img src="http://localhost:PORT/local"><img src="http://2130706433:PORT/number">',
    '/download': '<a id=out href="/file.bin" download>get</a>',
    '/cookie':
      '<script>document.title = document.cookie || "none"; document.cookie = "a=1"; localStorage.x ??= 0; localStorage.x++</script>',
    '/loop': '<script>for (;;);</script>',
    '/dialog': '<script>alert("stop")</script><title>after</title>',
  }
  const site = createServer(({ url = '/', headers }, answer) => {
    seen.push(`${headers.host?.split(':')[0]}${url}`)
    if (url === '/redirect')
      return void answer.writeHead(302, { location: `http://evilsite.test:${port}/redirect` }).end()
    if (url === '/chain') return void answer.writeHead(302, { location: '/redirect' }).end()
    if (url === '/to-file') return void answer.writeHead(302, { location: 'file:///etc/passwd' }).end()
    if (url === '/sw.js') return void answer.writeHead(200, { 'content-type': 'text/javascript' }).end('')
    if (url === '/file.bin')
      return void answer.writeHead(200, { 'content-disposition': 'attachment' }).end('data')
    if (url === '/hang') return
    if (headers.host?.startsWith('evilsite'))
      return void answer.writeHead(200, { 'content-type': 'text/html' }).end('evil')
    answer
      .writeHead(200, { 'content-type': 'text/html' })
      .end((pages[url] ?? '').replaceAll('PORT', String(port)))
  })
  const lookup = async (host: string) => [host === 'rebind.site.test' ? '10.0.0.1' : '127.0.0.1']
  const open: AsyncDisposable[] = []

  beforeAll(async () => {
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve))
    const address = site.address()
    port = typeof address === 'object' && address !== null ? address.port : 0
  })

  afterAll(async () => {
    await Promise.all(open.map((browser) => browser[Symbol.asyncDispose]()))
    site.closeAllConnections()
    site.close()
  })

  /** A browser for which every name leads to the test's site. */
  function browserOf(options: Partial<BrowserToolsOptions> = {}) {
    const rules = {
      allowedHosts: ['site.test'],
      allowsPrivate: true,
      lookup,
      executablePath,
      timeoutMs: 20_000,
    }
    const [browser] = browserTools({ ...rules, ...options })
    open.push(browser)
    const runner = new ToolRunner({ tools: [browser], timeoutMs: 60_000 })
    const conversation = new AbortController()
    const act = async (args: Readonly<Record<string, unknown>>, signal = conversation.signal) => {
      const [result] = await runner.run([{ tool: 'browser', args: args as never, tag: null }], {
        messages: [],
        conversation: signal,
      })
      return result?.ok ? (result.value as Record<string, unknown>) : { error: result?.error.message }
    }
    const visit = (path: string) => act({ action: 'navigate', url: `http://site.test:${port}${path}` })
    return { browser, conversation, act, visit }
  }
  const shared = browserOf()

  it('navigates, clicks, types, scrolls, extracts what is seen, and makes screenshots', async () => {
    const { act, visit } = shared
    expect(await visit('/')).toEqual({ status: 200, url: `http://site.test:${port}/`, title: 'Home' })
    expect(await act({ action: 'extract' })).toMatchObject({
      text: expect.stringMatching(/^Hello/),
      isCut: false,
    })
    expect(JSON.stringify(await act({ action: 'extract' }))).not.toContain('secret')
    expect(await act({ action: 'extract', selector: 'h1' })).toMatchObject({ text: 'Hello' })
    expect(await act({ action: 'type', selector: '#name', text: 'me' })).toMatchObject({ title: 'Home' })
    expect(await act({ action: 'scroll', amount: 500 })).toMatchObject({ title: 'Home' })
    expect(await act({ action: 'screenshot' })).toMatch(/^\[image image\/png, \d+ bytes\]$/)
    expect(await act({ action: 'click', selector: '#go' })).toMatchObject({ title: 'Form' })
    expect(await act({ action: 'click' })).toMatchObject({
      error: expect.stringMatching(/selector must be given/),
    })
    expect(await act({ action: 'fly' })).toMatchObject({ error: expect.stringMatching(/schema/) })
    expect(await visit('/dialog')).toMatchObject({ title: 'after' })
  })

  it.each([
    'http://evilsite.test:PORT/',
    'http://site.test.evil:PORT/',
    'file:///etc/passwd',
    'javascript:alert(1)',
    'data:text/html,hi',
    'chrome://version',
    'view-source:http://site.test',
    'http://127.0.0.1:PORT/',
    'ftp://site.test',
    '',
    'http://site.test@evilsite.test:PORT/',
  ])('refuses to navigate to %s', async (url) => {
    const result = await shared.act({ action: 'navigate', url: url.replace('PORT', String(port)) })
    expect(result.error).toMatch(/url must be of http or https, at site\.test/)
  })

  it.each([
    '/redirect',
    '/chain',
    '/to-file',
    '/meta',
    '/script',
    '/resources',
    '/fetch',
    '/worker',
    '/local',
  ])('lets nothing out at the trap %s', async (path) => {
    seen = []
    await shared.visit(path)
    await shared.act({ action: 'click', selector: 'body' })
    const { text = '' } = await shared.act({ action: 'extract' })
    expect(String(text)).not.toMatch(/root:/)
    expect(seen.filter((one) => !one.startsWith('site.test/'))).toEqual([])
    const { url } = await shared.visit('/')
    expect(url).toBe(`http://site.test:${port}/`)
  })

  it.each(['/link', '/form-out', '/open', '/download'])('lets nothing out at a click at %s', async (path) => {
    seen = []
    await shared.visit(path)
    const clicked = await shared.act({ action: 'click', selector: '#out' })
    if (path === '/open') expect(clicked.popups).toHaveLength(1)
    expect(seen.filter((one) => !one.startsWith('site.test/'))).toEqual([])
    const { text = '' } = await shared.act({ action: 'extract' })
    expect(String(text)).not.toMatch(/evil/)
  })

  it('has traps that are real: where the other host is allowed, each of them reaches it', async () => {
    const { visit, act, browser } = browserOf({ allowedHosts: ['site.test', 'evilsite.test'] })
    for (const path of ['/redirect', '/meta', '/script', '/resources', '/fetch', '/worker', '/open']) {
      seen = []
      await visit(path)
      await act({ action: 'click', selector: path === '/open' ? '#out' : 'body' })
      expect([path, seen.some((one) => one.startsWith('evilsite.test/'))]).toEqual([path, true])
    }
    await browser[Symbol.asyncDispose]()
  })

  it('registers no service worker, where a page could have one', async () => {
    const { act, browser } = browserOf({ allowedHosts: ['site.localhost'] })
    seen = []
    expect(await act({ action: 'navigate', url: `http://site.localhost:${port}/worker` })).toMatchObject({
      status: 200,
    })
    await act({ action: 'click', selector: 'body' })
    expect(seen).toEqual(['site.localhost/worker'])
    await browser[Symbol.asyncDispose]()
  })

  it('gives each conversation a context of its own, which ends with it', async () => {
    const { act, visit } = shared
    await visit('/cookie')
    expect(await visit('/cookie')).toMatchObject({ title: 'a=1' })
    const other = new AbortController()
    const url = `http://site.test:${port}/cookie`
    expect(await act({ action: 'navigate', url }, other.signal)).toMatchObject({ title: 'none' })
    other.abort()
    expect(await act({ action: 'extract' }, other.signal)).toMatchObject({
      error: expect.stringMatching(/has ended/),
    })
  })

  it('refuses private addresses, also those that a name leads to', async () => {
    const { act, browser } = browserOf({
      allowsPrivate: false,
      allowedHosts: ['site.test', '127.0.0.1'],
      timeoutMs: 5_000,
    })
    seen = []
    for (const host of ['site.test', 'rebind.site.test', '127.0.0.1'])
      await act({ action: 'navigate', url: `http://${host}:${port}/` })
    expect(seen).toEqual([])
    await browser[Symbol.asyncDispose]()
  })

  it('ends a page that hangs, and starts another browser after one died', async () => {
    const before = await children()
    const { visit, act, browser } = browserOf({ timeoutMs: 3_000, images: 'part' })
    expect(await visit('/hang')).toMatchObject({ error: expect.stringMatching(/timeout/i) })
    expect(await visit('/')).toMatchObject({ title: 'Home' })
    for (const id of await children()) if (!before.includes(id)) process.kill(id, 'SIGKILL')
    for (let tries = 0; tries < 50 && 'title' in (await act({ action: 'scroll' })); tries++)
      await new Promise(setImmediate)
    expect(await visit('/')).toMatchObject({ title: 'Home' })
    expect(await act({ action: 'screenshot' })).toEqual([
      { type: 'image_url', image_url: { url: expect.stringMatching(/^data:image\/png;base64,iVBOR/) } },
    ])
    await browser[Symbol.asyncDispose]()
    expect(await visit('/')).toMatchObject({ error: expect.stringMatching(/were closed/) })
    while ((await children()).length > before.length) await new Promise(setImmediate)
  })

  it('holds at most `maxContexts` contexts', async () => {
    const { act, browser } = browserOf({ maxContexts: 1 })
    const [one, other] = [new AbortController(), new AbortController()]
    const url = `http://site.test:${port}/`
    expect(await act({ action: 'navigate', url }, one.signal)).toMatchObject({ title: 'Home' })
    expect(await act({ action: 'navigate', url }, other.signal)).toMatchObject({
      error: expect.stringMatching(/at most 1 at once/),
    })
    one.abort()
    expect(await act({ action: 'navigate', url }, other.signal)).toMatchObject({ title: 'Home' })
    await browser[Symbol.asyncDispose]()
  })
})

/** Browsers that this process started. */
async function children(): Promise<number[]> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const stats = await Promise.all(ids.map((id) => readFile(`/proc/${id}/stat`, 'utf8').catch(() => '')))
  const isOurs = (stat: string) =>
    /\(chrom\S*\) [^Z]/.test(stat) && stat.split(') ')[1]?.split(' ')[1] === String(process.pid)
  return ids.filter((_, index) => isOurs(stats[index] ?? '')).map(Number)
}

describe('BrowserProxy', () => {
  it('answers without its password with 407, and wrong requests with 400', async () => {
    const proxy = await BrowserProxy.open({
      allowedHosts: ['a.test'],
      allowsPrivate: true,
      lookup: async () => ['127.0.0.1'],
    })
    const status = (path: string, authorization?: string) =>
      new Promise((resolve) => {
        const headers = authorization === undefined ? {} : { 'proxy-authorization': authorization }
        request({ port: proxy.port, path, headers }, (answer) => resolve(answer.resume().statusCode)).end()
      })
    const known = `Basic ${Buffer.from(`fulmar:${proxy.password}`).toString('base64')}`
    expect(await status('http://a.test/')).toBe(407)
    expect(await status('http://a.test/', known.replace(/.$/, ''))).toBe(407)
    expect(await status('/path', known)).toBe(400)
    expect(await status('http://b.test/', known)).toBe(403)
    expect(proxy.refused).toEqual(['b.test'])
    const raw = (text: string) =>
      new Promise((resolve) => {
        let heard = ''
        const socket = connect(proxy.port, '127.0.0.1', () => socket.write(text))
        socket.on('data', (bytes) => {
          heard += bytes
        })
        socket.on('close', () => resolve(heard))
      })
    expect(await raw('CONNECT a.test:443 HTTP/1.1\r\n\r\n')).toMatch(/^HTTP\/1\.1 407/)
    expect(await raw(`CONNECT b.test:443 HTTP/1.1\r\nproxy-authorization: ${known}\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 403/,
    )
    proxy.close()
  })
})

describe('browserTools', () => {
  it('refuses wrong options, and says what is missing', async () => {
    expect(() => browserTools({ allowed: [] } as never)).toThrow(failing('UNKNOWN_NAME', /allow/))
    expect(() => browserTools({ timeoutMs: 0 })).toThrow(failing('OUT_OF_RANGE', /timeoutMs/))
    expect(() => browserTools({ images: 'parts' as never })).toThrow(failing('UNKNOWN_NAME', /images/))
    const [browser] = browserTools({ executablePath: '/no/such/chromium' })
    const call = { tool: 'browser', args: { action: 'extract' }, tag: null }
    const runner = new ToolRunner({ tools: [browser] })
    const [lost] = await runner.run([call], { messages: [], conversation: new AbortController().signal })
    expect(lost).toMatchObject({
      ok: false,
      error: { message: expect.stringMatching(/executablePath must be that of Chromium/) },
    })
    const [nobody] = await runner.run([call], { messages: [] })
    expect(nobody).toMatchObject({
      ok: false,
      error: { message: expect.stringMatching(/conversation must be given/) },
    })
    await browser[Symbol.asyncDispose]()
  })
})
