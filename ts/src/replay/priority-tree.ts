/** Sums of priorities over ranges of rows. */

import { Handle } from '../core/index.js'
import { type RawPriorityTree, raw } from '../native/index.js'

/**
 * Priorities of `capacity` rows, one leaf each, with their sums and extremes, for custom prioritized samplers
 * ([Schaul et al.](https://arxiv.org/abs/1511.05952), appendix B.2.1). Combines TorchRL's `SumSegmentTree`
 * and `MinSegmentTree`.
 *
 * Leaves are rounded to f32 and their masses to integers of a unit, so sums are exact in any order of updates
 * and a row of mass 0 is never found. An update or a search costs O(log capacity) per row,
 * {@link PriorityTree.max} O(1).
 *
 * @throws {FulmarError} `OUT_OF_RANGE` or `LIMIT_EXCEEDED` for an invalid `capacity` of a buffer.
 *
 * @example
 * ```ts
 * import { PriorityTree } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using tree = new PriorityTree(4)
 * tree.update([0, 1, 2], [1, 2, 5])
 * assert.equal(tree.sum(), 8)
 * assert.equal(tree.sum(1, 3), 7)
 * assert.equal(tree.min(), 1)
 * assert.deepEqual(tree.max(), { row: 2, leaf: 5 })
 * // Row 0 reaches up to 1, row 1 up to 3, row 2 up to 8.
 * assert.deepEqual(tree.lowerBound([0.5, 1, 1.5, 8]), [0, 0, 1, 2])
 * assert.deepEqual(tree.leaves([2, 3]), [5, undefined])
 * ```
 */
export class PriorityTree {
  /** Number of rows that fit. */
  readonly capacity: number
  readonly #native: Handle<RawPriorityTree>

  constructor(capacity: number) {
    this.#native = new Handle('PriorityTree', () => raw.PriorityTree.create(capacity))
    this.capacity = capacity
  }

  /**
   * Sets the leaf of each row; where a row comes twice, the last leaf wins. Nothing changes on an error.
   * @throws {FulmarError} `SHAPE_MISMATCH` if the lengths differ, `NON_FINITE` if a leaf is NaN or infinite, `OUT_OF_RANGE` if a leaf is
   * negative or a row is beyond the capacity.
   */
  update(rows: ArrayLike<number>, leaves: ArrayLike<number>): void {
    this.#native.call((tree) => tree.update(Float64Array.from(rows), Float64Array.from(leaves)))
  }

  /** The sum of the leaves of rows `start..end`. @throws {FulmarError} `OUT_OF_RANGE` if the range is empty or beyond the capacity. */
  sum(start = 0, end = this.capacity): number {
    return this.#native.call((tree) => tree.sumIn(start, end))
  }

  /** The smallest leaf that is set in rows `start..end`. @throws {FulmarError} As {@link PriorityTree.sum}. */
  min(start = 0, end = this.capacity): number | undefined {
    return this.#native.call((tree) => tree.minIn(start, end)) ?? undefined
  }

  /** The first row among those with the largest leaf, and that leaf. */
  max(): { readonly row: number; readonly leaf: number } | undefined {
    const [row, leaf] = this.#native.call((tree) => tree.max())
    return row === undefined || leaf === undefined ? undefined : { row, leaf }
  }

  /** The leaf of each row, nothing where none was set. @throws {FulmarError} `OUT_OF_RANGE` if a row is no whole number >= 0. */
  leaves(rows: ArrayLike<number>): (number | undefined)[] {
    const leaves = this.#native.call((tree) => tree.leaves(Float64Array.from(rows)))
    return Array.from(leaves, (leaf) => (Number.isNaN(leaf) ? undefined : leaf))
  }

  /**
   * For each sum, the first row up to and including which the leaves sum to it or more: 0 for sums <= 0, `capacity` where all leaves
   * together stay below it. With sums uniform in `(0, sum()]`, a row is found with the probability of its leaf.
   */
  lowerBound(sums: ArrayLike<number>): number[] {
    return Array.from(this.#native.call((tree) => tree.lowerBound(Float64Array.from(sums))))
  }

  /** Forgets every leaf. */
  clear(): void {
    this.#native.call((tree) => tree.clear())
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}
