/** Rings of steps as a writer would leave them. */

import fc from 'fast-check'
import type { RingPosition } from '../../src/ted/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'

/** Number of steps that fit in a ring, and for each written step whether it ends a trajectory. */
export interface Drawn {
  readonly capacity: number
  readonly ends: readonly boolean[]
}

/** Rings that are not full, just full, and full more than once. */
export const drawnRing: fc.Arbitrary<Drawn> = fc.record({
  capacity: fc.integer({ min: 1, max: 8 }),
  ends: fc.array(fc.boolean(), { minLength: 1, maxLength: 20 }),
})

/** A ring with zeros in unwritten rows, its position, and the number of rows that its observations take once each. */
export function ringOf({ capacity, ends }: Drawn) {
  const columns = { observation: zeros(capacity), next: zeros(capacity), reward: zeros(capacity) }
  const done = new Uint8Array(capacity)
  let clock = 0
  for (const [step, end] of ends.entries()) {
    const at = step % capacity
    columns.observation[at] = clock
    columns.next[at] = clock + 1
    columns.reward[at] = 0.5
    done[at] = Number(end)
    // Each trajectory begins at a multiple of ten.
    clock = end ? 10 * Math.floor(clock / 10 + 1) : clock + 1
  }
  const isFull = ends.length >= capacity
  const ring: RingPosition = { shift: ends.length % capacity, isFull }
  const steps = TensorDict.from(
    {
      observation: Tensor.from(columns.observation),
      action: Tensor.from(columns.observation),
      done: Tensor.zeros('bool', [capacity, 1]),
    },
    { batchSize: [capacity] },
  )
    .set(['next', 'observation'], Tensor.from(columns.next))
    .set(['next', 'reward'], Tensor.from(columns.reward))
    .set(['next', 'done'], Tensor.from(done, { shape: [capacity, 1], dtype: 'bool' }))
  const newest = (ends.length - 1) % capacity
  const numEnds = done.filter((end, at) => end === 1 || at === newest).length
  return { steps, ring, numRows: capacity + numEnds }
}

const zeros = (count: number): Float32Array => new Float32Array(count)
