import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { fetchModel } from '../../src/fetch/index.js'
import { createModel, loadModel } from '../../src/train/index.js'
import { fulmar } from '../cli/fake-io.js'
import { TINY } from '../model/tiny.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { DueClock, LIMIT_MS } from './due-clock.js'
import { COMMIT, startHub } from './fake-hub.js'

const fast = () => ({ clock: new DueClock(), stallTimeoutMs: LIMIT_MS })
const NEEDED = { 'config.json': '{}', 'tokenizer.json': '{ }' }

beforeEach(() => {
  for (const name of ['HF_ENDPOINT', 'HF_HOME', 'HF_HUB_CACHE', 'HF_TOKEN', 'HF_HUB_OFFLINE'])
    vi.stubEnv(name, '')
  return () => vi.unstubAllEnvs()
})

/** A hub with a tiny model that works, and files that a model does not need. */
async function modelHub() {
  using model = createModel({ seed: 1 }, { ...TINY, max_position_embeddings: 256 })
  const folder = join(await temporaryFolder(), 'model')
  await model.save(folder)
  const files: Record<string, Uint8Array> = {}
  for (const name of await readdir(folder)) files[name] = await readFile(join(folder, name))
  const hub = await startHub({
    files: { ...files, 'README.md': '# Name', 'flax_model.msgpack': 'x', 'onnx/model.onnx': 'x' },
  })
  const answer = await model.chat('Hi', { maxTokens: 8, seed: 0 })
  return { hub, answer, names: Object.keys(files).sort() }
}

describe('loadModel', () => {
  it('fetches a model by its name, once', async () => {
    const { hub, answer, names } = await modelHub()
    const cache = await temporaryFolder()
    const fetch = { ...fast(), endpoint: hub.endpoint, cache }
    using model = await loadModel('Org/Name', { fetch })
    expect(await model.chat('Hi', { maxTokens: 8, seed: 0 })).toEqual(answer)
    const snapshot = join(cache, 'models--Org--Name', 'snapshots', COMMIT)
    expect((await readdir(snapshot)).sort()).toEqual(names)
    hub.seen.length = 0
    using again = await loadModel('Org/Name', { fetch })
    expect(await again.chat('Hi', { maxTokens: 8, seed: 0 })).toEqual(answer)
    expect(hub.seen).toEqual([])
    await rm(join(snapshot, 'model.safetensors'))
    using repaired = await loadModel('Org/Name', { fetch })
    expect(await repaired.chat('Hi', { maxTokens: 8, seed: 0 })).toEqual(answer)
    expect(hub.seen.some(({ path }) => path.endsWith('model.safetensors'))).toBe(true)
  })
})

describe('fulmar chat', () => {
  it('fetches a model by its name, shows the progress, and stops where the user does', async () => {
    const { hub } = await modelHub()
    vi.stubEnv('HF_ENDPOINT', hub.endpoint)
    vi.stubEnv('HF_HUB_CACHE', await temporaryFolder())
    const command = ['chat', 'Org/Name', '--max-tokens', '8', '--temperature', '0', '--seed', '0']
    const stopping = new AbortController()
    stopping.abort()
    const stopped = await fulmar(command, { stdin: 'Hi\n', signal: stopping.signal })
    expect([stopped.code, stopped.stderr.includes('ABORTED')]).toEqual([130, true])
    expect(hub.seen.filter(({ path }) => path.endsWith('model.safetensors'))).toEqual([])
    const done = await fulmar(command, { stdin: 'Hi\n' })
    expect([done.code, done.stdout.length > 1]).toEqual([0, true])
    expect(done.stderr).toContain('Org/Name')
  })
})

describe('fetchModel', () => {
  it('fetches weights in shards after the small files, and one GGUF file by its name', async () => {
    const index = JSON.stringify({
      weight_map: { a: 'a.safetensors', b: 'b.safetensors', c: 'a.safetensors' },
    })
    const hub = await startHub({
      files: {
        ...NEEDED,
        'model.safetensors.index.json': index,
        'a.safetensors': 'a',
        'b.safetensors': 'b',
        'c.safetensors': 'c',
        'q.gguf': 'q',
      },
    })
    const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder() }
    const folder = await fetchModel('Org/Name', options)
    const names = [
      'a.safetensors',
      'b.safetensors',
      'model.safetensors.index.json',
      ...Object.keys(NEEDED),
    ].sort()
    expect((await readdir(folder)).sort()).toEqual(names)
    const files = hub.seen.filter(({ method, path }) => method === 'GET' && !path.includes('/api/'))
    expect(files.slice(0, 3).every(({ path }) => path.endsWith('.json'))).toBe(true)
    expect(await fetchModel('Org/Name/q.gguf', options)).toBe(join(folder, 'q.gguf'))
  })

  it('refuses a repository that lacks a part of a model before it fetches any, and names its GGUF files', async () => {
    const hub = await startHub({ files: { ...NEEDED, 'q.gguf': 'q' } })
    const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder() }
    await expect(fetchModel('Org/Name', options)).rejects.toThrow(
      failing('INCOMPATIBLE', /Org\/Name\/q\.gguf/),
    )
    hub.files.set('model.safetensors', Buffer.from('x'))
    hub.files.delete('tokenizer.json')
    await expect(fetchModel('Org/Name', options)).rejects.toThrow(failing('INCOMPATIBLE', /tokenizer/))
    expect(hub.seen.some(({ path }) => path.includes('resolve'))).toBe(false)
    await expect(fetchModel('Org/Name', { ...options, offline: true })).rejects.toThrow(
      failing('UNAVAILABLE'),
    )
  })

  it('refuses an index that names files elsewhere', async () => {
    for (const shard of ['../x.safetensors', 'd/x.safetensors', 7]) {
      const index = JSON.stringify({ weight_map: { a: shard } })
      const hub = await startHub({ files: { ...NEEDED, 'model.safetensors.index.json': index } })
      const options = { ...fast(), endpoint: hub.endpoint, cache: await temporaryFolder() }
      await expect(fetchModel('Org/Name', options)).rejects.toThrow(
        failing('CORRUPT', /a file of .*index\.json/),
      )
    }
    await expect(fetchModel('a/b/../c.gguf')).rejects.toThrow(failing('MALFORMED', /name/))
    await expect(fetchModel(7 as never)).rejects.toThrow(failing('MALFORMED', /name/))
  })
})

describe('fulmar fetch', () => {
  it('prints the folder and shows the progress', async () => {
    const { hub, names } = await modelHub()
    const cache = await temporaryFolder()
    const flags = ['--endpoint', hub.endpoint, '--cache', cache]
    const { code, stdout, stderr } = await fulmar(['fetch', 'Org/Name', ...flags])
    expect({ code, folder: stdout.trimEnd() }).toEqual({
      code: 0,
      folder: join(cache, 'models--Org--Name', 'snapshots', COMMIT),
    })
    expect((await readdir(stdout.trimEnd())).sort()).toEqual(names)
    expect(stderr).toMatch(/Org\/Name@main \d+\.\d MB/)
    const offline = await fulmar(['fetch', 'Org/Name', ...flags, '--offline', '--json'])
    expect(JSON.parse(offline.stdout)).toEqual({ path: stdout.trimEnd() })
    const missing = await fulmar(['fetch', 'Org/Other', ...flags])
    expect(missing.code).toBe(1)
    expect(missing.stderr).toMatch(/no model Org\/Other/)
  })
})
