// Random programs on whole buffers (replay-buffer.ts, with every storage.ts), compared with a plain JavaScript ring.

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  BatchMemory,
  CompressedListStorage,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  ReplayBuffer,
  RoundRobinWriter,
  type Storage,
} from '../../src/replay/index.js'
import { codeOf } from '../tensor/code-of.js'
import { idsOf, numbered } from './items.js'

const STORAGES: Record<string, (capacity: number) => Storage> = {
  lazyTensor: (capacity) => new LazyTensorStorage(capacity),
  list: (capacity) => new ListStorage(capacity),
  lazyStack: (capacity) => new LazyStackStorage(capacity),
  compressed: (capacity) => new CompressedListStorage(capacity),
}

/** A ring with priorities of exponent 1, as plain as it can be. */
class Model {
  readonly rows: { id: number; priority: number; generation: number }[] = []
  written = 0
  #largest = 1
  readonly capacity: number

  constructor(capacity: number) {
    this.capacity = capacity
  }

  write(id: number): number {
    const row = this.written % this.capacity
    const generation = this.generations[row]
    this.generations[row] = generation === undefined ? 0 : generation + 1
    this.rows[row] = { id, priority: this.#largest, generation: this.generations[row] as number }
    this.written += 1
    return row
  }

  generations: number[] = []

  prioritize(row: number, priority: number): void {
    const one = this.rows[row]
    if (!one) return
    one.priority = priority
    this.#largest = Math.max(this.#largest, priority)
  }

  /** Emptied rows count as rewritten, and the largest priority is forgotten. */
  clear(): void {
    this.generations = this.generations.map((generation) => generation + 1)
    this.rows.length = 0
    this.written = 0
    this.#largest = 1
  }
}

type Op =
  | { readonly op: 'extend'; readonly ids: readonly number[] }
  | { readonly op: 'add'; readonly id: number }
  | { readonly op: 'setAt'; readonly row: number; readonly id: number }
  | { readonly op: 'prioritize'; readonly row: number; readonly priority: number }
  | { readonly op: 'clear' | 'roundTrip' | 'sample' | 'sampleInto' }

const id = fc.integer({ min: 0, max: 9999 })
const row = fc.nat({ max: 15 })
const program: fc.Arbitrary<Op[]> = fc.array(
  fc.oneof<fc.Arbitrary<Op>[]>(
    fc.record({ op: fc.constant('extend' as const), ids: fc.array(id, { minLength: 1, maxLength: 20 }) }),
    fc.record({ op: fc.constant('add' as const), id }),
    fc.record({ op: fc.constant('setAt' as const), row, id }),
    fc.record({
      op: fc.constant('prioritize' as const),
      row,
      priority: fc.constantFrom(0, 0.5, 0.5, 1, 3, 100),
    }),
    fc.record({
      op: fc.constantFrom('clear' as const, 'roundTrip' as const, 'sample' as const, 'sampleInto' as const),
    }),
  ),
  { maxLength: 30, size: 'max' },
)

describe('a buffer beside a naive ring', () => {
  for (const [name, storage] of Object.entries(STORAGES)) {
    it(`holds, counts and draws the same over ${name}`, () => {
      fc.assert(
        fc.property(fc.integer({ min: 1, max: 12 }), program, fc.nat(), (capacity, ops, seed) => {
          const make = () =>
            new ReplayBuffer({
              storage: storage(capacity),
              sampler: new PrioritizedSampler({ alpha: 1, beta: 1, eps: 0 }),
              writer: new RoundRobinWriter({ trackGenerations: true }),
              seed,
            })
          const model = new Model(capacity)
          let buffer = make()
          const memory = new BatchMemory()
          for (const op of ops) {
            buffer = applied(op, buffer, model, make, memory)
            compare(buffer, model)
          }
          buffer[Symbol.dispose]()
          memory[Symbol.dispose]()
        }),
        { numRuns: 60, seed: 11 },
      )
    })
  }
})

function applied(op: Op, buffer: ReplayBuffer, model: Model, make: () => ReplayBuffer, memory: BatchMemory) {
  switch (op.op) {
    case 'extend':
      expect(buffer.extend(numbered(...op.ids))).toEqual(op.ids.map((one) => model.write(one)))
      break
    case 'add':
      expect(buffer.add(numbered(op.id).index(0))).toBe(model.write(op.id))
      break
    case 'setAt': {
      const held = model.rows[op.row]
      const edit = () => buffer.setAt([op.row], numbered(op.id).index(0))
      if (held) {
        edit()
        held.id = op.id
      } else expect(codeOf(edit)).toBe('OUT_OF_RANGE')
      break
    }
    case 'prioritize':
      if (!model.rows[op.row]) break
      buffer.updatePriority([op.row], op.priority)
      model.prioritize(op.row, op.priority)
      break
    case 'clear':
      buffer.clear()
      model.clear()
      break
    case 'roundTrip': {
      const again = make()
      again.loadStateDict(buffer.stateDict())
      expect(again.stateDict().parts).toBe(buffer.stateDict().parts)
      buffer[Symbol.dispose]()
      return again
    }
    default:
      draw(op.op, buffer, model, memory)
  }
  return buffer
}

function draw(kind: 'sample' | 'sampleInto', buffer: ReplayBuffer, model: Model, memory: BatchMemory): void {
  const held = model.rows.map(({ id }) => id)
  const least = Math.min(...model.rows.map(({ priority }) => priority))
  if (held.length === 0 || least === 0) {
    // A weight would be 0 to the power of -1.
    expect(codeOf(() => buffer.sample(3))).toBe(held.length === 0 ? 'EMPTY' : 'OUT_OF_RANGE')
    return
  }
  if (kind === 'sampleInto') {
    using batch = buffer.sampleInto(memory, 7)
    for (const one of idsOf(batch)) expect(held).toContain(one)
    return
  }
  const { items, index, info } = buffer.sampleWithInfo(9)
  expect(idsOf(items)).toEqual(index.map((row) => model.rows[row]?.id))
  const weights = Array.from(info.tensor('priority_weight').data as Float32Array)
  for (const [at, row] of index.entries()) {
    expect(weights[at]).toBeCloseTo(least / (model.rows[row]?.priority ?? 0), 5)
  }
}

function compare(buffer: ReplayBuffer, model: Model): void {
  const rows = model.rows.map((_, row) => row)
  expect(buffer.length).toBe(rows.length)
  expect(buffer.stats.writeCount).toBe(model.written)
  if (rows.length > 0) expect(idsOf(buffer.at({}))).toEqual(model.rows.map(({ id }) => id))
  const asked = Array.from({ length: model.capacity }, (_, at) => at)
  expect(buffer.generationsOf(asked)).toEqual(asked.map((at) => model.generations[at] ?? -1))
}
