/** Test suite for samplers. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import { LazyTensorStorage, ReplayBuffer, type Sampler } from '../replay/index.js'
import { NonTensorStack, Tensor, TensorDict } from '../tensor/index.js'
import { promise, refuses } from './promise.js'

/** Options of {@link checkSampler}. */
export interface CheckSamplerOptions {
  /** Rows of the batches that are drawn, from 1. @default 4 */
  readonly batchSize?: number
}

/**
 * Throws, with the broken promise, unless the samplers that `make` gives do what a {@link Sampler} must in a buffer: rows that hold an
 * item, the same draws from the same state, rows that were written after a ring is full, and none from an emptied buffer. Items have the
 * leaves `id`, `episode`, `['next', 'done']`, `['next', 'reward']`, `policy_version` and `query`.
 *
 * @throws {FulmarError} `USER_CODE` with the promise that is not kept; whatever the sampler throws where it must not.
 *
 * @example
 * ```ts
 * import { PrioritizedSampler } from 'fulmar/replay'
 * import { checkSampler } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * assert.doesNotThrow(() => checkSampler(() => new PrioritizedSampler()))
 * ```
 */
export function checkSampler(make: () => Sampler, options: CheckSamplerOptions = {}): void {
  checkKnownKeys('options', options, ['batchSize'])
  checkGiven('make', make)
  const { batchSize = 4 } = options
  const bufferOf = () =>
    new ReplayBuffer({ storage: new LazyTensorStorage(16), sampler: make(), seed: 3, batchSize })
  const buffer = bufferOf()
  refuses(() => buffer.sample(), ['EMPTY', 'OUT_OF_RANGE'], 'nothing must be drawn from an empty buffer')
  for (const count of [8, 8, 8]) {
    buffer.extend(itemsOf(buffer.stats.writeCount, count))
    checkDraw(buffer)
  }
  checkState(buffer, bufferOf())
  buffer.updatePriority([0, 1], [1, 2])
  checkDraw(buffer)
  buffer.clear()
  refuses(() => buffer.sample(), ['EMPTY', 'OUT_OF_RANGE'], 'nothing must be drawn from an emptied buffer')
  buffer.extend(itemsOf(100, 8))
  checkDraw(buffer)
}

/** Steps of episodes of 4, numbered from `start`. */
function itemsOf(start: number, count: number): TensorDict {
  const steps = Array.from({ length: count }, (_, at) => start + at)
  const whole = (of: (step: number) => number) =>
    Tensor.from(BigInt64Array.from(steps, (step) => BigInt(of(step))))
  const next = TensorDict.from(
    {
      done: Tensor.from(
        Uint8Array.from(steps, (step) => (step % 4 === 3 ? 1 : 0)),
        { dtype: 'bool' },
      ),
      reward: Tensor.from(steps.map((step) => step % 3)),
    },
    { batchSize: [count] },
  )
  return TensorDict.from(
    {
      id: whole((step) => step),
      episode: whole((step) => Math.floor(step / 4)),
      policy_version: whole(() => 0),
      query: new NonTensorStack(steps.map((step) => `prompt ${step % 2}`)),
      next,
    },
    { batchSize: [count] },
  )
}

function checkDraw(buffer: ReplayBuffer): void {
  const { items, index, info } = buffer.sampleWithInfo()
  promise(index.length > 0, 'a draw must give a row')
  promise(
    index.every((row) => Number.isInteger(row) && row >= 0 && row < buffer.storage.length),
    'rows must hold an item',
    index,
  )
  promise(info.batchSize[0] === index.length, 'info must have one element a row', info.batchSize)
  const held = buffer.storage.get(index).tensor('id')
  promise(items.tensor('id').equals(held), 'a batch must hold the items of its rows')
}

function checkState(buffer: ReplayBuffer, other: ReplayBuffer): void {
  other.loadStateDict(buffer.stateDict())
  const drawn = [0, 1, 2].map(() => [buffer.sampleWithInfo().index, other.sampleWithInfo().index])
  promise(
    drawn.every(([left, right]) => JSON.stringify(left) === JSON.stringify(right)),
    'a sampler must draw the same rows from the same state',
    drawn,
  )
}
