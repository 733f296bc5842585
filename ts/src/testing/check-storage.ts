/** Test suite for storages. */

import { checkGiven } from '../core/index.js'
import { ReplayBuffer, type Storage } from '../replay/index.js'
import { Tensor, TensorDict } from '../tensor/index.js'
import { promise, refuses } from './promise.js'

/**
 * Throws, with the broken promise, unless the storages that `make` gives do what a {@link Storage} must: rows in the order asked
 * for, the last of a row that comes twice, refusals that change nothing, memory that is the storage's own, nothing after clearing, and a
 * ring of a buffer over it. They must be empty, have room for 4 rows or more in one dimension, and take any leaves.
 *
 * @throws {FulmarError} `USER_CODE` with the promise that is not kept; whatever the storage throws where it must not.
 *
 * @example
 * ```ts
 * import { ListStorage } from 'fulmar/replay'
 * import { checkStorage } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * assert.doesNotThrow(() => checkStorage(() => new ListStorage(8)))
 * ```
 */
export function checkStorage(make: () => Storage): void {
  checkGiven('make', make)
  checkRows(make())
  checkRefusals(make())
  checkOwnMemory(make())
  checkRing(make())
}

const itemsOf = (...ids: number[]) =>
  TensorDict.from(
    {
      id: Tensor.from(ids),
      deep: TensorDict.from({ twice: Tensor.from(ids.map((id) => 2 * id)) }, { batchSize: [ids.length] }),
    },
    { batchSize: [ids.length] },
  )

const sameAs = (storage: Storage, rows: readonly number[], ...ids: number[]) =>
  storage.get(rows).equals(itemsOf(...ids))

function checkRows(storage: Storage): void {
  promise(storage.maxSize >= 4, 'the suite needs room for 4 rows', storage.maxSize)
  promise(storage.length === 0, 'a new storage must hold nothing', storage.length)
  refuses(() => storage.get([0]), ['OUT_OF_RANGE'], 'a row that was never written must be refused')
  storage.set([0, 1], itemsOf(7, 8))
  promise(storage.length === 2, 'rows that were written must count', storage.length)
  promise(sameAs(storage, [1, 0, 0], 8, 7, 7), 'rows must come in the order asked for, and as often')
  storage.set([1, 2, 1], itemsOf(1, 2, 3))
  promise(sameAs(storage, [0, 1, 2], 7, 3, 2), 'of a row that comes twice the last must stay')
  storage.clear()
  promise(storage.length === 0, 'a cleared storage must hold nothing', storage.length)
  refuses(() => storage.get([0]), ['OUT_OF_RANGE'], 'a row that was cleared must be refused')
  storage.set([0], itemsOf(9))
  promise(sameAs(storage, [0], 9), 'a cleared storage must take items again')
}

function checkRefusals(storage: Storage): void {
  storage.set([0, 1], itemsOf(5, 6))
  refuses(
    () => storage.set([0], itemsOf(1, 2)),
    ['SHAPE_MISMATCH'],
    'another number of items than rows must be refused',
  )
  refuses(
    () => storage.set([storage.maxSize], itemsOf(1)),
    ['OUT_OF_RANGE'],
    'a row beyond the storage must be refused',
  )
  refuses(
    () => storage.set([3], itemsOf(1)),
    ['OUT_OF_RANGE'],
    'a row that leaves one before it empty must be refused',
  )
  refuses(() => storage.get([0, 2]), ['OUT_OF_RANGE'], 'a row that holds nothing must be refused')
  promise(storage.length === 2 && sameAs(storage, [0, 1], 5, 6), 'what is refused must change nothing')
}

function checkOwnMemory(storage: Storage): void {
  const given = itemsOf(1, 2)
  storage.set([0, 1], given)
  given.setAt([0], itemsOf(9).index(0))
  promise(
    sameAs(storage, [0, 1], 1, 2),
    'what is written to given items afterwards must not reach the storage',
  )
  const taken = storage.get([0])
  taken.setAt([0], itemsOf(9).index(0))
  promise(sameAs(storage, [0], 1), 'what is written to items that were read must not reach the storage')
}

function checkRing(storage: Storage): void {
  const buffer = new ReplayBuffer({ storage, seed: 1 })
  const last: number[] = Array(storage.maxSize).fill(-1)
  for (let start = 0; start < 2 * storage.maxSize + 1; start += 3) {
    const ids = [start, start + 1, start + 2]
    buffer.extend(itemsOf(...ids)).forEach((row, at) => {
      last[row] = ids[at] as number
    })
  }
  const held = Array.from(buffer.readAllInOrder().tensor('id').data, Number)
  promise(
    held.every((id, row) => id === last[row]),
    'a ring over the storage must hold the last items',
    held,
  )
  const drawn = Array.from(buffer.sample(64).tensor('id').data, Number)
  promise(
    drawn.every((id) => last.includes(id)),
    'a batch must be of items that are held',
    drawn,
  )
}
