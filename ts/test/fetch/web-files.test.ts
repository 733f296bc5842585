import { readFile, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { BUCKET_OBJECTS_MAX } from '../../src/fetch/bucket.js'
import { fetchBucket, fetchFile } from '../../src/fetch/index.js'
import { fetchTemporaryFile } from '../../src/fetch/web-files.js'
import { fetchClient } from '../../src/native/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { DueClock, LIMIT_MS } from './due-clock.js'
import { portOf, sha256, started } from './fake-hub.js'

afterEach(() => void vi.unstubAllEnvs())

/** A server on loopback with the paths that it was asked. */
async function server(answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const asked: string[] = []
  const running = await started(
    createServer((request, response) => {
      asked.push(request.url ?? '')
      answer(request, response)
    }),
  )
  return { asked, url: `http://127.0.0.1:${portOf(running)}` }
}

const fast = async () => ({ clock: new DueClock(), stallTimeoutMs: LIMIT_MS, root: await temporaryFolder() })

/** A bucket with objects of some names; the body of each is its name. */
async function bucketServer(names: readonly string[]) {
  const { createHash } = await import('node:crypto')
  const about = (name: string) => ({
    ...{ name, size: String(name.length) },
    md5Hash: createHash('md5').update(name).digest('base64'),
  })
  return await server((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost')
    const object = /^\/storage\/v1\/b\/some-bucket\/o\/(.+)$/.exec(pathname)?.[1]
    if (object !== undefined) {
      const name = decodeURIComponent(object)
      if (!names.includes(name)) return void response.writeHead(404).end()
      return void response.end(searchParams.get('alt') === 'media' ? name : JSON.stringify(about(name)))
    }
    const prefix = searchParams.get('prefix') ?? ''
    const items = names.filter((name) => name.startsWith(prefix)).map(about)
    const from = Number(searchParams.get('pageToken') ?? 0)
    const next = from + 2 < items.length ? { nextPageToken: String(from + 2) } : {}
    response.end(JSON.stringify({ items: items.slice(from, from + 2), ...next }))
  })
}

describe('fetchFile', () => {
  it('fetches a file once, under its host and path, with a hash of its query', async () => {
    const { url, asked } = await server((request, response) => response.end(`rows of ${request.url}`))
    const options = await fast()
    const host = new URL(url).host.replace(':', '+')
    const path = await fetchFile(`${url}/data/a%20b.csv`, options)
    expect(path).toBe(join(options.root, 'web', host, 'data', 'a b.csv'))
    expect(await readFile(path, 'utf8')).toBe('rows of /data/a%20b.csv')
    expect(await fetchFile(`${url}/data/a%20b.csv`, options)).toBe(path)
    expect(asked).toHaveLength(1)
    const other = await fetchFile(`${url}/data/a%20b.csv?version=2`, options)
    expect(other).toMatch(/a b\.csv@[0-9a-f]{16}$/)
    await fetchFile(`${url}/data/a%20b.csv`, { ...options, force: true })
    expect(asked).toHaveLength(3)
    vi.stubEnv('FULMAR_HOME', options.root)
    const { root, ...others } = options
    expect(await fetchFile(`${url}/data/a%20b.csv`, { ...others, offline: true })).toBe(path)
    expect(asked).toHaveLength(3)
    await expect(fetchFile(`${url}/b.csv`, { root, offline: true })).rejects.toThrow(
      failing('UNAVAILABLE', /offline/),
    )
  })

  it('fetches a temporary file anew, as the one of an earlier process may be damaged', async () => {
    const { url, asked } = await server((_, response) => response.end('rows'))
    const options = await fast()
    const path = await fetchTemporaryFile(`${url}/a.hdf5`, options)
    await writeFile(path, '\0\0\0\0')
    expect(await readFile(await fetchTemporaryFile(`${url}/a.hdf5`, options), 'utf8')).toBe('rows')
    expect(asked).toHaveLength(2)
  })

  it('checks the sum that is asked for before the file has its name', async () => {
    const { url } = await server((_, response) => response.end('rows'))
    const options = await fast()
    const hex = sha256(Buffer.from('other'))
    const checksum = { algorithm: 'sha256', hex } as const
    await expect(fetchFile(`${url}/a`, { ...options, checksum })).rejects.toThrow(
      failing('CORRUPT', /sha256/),
    )
    await expect(fetchFile(`${url}/a`, { ...options, offline: true })).rejects.toThrow(failing('UNAVAILABLE'))
    const right = { algorithm: 'sha256', hex: sha256(Buffer.from('rows')).toUpperCase() } as const
    expect(await readFile(await fetchFile(`${url}/a`, { ...options, checksum: right }), 'utf8')).toBe('rows')
    const short = { algorithm: 'md5', hex: 'abc' } as const
    await expect(fetchFile(`${url}/a`, { ...options, checksum: short })).rejects.toThrow(
      failing('MALFORMED', /32/),
    )
    const unknown = { algorithm: 'crc', hex: 'abc' } as never
    await expect(fetchFile(`${url}/a`, { ...options, checksum: unknown })).rejects.toThrow(
      failing('UNKNOWN_NAME'),
    )
  })

  it('refuses URLs that name no file below the folder, or have a password in them', async () => {
    const options = await fast()
    for (const url of [
      'http://h/',
      'http://h/a/',
      'http://h/a%2f..%2f..%2fx',
      'http://h/a%00',
      'http://h/a%5cb',
      'http://u:p@h/a',
      'file:///x',
      'x',
      'gs://b',
      'gs://bucket/../x',
      'gs://bucket/',
    ])
      await expect(fetchFile(url, options)).rejects.toThrow(failing('MALFORMED'))
    await expect(fetchFile(7 as never)).rejects.toThrow(failing('MALFORMED', /url/))
  })

  it('fetches an object of a bucket, checked by its MD5', async () => {
    const { url } = await bucketServer(['dqn/a.gz'])
    const options = { ...(await fast()), endpoint: url }
    const path = await fetchFile('gs://some-bucket/dqn/a.gz', options)
    expect(path).toBe(join(options.root, 'gs', 'some-bucket', 'dqn', 'a.gz'))
    expect(await readFile(path, 'utf8')).toBe('dqn/a.gz')
    await expect(fetchFile('gs://some-bucket/no', options)).rejects.toThrow(
      failing('IO', /gs:\/\/some-bucket\/no/),
    )
    const wrong = fetchClient(async (asked) =>
      asked.includes('alt=media')
        ? new Response('dqn/x.gz')
        : new Response(JSON.stringify({ name: 'dqn/b.gz', size: '8', md5Hash: 'AAAAAAAAAAAAAAAAAAAAAA==' })),
    )
    await expect(fetchFile('gs://some-bucket/dqn/b.gz', { ...options, client: wrong })).rejects.toThrow(
      failing('CORRUPT', /md5/),
    )
  })
})

describe('fetchBucket', () => {
  it('fetches the objects of a prefix from all pages of the listing', async () => {
    const { url } = await bucketServer([
      'dqn/1.gz',
      'dqn/2.gz',
      'dqn/x/3.gz',
      'dqn/no.txt',
      'dqn/',
      'other/4.gz',
    ])
    const options = { ...(await fast()), endpoint: url, include: ['*.gz'] }
    const folder = await fetchBucket('gs://some-bucket/dqn/', options)
    for (const name of ['dqn/1.gz', 'dqn/2.gz', 'dqn/x/3.gz'])
      expect(await readFile(join(folder, name), 'utf8')).toBe(name)
    await expect(readFile(join(folder, 'dqn/no.txt'))).rejects.toThrow('ENOENT')
    await expect(readFile(join(folder, 'other/4.gz'))).rejects.toThrow('ENOENT')
    await expect(fetchBucket('gs://some-bucket/dqn/', { ...options, offline: true })).rejects.toThrow(
      failing('UNAVAILABLE'),
    )
  })

  it('refuses names that lead out of the folder, a private bucket, and more objects than the limit', async () => {
    const options = await fast()
    const answering = (answer: () => Response) => ({ ...options, client: fetchClient(async () => answer()) })
    const one = (name: string) =>
      answering(() => new Response(JSON.stringify({ items: [{ name, size: '1' }] })))
    for (const name of ['../x', 'a/../../x', '/x', 'a\0', 'c:/x'])
      await expect(fetchBucket('gs://bucket/', one(name))).rejects.toThrow(
        failing('CORRUPT', /below its folder/),
      )
    const closed = answering(() => new Response('', { status: 403 }))
    await expect(fetchBucket('gs://bucket/', closed)).rejects.toThrow(failing('FORBIDDEN', /public/))
    const items = Array.from({ length: BUCKET_OBJECTS_MAX / 2 }, (_, at) => ({ name: `f${at}`, size: '1' }))
    const page = JSON.stringify({ items, nextPageToken: 'x' })
    await expect(
      fetchBucket(
        'gs://bucket/',
        answering(() => new Response(page)),
      ),
    ).rejects.toThrow(failing('LIMIT_EXCEEDED', /100000 objects/))
  })
})
