import { mkdir, readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { FetchEvent } from '../../src/entry/fetch.js'
import { fetchHubFile, fetchSnapshot } from '../../src/fetch/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { DueClock, LIMIT_MS } from './due-clock.js'
import { COMMIT, someBytes, startHub } from './fake-hub.js'

interface HubRow {
  readonly id: string
  readonly args: {
    readonly filename: string
    readonly repo_id: string
    readonly local_files_only?: boolean
    readonly force_download?: boolean
  }
  readonly ok?: string
  readonly error?: { readonly class: string }
  readonly requests: readonly { method: string; host: string; path: string; status: number }[]
  readonly cache: readonly [string, number | string][]
}

const GOLDEN = new URL('../../../tests/golden/fetch/', import.meta.url)

beforeEach(() => {
  for (const name of ['HF_ENDPOINT', 'HF_HOME', 'HF_HUB_CACHE', 'HF_TOKEN', 'HF_HUB_OFFLINE'])
    vi.stubEnv(name, '')
  return () => vi.unstubAllEnvs()
})

const fast = () => ({ clock: new DueClock(), stallTimeoutMs: LIMIT_MS })

/** Every file of the cache with its length, and every link with its target. */
async function contentOf(cache: string): Promise<[string, number | string][]> {
  const entries = await readdir(cache, { recursive: true, withFileTypes: true })
  const content: [string, number | string][] = []
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    const name = path.slice(cache.length + 1)
    if (entry.isSymbolicLink()) content.push([name, `-> ${await readlink(path)}`])
    else if (entry.isFile()) content.push([name, (await stat(path)).size])
  }
  return content.sort(([a], [b]) => (a < b ? -1 : 1))
}

describe('fetchHubFile', () => {
  it('asks what the official client asks and leaves the cache that it leaves', async () => {
    const lines = (await readFile(new URL('hub.jsonl', GOLDEN), 'utf8')).trimEnd().split('\n')
    const rows = lines.map((line) => JSON.parse(line)).filter(({ topic }) => topic === 'hf_hub_download')
    const folder = 'DAPG(expert)/door_v2d-v1'
    const hub = await startHub({
      ...{ kind: 'dataset', repo: 'jdvakil/RoboSet_Sim', commit: 'f46dd07e4e95d960ad05dca34a7ef8a217ae1fd1' },
      files: {
        'README.md': 'tiny\n',
        [`${folder}/seed0.h5`]: await readFile(new URL('seed0.h5', GOLDEN)),
        [`${folder}/seed1.h5`]: await readFile(new URL('seed1.h5', GOLDEN)),
      },
    })
    const cache = await temporaryFolder()
    expect(rows).toHaveLength(10)
    for (const { id, args, ok, requests, cache: left } of rows as readonly HubRow[]) {
      const isResumed = id === 'hub-0010'
      if (isResumed) {
        const blob = '396ae48a09e56e68d0e667b63873c4e8de29e81e4af7135df640f2beccf26ade'
        const bytes = await readFile(new URL('seed1.h5', GOLDEN))
        const part = join(cache, 'datasets--jdvakil--RoboSet_Sim', 'blobs', `${blob}.incomplete`)
        await writeFile(part, bytes.subarray(0, 5004))
      }
      hub.seen.length = 0
      const got = await fetchHubFile(args.repo_id, args.filename, {
        ...fast(),
        ...{ kind: 'dataset', endpoint: hub.endpoint, cache },
        offline: args.local_files_only ?? false,
        force: args.force_download ?? false,
      }).catch((error: unknown) => error)
      if (ok === undefined) expect(got, id).toBeInstanceOf(Error)
      else expect(got, id).toBe(join(cache, ok.replace('<tmp>/hf/hub/', '')))
      const asked = hub.seen.map(({ method, host, path, status }) => ({ method, host, path, status }))
      expect(asked, id).toEqual(
        requests.map(({ method, host, path, status }) => ({
          ...{ method, host, path },
          status: isResumed && host === 'files' ? 206 : status,
        })),
      )
      const wanted = left.filter(([name]) => !name.endsWith('.incomplete'))
      expect(await contentOf(cache), id).toEqual(wanted)
      if (isResumed) expect(hub.seen.at(-1)).toMatchObject({ range: 'bytes=5004-', bytes: 5004 })
    }
  })

  it('names repository, revision and file of what is not there, and the token of what is gated', async () => {
    const hub = await startHub({ files: { 'a.txt': 'a' } })
    const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder() }
    await expect(fetchHubFile('Org/Name', 'no.txt', options)).rejects.toThrow(
      failing('IO', /Org\/Name@main: no\.txt .* no file no\.txt/),
    )
    await expect(fetchHubFile('a/b', 'x', options)).rejects.toThrow(failing('IO', /no model a\/b/))
    await expect(fetchHubFile('Org/Name', 'a.txt', { ...options, revision: 'v9' })).rejects.toThrow(
      failing('IO', /no revision v9/),
    )
    hub.fault = (_, response) => {
      response.writeHead(403, { 'x-error-code': 'GatedRepo' })
      response.end()
      return true
    }
    await expect(fetchHubFile('Org/Name', 'a.txt', options)).rejects.toThrow(
      failing('FORBIDDEN', /token.*settings\/tokens.*HF_TOKEN.*accept its terms at http.*Org\/Name/),
    )
  })

  it('opens no connection offline, and with a commit that is there', async () => {
    const hub = await startHub({ files: { 'a.txt': 'a' } })
    const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder() }
    vi.stubEnv('HF_HUB_OFFLINE', '1')
    await expect(fetchHubFile('Org/Name', 'a.txt', options)).rejects.toThrow(
      failing('UNAVAILABLE', /offline/),
    )
    await expect(fetchSnapshot('Org/Name', options)).rejects.toThrow(failing('UNAVAILABLE', /offline/))
    expect(hub.seen).toEqual([])
    const path = await fetchHubFile('Org/Name', 'a.txt', { ...options, offline: false })
    hub.seen.length = 0
    expect(await fetchHubFile('Org/Name', 'a.txt', options)).toBe(path)
    vi.stubEnv('HF_HUB_OFFLINE', '')
    expect(await fetchHubFile('Org/Name', 'a.txt', { ...options, revision: COMMIT })).toBe(path)
    expect(hub.seen).toEqual([])
  })

  it('sends the token to the hub alone', async () => {
    const hub = await startHub({ files: { 'a.txt': 'a', 'b.h5': 'b' } })
    vi.stubEnv('HF_TOKEN', 'hf_secret')
    vi.stubEnv('HF_ENDPOINT', hub.endpoint)
    vi.stubEnv('HF_HOME', await temporaryFolder())
    const path = await fetchHubFile('Org/Name', 'b.h5', fast())
    expect(path.startsWith(join(process.env.HF_HOME ?? '', 'hub', 'models--Org--Name'))).toBe(true)
    await fetchHubFile('Org/Name', 'a.txt', fast())
    const sent = hub.seen.map(({ host, authorization }) => `${host} ${authorization}`)
    expect(new Set(sent)).toEqual(new Set(['hub Bearer hf_secret', 'files null']))
  })

  it('refuses names, revisions, endpoints and tokens that cannot be, before it asks', async () => {
    const call = (name: string, file: string, options: object = {}) =>
      fetchHubFile(name, file, options as never)
    for (const name of ['..', 'a/..', 'a/b/c', '-', 'a--b/c', '', 'a\\b', 'x'.repeat(194)])
      await expect(call(name, 'x')).rejects.toThrow(failing('MALFORMED', /name/))
    for (const file of [
      '..',
      '../x',
      'a/../../x',
      '/etc/passwd',
      'C:x',
      'a\\b',
      'a\0b',
      '',
      'a//b',
      'x'.repeat(1025),
    ])
      await expect(call('a/b', file)).rejects.toThrow(failing('MALFORMED', /file/))
    await expect(call('a/b', 'x', { revision: '../x' })).rejects.toThrow(failing('MALFORMED', /revision/))
    await expect(call('a/b', 'x', { endpoint: 'file:///x' })).rejects.toThrow(
      failing('MALFORMED', /endpoint/),
    )
    await expect(call('a/b', 'x', { token: 'a\nb' })).rejects.toThrow(failing('MALFORMED', /token/))
    await expect(call('a/b', 'x', { kind: 'space' })).rejects.toThrow(failing('UNKNOWN_NAME', /kind/))
    await expect(call('a/b', 'x', { retries: 101 })).rejects.toThrow(failing('OUT_OF_RANGE', /retries/))
    await expect(call('a/b', 'x', { proxy: 'x' })).rejects.toThrow(failing('UNKNOWN_NAME', /proxy/))
  })
})

describe('fetchSnapshot', () => {
  it('is not there offline while a fetch of it was broken off', async () => {
    const hub = await startHub({ files: { 'a.txt': 'a', 'b.txt': 'b' } })
    const options = {
      ...fast(),
      endpoint: hub.endpoint,
      cache: await temporaryFolder(),
      retries: 0,
      parallel: 1,
    }
    hub.fault = ({ path }, response) => {
      if (!path.endsWith('b.txt')) return false
      response.writeHead(403).end()
      return true
    }
    await expect(fetchSnapshot('Org/Name', options)).rejects.toThrow(failing('FORBIDDEN'))
    await expect(fetchSnapshot('Org/Name', { ...options, offline: true })).rejects.toThrow(
      failing('UNAVAILABLE'),
    )
    hub.fault = () => false
    const folder = await fetchSnapshot('Org/Name', options)
    expect(await fetchSnapshot('Org/Name', { ...options, offline: true })).toBe(folder)
    expect((await readdir(folder)).sort()).toEqual(['a.txt', 'b.txt'])
  })

  it('fetches the files of a pattern from all pages of the listing, and reports their bytes', async () => {
    const files = Object.fromEntries(
      ['a.h5', 'd/b.h5', 'd/c.txt', 'd/e/f.h5', 'g.txt'].map((name, at) => [name, someBytes(100 + at)]),
    )
    const hub = await startHub({ kind: 'dataset', files })
    const events: FetchEvent[] = []
    const folder = await fetchSnapshot('Org/Name', {
      ...fast(),
      ...{
        kind: 'dataset',
        endpoint: hub.endpoint,
        cache: await temporaryFolder(),
        include: ['d/*', 'a?h5'],
        parallel: 2,
      },
      onProgress: (event) => events.push(event),
    })
    const names = (await contentOf(folder)).map(([name]) => name)
    expect(names).toEqual(['a.h5', 'd/b.h5', 'd/c.txt', 'd/e/f.h5'])
    expect(await readFile(join(folder, 'd/e/f.h5'))).toEqual(Buffer.from(someBytes(103)))
    expect(hub.seen.filter(({ path }) => path.includes('/tree/'))).toHaveLength(3)
    expect(events.at(-1)).toEqual({
      event: 'fetch',
      name: 'Org/Name@main',
      bytes: 406,
      totalBytes: 406,
      isDone: true,
    })
    expect(events.filter(({ isDone }) => isDone)).toHaveLength(1)
  })

  it('refuses names of the listing that lead out of the folder, and fetches nothing then', async () => {
    for (const path of ['../x', 'a/../../x', '/x', 'a\0b', 'C:x', '..\\x', '']) {
      const hub = await startHub({ files: {}, listed: [{ type: 'file', path, size: 1 }] })
      const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder() }
      await expect(fetchSnapshot('Org/Name', options)).rejects.toThrow(
        failing('CORRUPT', /must name a file below/),
      )
      expect(hub.seen.some(({ path }) => path.includes('resolve'))).toBe(false)
    }
  })

  it('stops the other files at the first failure', async () => {
    const hub = await startHub({ files: { 'a.txt': 'a', 'b.txt': 'b', 'c.txt': 'c', 'd.txt': 'd' } })
    hub.fault = ({ path }, response) => {
      if (!path.endsWith('a.txt')) return false
      response.writeHead(404).end()
      return true
    }
    const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder(), parallel: 1 }
    await expect(fetchSnapshot('Org/Name', options)).rejects.toThrow(failing('IO', /a\.txt/))
    expect(hub.seen.some(({ path }) => path.endsWith('b.txt'))).toBe(false)
  })

  it('writes nothing through a link that leads out of the cache', async () => {
    const hub = await startHub({ files: { 'd/a.txt': 'a' } })
    const [cache, outside] = [await temporaryFolder(), await temporaryFolder()]
    const snapshot = join(cache, 'models--Org--Name', 'snapshots', COMMIT)
    await mkdir(dirname(snapshot), { recursive: true })
    await mkdir(snapshot)
    const { symlink } = await import('node:fs/promises')
    await symlink(outside, join(snapshot, 'd'))
    const options = { ...fast(), endpoint: hub.endpoint, cache }
    await expect(fetchSnapshot('Org/Name', options)).rejects.toThrow(failing('CORRUPT', /inside the cache/))
    expect(await readdir(outside)).toEqual([])
  })
})
