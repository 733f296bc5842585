/** Dense tensors: a dtype, a shape and shared elements. */

import {
  call,
  checkKnownKeys,
  checkList,
  describeValue,
  FulmarError,
  Handle,
  namesDevice,
  type PlacedDevice,
  placeDevice,
} from '../core/index.js'
import { type RawTensor, type RawTensorList, raw } from '../native/index.js'
import { type BatchIndex, indexJson } from './batch-index.js'
import {
  bytesOf,
  carry,
  checkedDtype,
  type Dtype,
  type DtypeOf,
  dtypesOf,
  type ElementOf,
  elementsOf,
  onlyDtypeOf,
  type SumOf,
  type TensorData,
  type TypedArrays,
} from './dtype.js'

/** Options of {@link Tensor.from}. */
export interface TensorOptions<D extends Dtype = Dtype> {
  /** Length of each dimension, row-major; `[]` is a scalar. @default one dimension of all elements */
  readonly shape?: readonly number[]
  /** Element type. @default that of the typed array (`u8` for a `Uint8Array`), `f32` for numbers */
  readonly dtype?: D
}

/** The elements `start` up to and without `end` of a dimension. */
export interface SliceOptions {
  /** @default 0 */
  readonly dim?: number
  /** @default 0 */
  readonly start?: number
  /** @default the length of the dimension */
  readonly end?: number
}

// Access to private fields, for this package only.
let wrap: <D extends Dtype>(make: () => RawTensor) => Tensor<D>
let unwrap: (tensor: Tensor) => Handle<RawTensor>

/**
 * An immutable n-dimensional array. Views (`select`, `slice`, `transpose`, `reshape` of dense tensors) share
 * the elements in native memory. Dispose it, declare it with `using`, or leave it to the collector.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using rows = Tensor.from(Float32Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] })
 * using column = rows.select(1, 0)
 * assert.deepEqual([column.dtype, column.shape], ['f32', [2]])
 * assert.deepEqual(column.data, Float32Array.of(1, 4))
 * ```
 */
export class Tensor<D extends Dtype = Dtype> {
  readonly #native: Handle<RawTensor>
  #data: TypedArrays[D] | undefined

  /** The element type. */
  readonly dtype: D
  /** The length of each dimension; empty for a scalar. */
  readonly shape: readonly number[]

  private constructor(make: () => RawTensor) {
    this.#native = new Handle('Tensor', make)
    this.dtype = this.#native.call((tensor) => tensor.dtype()) as D
    this.shape = this.#native.call((tensor) => [...tensor.shape()])
  }

  static {
    wrap = (make) => new Tensor(make)
    unwrap = (tensor) => {
      if (typeof tensor === 'object' && tensor !== null && #native in tensor) return tensor.#native
      const hint = Array.isArray(tensor) ? '; Tensor.from makes one from numbers' : ''
      throw new FulmarError('MALFORMED', `value must be a Tensor: got ${describeValue(tensor)}${hint}`)
    }
  }

  /**
   * Copies `data`, row-major. Pass bits of half floats as a `Uint16Array` with its `dtype`, bools as a
   * `Uint8Array` of 0 and 1 with `dtype: 'bool'`.
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if `shape` has another number of elements; `INCOMPATIBLE` if the
   * array cannot carry `dtype`; `UNKNOWN_NAME` for an unknown dtype, with our name for one of torch's;
   * `OUT_OF_RANGE` if a number does not fit the dtype; `LIMIT_EXCEEDED` above 16 dimensions; `MALFORMED` if
   * `data` is not an array, or its memory was transferred away.
   */
  static from<A extends TensorData, D extends Dtype = DtypeOf<A>>(
    data: A,
    options?: TensorOptions<D>,
  ): Tensor<NoInfer<D>>
  static from<D extends Dtype = 'f32'>(
    data: readonly number[],
    options?: TensorOptions<D>,
  ): Tensor<NoInfer<D>>
  static from(data: TensorData | readonly number[], options: TensorOptions = {}): Tensor {
    checkKnownKeys('options', options, ['shape', 'dtype'])
    const isTyped = ArrayBuffer.isView(data)
    if (!isTyped && !Array.isArray(data))
      throw new FulmarError('MALFORMED', `data must be a typed array or numbers: got ${describeValue(data)}`)
    const dtype = checkedDtype(options.dtype ?? (isTyped ? onlyDtypeOf(data) : 'f32'))
    const carried = isTyped ? data : carry(dtype, data)
    if (!dtypesOf(carried).includes(dtype)) {
      const detail = `dtype must be ${dtypesOf(carried).join(' or ')} for a ${carried.constructor.name}: got ${dtype}`
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    const bytes = bytesOf('data', carried)
    return new Tensor(() => raw.Tensor.fromBytes(dtype, indices(options.shape ?? [carried.length]), bytes))
  }

  /**
   * Creates a tensor of zeros (`false` for bools).
   * @throws {FulmarError} `LIMIT_EXCEEDED` if there are too many dimensions or elements; `OUT_OF_RANGE` if a dimension
   *   is not an integer from 0.
   */
  static zeros<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    return new Tensor<D>(() => raw.Tensor.zeros(checkedDtype(dtype), indices(shape)))
  }

  /**
   * Joins tensors of one shape along a new dimension. Copies.
   * @throws {FulmarError} `EMPTY` without tensors; `SHAPE_MISMATCH` or `INCOMPATIBLE` if shapes or dtypes differ;
   *   `OUT_OF_RANGE` if `dim` is past the rank.
   */
  static stack<D extends Dtype>(tensors: readonly Tensor<D>[], dim = 0): Tensor<D> {
    return new Tensor(() => joined(tensors, (list) => list.stack(dim)))
  }

  /**
   * Joins tensors along an existing dimension; the other dimensions must agree. Copies.
   * @throws {FulmarError} As {@link Tensor.stack}.
   */
  static cat<D extends Dtype>(tensors: readonly Tensor<D>[], dim = 0): Tensor<D> {
    return new Tensor(() => joined(tensors, (list) => list.cat(dim)))
  }

  /**
   * Elements, row-major: a copy made on first use and then cached. Writing to it does not change the tensor.
   */
  get data(): TypedArrays[D] {
    this.#data ??= elementsOf(
      this.dtype,
      this.#native.call((tensor) => tensor.bytes()),
    )
    return this.#data
  }

  /** Number of elements: 1 for a scalar, 0 if a dimension is 0. */
  get numElements(): number {
    return this.shape.reduce((product, length) => product * length, 1)
  }

  /**
   * Returns the only element: a bigint of an `i64`, a boolean of a `bool`, else a number, also of half floats.
   * @throws {FulmarError} `SHAPE_MISMATCH` with another number of elements than 1.
   *
   * @example
   * ```ts
   * import { Tensor } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const half: number = Tensor.from([0.25, 0.75]).sum().item() / 2
   * assert.equal(half, 0.5)
   * assert.equal(Tensor.from(BigInt64Array.of(7n)).item(), 7n)
   * ```
   */
  item(): ElementOf<D>
  item(): number | bigint | boolean {
    if (this.numElements !== 1)
      throw new FulmarError('SHAPE_MISMATCH', `tensor must have one element: got shape [${this.shape}]`)
    const isHalf = this.dtype === 'f16' || this.dtype === 'bf16'
    const [element = 0] = isHalf ? this.toFloat32() : this.data
    return this.dtype === 'bool' ? element !== 0 : element
  }

  /** Returns this tensor typed by its dtype. @throws {FulmarError} `INCOMPATIBLE` if it has another dtype. */
  as<E extends Dtype>(dtype: E): Tensor<E> {
    if (isOf(this, dtype)) return this
    throw new FulmarError('INCOMPATIBLE', `dtype must be ${dtype}: got ${this.dtype}`)
  }

  /** Returns the elements as 32-bit floats, rounded if necessary. A new array. */
  toFloat32(): Float32Array {
    return this.#native.call((tensor) => tensor.toFloat32())
  }

  /**
   * Returns the part at `index` of dimension `dim`, without that dimension. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension or index.
   */
  select(dim: number, index: number): Tensor<D> {
    return this.#derive((tensor) => tensor.select(this.#dim(dim), index))
  }

  /**
   * Returns the part at `index`, with items as in `TensorDict.at`. Shares the elements, but a list or a mask
   * copies.
   * @throws {FulmarError} As `TensorDict.at`.
   *
   * @example
   * ```ts
   * import { Tensor } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const rows = Tensor.from(Int32Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] })
   * assert.deepEqual(rows.at('...', [2, 0]).data, Int32Array.of(3, 1, 6, 4))
   * ```
   */
  at(...index: BatchIndex[]): Tensor<D> {
    return this.#derive((tensor) => tensor.at(indexJson(index)))
  }

  /**
   * Converts to another element type (floats round, integers drop the fraction, a bool is true for a non-zero
   * number) or moves to another device. Returns shared elements if type or device already match, else copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if an integer type cannot hold an element; `UNKNOWN_NAME` if there is no such type;
   *   `UNAVAILABLE` for a device that is not there, with what is lacking.
   *
   * @example
   * ```ts
   * import { Tensor } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const tensor = Tensor.from([1.5, -2])
   * assert.deepEqual(tensor.to('i32').data, Int32Array.of(1, -2))
   * assert.equal(tensor.to('cpu').device, 'cpu')
   * assert.throws(() => tensor.to('cuda'), { code: 'UNAVAILABLE' })
   * ```
   */
  to(device: PlacedDevice): Tensor<D>
  to<E extends Dtype>(dtype: E): Tensor<E>
  to(target: Dtype | PlacedDevice): Tensor {
    if (namesDevice(target)) {
      const device = placeDevice(target)
      return new Tensor(() => this.#native.call((tensor) => tensor.toDevice(device)))
    }
    return new Tensor(() => this.#native.call((tensor) => tensor.to(checkedDtype(target))))
  }

  /** Device of the elements. */
  get device(): PlacedDevice {
    return this.#native.call((tensor) => tensor.device()) as PlacedDevice
  }

  /**
   * Sums all elements to a scalar, or sums along a dimension and removes it. Integers and bools add up to
   * `i64`.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension, or integers add up to more than an `i64`.
   *
   * @example
   * ```ts
   * import { Tensor } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const rows = Tensor.from([1, 2, 3, 4], { shape: [2, 2] })
   * assert.deepEqual(rows.sum(-1).data, Float32Array.of(3, 7))
   * assert.deepEqual(rows.sum().shape, [])
   * ```
   */
  sum(dim?: number): Tensor<SumOf<D>> {
    const sum = (tensor: RawTensor) => (dim === undefined ? tensor.sum() : tensor.sumDim(this.#dim(dim)))
    return new Tensor(() => this.#native.call(sum))
  }

  /**
   * Returns a range of one dimension. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension, or the range is backwards or ends past it.
   */
  slice(options: SliceOptions = {}): Tensor<D> {
    checkKnownKeys('options', options, ['dim', 'start', 'end'])
    const dim = this.#dim(options.dim ?? 0)
    const { start = 0, end = this.shape[dim] ?? 0 } = options
    return this.#derive((tensor) => tensor.slice(dim, start, end))
  }

  /**
   * Returns the same elements, row-major, in another shape. Shares them if this tensor is dense, else copies.
   * @throws {FulmarError} `SHAPE_MISMATCH` if `shape` holds another number of elements.
   */
  reshape(shape: readonly number[]): Tensor<D> {
    return this.#derive((tensor) => tensor.reshape(indices(shape)))
  }

  /**
   * Calls {@link Tensor.reshape} without copies.
   * @throws {FulmarError} `INCOMPATIBLE` if strides do not allow
   * it.
   */
  view(shape: readonly number[]): Tensor<D> {
    return this.#derive((tensor) => tensor.view(indices(shape)))
  }

  /**
   * Merges the dimensions from `first` to `last`, both inclusive, into one.
   * @throws {FulmarError}
   * `OUT_OF_RANGE` without such dimensions.
   */
  flatten(first = 0, last = -1): Tensor<D> {
    const [from, to] = [this.#dim(first), this.#dim(last)]
    if (from > to || to >= this.shape.length) {
      throw new FulmarError('OUT_OF_RANGE', `last must be in ${from}..${this.shape.length}: got ${last}`)
    }
    const merged = this.shape.slice(from, to + 1).reduce((product, length) => product * length, 1)
    return this.reshape([...this.shape.slice(0, from), merged, ...this.shape.slice(to + 1)])
  }

  /**
   * Permutes the dimensions. Shares the elements.
   * @throws {FulmarError} `SHAPE_MISMATCH` if a dimension is
   * missing or repeated.
   */
  permute(order: readonly number[]): Tensor<D> {
    return this.#derive((tensor) => tensor.permute(indices(order.map((dim) => this.#dim(dim)))))
  }

  /**
   * Removes dimension `dim` if its length is 1. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE`
   * without such a dimension.
   */
  squeeze(dim: number): Tensor<D> {
    return this.#derive((tensor) => tensor.squeeze(this.#dim(dim)))
  }

  /**
   * Inserts a dimension of length 1 before `dim`; -1 appends it. Shares the elements.
   * @throws {FulmarError}
   * `OUT_OF_RANGE` past the rank.
   */
  unsqueeze(dim: number): Tensor<D> {
    return this.#derive((tensor) => tensor.unsqueeze(dim < 0 ? dim + this.shape.length + 1 : dim))
  }

  /**
   * Repeats dimensions of length 1, and new ones in front, up to `shape`. Shares the elements.
   * @throws
   * {FulmarError} `SHAPE_MISMATCH` if another dimension would change.
   */
  expand(shape: readonly number[]): Tensor<D> {
    return this.#derive((tensor) => tensor.expand(indices(shape)))
  }

  /**
   * Tiles the tensor, one count for each dimension. Copies.
   * @throws {FulmarError} `SHAPE_MISMATCH` with
   * another number of counts; `LIMIT_EXCEEDED` above 2^27 elements.
   */
  repeat(counts: readonly number[]): Tensor<D> {
    return this.#derive((tensor) => tensor.repeat(indices(counts)))
  }

  /**
   * Exchanges two dimensions. Shares the elements.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension.
   */
  transpose(left: number, right: number): Tensor<D> {
    return this.#derive((tensor) => tensor.transpose(this.#dim(left), this.#dim(right)))
  }

  /**
   * Returns the parts at `at` of dimension `dim`, in that order; an index may repeat. Copies.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such dimension or index.
   */
  indexSelect(dim: number, at: Iterable<number>): Tensor<D> {
    return this.#derive((tensor) => tensor.indexSelect(this.#dim(dim), indices(at)))
  }

  /**
   * Returns true if dtype, shape and elements are equal, floats as `===` compares them (NaN equals nothing).
   */
  equals(other: Tensor): boolean {
    return this.#native.call((left) => withRawTensor(other, (right) => left.equals(right)))
  }

  /** Frees the native memory; views and copies stay valid. */
  [Symbol.dispose](): void {
    this.#native.free()
  }

  /** Converts a negative dimension to one from the start; the core checks it. */
  #dim(dim: number): number {
    return dim < 0 ? dim + this.shape.length : dim
  }

  #derive(view: (tensor: RawTensor) => RawTensor): Tensor<D> {
    return new Tensor(() => this.#native.call(view))
  }
}

/** Wraps a native tensor, for the rooms that get tensors from the core. */
export function tensorAround<D extends Dtype = Dtype>(make: () => RawTensor): Tensor<D> {
  return wrap(make)
}

/** Calls `body` with the native tensor, for the rooms that pass tensors to the core. */
export function withRawTensor<R>(tensor: Tensor, body: (raw: RawTensor) => R): R {
  return unwrap(tensor).call(body)
}

/** Rejects values that are not tensors. @throws {FulmarError} `MALFORMED`. */
export function checkTensor(tensor: Tensor): void {
  unwrap(tensor)
}

/** Applies `join` to a native list of `tensors`. */
export function joined<R>(tensors: readonly Tensor[], join: (list: RawTensorList) => R): R {
  checkList('tensors', tensors)
  const list = call(() => raw.TensorList.empty())
  try {
    for (const tensor of tensors) withRawTensor(tensor, (one) => list.push(one))
    return call(() => join(list))
  } finally {
    list.free()
  }
}

/** Converts indices or dimensions for the binding; the core checks them. */
export function indices(values: Iterable<number>): Float64Array {
  return Float64Array.from(values)
}

function isOf<E extends Dtype>(tensor: Tensor, dtype: E): tensor is Tensor<E> {
  return tensor.dtype === dtype
}
