/** Storages of the items of a buffer. */

import {
  call,
  calledBack,
  checkKnownKeys,
  type DeviceName,
  Handle,
  type OnDevice,
  placeOnCpu,
} from '../core/index.js'
import { type RawStorage, raw } from '../native/index.js'
import { indices } from '../tensor/tensor.js'
import { dictAround, type TensorDict, withRawDict } from '../tensor/tensor-dict.js'

/** A storage of your own: what {@link Storage.from} makes one of. */
export interface StorageSource {
  /** Number of rows that fit, from 1. */
  readonly maxSize: number
  /**
   * Keeps item `i` of `items`, by their first batch dimension, as `rows[i]`; of a row that comes twice the last stays. Rows are
   * whole numbers below `maxSize` that leave none before them empty.
   */
  set(rows: readonly number[], items: TensorDict): void
  /** The items in `rows`, which were all set, in that order; a row may come twice. */
  get(rows: readonly number[]): TensorDict
  /** Forgets every row. */
  clear(): void
}

// The doors to the private parts, for buffers.
let unwrap: (storage: Storage) => Handle<RawStorage>
let around: (make: () => RawStorage) => Storage
let local: (storage: Storage) => boolean
let publish: (storage: Storage) => void

/**
 * Items by row. Make one of its classes; several buffers may share it, and each learns of what the others write.
 * Dispose it, or leave it to the collector: buffers keep what they need.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ListStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using storage = new ListStorage(4)
 * storage.set([0, 1], TensorDict.from({ id: Tensor.from([7, 8]) }, { batchSize: [2] }))
 * assert.deepEqual(storage.get([1, 1]).tensor('id').data, Float32Array.of(8, 8))
 * assert.deepEqual([storage.maxSize, storage.length], [4, 2])
 * ```
 */
export class Storage {
  readonly #native: Handle<RawStorage>
  #isLocal: boolean
  /** Number of rows that fit. */
  readonly maxSize: number
  /** `[maxSize]`, or `[time, lanes..]`: rows count through time, then through lanes. */
  readonly shape: readonly number[]

  /** @internal */
  protected constructor(make: () => RawStorage, isLocal = false) {
    this.#native = new Handle('Storage', make)
    this.#isLocal = isLocal
    this.maxSize = this.#native.call((storage) => storage.capacity())
    this.shape = this.#native.call((storage) => [...storage.shape()])
  }

  static {
    unwrap = (storage) => storage.#native
    around = (make) => new Storage(make)
    local = (storage) => storage.#isLocal
    publish = (storage) => {
      storage.#isLocal = false
    }
  }

  /**
   * A storage that your object keeps; only the thread that made it may use it. While one of its functions is called, the storage and its
   * buffers refuse it with `FORBIDDEN`.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is room for no row. What your object throws becomes `USER_CODE`.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import { Storage } from 'fulmar/replay'
   * import { checkStorage } from 'fulmar/testing'
   *
   * const inAMap = () => {
   *   const kept = new Map<number, TensorDict>()
   *   return Storage.from({
   *     maxSize: 8,
   *     set: (rows, items) => rows.forEach((row, at) => void kept.set(row, items.index(at))),
   *     get: (rows) => TensorDict.stack(rows.map((row) => kept.get(row) as TensorDict)),
   *     clear: () => kept.clear(),
   *   })
   * }
   * checkStorage(inAMap) // throws if it does not do what a storage must
   * import assert from 'node:assert/strict'
   * assert.equal(inAMap().length, 0)
   * ```
   */
  static from(source: StorageSource): Storage {
    return new SourceStorage(source)
  }

  /** Number of rows that hold an item. */
  get length(): number {
    return this.#native.call((storage) => storage.count())
  }

  /**
   * Writes item `i` of `items`, by their first batch dimension, to `rows[i]`; of a row that comes twice the last stays.
   * @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many items as rows; `OUT_OF_RANGE` if a row is beyond the
   *   storage or would leave others before it empty; with the name of the leaf, what the storage cannot hold. After an
   *   error nothing has changed.
   */
  set(rows: Iterable<number>, items: TensorDict): void {
    this.#native.call((storage) => withRawDict(items, (dict) => storage.set(indices(rows), dict)))
  }

  /** The items in `rows`, in that order. Copies. @throws {FulmarError} `OUT_OF_RANGE` if a row holds none. */
  get(rows: Iterable<number>): TensorDict {
    return dictAround(() => this.#native.call((storage) => storage.get(indices(rows))))
  }

  /** Empties every row. */
  clear(): void {
    this.#native.call((storage) => storage.clear())
  }

  /** Gives the native memory back, once no buffer uses it. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** A storage behind the functions of the caller. */
class SourceStorage extends Storage {
  constructor(source: StorageSource) {
    super(() => {
      const mailbox = raw.Mailbox.empty()
      const answer = calledBack((operation: string, numbers: Float64Array) => {
        const items = operation === 'set' && mailbox.takeItems()
        if (items)
          source.set(
            [...numbers],
            dictAround(() => items),
          )
        if (operation === 'get') withRawDict(source.get([...numbers]), (dict) => mailbox.putItems(dict))
        if (operation === 'clear') source.clear()
      })
      return raw.foreignStorage(source.maxSize, mailbox, answer)
    })
  }
}

/** Returns true if an object of the caller stores the rows. */
export const isSourceStorage = (storage: Storage): boolean => storage instanceof SourceStorage
/** Another handle to a storage of the core. */
export const storageAround = (make: () => RawStorage): Storage => around(make)

/** Calls `body` with the raw storage. */
export function withRawStorage<R>(storage: Storage, body: (raw: RawStorage) => R): R {
  return unwrap(storage).call(body)
}

/** Runs `before` ahead of each later use of the storage, or of a buffer over it. */
export function precedeStorage(storage: Storage, before: () => void): void {
  unwrap(storage).precede(before)
}
/** Writes the rows that columns have put off. */
export const settleStorage = (storage: Storage): void => unwrap(storage).settle()
/** Returns true if this thread alone reads the storage, and nothing outlives it. */
export const isLocalStorage = (storage: Storage): boolean => local(storage)
/** Notes that other threads read the storage from now on. */
export const shareStorage = (storage: Storage): void => publish(storage)

/** `[time, lanes..]` with room for `maxSize` rows, rounded up to whole time steps. */
export function shapeOf(maxSize: number, lanes: readonly number[]): number[] {
  const lanesTotal = lanes.reduce((product, lane) => product * lane, 1)
  // Only a whole number is rounded up; the core refuses others by name.
  return [Number.isInteger(maxSize) ? Math.ceil(maxSize / lanesTotal) : maxSize, ...lanes]
}

/** Makes a storage of the core, once its device is there. */
const created = (options: Readonly<Record<string, unknown>>, on?: DeviceName) => () => {
  const device = placeOnCpu(on)
  return call(() => raw.Storage.create(JSON.stringify({ ...options, device })))
}

/** Options of {@link LazyTensorStorage}. */
export interface LazyTensorStorageOptions extends OnDevice {
  /**
   * Lanes that are written together: items come as `[lanes.., time]`, and `maxSize` is rounded up to whole time steps.
   * @default none
   */
  readonly lanes?: readonly number[]
  /** The most bytes to take; the system gives them as rows are written. @default 256 GiB */
  readonly bytesMax?: number
}

/**
 * One tensor for each leaf, made with zeros at the first write, after whose leaves, dtypes and shapes all later items are.
 * The fastest storage. What was never written is never shown. Ragged leaves and JSON values are kept row by row.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if there is room for no row; `LIMIT_EXCEEDED` above 2^32 rows, or at the first write
 *   above `bytesMax`, with the figures; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { LazyTensorStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using storage = new LazyTensorStorage(100, { lanes: [3] })
 * assert.deepEqual([storage.shape, storage.maxSize], [[34, 3], 102])
 * ```
 */
export class LazyTensorStorage extends Storage {
  constructor(maxSize: number, options: LazyTensorStorageOptions = {}) {
    checkKnownKeys('options', options, ['lanes', 'bytesMax', 'device'])
    const { lanes = [], bytesMax, device } = options
    super(created({ kind: 'lazyTensor', shape: shapeOf(maxSize, lanes), bytesMax }, device), true)
  }
}

/**
 * The elements of a dictionary as rows, all of them written. Shares the elements until the first write.
 * @throws {FulmarError} `SHAPE_MISMATCH` if it has no batch dimension; `OUT_OF_RANGE` if that is empty.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { TensorStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using storage = new TensorStorage(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
 * assert.equal(storage.length, 3)
 * ```
 */
export class TensorStorage extends Storage {
  constructor(items: TensorDict) {
    super(() => withRawDict(items, (dict) => raw.Storage.over(dict)), true)
  }
}

/**
 * One dictionary a row, joined when they are read; what keeps them from it is an error then. Takes items of any leaves.
 *
 * @example
 * ```ts
 * import { ListStorage, ReplayBuffer } from 'fulmar/replay'
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new ListStorage(10), seed: 1 })
 * buffer.add(TensorDict.from({ task: new NonTensorData('add') }))
 * assert.equal(buffer.sample(1).index(0).value('task'), 'add')
 * ```
 */
export class ListStorage extends Storage {
  constructor(maxSize = 1000, options: OnDevice = {}) {
    checkKnownKeys('options', options, ['device'])
    super(created({ kind: 'list', maxSize }, options.device), true)
  }
}

/**
 * One dictionary a row; leaves whose shapes differ in their first dimension are read as ragged rows.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyStackStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using storage = new LazyStackStorage(10)
 * storage.set([0], TensorDict.from({ ids: Tensor.from([[1, 2]].flat(), { shape: [1, 2] }) }, { batchSize: [1] }))
 * storage.set([1], TensorDict.from({ ids: Tensor.from([3], { shape: [1, 1] }) }, { batchSize: [1] }))
 * assert.deepEqual(storage.get([0, 1]).ragged('ids').values.data, Float32Array.of(1, 2, 3))
 * ```
 */
export class LazyStackStorage extends Storage {
  constructor(maxSize: number, options: OnDevice = {}) {
    checkKnownKeys('options', options, ['device'])
    super(created({ kind: 'lazyStack', maxSize }, options.device), true)
  }
}

/** Options of {@link CompressedListStorage}. */
export interface CompressedListStorageOptions extends OnDevice {
  /** Compression level: 0 for none, up to 9. @default 3 */
  readonly compressionLevel?: number
}

/**
 * One dictionary a row, its tensors compressed (DEFLATE), nested ones too.
 * @throws {FulmarError} `OUT_OF_RANGE` for a level above 9; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { CompressedListStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using storage = new CompressedListStorage(10, { compressionLevel: 6 })
 * const frames = TensorDict.from({ pixels: Tensor.zeros('u8', [1, 84, 84]) }, { batchSize: [1] })
 * storage.set([0], frames)
 * assert.ok(storage.get([0]).equals(frames))
 * ```
 */
export class CompressedListStorage extends Storage {
  constructor(maxSize: number, options: CompressedListStorageOptions = {}) {
    super(created({ kind: 'compressedList', maxSize, ...options }, options.device), true)
  }
}
