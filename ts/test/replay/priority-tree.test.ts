import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PriorityTree } from '../../src/replay/index.js'
import { codeOf } from '../tensor/code-of.js'

describe('PriorityTree', () => {
  it('agrees with a list of leaves', () => {
    const update = fc.array(fc.tuple(fc.nat(299), fc.integer({ min: 0, max: 1000 })), { maxLength: 40 })
    fc.assert(
      fc.property(fc.array(update, { maxLength: 6 }), fc.nat(299), fc.nat(299), (updates, one, other) => {
        using tree = new PriorityTree(300)
        const leaves = new Map<number, number>()
        for (const changes of updates) {
          tree.update(
            changes.map(([row]) => row),
            changes.map(([, leaf]) => leaf),
          )
          for (const [row, leaf] of changes) leaves.set(row, leaf)
        }
        const [start, end] = [Math.min(one, other), Math.max(one, other) + 1]
        const within = [...leaves].filter(([row]) => row >= start && row < end).map(([, leaf]) => leaf)
        // Leaves of at most ten bits are whole numbers of the unit, so sums are exact.
        expect(tree.sum(start, end)).toBe(within.reduce((sum, leaf) => sum + leaf, 0))
        expect(tree.min(start, end)).toBe(within.length === 0 ? undefined : Math.min(...within))
        const most = Math.max(...leaves.values())
        const firsts = [...leaves].filter(([, leaf]) => leaf === most).map(([row]) => row)
        expect(tree.max()).toEqual(leaves.size === 0 ? undefined : { row: Math.min(...firsts), leaf: most })
        expect(tree.leaves([one, other])).toEqual([leaves.get(one), leaves.get(other)])
        const total = tree.sum()
        const sought = [0, 1, total / 3, total, total + 1]
        expect(tree.lowerBound(sought)).toEqual(sought.map((sum) => reached(leaves, sum)))
        tree.clear()
        expect([tree.sum(), tree.min(), tree.max()]).toEqual([0, undefined, undefined])
      }),
      { seed: 5, numRuns: 100 },
    )
  })

  it('changes nothing where it refuses', () => {
    using tree = new PriorityTree(2)
    tree.update([0], [3])
    expect(codeOf(() => tree.update([0, 1], [1]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => tree.update([0, 1], [1, Number.NaN]))).toBe('NON_FINITE')
    expect(codeOf(() => tree.update([0, 1], [1, -1]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => tree.update([0, 2], [1, 1]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => tree.update([0, 0.5], [1, 1]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => tree.sum(1, 1))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => new PriorityTree(0))).toBe('OUT_OF_RANGE')
    expect(tree.leaves([0, 1])).toEqual([3, undefined])
  })
})

/** The first row at which the leaves reach `sum`, found one by one. */
function reached(leaves: ReadonlyMap<number, number>, sum: number): number {
  let through = 0
  for (let row = 0; row < 300; row++) {
    through += leaves.get(row) ?? 0
    if (through >= sum) return row
  }
  return 300
}
