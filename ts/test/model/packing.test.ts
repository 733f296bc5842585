import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { balance, cuSeqlens, type Groups, pack, StreamPacker } from '../../src/model/index.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const listed = ({ items, offsets }: Groups) =>
  Array.from({ length: offsets.length - 1 }, (_, group) => [
    ...items.subarray(offsets[group], offsets[group + 1]),
  ])

/** First fit decreasing that looks at every row for every sequence. */
function naive(lengths: number[], capacity: number): number[][] {
  const order = lengths.map((_, item) => item).sort((a, b) => (lengths[b] ?? 0) - (lengths[a] ?? 0))
  const rows: { space: number; items: number[] }[] = []
  for (const item of order) {
    const length = lengths[item] ?? 0
    const found = rows.find(({ space }) => space >= length)
    const row = found ?? { space: capacity, items: [] }
    if (!found) rows.push(row)
    row.space -= length
    row.items.push(item)
  }
  return rows.map(({ items }) => items)
}

describe('pack', () => {
  it('equals a naive first fit, and its best fit holds every sequence once', () => {
    const cases = fc
      .integer({ min: 1, max: 50 })
      .chain((capacity) =>
        fc.tuple(fc.constant(capacity), fc.array(fc.integer({ min: 0, max: capacity }), { maxLength: 40 })),
      )
    fc.assert(
      fc.property(cases, ([capacity, lengths]) => {
        const columns = Uint32Array.from(lengths)
        const first = pack(columns, { capacity, strategy: 'firstFit' })
        expect(listed(first)).toEqual(naive(lengths, capacity))
        const best = pack(columns, { capacity })
        expect([...best.items].sort((a, b) => a - b)).toEqual(lengths.map((_, item) => item))
        for (let row = 0; row + 1 < best.offsets.length; row++) {
          expect(cuSeqlens(best, row, columns).at(-1)).toBeLessThanOrEqual(capacity)
        }
      }),
    )
  })

  it('refuses what fits into no row, and options that it does not know', () => {
    expect(() => pack(Uint32Array.of(3, 9), { capacity: 8 })).toThrow(/lengths must be at most 8: got 9 at 1/)
    expect(() => pack(Uint32Array.of(3), { capacity: 0 })).toThrow(code('OUT_OF_RANGE'))
    expect(() => pack(Uint32Array.of(3), { capacity: 2 ** 23 })).toThrow(code('LIMIT_EXCEEDED'))
    const strategy = 'nextFit' as 'firstFit'
    expect(() => pack(Uint32Array.of(3), { capacity: 4, strategy })).toThrow(code('UNKNOWN_NAME'))
    expect(() => pack(Uint32Array.of(3), { capactiy: 4 } as never)).toThrow(/did you mean 'capacity'/)
  })
})

describe('cuSeqlens', () => {
  it('bounds nothing behind the last row', () => {
    const lengths = Uint32Array.of(4, 4)
    const plan = pack(lengths, { capacity: 8 })
    expect([...cuSeqlens(plan, 0, lengths)]).toEqual([0, 4, 8])
    expect([...cuSeqlens(plan, 1, lengths)]).toEqual([0])
  })
})

describe('balance', () => {
  it('gives the dearest first to who has least', () => {
    expect(listed(balance(Float64Array.of(4, 9, 5, 1), 3))).toEqual([[1], [2], [0, 3]])
    expect(listed(balance(new Float64Array(0), 2))).toEqual([[], []])
    expect(() => balance(Float64Array.of(-1), 2)).toThrow(code('OUT_OF_RANGE'))
    expect(() => balance(Float64Array.of(1), 0)).toThrow(code('OUT_OF_RANGE'))
    expect(() => balance(Float64Array.of(1), 65_537)).toThrow(code('LIMIT_EXCEEDED'))
  })
})

describe('StreamPacker', () => {
  it('lets rows go when they are full, or fullest when none fits', () => {
    using packer = new StreamPacker({ capacity: 8, maxOpen: 2 })
    const rows = [5, 6, 3, 7, 4].map((length, item) => packer.push(item, length))
    expect(rows.map((row) => row && [...row])).toEqual([undefined, undefined, [0, 2], undefined, [3]])
    expect(listed(packer.flush())).toEqual([[1], [4]])
    expect(listed(packer.flush())).toEqual([])
    expect(() => packer.push(0, 9)).toThrow(code('OUT_OF_RANGE'))
    expect(() => new StreamPacker({ capacity: 8, maxOpen: 0 })).toThrow(code('OUT_OF_RANGE'))
  })
})
