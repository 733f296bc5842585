/** Rows of different lengths without padding. */

import { checkKnownKeys, checkTypedArray, describeValue, FulmarError, Handle } from '../core/index.js'
import { type RawRagged, raw } from '../native/index.js'
import { bytesOf, type Dtype } from './dtype.js'
import { indices, joined, type Tensor, tensorAround, withRawTensor } from './tensor.js'

/** Options of {@link Ragged.toPadded}. Neither has a default. */
export interface PadOptions {
  /**
   * Side on which short rows are padded: `left` for prompts that generation continues, `right` for training.
   */
  readonly side: 'left' | 'right'
  /** Element used as padding. */
  readonly fill: number
}

// Access to private fields, for this package only.
let wrap: <D extends Dtype>(make: () => RawRagged) => Ragged<D>
let unwrap: (ragged: Ragged) => Handle<RawRagged>

/**
 * `S` rows of any length: `values` of shape `[T, ...]` and `S + 1` offsets; row `s` is `values[offsets[s]]`
 * up to `values[offsets[s + 1]]`. Immutable; rows and slices share the elements. Dispose it, declare it with
 * `using`, or leave it to the collector.
 *
 * @example
 * ```ts
 * import { Ragged, Tensor } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using ids = Tensor.from(Uint32Array.of(7, 8, 9, 1, 2))
 * using rows = Ragged.from(ids, Uint32Array.of(0, 3, 5))
 * assert.deepEqual(rows.row(1).data, Uint32Array.of(1, 2))
 * assert.deepEqual(rows.toPadded({ side: 'left', fill: 0 }).data, Uint32Array.of(7, 8, 9, 0, 1, 2))
 * ```
 */
export class Ragged<D extends Dtype = Dtype> {
  readonly #native: Handle<RawRagged>
  #values: Tensor<D> | undefined

  /** Number of rows, `S`. */
  readonly numRows: number
  /** Start of each row, then the length of `values`: `S + 1` integers. A copy. */
  readonly offsets: Uint32Array

  private constructor(make: () => RawRagged) {
    this.#native = new Handle('Ragged', make)
    this.offsets = this.#native.call((ragged) => ragged.offsets())
    this.numRows = this.offsets.length - 1
  }

  static {
    wrap = (make) => new Ragged(make)
    unwrap = (ragged) => {
      if (typeof ragged === 'object' && ragged !== null && #native in ragged) return ragged.#native
      throw new FulmarError('MALFORMED', `value must be a Ragged: got ${describeValue(ragged)}`)
    }
  }

  /**
   * Shares `values` and copies `offsets`.
   * @throws {FulmarError} `SHAPE_MISMATCH` if `values` is a scalar or `offsets` does not go from 0 to its length;
   *   `OUT_OF_RANGE` if an offset is below the one before it; `EMPTY` without offsets; `MALFORMED` if
   *   `offsets` are in an array of another type, or their memory was transferred away.
   */
  static from<D extends Dtype>(values: Tensor<D>, offsets: Uint32Array): Ragged<D> {
    checkTypedArray('offsets', offsets, Uint32Array)
    bytesOf('offsets', offsets)
    return new Ragged(() => withRawTensor(values, (tensor) => raw.Ragged.fromValues(tensor, offsets)))
  }

  /**
   * Joins rows of shapes `[length, ...]`, which agree in all dimensions but the first. Copies.
   * @throws {FulmarError} `EMPTY` without rows; `SHAPE_MISMATCH` or `INCOMPATIBLE` if other dimensions or dtypes differ;
   *   `OUT_OF_RANGE` if a row is a scalar.
   */
  static fromRows<D extends Dtype>(rows: readonly Tensor<D>[]): Ragged<D> {
    return new Ragged(() => joined(rows, (list) => list.ragged()))
  }

  /** All rows concatenated, `[T, ...]`. Shares the elements. */
  get values(): Tensor<D> {
    this.#values ??= tensorAround(() => this.#native.call((ragged) => ragged.values()))
    return this.#values
  }

  /**
   * Returns the row at `index`, `[length, ...]`. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if
   * it does not exist.
   */
  row(index: number): Tensor<D> {
    return tensorAround(() => this.#native.call((ragged) => ragged.row(index)))
  }

  /**
   * Returns the rows `start` up to and without `end`. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if the range is backwards or ends past the rows.
   */
  slice(start: number, end: number = this.numRows): Ragged<D> {
    return new Ragged(() => this.#native.call((ragged) => ragged.slice(start, end)))
  }

  /**
   * Returns the rows at `at`, in that order; an index may repeat. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such row.
   */
  indexSelect(at: Iterable<number>): Ragged<D> {
    return new Ragged(() => this.#native.call((ragged) => ragged.indexSelect(indices(at))))
  }

  /**
   * Pads the rows to a dense tensor `[S, longest, ...]`. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if no element of the dtype equals `fill`; `UNKNOWN_NAME` if `side` is neither.
   */
  toPadded(options: PadOptions): Tensor<D> {
    checkKnownKeys('options', options, ['side', 'fill'], ['side', 'fill'])
    const { side, fill } = options
    return tensorAround(() => this.#native.call((ragged) => ragged.toPadded(side, fill)))
  }

  /** Returns true if dtype and rows are equal. */
  equals(other: Ragged): boolean {
    return this.#native.call((left) => other.#native.call((right) => left.equals(right)))
  }

  /** Frees the native memory; rows and slices stay valid. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** Wraps native rows, for the rooms that get them from the core. */
export function raggedAround<D extends Dtype = Dtype>(make: () => RawRagged): Ragged<D> {
  return wrap(make)
}

/** Calls `body` with the native rows, for the rooms that pass them to the core. */
export function withRawRagged<R>(ragged: Ragged, body: (raw: RawRagged) => R): R {
  return unwrap(ragged).call(body)
}
