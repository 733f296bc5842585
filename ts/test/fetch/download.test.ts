/** Golden rows of transfers: each case has a server that does it. */

import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { downloadFile, type RemoteFile } from '../../src/fetch/download.js'
import { fetchHubFile, fetchSnapshot, type HubFileOptions } from '../../src/fetch/index.js'
import { REDIRECTS_MAX, type Transfer } from '../../src/fetch/transfer.js'
import { defaultHttpClient, fetchClient } from '../../src/native/index.js'
import { systemClock } from '../../src/telemetry/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { DueClock, LIMIT_MS } from './due-clock.js'
import { cut, type FakeHub, serve, sha256, someBytes, startHub } from './fake-hub.js'

const GOLDEN = new URL('../../../tests/golden/fetch/transfer.jsonl', import.meta.url)
const SIZE = 300_000
const BODY = someBytes(SIZE)
const SUM = sha256(BODY)

interface World {
  readonly hub: FakeHub
  readonly clock: DueClock
  readonly cache: string
  /** Fetches `big.h5` and returns its bytes. */
  readonly fetch: (options?: HubFileOptions) => Promise<Uint8Array>
  /** Files of the folder of blobs. */
  readonly blobs: () => Promise<string[]>
  /** Names in the snapshots. */
  readonly named: () => Promise<string[]>
}

async function world(): Promise<World> {
  const hub = await startHub({ files: { 'big.h5': BODY, 'small.txt': 'small' } })
  const [clock, cache] = [new DueClock(), await temporaryFolder()]
  const options = { clock, cache, endpoint: hub.endpoint, stallTimeoutMs: LIMIT_MS }
  const folder = join(cache, 'models--Org--Name')
  const namesIn = (path: string) => readdir(path, { recursive: true }).catch(() => [])
  return {
    ...{ hub, clock, cache },
    fetch: async (more = {}) =>
      await readFile(await fetchHubFile('Org/Name', 'big.h5', { ...options, ...more })),
    blobs: () => namesIn(join(folder, 'blobs')),
    named: async () => (await namesIn(join(folder, 'snapshots'))).filter((name) => name.includes('.')),
  }
}

/** Does `fault` to the first `count` requests of files. */
function failFirst(
  { hub }: World,
  count: number,
  fault: (response: ServerResponse, body: Uint8Array) => void,
  host: 'hub' | 'files' = 'files',
): void {
  let numFaults = 0
  hub.fault = (seen, response, body) => {
    if (seen.host !== host || body === undefined || numFaults === count) return false
    numFaults++
    fault(response, body)
    return true
  }
}

const bytesSent = ({ hub }: World) =>
  hub.seen.filter(({ host }) => host === 'files').reduce((sum, { bytes }) => sum + bytes, 0)

const status =
  (code: number, headers: Record<string, string> = {}) =>
  (response: ServerResponse) => {
    response.writeHead(code, headers)
    response.end()
  }

/** Arguments of {@link downloadFile} for one file of a server. */
async function single(hub: FakeHub, path: string, more: Partial<RemoteFile> = {}) {
  const client = defaultHttpClient({ numConnections: 1 })
  const transfer: Transfer = {
    client,
    clock: new DueClock(),
    signal: undefined,
    retries: 5,
    stallTimeoutMs: LIMIT_MS,
  }
  const url = `${hub.endpoint}/Org/Name/resolve/main/small.txt`
  const file = { label: 'the file', url, ...more }
  const options = { transfer, path, lockPath: `${path}.lock`, force: false, onBytes: () => {} }
  return { file, options }
}

const CASES: Readonly<Record<string, () => Promise<void>>> = {
  'the body is shorter than content-length': async () => {
    const here = await world()
    failFirst(here, 2, (response, body) => cut(response, body, SIZE / 3))
    expect(sha256(await here.fetch())).toBe(SUM)
    expect(here.hub.seen.filter(({ host }) => host === 'files').map(({ range }) => range)).toHaveLength(3)
    const other = await world()
    failFirst(other, 99, (response, body) => cut(response, body, 10))
    await expect(other.fetch({ retries: 2 })).rejects.toThrow(failing('IO', /big\.h5|cdn.* 3 times/))
    expect(other.hub.seen.filter(({ host }) => host === 'files')).toHaveLength(3)
    expect(await other.named()).toEqual([])
  },
  'content-length is missing': async () => {
    const here = await world()
    const totals: unknown[] = []
    const path = join(here.cache, 'file')
    here.hub.fault = (_, response, body) => {
      response.writeHead(200, { 'transfer-encoding': 'chunked' })
      response.end(body)
      return true
    }
    const { file, options } = await single(here.hub, path)
    await downloadFile(file, { ...options, onBytes: (bytes, total) => totals.push([bytes, total]) })
    expect(await readFile(path, 'utf8')).toBe('small')
    expect(totals.at(-1)).toEqual([5, undefined])
  },
  'the SHA-256 differs from x-linked-etag': async () => {
    const here = await world()
    const other = Uint8Array.from(BODY, (byte) => byte ^ 1)
    here.hub.fault = (seen, response) => {
      if (seen.host === 'hub') return false
      serve(seen, response, other, '"x"')
      return true
    }
    const sums = new RegExp(`big\\.h5 must have the sha256 ${sha256(BODY)}: got ${sha256(other)}`)
    await expect(here.fetch()).rejects.toThrow(failing('CORRUPT', sums))
    expect(await here.blobs()).toEqual([])
    expect(await here.named()).toEqual([])
  },
  '416 on resuming: the part is longer than the file': async () => {
    const here = await world()
    const path = join(here.cache, 'file')
    await writeFile(`${path}.incomplete`, 'much longer')
    await writeFile(`${path}.incomplete.json`, JSON.stringify({ validator: '"x"' }))
    here.hub.fault = (seen, response, body) => {
      serve({ ...seen, ifRange: null }, response, body ?? new Uint8Array(), '"x"')
      return true
    }
    const { file, options } = await single(here.hub, path)
    await downloadFile(file, options)
    expect(await readFile(path, 'utf8')).toBe('small')
    expect(here.hub.seen.map(({ range }) => range)).toEqual(['bytes=11-', null])
  },
  'the ETag changed between two parts': async () => {
    const here = await world()
    failFirst(here, 1, (response, body) =>
      cut(
        response,
        body.map((byte) => byte ^ 1),
        SIZE / 2,
        '"older"',
      ),
    )
    expect(sha256(await here.fetch())).toBe(SUM)
    const [, second] = here.hub.seen.filter(({ host }) => host === 'files')
    expect(second).toMatchObject({ ifRange: '"older"', status: 200, bytes: SIZE })
  },
  '200 to a Range request': async () => {
    const here = await world()
    const counts: number[] = []
    let numAsked = 0
    here.hub.fault = (seen, response, body) => {
      if (seen.host === 'hub' || body === undefined) return false
      if (numAsked++ === 0) cut(response, body, SIZE / 2)
      else serve({ ...seen, range: null }, response, body, '"x"')
      return true
    }
    expect(sha256(await here.fetch({ onProgress: ({ bytes }) => counts.push(bytes) }))).toBe(SUM)
    expect(Math.max(...counts)).toBe(SIZE)
    expect(counts.lastIndexOf(0)).toBeGreaterThan(counts.findIndex((bytes) => bytes > 0))
  },
  '302 to a loop': async () => {
    const here = await world()
    here.hub.fault = ({ host }, response) => {
      if (host === 'hub') return false
      status(302, { location: '/again' })(response)
      return true
    }
    await expect(here.fetch()).rejects.toThrow(failing('LIMIT_EXCEEDED', /redirects must be at most 10/))
    expect(here.hub.seen.filter(({ host }) => host === 'files')).toHaveLength(REDIRECTS_MAX + 1)
  },
  '302 to file: or to plain http from https': async () => {
    const here = await world()
    failFirst(here, 1, status(302, { location: 'file:///etc/passwd' }))
    await expect(here.fetch()).rejects.toThrow(failing('FORBIDDEN', /must lead to http or https: got file:/))
    const asked: string[] = []
    const client = fetchClient(async (url) => {
      asked.push(url)
      return new Response(null, { status: 302, headers: { location: 'http://other.example/big.h5' } })
    })
    await expect(here.fetch({ client, endpoint: 'https://hub.example' })).rejects.toThrow(
      failing('FORBIDDEN', /must stay on https: got http:\/\/other\.example/),
    )
    expect(asked).toHaveLength(1)
  },
  '401, 403 (gated)': async () => {
    for (const code of [401, 403]) {
      const here = await world()
      failFirst(here, 1, status(code), 'hub')
      await expect(here.fetch()).rejects.toThrow(
        failing('FORBIDDEN', /token: there is none.*settings\/tokens/),
      )
      expect(here.hub.seen).toHaveLength(1)
    }
  },
  '404': async () => {
    const here = await world()
    here.hub.files.delete('big.h5')
    await expect(here.fetch()).rejects.toThrow(failing('IO', /Org\/Name@main: big\.h5/))
    expect(here.hub.seen).toHaveLength(1)
  },
  '429 with retry-after, 503': async () => {
    const here = await world()
    failFirst(here, 1, status(429, { 'retry-after': '7' }))
    expect(sha256(await here.fetch())).toBe(SUM)
    expect(here.clock.pauses).toEqual([7_000])
    const other = await world()
    failFirst(other, 2, status(503))
    expect(sha256(await other.fetch())).toBe(SUM)
    expect(other.clock.pauses).toEqual([500, 1_000])
    const long = await world()
    failFirst(long, 1, status(429, { 'retry-after': '99999' }))
    await long.fetch()
    expect(long.clock.pauses).toEqual([300_000])
  },
  '500 five times': async () => {
    const here = await world()
    failFirst(here, 5, status(500))
    await expect(here.fetch({ retries: 4 })).rejects.toThrow(failing('IO', /status 500, 5 times/))
    expect(sha256(await here.fetch({ retries: 4 }))).toBe(SUM)
    const other = await world()
    failFirst(other, 5, status(500))
    expect(sha256(await other.fetch())).toBe(SUM)
  },
  'connection closed in the headers': async () => {
    const here = await world()
    failFirst(here, 1, (response) => response.socket?.end('HTTP/1.1 200 OK\r\ncontent-le'))
    expect(sha256(await here.fetch())).toBe(SUM)
    expect(here.clock.pauses).toEqual([500])
  },
  'disk full while writing': async () => {
    const here = await world()
    const path = join(here.cache, 'file')
    const { file, options } = await single(here.hub, path, {
      checksum: { algorithm: 'sha256', hex: sha256(Buffer.from('small')) },
    })
    const full = Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
    const writeAt = async (
      handle: { write: (bytes: Uint8Array, at: number, count: number, to: number) => unknown },
      bytes: Uint8Array,
    ) => {
      await handle.write(bytes, 0, 2, 0)
      throw full
    }
    await expect(downloadFile(file, { ...options, writeAt })).rejects.toThrow(failing('IO', /no space left/))
    expect(await readFile(`${path}.incomplete`, 'utf8')).toBe('sm')
    expect(here.hub.seen).toHaveLength(1)
    await downloadFile(file, options)
    expect(await readFile(path, 'utf8')).toBe('small')
    expect(here.hub.seen.at(-1)).toMatchObject({ range: 'bytes=2-', bytes: 3 })
    expect(await readdir(here.cache)).toEqual(['file'])
  },
  'two processes fetch one file': async () => {
    const here = await world()
    const both = await Promise.all([here.fetch({ clock: systemClock }), here.fetch({ clock: systemClock })])
    for (const bytes of both) expect(sha256(bytes)).toBe(SUM)
    expect(here.hub.seen.filter(({ host }) => host === 'files')).toHaveLength(1)
  },
  'killed at any byte': async () => {
    for (const count of [0, 1, 2, 99_999, SIZE - 1, SIZE]) {
      const here = await world()
      await here.fetch()
      const blob = join(here.cache, 'models--Org--Name', 'blobs', sha256(BODY))
      const { rm } = await import('node:fs/promises')
      await rm(blob)
      await writeFile(`${blob}.incomplete`, BODY.subarray(0, count))
      // As a process leaves it that was killed: its lock is there, and its id is of none.
      const { hostname } = await import('node:os')
      const locks = join(here.cache, '.locks', 'models--Org--Name')
      const owner = JSON.stringify({ pid: 2 ** 30, host: hostname(), id: 'x' })
      await writeFile(join(locks, `${sha256(BODY)}.fulmar.lock`), owner)
      here.hub.seen.length = 0
      expect(sha256(await here.fetch())).toBe(SUM)
      expect(bytesSent(here)).toBe(SIZE - count)
      expect(await here.blobs()).toEqual([sha256(BODY)])
      expect(await readdir(locks)).toEqual([])
    }
  },
  'a file name with .. or a NUL or a drive letter from the server': async () => {
    for (const path of ['a/../../x', 'a\0', 'C:\\x', 'c:/x']) {
      const hub = await startHub({ files: {}, listed: [{ type: 'file', path, size: 1 }] })
      const options = { endpoint: hub.endpoint, cache: await temporaryFolder() }
      await expect(fetchSnapshot('Org/Name', options)).rejects.toThrow(failing('CORRUPT', /below its folder/))
    }
  },
  'a listing of 10^6 files or of 100 MB': async () => {
    const cache = await temporaryFolder()
    const pageOf = (numFiles: number, from: number) =>
      JSON.stringify(
        Array.from({ length: numFiles }, (_, at) => ({ type: 'file', path: `f${from + at}`, size: 1 })),
      )
    const listing = (page: (numAsked: number) => string) => {
      let numAsked = 0
      return fetchClient(async (url) => {
        if (url.includes('/revision/')) return new Response(JSON.stringify({ sha: '0'.repeat(40) }))
        const link = `<${url.split('&cursor')[0]}&cursor=${numAsked}>; rel="next"`
        return new Response(page(numAsked++), { headers: { link } })
      })
    }
    const fetch = (page: (numAsked: number) => string) =>
      fetchSnapshot('Org/Name', {
        client: listing(page),
        endpoint: 'https://hub.example',
        cache,
        stallTimeoutMs: LIMIT_MS,
      })
    const files = fetch((numAsked) => pageOf(50_000, numAsked * 50_000))
    await expect(files).rejects.toThrow(failing('LIMIT_EXCEEDED', /at most 100000 files/))
    const long = `[${' '.repeat(40e6)}]`
    await expect(fetch(() => long)).rejects.toThrow(failing('LIMIT_EXCEEDED', /bytes/))
    await expect(fetch(() => '[]')).rejects.toThrow(failing('LIMIT_EXCEEDED', /at most 1000 pages/))
  },
}

beforeEach(() => {
  for (const name of ['HF_ENDPOINT', 'HF_HOME', 'HF_HUB_CACHE', 'HF_TOKEN', 'HF_HUB_OFFLINE'])
    vi.stubEnv(name, '')
  return () => vi.unstubAllEnvs()
})

describe('a transfer', async () => {
  const rows = (await readFile(GOLDEN, 'utf8')).trimEnd().split('\n')
  const cases: { case: string; must: string }[] = rows.map((line) => JSON.parse(line))

  it('has a test for each golden row', () => {
    expect(Object.keys(CASES).sort()).toEqual(cases.map((row) => row.case).sort())
  })

  for (const row of cases) it(`${row.case}: ${row.must}`, async () => await CASES[row.case]?.())
})

describe('downloadFile', () => {
  it('resumes a connection that breaks, and fetches at most 1.2 times the bytes', async () => {
    const here = await world()
    const body = someBytes(3_000_000)
    const etag = `"${sha256(body)}"`
    here.hub.files.set('big.h5', body)
    let numCuts = 0
    here.hub.fault = (seen, response) => {
      if (seen.host === 'hub' || numCuts === 2) return false
      numCuts++
      const start = Number(seen.range?.slice('bytes='.length, -1) ?? 0)
      const range = { 'content-range': `bytes ${start}-${body.length - 1}/${body.length}` }
      const isRest = start > 0
      response.writeHead(isRest ? 206 : 200, {
        etag,
        'content-length': body.length - start,
        ...(isRest && range),
      })
      response.write(body.subarray(start, start + 1_000_000), () => setImmediate(() => response.destroy()))
      return true
    }
    expect(sha256(await here.fetch())).toBe(sha256(body))
    expect(bytesSent(here)).toBeLessThanOrEqual(1.2 * body.length)
    const [first, ...others] = here.hub.seen.filter(({ host }) => host === 'files')
    expect(first?.range).toBeNull()
    expect(others.map(({ ifRange, range }) => [ifRange, range !== null])).toEqual([
      [etag, true],
      [etag, true],
    ])
  })

  it('asks for a new signed URL where the old one has ended', async () => {
    const here = await world()
    failFirst(here, 1, status(403))
    expect(sha256(await here.fetch())).toBe(SUM)
    expect(here.hub.seen.map(({ method, host }) => `${method} ${host}`)).toEqual([
      ...['HEAD hub', 'GET files', 'HEAD hub', 'GET files'],
    ])
  })

  it('stops once the signal fires, and the next call fetches the rest', async () => {
    const here = await world()
    const stopping = new AbortController()
    failFirst(here, 1, (response, body) => {
      response.writeHead(200, { etag: `"${sha256(body)}"`, 'content-length': SIZE })
      response.write(body.subarray(0, 1_000))
    })
    const onProgress = ({ bytes }: { bytes: number }) => {
      if (bytes === 1_000) stopping.abort()
    }
    await expect(here.fetch({ signal: stopping.signal, onProgress })).rejects.toThrow(failing('ABORTED'))
    expect(await here.blobs()).toEqual([`${sha256(BODY)}.incomplete`, `${sha256(BODY)}.incomplete.json`])
    expect(await readdir(join(here.cache, '.locks', 'models--Org--Name'))).toEqual([])
    here.hub.seen.length = 0
    expect(sha256(await here.fetch())).toBe(SUM)
    expect(bytesSent(here)).toBe(SIZE - 1_000)
    await expect(here.fetch({ signal: AbortSignal.abort(), force: true })).rejects.toThrow(failing('ABORTED'))
  })

  it('gives up on a server that sends nothing', async () => {
    const here = await world()
    here.hub.fault = () => true
    await expect(here.fetch({ stallTimeoutMs: 1, retries: 1 })).rejects.toThrow(
      failing('TIMEOUT', /within 1 ms.*2 times/),
    )
  })

  it('refuses more bytes than the size, and a body that is encoded', async () => {
    const here = await world()
    failFirst(here, 1, (response) => {
      response.writeHead(200, { 'transfer-encoding': 'chunked' })
      response.end(Buffer.concat([BODY, BODY]))
    })
    await expect(here.fetch()).rejects.toThrow(
      failing('CORRUPT', /must have 300000 bytes: the server sent more/),
    )
    failFirst(here, 1, (response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' })
      response.end('x')
    })
    await expect(here.fetch()).rejects.toThrow(failing('CORRUPT', /content-encoding gzip/))
    expect(await here.named()).toEqual([])
  })

  it('begins anew where the part that was there is of other bytes', async () => {
    const here = await world()
    await here.fetch()
    const blob = join(here.cache, 'models--Org--Name', 'blobs', sha256(BODY))
    await writeFile(`${blob}.incomplete`, Buffer.alloc(1_000))
    expect(sha256(await here.fetch({ force: true }))).toBe(SUM)
    expect((await stat(blob)).size).toBe(SIZE)
  })
})
