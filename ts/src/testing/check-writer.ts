/** Test suite for writers. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import { LazyTensorStorage, ReplayBuffer, type Writer } from '../replay/index.js'
import { Tensor, TensorDict } from '../tensor/index.js'
import { promise, refuses } from './promise.js'

/** Options of {@link checkWriter}. */
export interface CheckWriterOptions {
  /** If true, the writer must reject every write with `INCOMPATIBLE`. @default false */
  readonly isReadOnly?: boolean
}

/**
 * Throws, with the broken rule, unless the writers that `make` returns obey the rules of {@link Writer} in a buffer: a row for each item, or -1
 * for one that is not kept; items in the returned rows; rows without a gap, then rows that are overwritten; no change by a refused write;
 * the same rows from the same state; and the first rows again once emptied. Items have the leaves `id` and
 * `['next', 'reward']`.
 *
 * @throws {FulmarError} `USER_CODE` with the promise that is not kept; whatever the writer throws where it must not.
 *
 * @example
 * ```ts
 * import { RoundRobinWriter } from 'fulmar/replay'
 * import { checkWriter } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * assert.doesNotThrow(() => checkWriter(() => new RoundRobinWriter()))
 * ```
 */
export function checkWriter(make: () => Writer, options: CheckWriterOptions = {}): void {
  checkKnownKeys('options', options, ['isReadOnly'])
  checkGiven('make', make)
  const bufferOf = () => new ReplayBuffer({ storage: new LazyTensorStorage(CAPACITY), writer: make() })
  const buffer = bufferOf()
  promise(buffer.stats.writeCount === 0, 'a new writer must have written nothing', buffer.stats.writeCount)
  if (options.isReadOnly) {
    refuses(() => buffer.extend(itemsOf(0)), ['INCOMPATIBLE'], 'a writer that is read-only must refuse items')
    promise(buffer.storage.length === 0, 'what is refused must change nothing')
    return
  }
  refuses(() => buffer.extend(itemsOf()), ['EMPTY'], 'a write of no items must be refused')
  const held = new Map<number, number>()
  // Not a whole number of rounds, so that a writer that forgets shows.
  for (let start = 0; start < 3 * CAPACITY + 3; start += 3)
    checkWrite(buffer, held, [start, start + 1, start + 2])
  promise(held.size === CAPACITY, 'rows must all be used before they are used again', [...held.keys()])
  checkRefusal(buffer)
  checkState(buffer, bufferOf())
  buffer.clear()
  promise(buffer.stats.writeCount === 0, 'an emptied writer must have written nothing')
  const rows = buffer.extend(itemsOf(1, 2))
  promise(
    rows.every((row) => row < 2),
    'an emptied writer must begin with the first rows',
    rows,
  )
}

const CAPACITY = 8

/** Items whose reward is their number, so that later ones rank higher. */
function itemsOf(...ids: number[]): TensorDict {
  const batchSize = [ids.length]
  const next = TensorDict.from({ reward: Tensor.from(ids) }, { batchSize })
  return TensorDict.from({ id: Tensor.from(ids), next }, { batchSize })
}

const idsOf = (items: TensorDict): number[] => Array.from(items.tensor('id').data, Number)

/** Writes items and compares the storage with the rows that the writer returned. */
function checkWrite(buffer: ReplayBuffer, held: Map<number, number>, ids: readonly number[]): void {
  const { writeCount } = buffer.stats
  const rows = buffer.extend(itemsOf(...ids))
  promise(rows.length === ids.length, 'there must be a row for each item', rows)
  promise(
    rows.every((row) => Number.isInteger(row) && row >= -1 && row < CAPACITY),
    'a row must be one of the storage, or -1',
    rows,
  )
  rows.forEach((row, at) => {
    if (row >= 0) held.set(row, ids[at] as number)
  })
  const expected = [...held].sort(([left], [right]) => left - right)
  const stored = expected.length > 0 ? idsOf(buffer.storage.get(expected.map(([row]) => row))) : []
  promise(buffer.storage.length === held.size, 'rows must leave none before them empty', rows)
  promise(
    stored.every((id, at) => id === expected[at]?.[1]),
    'an item must be in the row that the writer returned for it',
    stored,
  )
  const numKept = rows.filter((row) => row >= 0).length
  promise(buffer.stats.writeCount >= writeCount + numKept, 'items that are kept must count as written')
}

/** A write that the storage refuses. */
function checkRefusal(buffer: ReplayBuffer): void {
  const before = JSON.stringify([buffer.stats, buffer.stateDict().parts, idsOf(buffer.readAllInOrder())])
  const wrong = itemsOf(1000, 1001).set('id', Tensor.from([1, 2, 3, 4], { shape: [2, 2] }))
  refuses(() => buffer.extend(wrong), ['SHAPE_MISMATCH'], 'items of another shape must be refused')
  const after = JSON.stringify([buffer.stats, buffer.stateDict().parts, idsOf(buffer.readAllInOrder())])
  promise(after === before, 'what is refused must change nothing')
}

function checkState(buffer: ReplayBuffer, other: ReplayBuffer): void {
  other.loadStateDict(buffer.stateDict())
  promise(other.stats.writeCount === buffer.stats.writeCount, 'a state must keep how many items were written')
  const rows = [0, 1, 2].map((write) => {
    const items = itemsOf(100 + 2 * write, 101 + 2 * write)
    return [buffer.extend(items), other.extend(items)]
  })
  promise(
    rows.every(([left, right]) => JSON.stringify(left) === JSON.stringify(right)),
    'a writer must give the same rows from the same state',
    rows,
  )
}
