import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { DurableStorage, type DurableStorageOptions, ReplayBuffer } from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { checkStorage } from '../../src/testing/index.js'

const isNative = process.env.FULMAR_TEST_BACKEND === 'native'
let folder = ''
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fulmar-durable-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const itemsOf = (...ids: number[]) => TensorDict.from({ id: Tensor.from(ids) }, { batchSize: [ids.length] })
const idsOf = (items: TensorDict) => Array.from(items.tensor('id').data, Number)

describe.runIf(isNative)('DurableStorage', () => {
  it('does what a storage must', () => {
    let made = 0
    checkStorage(
      () => new DurableStorage(join(folder, `${made++}`), 8, { durability: 'none', segmentBytes: 65_536 }),
    )
  })

  it('has the rows again that a buffer acknowledged, whose ring goes on', () => {
    const path = join(folder, 'ring')
    const opened = <R>(use: (buffer: ReplayBuffer) => R): R => {
      using storage = new DurableStorage(path, 4)
      using buffer = new ReplayBuffer({ storage })
      return use(buffer)
    }
    opened((buffer) => buffer.extend(itemsOf(1, 2, 3)))
    expect(opened((buffer) => [idsOf(buffer.readAllInOrder()), buffer.extend(itemsOf(4, 5))])).toEqual([
      [1, 2, 3],
      [3, 0],
    ])
    expect(opened((buffer) => [idsOf(buffer.readAllInOrder()), buffer.stats.writeCount])).toEqual([
      [5, 2, 3, 4],
      5,
    ])
  })

  it('is open once, for one capacity', () => {
    const path = join(folder, 'once')
    {
      using storage = new DurableStorage(path, 4)
      storage.set([0], itemsOf(1))
      storage.commit()
      expect(() => new DurableStorage(path, 4)).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
      expect(storage.stats).toMatchObject({ numRows: expect.any(Number), numDamagedRows: 0, numPending: 0 })
    }
    expect(() => new DurableStorage(path, 5)).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
    using again = new DurableStorage(path, 4)
    expect(idsOf(again.get([0]))).toEqual([1])
  })

  it('syncs when the clock that it is told of says so', () => {
    using storage = new DurableStorage(join(folder, 'async'), 4, { durability: 50 })
    using buffer = new ReplayBuffer({ storage })
    storage.tick(0)
    buffer.extend(itemsOf(1))
    const before = storage.stats.numSyncs
    storage.tick(49)
    expect(storage.stats.numSyncs).toBe(before)
    storage.tick(101)
    expect(storage.stats.numSyncs).toBeGreaterThan(before)
  })

  it('names the rows that damage took, and gives no row that was overwritten', () => {
    const path = join(folder, 'damaged')
    const opened = <R>(use: (storage: DurableStorage, buffer: ReplayBuffer) => R): R => {
      using storage = new DurableStorage(path, 4, { segmentBytes: 4096 })
      using buffer = new ReplayBuffer({ storage })
      return use(storage, buffer)
    }
    for (const id of [1, 2, 3, 4, 5, 6]) opened((_, buffer) => buffer.extend(itemsOf(id)))
    expect(opened((storage) => [storage.damagedRows(), storage.stats.numGaps])).toEqual([[], 0])
    for (const name of readdirSync(path).filter((name) => name.startsWith('seg-'))) rmSync(join(path, name))
    using storage = new DurableStorage(path, 4, { segmentBytes: 4096 })
    expect(storage.damagedRows()).toEqual([0, 1, 2, 3])
    expect(storage.stats).toMatchObject({ numRows: 4, numDamagedRows: 4 })
    expect(storage.stats.numGaps).toBeGreaterThan(0)
    expect(() => storage.get([1])).toThrow(expect.objectContaining({ code: 'CORRUPT' }))
    storage.set([1], itemsOf(7))
    storage.sync()
    expect([storage.damagedRows(), idsOf(storage.get([1]))]).toEqual([[0, 2, 3], [7]])
  })

  it('follows no link out of its folder', () => {
    const path = join(folder, 'links')
    writeFileSync(join(folder, 'decoy'), 'a file of somebody else')
    mkdirSync(path)
    for (const name of ['lock', 'super.0', 'seg-000000', 'table-000000']) {
      symlinkSync(join(folder, 'decoy'), join(path, name))
      expect(() => {
        using storage = new DurableStorage(path, 4)
        storage.set([0], itemsOf(1))
        storage.commit()
      }).toThrow(FulmarError)
      expect(readFileSync(join(folder, 'decoy'), 'utf8')).toBe('a file of somebody else')
      unlinkSync(join(path, name))
    }
  })

  it('refuses options and folders that are none', () => {
    const wrong = { durabilty: 'sync' } as DurableStorageOptions
    expect(() => new DurableStorage(join(folder, 'x'), 4, wrong)).toThrow("did you mean 'durability'?")
    expect(() => new DurableStorage(join(folder, 'x'), 0)).toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
  })
})

it.skipIf(isNative)('says that WebAssembly has no files', () => {
  expect(() => new DurableStorage(join(folder, 'x'), 4)).toThrow(
    expect.objectContaining({ code: 'UNAVAILABLE' }),
  )
})
