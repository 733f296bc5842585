/** Test suite for checkpointers. */

import { checkKnownKeys } from '../core/index.js'
import type { StorageCheckpointerBase } from '../replay/checkpointer.js'
import { LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement, type Storage } from '../replay/index.js'
import { Tensor, TensorDict } from '../tensor/index.js'
import { promise, refuses } from './promise.js'

/** Options of {@link checkCheckpointer}. */
export interface CheckCheckpointerOptions {
  /** An empty folder to write below. */
  readonly folder: string
  /** An empty storage of the kind that the checkpointer writes, with room for so many rows. @default a {@link LazyTensorStorage} */
  readonly storage?: (maxSize: number) => Storage
}

/**
 * Throws, with the broken rule, unless a checkpointer obeys its rules: buffers that are partly filled, full or wrapped around are restored
 * and draw and write the same from then on; existing files at a path are kept; and loading a folder that is missing or of a larger
 * buffer changes nothing. Items are steps of episodes: `observation`, `action`, `done`, and `observation`, `reward` and `done` of `next`. Natively
 * only.
 *
 * @throws {FulmarError} `USER_CODE` with the promise that is not kept; whatever the checkpointer throws where it must not; `UNAVAILABLE` in
 *   WebAssembly.
 *
 * @example
 * ```ts no-run
 * import { FlatStorageCheckpointer } from 'fulmar/replay/files'
 * import { checkCheckpointer } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 * import { mkdtempSync } from 'node:fs'
 *
 * const folder = mkdtempSync('checkpoints-')
 * assert.doesNotThrow(() => checkCheckpointer(() => new FlatStorageCheckpointer(), { folder }))
 * ```
 */
export function checkCheckpointer(
  make: () => StorageCheckpointerBase,
  options: CheckCheckpointerOptions,
): void {
  checkKnownKeys('options', options, ['folder', 'storage'], ['folder'])
  const { folder, storage = (maxSize: number) => new LazyTensorStorage(maxSize) } = options
  const bufferOf = (maxSize: number) =>
    new ReplayBuffer({
      storage: storage(maxSize),
      sampler: new SamplerWithoutReplacement(),
      seed: 5,
      batchSize: 3,
    })
  for (const count of [5, CAPACITY, CAPACITY + 3]) {
    const buffer = bufferOf(CAPACITY)
    for (let start = 0; start < count; start++) buffer.extend(stepsOf(start, 1))
    buffer.sample()
    const path = `${folder}/${count}`
    buffer.dumps(path, make())
    checkBack(buffer, bufferOf(CAPACITY), path, make)
    checkRefusals(bufferOf(CAPACITY), `${folder}/none`, 'a folder that is not there must be refused', make)
    if (count >= CAPACITY) checkRefusals(bufferOf(4), path, 'a larger buffer must be refused', make)
    refuses(() => buffer.dumps(path, make()), ['IO'], 'existing files at a path must not be overwritten')
    checkBack(buffer, bufferOf(CAPACITY), path, make)
  }
}

const CAPACITY = 8

/** Steps of episodes of 4, numbered from `start`. */
function stepsOf(start: number, count: number): TensorDict {
  const steps = Array.from({ length: count }, (_, at) => start + at)
  const batchSize = [count]
  const column = (of: (step: number) => number) => Tensor.from(steps.map(of), { shape: [count, 1] })
  // Each episode's observations are of its own hundred; the next one is that of the step behind it.
  const seen = (step: number) => 100 * Math.floor(step / 4) + (step % 4)
  const done = Tensor.from(
    Uint8Array.from(steps, (step) => Number(step % 4 === 3)),
    { shape: [count, 1], dtype: 'bool' },
  )
  const next = TensorDict.from(
    { observation: column((step) => seen(step) + 1), reward: column((step) => step), done },
    { batchSize },
  )
  return TensorDict.from(
    {
      observation: column(seen),
      action: column((step) => -step),
      done: Tensor.zeros('bool', [count, 1]),
      next,
    },
    { batchSize },
  )
}

/** That a buffer that loads the folder is as the one that wrote it was, then and afterwards. */
function checkBack(
  buffer: ReplayBuffer,
  other: ReplayBuffer,
  path: string,
  make: () => StorageCheckpointerBase,
): void {
  other.loads(path, make())
  promise(other.length === buffer.length, 'as many rows must come back', other.length)
  promise(
    other.readAllInOrder().equals(buffer.readAllInOrder()),
    'rows must come back as they were, in their places',
  )
  promise(other.stats.writeCount === buffer.stats.writeCount, 'how many items were written must come back')
  const copy = (of: ReplayBuffer) => {
    const again = new ReplayBuffer({
      storage: new LazyTensorStorage(CAPACITY),
      sampler: new SamplerWithoutReplacement(),
      batchSize: 3,
    })
    again.loadStateDict(of.stateDict())
    return again
  }
  const [left, right] = [copy(buffer), copy(other)]
  for (let draw = 0; draw < 4; draw++) {
    const rows = [left, right].map((one) => JSON.stringify(one.sampleWithInfo().index))
    promise(rows[0] === rows[1], 'the same rows must be drawn from then on', rows)
  }
  const written = [left, right].map((one) => JSON.stringify(one.extend(stepsOf(40, 3))))
  promise(written[0] === written[1], 'the same rows must be written from then on', written)
}

function checkRefusals(
  buffer: ReplayBuffer,
  path: string,
  what: string,
  make: () => StorageCheckpointerBase,
): void {
  buffer.extend(stepsOf(20, 2))
  const before = [buffer.stateDict().parts, buffer.readAllInOrder()] as const
  refuses(
    () => buffer.loads(path, make()),
    ['IO', 'CORRUPT', 'INCOMPATIBLE', 'SHAPE_MISMATCH', 'OUT_OF_RANGE'],
    what,
  )
  promise(
    buffer.stateDict().parts === before[0] && buffer.readAllInOrder().equals(before[1]),
    'what is refused must change nothing',
  )
}
