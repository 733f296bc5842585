/** Rows in files that processes share. The processes run what `dist/` holds. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  LazyMemmapStorage,
  type LazyMemmapStorageOptions,
  PrioritizedSampler,
  ReplayBuffer,
} from '../../src/replay/index.js'
import { NonTensorData, Tensor, TensorDict } from '../../src/tensor/index.js'
import { checkStorage } from '../../src/testing/index.js'

const isNative = process.env.FULMAR_TEST_BACKEND === 'native'
const refusal = (code: string, message = '') =>
  expect.objectContaining({ code, message: expect.stringContaining(message) })

let folder = ''
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fulmar-lazy-memmap-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const WIDTH = 33

/** As the processes write them. */
function itemsOf(...ids: number[]): TensorDict {
  const wide = Tensor.from(
    ids.flatMap((id) => Array<number>(WIDTH).fill(id)),
    { shape: [ids.length, WIDTH] },
  )
  return TensorDict.from({ id: Tensor.from(ids), wide }, { batchSize: [ids.length] })
}

/** The ids of rows, none of which is torn. */
function idsOf(rows: TensorDict): number[] {
  const ids = Array.from(rows.tensor('id').data, Number)
  const wide = Array.from(rows.tensor('wide').data, Number)
  for (const [row, id] of ids.entries()) {
    expect(new Set(wide.slice(row * WIDTH, (row + 1) * WIDTH))).toEqual(new Set([id]))
  }
  return ids
}

interface Task {
  readonly scratchDir?: string
  readonly maxSize: number
  readonly writer: number
  readonly numWrites?: number
}

function started(task: Task): ChildProcess {
  const path = fileURLToPath(new URL('./lazy-memmap-process.mjs', import.meta.url))
  return spawn(process.execPath, [path, JSON.stringify(task)], { stdio: ['ignore', 'pipe', 'inherit'] })
}

async function ended(child: ChildProcess): Promise<string> {
  let said = ''
  child.stdout?.on('data', (data) => {
    said += data
  })
  const [code] = await once(child, 'close')
  expect(code).toBe(0)
  return said
}

describe.runIf(isNative)('LazyMemmapStorage', () => {
  const shared = (maxSize: number) => new LazyMemmapStorage(maxSize, { scratchDir: folder, sharedInit: true })

  it('does what a storage must', () => {
    checkStorage(() => new LazyMemmapStorage(8))
  })

  it('has the rows again of a storage that was closed, whose ring goes on', () => {
    const opened = <R>(use: (buffer: ReplayBuffer) => R): R => {
      using storage = shared(4)
      using buffer = new ReplayBuffer({ storage })
      return use(buffer)
    }
    opened((buffer) => buffer.extend(itemsOf(1, 2, 3)))
    expect(opened((buffer) => [idsOf(buffer.readAllInOrder()), buffer.extend(itemsOf(4, 5))])).toEqual([
      [1, 2, 3],
      [3, 0],
    ])
    expect(opened((buffer) => idsOf(buffer.readAllInOrder()))).toEqual([5, 2, 3, 4])
  })

  it('tells each buffer what the others wrote', () => {
    using one = new ReplayBuffer({ storage: shared(10), sampler: new PrioritizedSampler() })
    using other = new ReplayBuffer({ storage: shared(10), sampler: new PrioritizedSampler() })
    expect([one.extend(itemsOf(1, 2)), other.extend(itemsOf(3))]).toEqual([[0, 1], [2]])
    expect([one.length, other.length]).toEqual([3, 3])
    one.updatePriority([0, 1, 2], [0, 0, 9])
    expect(idsOf(one.sample(40)).filter((id) => id === 3).length).toBeGreaterThan(35)
    one.clear()
    expect(() => other.sample(1)).toThrow(refusal('EMPTY'))
  })

  it('loses, doubles and tears no row of three processes at once', async () => {
    const processes = [1, 2, 3].map((writer) =>
      started({ scratchDir: folder, maxSize: 2000, writer, numWrites: 120 }),
    )
    await Promise.all(processes.map(ended))
    using buffer = new ReplayBuffer({ storage: shared(2000) })
    const want = [1, 2, 3].flatMap((writer) => Array.from({ length: 360 }, (_, at) => writer * 100_000 + at))
    expect(idsOf(buffer.readAllInOrder()).sort((left, right) => left - right)).toEqual(want)
  })

  it('goes on where another process was killed in the middle of its writes', async () => {
    using buffer = new ReplayBuffer({ storage: shared(100), seed: 1 })
    for (let round = 1; round <= 4; round++) {
      const writers = [2 * round, 2 * round + 1]
      const processes = writers.map((writer) => started({ scratchDir: folder, maxSize: 100, writer }))
      for (const one of processes) await once(one.stdout as NodeJS.ReadableStream, 'data')
      for (const one of processes) {
        one.kill('SIGKILL')
        await once(one, 'exit')
        const [row] = buffer.extend(itemsOf(-round))
        expect(idsOf(buffer.at([row as number]))).toEqual([-round])
        idsOf(buffer.sample(64))
      }
    }
    const ids = idsOf(buffer.readAllInOrder()).filter((id) => id >= 0)
    expect([new Set(ids).size, buffer.length]).toEqual([ids.length, 100])
  })

  it('takes a temporary folder away when its process ends, and keeps one that was given', async () => {
    const path = await ended(started({ maxSize: 100, writer: 1, numWrites: 1 }))
    expect([path.includes('fulmar-memmap-'), existsSync(path)]).toEqual([true, false])
    await ended(started({ scratchDir: folder, maxSize: 100, writer: 1, numWrites: 1 }))
    using storage = shared(100)
    expect([storage.length, storage.path]).toEqual([3, folder])
    expect([storage.cleanup(), storage.cleanup(), existsSync(folder)]).toEqual([true, false, false])
    expect(() => storage.get([0])).toThrow(refusal('CLOSED', 'cleaned up'))
  })

  it('refuses folders, leaves and options by name', () => {
    using storage = new LazyMemmapStorage(10, { scratchDir: folder, lanes: [3] })
    expect([storage.maxSize, storage.shape]).toEqual([12, [4, 3]])
    const text = TensorDict.from({ text: new NonTensorData('a') }, { batchSize: [1] })
    expect(() => storage.set([0], text)).toThrow(refusal('INCOMPATIBLE', '"text"'))
    storage.set([0, 1, 2], itemsOf(1, 2, 3))
    expect(() => new LazyMemmapStorage(10, { scratchDir: folder })).toThrow(
      refusal('INCOMPATIBLE', 'existsOk'),
    )
    expect(() => shared(11)).toThrow(refusal('INCOMPATIBLE', 'shape'))
    using small = new LazyMemmapStorage(10, { bytesMax: 100 })
    expect(() => small.set([0], itemsOf(1))).toThrow(refusal('LIMIT_EXCEEDED', '10 rows of 136 bytes'))
    const wrong = { existOk: true } as LazyMemmapStorageOptions
    expect(() => new LazyMemmapStorage(4, wrong)).toThrow("did you mean 'existsOk'?")
    using over = new LazyMemmapStorage(10, { scratchDir: folder, existsOk: true })
    over.set([0], itemsOf(9))
    expect(() => storage.get([0])).toThrow(refusal('CLOSED', 'existsOk'))
    truncateSync(join(folder, 'wide.memmap'), 8)
    expect(() => shared(10)).toThrow(refusal('CORRUPT', 'wide.memmap'))
  })
})

it.skipIf(isNative)('says that WebAssembly has no files', () => {
  expect(() => new LazyMemmapStorage(4)).toThrow(refusal('UNAVAILABLE'))
})
