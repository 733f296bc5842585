import { describe, expect, it } from 'vitest'
import {
  LazyTensorStorage,
  ReplayBuffer,
  Sequence,
  type SequenceOptions,
  TensorDictReplayBuffer,
  Transition,
} from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { numbersOf } from './items.js'

const T = 1
const F = 0

interface Case {
  readonly unit: SequenceOptions
  /** The row that is drawn, of which the only one in a buffer is drawn until it comes. */
  readonly anchor: number
  readonly capacity?: number
  readonly written?: number
  readonly done?: readonly number[]
  readonly index: readonly number[]
  readonly valid: readonly number[]
  readonly learning?: readonly number[]
}

const CASES: readonly Case[] = [
  { unit: { length: 4 }, anchor: 1, index: [1, 2, 3, 4], valid: [T, T, T, T] },
  { unit: { length: 4 }, anchor: 4, index: [4, 5, 5, 5], valid: [T, T, F, F] },
  { unit: { length: 4, episodeBoundary: 'stop' }, anchor: 4, index: [2, 3, 4, 5], valid: [T, T, T, T] },
  {
    unit: { length: 4, episodeBoundary: 'stop' },
    anchor: 0,
    done: [1, 9],
    index: [0, 1, 1, 1],
    valid: [T, T, F, F],
  },
  {
    unit: { length: 4, episodeBoundary: 'includeReset' },
    anchor: 4,
    index: [4, 5, 6, 7],
    valid: [T, T, T, T],
  },
  {
    unit: { length: 4, episodeBoundary: 'includeReset' },
    anchor: 8,
    written: 14,
    done: [],
    index: [8, 9, 0, 1],
    valid: [T, T, T, T],
  },
  {
    unit: { length: 4, episodeBoundary: 'includeReset' },
    anchor: 2,
    written: 14,
    done: [],
    index: [2, 3, 3, 3],
    valid: [T, T, F, F],
  },
  {
    unit: { length: 2, burnIn: 2, episodeBoundary: 'includeReset' },
    anchor: 5,
    written: 14,
    done: [],
    index: [4, 4, 5, 6],
    valid: [F, T, T, T],
  },
  {
    unit: { length: 4, episodeBoundary: 'includeReset' },
    anchor: 8,
    capacity: 100,
    done: [],
    index: [8, 9, 9, 9],
    valid: [T, T, F, F],
  },
  {
    unit: { length: 2, burnIn: 2 },
    anchor: 8,
    index: [6, 7, 8, 9],
    valid: [T, T, T, T],
    learning: [F, F, T, T],
  },
  {
    unit: { length: 2, burnIn: 2 },
    anchor: 6,
    index: [6, 6, 6, 7],
    valid: [F, F, T, T],
    learning: [F, F, T, T],
  },
  { unit: { length: 2, bootstrap: 1 }, anchor: 6, index: [6, 7, 8], valid: [T, T, T], learning: [T, T, F] },
  { unit: { length: 2, bootstrap: 1 }, anchor: 8, index: [8, 9, 9], valid: [T, T, F], learning: [T, T, F] },
  {
    unit: { length: 2, bootstrap: 1, episodeBoundary: 'stop' },
    anchor: 4,
    index: [3, 4, 5],
    valid: [T, T, T],
  },
  { unit: { length: 3, dilation: 2 }, anchor: 0, done: [9], index: [0, 2, 4], valid: [T, T, T] },
  { unit: { length: 3, doneKey: null }, anchor: 3, written: 5, index: [3, 4, 4], valid: [T, T, F] },
  {
    unit: { length: 3, doneKey: null, episodeBoundary: 'stop' },
    anchor: 3,
    written: 5,
    index: [2, 3, 4],
    valid: [T, T, T],
  },
]

const items = (count: number, done: readonly number[]) => {
  const flags = Uint8Array.from({ length: count }, (_, step) => Number(done.includes(step)))
  const obs = Tensor.from(Array.from(flags, (_, step) => step))
  return TensorDict.from({ obs }, { batchSize: [count] }).set(
    ['next', 'done'],
    Tensor.from(flags, { shape: [count, 1], dtype: 'bool' }),
  )
}

describe('Sequence', () => {
  it.each(CASES)('$unit around row $anchor', ({ unit, anchor, capacity = 10, ...one }) => {
    const { written = Math.min(capacity, 10), done = [5, 9] } = one
    using buffer = new TensorDictReplayBuffer({
      storage: new LazyTensorStorage(capacity),
      sampleUnit: new Sequence(unit),
      seed: 1,
    })
    buffer.extend(items(written, done))
    for (let draw = 0; draw < 2000; draw++) {
      const { index, items: batch } = buffer.sampleWithInfo(1)
      if (numbersOf(batch, 'anchor_index')[0] !== anchor) continue
      expect(index).toEqual(one.index)
      expect(numbersOf(batch, 'index')).toEqual(one.index)
      expect(numbersOf(batch, 'validity_mask')).toEqual(one.valid)
      if (one.learning) expect(numbersOf(batch, 'learning_mask')).toEqual(one.learning)
      expect(numbersOf(batch, 'step_in_sequence')).toEqual(index.map((_, step) => step))
      expect(numbersOf(batch, 'sequence_id')).toEqual(index.map(() => 0))
      expect(new Set(numbersOf(batch, 'anchor_index'))).toEqual(new Set([anchor]))
      const ages =
        written > capacity ? index.map((row) => (row < written % capacity ? row + capacity : row)) : index
      expect(numbersOf(batch, 'obs')).toEqual(ages)
      return
    }
    throw new Error('the row must be drawn')
  })

  it('makes a batch of whole windows', () => {
    using four = new ReplayBuffer({
      storage: new LazyTensorStorage(10),
      sampleUnit: new Sequence({ length: 4 }),
    })
    four.extend(items(10, [5, 9]))
    expect(four.sample(2).batchSize).toEqual([8])
    using six = new ReplayBuffer({
      storage: new LazyTensorStorage(10),
      sampleUnit: new Sequence({ length: 3, burnIn: 2, bootstrap: 1 }),
    })
    six.extend(items(10, [5, 9]))
    const { items: batch, info } = six.sampleWithInfo(2)
    expect(batch.batchSize).toEqual([12])
    expect(numbersOf(info, 'sequence_id')).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    expect(numbersOf(info, 'learning_mask').reduce((sum, one) => sum + one)).toBe(6)
  })

  it('keeps to its lane', () => {
    using buffer = new ReplayBuffer({
      storage: new LazyTensorStorage(16, { lanes: [2] }),
      sampleUnit: new Sequence({ length: 3, episodeBoundary: 'stop' }),
      seed: 3,
    })
    const lane = items(8, [4, 7])
    buffer.extend(TensorDict.stack([lane, lane]))
    const { index, info } = buffer.sampleWithInfo(200)
    for (let at = 0; at < index.length; at += 3) {
      const rows = index.slice(at, at + 3)
      expect(new Set(rows.map((row) => row % 2)).size).toBe(1)
      expect(numbersOf(info, 'validity_mask').slice(at, at + 3)).toEqual([T, T, T])
      expect(rows.map((row) => row - (rows[0] as number))).toEqual([0, 2, 4])
    }
  })

  it('refuses windows that cannot be, and items without the flag', () => {
    const made = (options: SequenceOptions) =>
      new ReplayBuffer({ storage: new LazyTensorStorage(4), sampleUnit: new Sequence(options) })
    for (const options of [{ length: 0 }, { length: 1, dilation: 0 }] as const) {
      expect(
        codeOf(() => {
          using buffer = made(options)
          buffer.extend(items(2, []))
          buffer.sample(1)
        }),
      ).toBe('OUT_OF_RANGE')
    }
    using buffer = made({ length: 2, doneKey: 'end' })
    expect(codeOf(() => buffer.extend(items(2, [])))).toBe('UNKNOWN_NAME')
  })
})

it('Transition stands for the row itself', () => {
  using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4), sampleUnit: new Transition() })
  buffer.extend(items(3, [2]))
  expect(buffer.sample(5).batchSize).toEqual([5])
})
