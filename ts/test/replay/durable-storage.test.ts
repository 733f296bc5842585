import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  DurableStorage,
  type DurableStorageOptions,
  ReplayBuffer,
  Tensor,
  TensorDict,
} from '../../src/index.js'
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
