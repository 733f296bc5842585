import { appendFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { DASHBOARD_RUNS_MAX } from '../../src/dashboard/dashboard.js'
import { Dashboard } from '../../src/dashboard/index.js'
import { PAGE_PATHS } from '../../src/dashboard/page-files.js'
import { SERIES_POINTS_MAX } from '../../src/dashboard/run-series.js'
import { fulmar } from '../cli/fake-io.js'
import { ask } from './http.js'
import { madeRun, newFolder } from './run-folders.js'

const PAGE_GZIP_BYTES_GOAL = 150_000

const json = async (url: string, path: string) => JSON.parse((await ask(url, path)).body)

describe('Dashboard', () => {
  it('describes runs and gives their curves, and follows a run that goes on', async () => {
    const folder = await madeRun()
    await using page = await Dashboard.open({ runs: [folder, await madeRun({ isFinished: true })] })
    const { runs } = await json(page.url, '/api/runs')
    expect(runs).toMatchObject([
      { id: 0, state: 'grpo step 2 of 4', isHere: true, numRollouts: 4, notes: [] },
      { id: 1, state: 'finished' },
    ])
    expect(runs[0].series).toEqual([
      'grpo/passRate',
      'grpo/reward',
      'grpo/kl',
      'grpo/rollout/output_tokens/mean',
      'grpo/entropy',
    ])
    const curve = { steps: [1, 2], values: [0.25, 0.5] }
    expect(await json(page.url, '/api/series?name=grpo/reward&name=grpo/absent&run=0')).toEqual({
      series: [
        { name: 'grpo/reward', curves: [{ run: 0, ...curve }] },
        { name: 'grpo/absent', curves: [{ run: 0, steps: [], values: [] }] },
      ],
    })
    const line = { event: 'step', phase: 'grpo', step: 3, numSteps: 4, metrics: { reward: 1 } }
    await appendFile(join(folder, 'log.jsonl'), `${JSON.stringify(line)}\n{"event":`)
    const later = await json(page.url, '/api/runs')
    expect(later.runs[0]).toMatchObject({ state: 'grpo step 3 of 4', notes: [] })
    await rm(folder, { recursive: true })
    const gone = await json(page.url, '/api/runs')
    expect(gone.runs[0]).toMatchObject({ state: 'grpo step 3 of 4', isHere: false })
    expect(gone.runs[1]).toMatchObject({ isHere: true })
  })

  it('averages a curve that is longer than a screen is wide', async () => {
    const folder = await newFolder()
    const lines = Array.from({ length: SERIES_POINTS_MAX + 1 }, (_, step) =>
      JSON.stringify({ event: 'step', phase: 'sft', step, numSteps: 1, metrics: { loss: step } }),
    )
    await writeFile(join(folder, 'log.jsonl'), `${lines.slice(0, -1).join('\n')}\n`)
    await using page = await Dashboard.open({ runs: [folder] })
    const at = (await json(page.url, '/api/series?name=sft/loss')).series[0].curves[0]
    expect(at.values).toHaveLength(SERIES_POINTS_MAX)
    await appendFile(join(folder, 'log.jsonl'), `${lines.at(-1)}\n`)
    await json(page.url, '/api/runs')
    const above = (await json(page.url, '/api/series?name=sft/loss')).series[0].curves[0]
    expect(above.values.slice(0, 2)).toEqual([0.5, 2.5])
    expect(above.values).toHaveLength(SERIES_POINTS_MAX / 2 + 1)
  })

  it('draws a chart of several runs as an SVG file, with names as text', async () => {
    const folder = join(await newFolder(), '<script>&"')
    await rm(folder, { recursive: true, force: true })
    const { cp } = await import('node:fs/promises')
    await cp(await madeRun(), folder, { recursive: true })
    await using page = await Dashboard.open({ runs: [await madeRun(), folder] })
    const { status, headers, body } = await ask(page.url, '/chart.svg?name=grpo/reward')
    expect(status).toBe(200)
    expect(headers).toMatchObject({
      'content-type': 'image/svg+xml',
      'content-disposition': 'attachment; filename="grpo-reward.svg"',
    })
    expect(body.match(/<polyline class="curve curve-run[01]" points="\d/g)).toHaveLength(2)
    expect(body).toContain('&lt;script&gt;&amp;&quot;')
    expect(body).not.toContain('<script')
    const other = await ask(page.url, `/chart.svg?name=${encodeURIComponent('a/"\r\n<b>')}&run=0`)
    expect(other.headers['content-disposition']).toBe('attachment; filename="a-b-.svg"')
    expect(other.body).toContain('aria-label="a/&quot;')
  })

  it('forbids the page everything but its own files', async () => {
    await using page = await Dashboard.open({ runs: [await madeRun()] })
    for (const path of ['/', '/app.js', '/api/runs', '/absent']) {
      const { headers } = await ask(page.url, path)
      const policy = headers['content-security-policy'] ?? ''
      expect(policy).toMatch(
        /^default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';/,
      )
      expect(policy).not.toMatch(/unsafe|data:|\*|http/)
      expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' })
      expect(headers['access-control-allow-origin']).toBeUndefined()
    }
    const { body } = await ask(page.url, '/')
    expect(body).not.toMatch(/<style|style=|<script>| on\w+=|https?:/)
  })

  it('answers only GET, for its own host', async () => {
    await using page = await Dashboard.open({ runs: [await madeRun()] })
    const { port } = new URL(page.url)
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH']) {
      const { status, headers } = await ask(page.url, '/api/runs', { method })
      expect([method, status, headers.allow]).toEqual([method, 405, 'GET'])
    }
    for (const host of [
      'evil.example',
      `evil.example:${port}`,
      '127.0.0.1',
      '127.0.0.1:1',
      `127.0.0.1:${port}.evil`,
      `localhost:${port}0`,
    ]) {
      const { status, body } = await ask(page.url, '/', { headers: { host } })
      expect([host, status]).toEqual([host, 403])
      expect(JSON.parse(body).error.code).toBe('foreign_host')
    }
    for (const host of [`127.0.0.1:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`])
      expect((await ask(page.url, '/', { headers: { host } })).status).toBe(200)
  })

  it('refuses raw requests that no browser sends, and goes on', async () => {
    await using page = await Dashboard.open({ runs: [await madeRun()] })
    const { port, host } = new URL(page.url)
    const refused: readonly (readonly [request: string, status: number])[] = [
      ['GET / HTTP/1.1\r\n\r\n', 400],
      ['GET / HTTP/1.0\r\n\r\n', 403],
      [`GET http://evil.example/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 400],
      [`GET //${host}/api/runs HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 404],
      [`GET / HTTP/1.1\r\nHost: evil.example\r\nHost: ${host}\r\n\r\n`, 403],
      [`CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 0],
      ['\u0000\u0001\r\n\r\n', 400],
      [`GET / HTTP/1.1\r\nHost: ${host}\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431],
    ]
    for (const [request, status] of refused)
      expect([request.slice(0, 60), await rawStatus(Number(port), request)]).toEqual([
        request.slice(0, 60),
        status,
      ])
    expect((await ask(page.url, '/')).status).toBe(200)
  })

  it('gives no file but those of its list, and names what a request got wrong', async () => {
    const folder = await madeRun()
    await using page = await Dashboard.open({ runs: [folder] })
    const paths = [
      '/../package.json',
      '/..%2fpackage.json',
      '//etc/passwd',
      '/page/app.js',
      '/config.json',
      '/%00',
      '/__proto__',
      '/constructor',
      `/${folder}/config.json`,
      '/app.js/',
      '/APP.JS',
    ]
    for (const path of paths) expect([path, (await ask(page.url, path)).status]).toEqual([path, 404])
    const refused = async (path: string) => {
      const { status, body } = await ask(page.url, path)
      return [status, JSON.parse(body).error.message]
    }
    expect(await refused('/api/series?name=a&run=1')).toEqual([
      400,
      'run must be an integer from 0 to 0: got 1',
    ])
    expect(await refused('/api/series?run=-1')).toEqual([400, 'run must be an integer from 0 to 0: got -1'])
    expect(await refused('/api/runs?x=1')).toEqual([400, expect.stringContaining('x must be one of')])
    expect(await refused('/chart.svg?name=a&name=b')).toEqual([
      400,
      'name must be given once: it is given twice',
    ])
    expect(await refused(`/api/series?${'name=a&'.repeat(65)}`)).toEqual([
      400,
      'name must be given at most 64 times: got 65',
    ])
    expect((await ask(page.url, `/api/series?name=${'a'.repeat(20_000)}`)).status).toBe(431)
  })

  it('refuses runs and ports that cannot be', async () => {
    const folder = await madeRun()
    const opening = (options: object) => Dashboard.open(options as { runs: string[] })
    await expect(opening({ runs: [] })).rejects.toMatchObject({ code: 'EMPTY' })
    await expect(opening({ runs: folder })).rejects.toMatchObject({ code: 'MALFORMED' })
    await expect(opening({ runs: ['/no/such/run'] })).rejects.toMatchObject({ code: 'IO' })
    await expect(opening({ runs: Array(DASHBOARD_RUNS_MAX + 1).fill(folder) })).rejects.toMatchObject({
      code: 'LIMIT_EXCEEDED',
    })
    await expect(opening({ runs: [folder], port: 65_536 })).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
    await expect(opening({ runs: [folder], prot: 1 })).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
    await using page = await opening({ runs: Array(DASHBOARD_RUNS_MAX).fill(folder) })
    const port = Number(new URL(page.url).port)
    await expect(opening({ runs: [folder], port })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  it('is small', async () => {
    await using page = await Dashboard.open({ runs: [await madeRun()] })
    let bytes = 0
    for (const path of PAGE_PATHS) {
      const { status, body } = await ask(page.url, path)
      expect([path, status]).toEqual([path, 200])
      bytes += gzipSync(body, { level: 9 }).length
    }
    process.stdout.write(`page: ${bytes} bytes behind gzip of ${PAGE_GZIP_BYTES_GOAL}\n`)
    expect(bytes).toBeLessThan(PAGE_GZIP_BYTES_GOAL)
  })
})

/** Sends bytes and returns the status of the answer; 0 if the connection ends without one. */
async function rawStatus(port: number, request: string): Promise<number> {
  return await new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    let text = ''
    socket.setEncoding('latin1').on('data', (chunk) => {
      text += chunk
      socket.end()
    })
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0)))
  })
}

describe('fulmar dashboard', () => {
  it('prints its address, and ends when the user stops it', async () => {
    const stop = new AbortController()
    let printed = ''
    const running = fulmar(['dashboard', await madeRun(), '--port', '0'], {
      signal: stop.signal,
      stdout: {
        write: (text) => {
          printed += text
          stop.abort()
        },
      },
    })
    expect(await running).toMatchObject({ code: 0, stderr: '' })
    expect(printed).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/\n$/)
    const refused = await fulmar(['dashboard', await madeRun(), '--port', 'x'])
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('--port must be an integer') })
  })
})
