/** Typed arrays in which the rows of a buffer are written, one or some at a time. */

import { FulmarError } from '../core/index.js'
import { type Dtype, elementsOf, type TensorData, type TypedArrays } from '../tensor/dtype.js'
import { Tensor } from '../tensor/tensor.js'
import { pathOf, TensorDict, type TensorKey } from '../tensor/tensor-dict.js'

/** Bytes of a block, unless one row has more. */
const BLOCK_BYTES = 1 << 20
/** Largest number of rows of a block. */
const BLOCK_ROWS_MAX = 4096

/** The buffer of a block. */
interface BlockTarget {
  /** Number of rows that the buffer holds at most. */
  readonly maxSize: number
  /** Writes rows. */
  extend(items: TensorDict): void
  /** Returns true if another handle reads the buffer, or the buffer may refuse a row for the values in it. */
  writesAtOnce(): boolean
}

/** The values of one leaf in a block. */
interface Column {
  readonly path: readonly string[]
  readonly dtype: Dtype
  /** Shape of the leaf in one row. */
  readonly shape: readonly number[]
  /** Number of elements of one row. */
  readonly width: number
  readonly array: TensorData
}

/**
 * The block of {@link ReplayBuffer.columns}: a typed array for each leaf of an item, with room for some rows. Write the elements of a row,
 * then `commit` it. The arrays stay the same, and are the caller's memory: the buffer copies committed rows out of them.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(1000), seed: 7 })
 * const item = TensorDict.from({ observation: Tensor.zeros('f32', [2]), reward: Tensor.zeros('f32', []) })
 * const columns = buffer.columns(item)
 * const observation = columns.array('observation', 'f32') // [columns.numRows, 2], row-major
 * const reward = columns.array('reward', 'f32')
 * for (let step = 0; step < 3; step++) {
 *   observation.set([step, -step], 2 * columns.row)
 *   reward[columns.row] = step / 2
 *   columns.commit()
 * }
 * assert.equal(buffer.length, 3)
 * assert.deepEqual(buffer.at(2).tensor('observation').data, Float32Array.of(2, -2))
 * ```
 */
export class ReplayColumns {
  /** Number of rows of the block. */
  readonly numRows: number
  readonly #batchSize: readonly number[]
  readonly #columns: readonly Column[]
  readonly #target: BlockTarget
  #row = 0
  /** Rows of the block before this one are in the buffer. */
  #written = 0
  /** True once the buffer has taken rows of these leaves. */
  #isKnown = false

  /** @internal */
  constructor(item: TensorDict, target: BlockTarget) {
    const leaves = item.leafKeys().map((path) => leafOf(item, path))
    if (leaves.length === 0) throw new FulmarError('EMPTY', 'item must have at least one tensor: it has none')
    const rowBytes = leaves.reduce((sum, { dtype, width }) => sum + width * sizeBytes(dtype), 0)
    const rows = Math.min(Math.floor(BLOCK_BYTES / Math.max(rowBytes, 1)), BLOCK_ROWS_MAX, target.maxSize)
    this.numRows = Math.max(rows, 1)
    this.#columns = leaves.map((leaf) => ({
      ...leaf,
      array: elementsOf(leaf.dtype, new Uint8Array(this.numRows * leaf.width * sizeBytes(leaf.dtype))),
    }))
    this.#batchSize = item.batchSize
    this.#target = target
  }

  /** Row of the block to write next, below `numRows`: its elements begin at `row * width`, with the `width` elements of one row. */
  get row(): number {
    return this.#row
  }

  /**
   * Returns the elements of a leaf, `[numRows, ...]` row-major; half floats are bits, bools bytes of 0 or 1. A row keeps what an earlier
   * one left there.
   * @throws {FulmarError} `UNKNOWN_NAME` if the item has no such leaf; `INCOMPATIBLE` if it is not of `dtype`.
   */
  array<D extends Dtype>(key: TensorKey, dtype?: D): TypedArrays[D] {
    const path = pathOf(key)
    const name = JSON.stringify(key)
    const column = this.#columns.find((one) => one.path.join('\0') === path.join('\0'))
    if (!column) throw new FulmarError('UNKNOWN_NAME', `key must be a leaf of the item: got ${name}`)
    if (dtype !== undefined && dtype !== column.dtype) {
      throw new FulmarError('INCOMPATIBLE', `leaf ${name} must be of ${dtype}: it is of ${column.dtype}`)
    }
    return column.array as TypedArrays[D]
  }

  /**
   * Adds the next `n` rows to the buffer, and moves `row` past them. They reach the buffer's memory in one call when the block is full, and
   * before anything reads the buffer or its storage; then `row` may be 0 again. Each commit is such a call, of which `n` rows share the
   * cost, where another thread or process can read the storage or it outlives this one, items have priorities or pass transforms, or
   * sampler or writer refuse some values.
   * @throws {FulmarError} `OUT_OF_RANGE` unless `n` is an integer from 1 to `numRows - row`; with the row and the leaf, `OUT_OF_RANGE` for a
   *   bool that is neither 0 nor 1; those of {@link ReplayBuffer.extend}. After an error the rows are not committed.
   */
  commit(n = 1): void {
    const start = this.#row
    const end = start + n
    if (!Number.isInteger(n) || n < 1 || end > this.numRows) {
      const detail = `n must be an integer from 1 to ${this.numRows - start}, the rows left in the block: got ${n}`
      throw new FulmarError('OUT_OF_RANGE', detail)
    }
    this.#checkBools(start, end)
    this.#row = end
    if (end < this.numRows && this.#isKnown && !this.#target.writesAtOnce()) return
    try {
      this.flush()
    } catch (error) {
      this.#row = start
      throw error
    }
  }

  /** Writes the committed rows to the buffer. @internal */
  flush(): void {
    const [start, end] = [this.#written, this.#row]
    if (start === end) return
    // A part of the caller's may read the buffer while it is written.
    this.#written = end
    try {
      using items = this.#items(start, end)
      this.#target.extend(items)
    } catch (error) {
      this.#written = start
      throw error
    }
    this.#isKnown = true
    if (end === this.numRows) this.#row = this.#written = 0
  }

  /** Returns a copy of rows `start` up to and without `end`. */
  #items(start: number, end: number): TensorDict {
    const items = TensorDict.from({}, { batchSize: [end - start, ...this.#batchSize] })
    for (const { path, dtype, shape, width, array } of this.#columns) {
      const rows = array.subarray(start * width, end * width)
      using tensor = Tensor.from(rows, { shape: [end - start, ...shape], dtype })
      items.set(path, tensor)
    }
    return items
  }

  #checkBools(start: number, end: number): void {
    for (const { path, dtype, width, array } of this.#columns) {
      if (dtype !== 'bool') continue
      for (let at = start * width; at < end * width; at++) {
        if (Number(array[at]) <= 1) continue
        const leaf = `leaf ${JSON.stringify(path)} of row ${Math.floor(at / width)}`
        throw new FulmarError('OUT_OF_RANGE', `${leaf} must be 0 or 1: got ${array[at]}`)
      }
    }
  }
}

function leafOf(item: TensorDict, path: readonly string[]): Omit<Column, 'array'> {
  const leaf = item.get(path)
  if (!(leaf instanceof Tensor)) {
    const detail = `leaf ${JSON.stringify(path)} must be a tensor to have a column: it is a ${leaf?.constructor.name}`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  using tensor = leaf
  const { dtype, shape } = tensor
  return { path, dtype, shape, width: shape.reduce((product, length) => product * length, 1) }
}

const sizeBytes = (dtype: Dtype): number => elementsOf(dtype, new Uint8Array(0)).BYTES_PER_ELEMENT
