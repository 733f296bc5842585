import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, describe, expect, it } from 'vitest'
import { ReplayBuffer, StoreStorage, type StoreStorageOptions } from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { checkStorage } from '../../src/testing/index.js'
import { has } from '../needs.js'

const isNative = process.env.FULMAR_TEST_BACKEND === 'native'
/** One that is installed and does not start fails its tests. */
const isInstalled = spawnSync('redis-server', ['--version']).error === undefined

const itemsOf = (...ids: number[]) => TensorDict.from({ id: Tensor.from(ids) }, { batchSize: [ids.length] })
const idsOf = (items: TensorDict) => Array.from(items.tensor('id').data, Number)

const started: { child: ChildProcess; folder: string }[] = []
afterEach(async () => {
  for (const { child, folder } of started.splice(0)) {
    await stop(child)
    rmSync(folder, { recursive: true, force: true })
  }
})

/** A server on a free port of the loopback, which keeps nothing. */
async function serve({ port = 0, password }: { port?: number; password?: string } = {}) {
  const own = port || (await freePort())
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-redis-'))
  const args = [
    '--bind',
    '127.0.0.1',
    '--port',
    `${own}`,
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
  ]
  const child = spawn('redis-server', [...args, ...(password ? ['--requirepass', password] : [])])
  started.push({ child, folder })
  for await (const line of createInterface(child.stdout)) if (line.includes('Ready to accept')) break
  child.stdout.resume()
  return { child, port: own }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}

function stop(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve()
    child.once('exit', () => resolve())
    child.kill('SIGKILL')
  })
}

/** Another process that writes ids from `first` on, two at a time, to a buffer of its own on the same name. */
function writer(options: StoreStorageOptions, maxSize: number, first: number, writes: number) {
  const source = `
    import { ReplayBuffer, StoreStorage } from ${dist('replay')}
    import { Tensor, TensorDict } from ${dist('tensor')}
    const storage = new StoreStorage(${maxSize}, ${JSON.stringify(options)})
    const buffer = new ReplayBuffer({ storage })
    for (let at = 0; at < ${writes}; at++) {
      const ids = [${first} + 2 * at, ${first} + 2 * at + 1]
      buffer.extend(TensorDict.from({ id: Tensor.from(ids) }, { batchSize: [2] }))
    }
    process.stdout.write('done\\n')`
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return new Promise<number | null>((resolve) => {
    child.stdout.resume()
    child.once('exit', resolve)
  })
}
const dist = (entry: string) =>
  JSON.stringify(new URL(`../../../dist/entry/${entry}.js`, import.meta.url).href)

describe.runIf(isNative && has('redis-server', isInstalled))('StoreStorage', () => {
  it('does what a storage must', async () => {
    const { port } = await serve()
    let made = 0
    checkStorage(() => new StoreStorage(8, { port, name: `storage ${made++}` }))
  })

  it('is one ring for several processes, of which none loses a row', async () => {
    const { port } = await serve()
    const options = { port, name: 'shared' }
    const codes = Promise.all([1000, 2000].map((first) => writer(options, 1000, first, 30)))
    using storage = new StoreStorage(1000, options)
    using buffer = new ReplayBuffer({ storage })
    for (let at = 0; at < 10; at++) {
      buffer.extend(itemsOf(at))
      expect(buffer.sample(4).batchSize).toEqual([4])
      await new Promise(setImmediate)
    }
    expect(await codes).toEqual([0, 0])
    expect(buffer.length).toBe(130)
    const wanted = [0, 1000, 2000].flatMap((first) =>
      Array.from({ length: first === 0 ? 10 : 60 }, (_, at) => first + at),
    )
    expect(idsOf(buffer.readAllInOrder()).sort((a, b) => a - b)).toEqual(wanted)
    expect(buffer.stats.writeCount).toBe(130)
  })

  it('says when its server died, and goes on with one that came back empty', async () => {
    const { child, port } = await serve()
    using storage = new StoreStorage(4, { port })
    using buffer = new ReplayBuffer({ storage })
    buffer.extend(itemsOf(1, 2, 3))
    await stop(child)
    expect(() => buffer.extend(itemsOf(4))).toThrow(expect.objectContaining({ code: 'IO' }))
    expect(() => buffer.length).toThrow(expect.objectContaining({ code: 'IO' }))
    await serve({ port })
    expect(buffer.length).toBe(0)
    expect(buffer.extend(itemsOf(5))).toEqual([0])
    expect(idsOf(storage.get([0]))).toEqual([5])
  })

  it('refuses by kind', async () => {
    const { port } = await serve({ password: 'sesame' })
    expect(() => new StoreStorage(4, { port, password: 'guess' })).toThrow(
      expect.objectContaining({ code: 'FORBIDDEN', message: expect.not.stringContaining('guess') }),
    )
    const password = 'sesame'
    new StoreStorage(4, { port, password }).set([0], itemsOf(1))
    expect(() => new StoreStorage(5, { port, password })).toThrow(
      expect.objectContaining({ code: 'INCOMPATIBLE' }),
    )
    expect(() => new StoreStorage(0, { port, password })).toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
    const wrong = { prot: port } as StoreStorageOptions
    expect(() => new StoreStorage(4, wrong)).toThrow("did you mean 'port'?")
    const closed = await freePort()
    expect(() => new StoreStorage(4, { port: closed })).toThrow(expect.objectContaining({ code: 'IO' }))
  })
})

it.skipIf(isNative)('says that WebAssembly has no sockets', () => {
  expect(() => new StoreStorage(4)).toThrow(expect.objectContaining({ code: 'UNAVAILABLE' }))
})
