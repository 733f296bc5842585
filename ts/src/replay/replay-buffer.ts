/** Buffers that keep items and draw batches of them. */

import { call, checkKnownKeys, describeValue, FulmarError, Handle } from '../core/index.js'
import type { RawReplayBatch, RawReplayBuffer } from '../native/index.js'
import { type BatchIndex, indexJson } from '../tensor/batch-index.js'
import { indices, type Tensor, withRawTensor } from '../tensor/tensor.js'
import {
  checkDict,
  dictAround,
  dictsOf,
  pathOf,
  type TensorDict,
  type TensorKey,
  withRawDict,
} from '../tensor/tensor-dict.js'
import type { BatchMemory } from './batch-memory.js'
import { type BatchesOptions, batchesAhead } from './batches-ahead.js'
import { type BufferTransform, TransformChain } from './buffer-transform.js'
import { checkpointerJson, replayDisk, type StorageCheckpointerBase } from './checkpointer.js'
import {
  type ConditionalUpdate,
  type ConditionalUpdateResult,
  updateIfPresent,
} from './conditional-update.js'
import type { TrajectoryPredicate } from './query.js'
import { rawBufferOf } from './raw-buffer.js'
import {
  type BufferKind,
  REPLAY_BUFFER_KEYS,
  type ReplayBatch,
  type ReplayBufferOptions,
  type ReplayBufferStats,
} from './replay-buffer-options.js'
import { type ReplayBufferState, restoreState, stateOf } from './replay-buffer-state.js'
import { type AttachOptions, attachBuffer, type ReplayBufferToken, tokenOf } from './replay-buffer-token.js'
import { ReplayColumns } from './replay-columns.js'
import { attachSampler, RandomSampler, type Sampler } from './sampler.js'
import { type TrajectoryOptions, trajectoriesOf } from './slice-sampler.js'
import {
  isLocalStorage,
  ListStorage,
  precedeStorage,
  type Storage,
  settleStorage,
  shareStorage,
} from './storage.js'

// Access to the private part, for modules that work on buffers.
let unwrap: (buffer: ReplayBuffer) => Handle<RawReplayBuffer>

/**
 * Keeps items, dictionaries of tensors, and draws batches of them. Writes and draws cost what they copy; nothing per item
 * crosses into JavaScript. Dispose it, declare it with `using`, or leave it to the collector. A part of your own that uses the buffer, or
 * its storage, while the buffer is calling it gets `FORBIDDEN`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(1000), batchSize: 4, seed: 7 })
 * const steps = TensorDict.from(
 *   { observation: Tensor.from([1, 2, 3, 4], { shape: [2, 2] }), reward: Tensor.from([0, 1]) },
 *   { batchSize: [2] },
 * )
 * assert.deepEqual(buffer.extend(steps), [0, 1])
 * assert.deepEqual(buffer.sample().tensor('observation').shape, [4, 2])
 * assert.deepEqual(buffer.at(1).tensor('reward').data, Float32Array.of(1))
 * ```
 */
export class ReplayBuffer {
  /** Kind in the token of the class; `undefined` if threads cannot share it. @internal */
  static readonly kind: string | undefined = 'ReplayBuffer'
  readonly #native: Handle<RawReplayBuffer>
  readonly #transforms: TransformChain
  readonly #sampler: Sampler
  readonly #batchSize: number | undefined
  readonly #hasOwnWriter: boolean
  readonly #refusesValues: boolean
  readonly #priorityKey: readonly string[]
  #columns: ReplayColumns | undefined
  /** Storage of the items. */
  readonly storage: Storage

  static {
    unwrap = (buffer) => buffer.#native
  }

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `INCOMPATIBLE` if another buffer has the sampler, or it cannot
   *   draw from lanes and the storage has some; those of the parts.
   */
  constructor(options: ReplayBufferOptions = {}, kind: BufferKind = { writeInfo: false }) {
    checkKnownKeys('options', options, REPLAY_BUFFER_KEYS)
    const { storage = new ListStorage(), sampler = new RandomSampler(), batchSize, transforms = [] } = options
    const native = rawBufferOf(options, { storage, sampler }, kind)
    this.#native = new Handle('ReplayBuffer', native.make)
    this.#native.precede(() => settleStorage(storage))
    attachSampler(sampler, {
      parameter: (name) => this.#native.call((buffer) => buffer.parameter(name)),
      setParameter: (name, value) => this.#native.call((buffer) => buffer.setParameter(name, value)),
      ranOut: () => this.#native.call((buffer) => buffer.ranOut()),
    })
    this.#transforms = new TransformChain(transforms)
    this.#sampler = sampler
    this.#batchSize = batchSize
    this.#hasOwnWriter = native.hasOwnWriter
    this.#refusesValues = native.refusesValues
    this.#priorityKey = kind.priorityKey ?? ['td_error']
    this.storage = storage
  }

  /** Number of rows that can be drawn. */
  get length(): number {
    return this.#native.call((buffer) => buffer.count())
  }

  /** The sampler. */
  get sampler(): Sampler {
    return this.#sampler
  }

  /** Figures, for a log. */
  get stats(): ReplayBufferStats {
    return JSON.parse(this.#native.call((buffer) => buffer.stats())) as ReplayBufferStats
  }

  /**
   * Writes one item without a batch dimension; its row, or -1 if it was not kept.
   * @throws {FulmarError} The errors of {@link ReplayBuffer.extend}; `INCOMPATIBLE` if the storage has lanes.
   */
  add(item: TensorDict): number {
    checkDict(item)
    const written = this.#transforms.inverted(item)
    if (!written) return -1
    return this.#native.call((buffer) => withRawDict(written, (dict) => buffer.add(dict)))
  }

  /**
   * Writes items by their first batch dimension, those of lanes as `[lanes.., time]`. Returns their rows, -1
   * for one that was not kept.
   * @throws {FulmarError} `EMPTY` without items; `INCOMPATIBLE` if the writer is read-only; `OUT_OF_RANGE`
   * above the capacity unless `allowOverwrite`; errors of the storage with the name of the leaf;
   * `UNKNOWN_NAME` if an item lacks a leaf that sampling depends on; `NON_FINITE` or `OUT_OF_RANGE` for a
   * priority that is not a number >= 0; `USER_CODE` for errors of the `check` of a custom sampler. After
   * these nothing has changed. Errors of its `extend` come after the items are stored.
   */
  extend(items: TensorDict): number[] {
    return this.writeThrough(items, true)
  }

  /**
   * Returns typed arrays to write rows of `item`'s leaves into, without a dictionary a row: its leaves, dtypes and shapes count, its values
   * do not. Without `item` they are those of the stored rows. A buffer has one block: later calls return the same.
   * @throws {FulmarError} `INCOMPATIBLE` if the storage has lanes, a leaf is not a tensor, the buffer has a block of another `item`, or
   *   transforms make other leaves of items and none is given; `EMPTY` without `item` and rows.
   */
  columns(item?: TensorDict): ReplayColumns {
    if (item === undefined && this.#columns) return this.#columns
    if (this.storage.shape.length > 1) {
      const detail = `the storage must have one dimension to take rows: got shape [${this.storage.shape}]`
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    if (this.#columns) {
      throw new FulmarError('INCOMPATIBLE', 'item must be left out once the buffer has columns: got one')
    }
    if (item !== undefined) checkDict(item)
    const like = item ?? this.#storedItem()
    const refusesValues = this.#refusesValues || like.has(this.#priorityKey)
    const columns = new ReplayColumns(like, {
      maxSize: this.storage.maxSize,
      extend: (items) => void this.extend(items),
      writesAtOnce: () =>
        refusesValues || this.#transforms.length > 0 || !isLocalStorage(this.storage) || !this.#native.isOpen,
    })
    precedeStorage(this.storage, () => columns.flush())
    this.#columns = columns
    return columns
  }

  /**
   * Writes what transforms held back, now that nothing more comes: the last steps of a `MultiStepTransform`. Their rows.
   * @throws {FulmarError} The errors of {@link ReplayBuffer.extend}; what the transforms let go is lost then.
   */
  flush(): number[] {
    const rows: number[] = []
    for (const items of this.#transforms.flushed()) rows.push(...this.write(items, true))
    return rows
  }

  /**
   * Draws a batch of `count` rows, or of the buffer's batch size, without use of prefetched batches.
   * @throws {FulmarError} `EMPTY` without rows to draw; `OUT_OF_RANGE` if neither is given, or the sampler
   * cannot draw as
   *   many.
   */
  sample(count?: number): TensorDict {
    return this.#opened(
      this.#native.call((buffer) => buffer.sample(count)),
      (batch) => this.#itemsOf(batch),
    )
  }

  /** As {@link ReplayBuffer.sample}, with the rows and what is said of them. */
  sampleWithInfo(count?: number): ReplayBatch {
    return this.#transformed(this.#native.call((buffer) => buffer.sample(count)))
  }

  /**
   * The batch of given rows, as if they had been drawn.
   * @throws {FulmarError} `OUT_OF_RANGE` if a row holds no item; `LIMIT_EXCEEDED` above 2^24 rows.
   */
  batchOf(index: Iterable<number>): ReplayBatch {
    return this.#transformed(this.#native.call((buffer) => buffer.batchOf(indices(index))))
  }

  /**
   * Returns the trajectories that satisfy a predicate, from the oldest, each `[steps]`; all without a
   * predicate.
   * @throws {FulmarError} `UNKNOWN_NAME` if a key is missing; `MALFORMED` for an invalid predicate.
   */
  query(predicate?: TrajectoryPredicate, options: TrajectoryOptions = {}): TensorDict[] {
    checkKnownKeys('options', options, ['trajKey', 'endKeys'])
    const json = JSON.stringify(predicate ?? null)
    const keys = JSON.stringify(trajectoriesOf(options))
    return dictsOf(this.#native.call((buffer) => buffer.query(json, keys)))
  }

  /**
   * As {@link ReplayBuffer.sample}, into the memory of `batch` while nothing else holds it: dispose tensors taken from it before
   * the next call.
   */
  sampleInto(batch: BatchMemory, count?: number): TensorDict {
    return batch.filled((memory) => this.#native.call((buffer) => buffer.sampleInto(count, memory)))
  }

  /** Batches of the buffer's batch size: until an epoch ends, or without end. */
  *[Symbol.iterator](): Generator<TensorDict, void, undefined> {
    if (this.#batchSize === undefined) {
      throw new FulmarError(
        'OUT_OF_RANGE',
        'batchSize must be given to iterate over a buffer: it is undefined',
      )
    }
    do {
      yield this.sample()
    } while (!this.#sampler.ranOut && this.length > 0)
  }

  /**
   * Batches of the buffer's batch size, copied off the event loop: until an epoch ends, or without end. With `prefetch` so many are drawn
   * before they are asked for; their rows are chosen in the order of the batches and hold what they held when they were chosen, so nothing
   * depends on threads or time, and without a write in between batches are those that would be drawn without `prefetch`. Writes, priorities
   * and parameters count for batches that are chosen later. `clear` drops those drawn ahead, states and folders keep them, and an iteration
   * that ends early leaves them for the next. In WebAssembly, and over a {@link Storage.from}, batches are copied when they are asked for.
   *
   * `collate` makes something else of each batch, behind the transforms.
   * @throws {FulmarError} `OUT_OF_RANGE` without a batch size; `ABORTED` if the signal fires; those of {@link ReplayBuffer.sample}, when
   *   the batch is asked for.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import { LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement } from 'fulmar/replay'
   * import assert from 'node:assert/strict'
   *
   * const sampler = new SamplerWithoutReplacement({ shuffle: false })
   * using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(5), sampler, batchSize: 2, prefetch: 2 })
   * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3, 4, 5]) }, { batchSize: [5] }))
   * const epoch: number[][] = []
   * for await (const ids of buffer.batches({ collate: (batch) => [...batch.tensor('id').toFloat32()] })) epoch.push(ids)
   * assert.deepEqual(epoch, [[1, 2], [3, 4], [5]])
   * ```
   */
  batches(options?: BatchesOptions): AsyncGenerator<TensorDict, void, undefined>
  batches<T>(
    options: BatchesOptions & { readonly collate: (batch: TensorDict) => T },
  ): AsyncGenerator<T, void, undefined>
  batches<T>(
    options: BatchesOptions & { readonly collate?: (batch: TensorDict) => T } = {},
  ): AsyncGenerator<T | TensorDict, void, undefined> {
    return batchesAhead(this.#native, this.storage, (batch) => this.#transformed(batch).items, options)
  }

  /** The items at an index of rows, after the transforms; in a storage of lanes `[lanes.., time]`. */
  at(...index: BatchIndex[]): TensorDict {
    return this.#transforms.forward(
      dictAround(() => this.#native.call((buffer) => buffer.at(indexJson(index)))),
    )
  }

  /** Writes over the items at an index, in place; new leaves are zero elsewhere. @throws {FulmarError} As {@link TensorDict.setAt}. */
  setAt(index: readonly BatchIndex[], items: TensorDict): void {
    checkDict(items)
    const written = this.#transforms.inverted(items)
    if (!written) return
    this.#native.call((buffer) => withRawDict(written, (dict) => buffer.setAt(indexJson(index), dict)))
  }

  /** Writes over one leaf of the items at an index, in place. @throws {FulmarError} `UNKNOWN_NAME` if no such tensor is stored. */
  setKeyAt(key: TensorKey, value: Tensor, index: readonly BatchIndex[]): void {
    const path = pathOf(key)
    this.#native.call((buffer) =>
      withRawTensor(value, (tensor) => buffer.setKeyAt(path, tensor, indexJson(index))),
    )
  }

  /**
   * Sets the priorities of rows, one for each or one for all; a row of -1 is skipped. Does nothing if the
   * sampler has no priorities.
   * @throws {FulmarError} `SHAPE_MISMATCH` if there is another number of them; `NON_FINITE` or `OUT_OF_RANGE`
   * for one that is not a number >= 0; `MALFORMED` for another value. After an error nothing has changed.
   */
  updatePriority(index: Iterable<number>, priority: number | Iterable<number>): void {
    if (typeof priority !== 'number' && typeof Object(priority)[Symbol.iterator] !== 'function') {
      const got = describeValue(priority)
      throw new FulmarError('MALFORMED', `priority must be a number, or numbers, one a row: got ${got}`)
    }
    const priorities = Float32Array.from(typeof priority === 'number' ? [priority] : priority)
    this.#native.call((buffer) => buffer.updatePriority(indices(index), priorities))
  }

  /** Tells the sampler that rows were written in another way. */
  markUpdate(index: Iterable<number>): void {
    this.#native.call((buffer) => buffer.markUpdate(indices(index)))
  }

  /** Returns the number of rewrites of each row, -1 if never written, out of range or not tracked. */
  generationsOf(index: Iterable<number>): number[] {
    const rows = Array.from(index, (row) => (row < 0 ? -1 : row))
    return this.#native.call((buffer) => [...buffer.generationsOf(indices(rows))])
  }

  /**
   * Writes a patch to those rows that still hold what they held when they were read. Of a row that comes twice the highest
   * version is written.
   * @throws {FulmarError} `INCOMPATIBLE` unless the writer tracks generations, or for a version without its key or a key without a
   *   version; `UNKNOWN_NAME`, `SHAPE_MISMATCH` or `INCOMPATIBLE` with the leaf if the patch does not fit. After an error nothing
   *   has changed.
   */
  updateIfPresent(update: ConditionalUpdate): ConditionalUpdateResult {
    return updateIfPresent(this.#native, update)
  }

  /**
   * Writes whole items over rows that hold some, as new ones: they count as written, and their priority is the default again. The cursor
   * stays. Past the transforms.
   * @throws {FulmarError} `OUT_OF_RANGE` if a row holds no item; those of {@link ReplayBuffer.extend}.
   */
  writeAt(index: Iterable<number>, items: TensorDict): void {
    this.#native.call((buffer) => withRawDict(items, (dict) => buffer.writeAt(indices(index), dict)))
  }

  /** The first items, or all, in the order of their rows. */
  readAllInOrder(end?: number): TensorDict {
    return dictAround(() => this.#native.call((buffer) => buffer.readAll(end)))
  }

  /** Writes over the first items, or all; new leaves are zero behind them. */
  writeAll(items: TensorDict, end?: number): void {
    this.#native.call((buffer) => withRawDict(items, (dict) => buffer.writeAll(dict, end)))
  }

  /** Adds a transform behind the others; with `invert` its `forward` runs when items are written. */
  appendTransform(
    transform: BufferTransform | ((batch: TensorDict) => TensorDict),
    options: { invert?: boolean } = {},
  ): this {
    return this.insertTransform(this.#transforms.length, transform, options)
  }

  /** Adds a transform at a place. @throws {FulmarError} `OUT_OF_RANGE` past the last. */
  insertTransform(
    place: number,
    transform: BufferTransform | ((batch: TensorDict) => TensorDict),
    options: { invert?: boolean } = {},
  ): this {
    this.#transforms.insert(place, transform, options)
    return this
  }

  /**
   * Empties every row, and what transforms hold back; `keepWriteCount`: figures still count what was written.
   * @throws {FulmarError} `INCOMPATIBLE` with an `ImmutableDatasetWriter`.
   */
  clear(options: { keepWriteCount?: boolean } = {}): void {
    checkKnownKeys('options', options, ['keepWriteCount'])
    this.#native.call((buffer) => buffer.clear(options.keepWriteCount ?? false))
    this.#transforms.clear()
  }

  /** Returns everything that a resumed run needs, except transforms and the rows that they hold. */
  stateDict(): ReplayBufferState {
    return stateOf(this.#native)
  }

  /**
   * Restores a state. Copies.
   * @throws {FulmarError} `MALFORMED` or `CORRUPT` if it does not fit these parts, `INCOMPATIBLE` for another
   * capacity. After an error nothing has changed.
   */
  loadStateDict(state: ReplayBufferState): void {
    restoreState(this.#native, state)
  }

  /**
   * Writes the buffer as a folder in a form of TorchRL's: rows, sampler, writer, and what it takes to draw the same rows again. It is
   * there whole or not at all. Natively only; transforms are the caller's.
   * @throws {FulmarError} `IO` if `path` exists or the system refuses; with the leaf, what the form cannot hold;
   *   `UNAVAILABLE` in WebAssembly.
   */
  dumps(path: string, checkpointer: StorageCheckpointerBase): void {
    const { dumpReplayBuffer } = replayDisk()
    this.#native.call((buffer) => dumpReplayBuffer(buffer, path, checkpointerJson(checkpointer)))
  }

  /**
   * Restores a folder written by `ReplayBuffer.dumps` or by TorchRL, of a buffer of the same parts. Pickles
   * are not read.
   * @throws {FulmarError} With the file, `CORRUPT` if a part is missing or damaged, `INCOMPATIBLE` or `MALFORMED` if it is of another
   *   buffer; `IO`; `UNAVAILABLE` in WebAssembly. After an error the buffer is as it was.
   */
  loads(path: string, checkpointer: StorageCheckpointerBase): void {
    const { loadReplayBuffer } = replayDisk()
    this.#native.call((buffer) => loadReplayBuffer(buffer, path, checkpointerJson(checkpointer)))
  }

  /**
   * Returns a token for worker threads to use this buffer by {@link ReplayBuffer.attach}: all write to and
   * draw from the same rows concurrently, and rows are never torn. The buffer stays open until the last
   * handle to it, in any thread, is disposed or collected; the token is invalid afterwards. Transforms belong
   * to each handle.
   * @throws {FulmarError} `INCOMPATIBLE` if storage or sampler are your own, which belong to their thread, or the class keeps something in
   *   JavaScript; `UNAVAILABLE` in WebAssembly.
   *
   * @example
   * ```ts no-run
   * import { Tensor, TensorDict } from 'fulmar'
   * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
   * import assert from 'node:assert/strict'
   *
   * using buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), batchSize: 2 })
   * // new Worker(file, { workerData: buffer.share() }), and there:
   * using other = ReplayBuffer.attach(buffer.share())
   * other.extend(TensorDict.from({ id: Tensor.from([7]) }, { batchSize: [1] }))
   * assert.deepEqual(buffer.sample().tensor('id').data, Float32Array.of(7, 7))
   * ```
   */
  share(): ReplayBufferToken {
    shareStorage(this.storage)
    const sampler = this.#sampler
    const parts = {
      storage: this.storage,
      sampler,
      hasOwnWriter: this.#hasOwnWriter,
      batchSize: this.#batchSize,
    }
    return tokenOf(this.#native, this.constructor as typeof ReplayBuffer, parts)
  }

  /**
   * Another handle to the buffer that {@link ReplayBuffer.share} gave the token of, in any thread of its process. Each class has its own.
   * @throws {FulmarError} `INCOMPATIBLE` if it is of another class; `CLOSED` if no handle to it is open any more, or it is of another
   *   process; `UNAVAILABLE` in WebAssembly.
   */
  static attach(token: ReplayBufferToken, options: AttachOptions = {}): ReplayBuffer {
    return attachBuffer(ReplayBuffer, token, options)
  }

  /** Gives the native memory back, once the rows of its columns are in the storage. */
  [Symbol.dispose](): void {
    try {
      this.#columns?.flush()
    } finally {
      this.#native.free()
    }
  }

  /** Writes what transforms make of items. @internal */
  protected writeThrough(items: TensorDict, prioritized: boolean): number[] {
    checkDict(items)
    const written = this.#transforms.inverted(items)
    return written ? this.write(written, prioritized) : []
  }

  /** Writes items as they are. @internal */
  protected write(items: TensorDict, prioritized: boolean): number[] {
    return this.#native.call((buffer) => withRawDict(items, (dict) => [...buffer.extend(dict, prioritized)]))
  }

  /** @internal */
  protected callNative<R>(body: (buffer: RawReplayBuffer) => R): R {
    return this.#native.call(body)
  }

  /** Processes a drawn batch before the transforms. @internal */
  protected drawn(batch: RawReplayBatch): RawReplayBatch {
    return batch
  }

  /** Returns the item in the first row. */
  #storedItem(): TensorDict {
    if (this.#transforms.length > 0) {
      throw new FulmarError(
        'INCOMPATIBLE',
        'item must be given, as transforms may change items: it is undefined',
      )
    }
    if (this.storage.length === 0) {
      throw new FulmarError('EMPTY', 'item must be given until the buffer has rows: it is undefined')
    }
    return this.storage.get([0]).index(0)
  }

  #transformed(batch: RawReplayBatch): ReplayBatch {
    return this.#opened(batch, () => {
      const items = this.#itemsOf(batch)
      return {
        items,
        index: [...call(() => batch.rows())],
        info: dictAround(() => call(() => batch.takeInfo())),
      }
    })
  }

  /** Takes the items out of a drawn batch, through the transforms. */
  #itemsOf(batch: RawReplayBatch): TensorDict {
    this.drawn(batch)
    return this.#transforms.forward(dictAround(() => call(() => batch.takeItems())))
  }

  #opened<R>(batch: RawReplayBatch, open: (batch: RawReplayBatch) => R): R {
    try {
      return open(batch)
    } finally {
      batch.free()
    }
  }
}

/** Writes the rows that columns of the buffer have put off. */
export const settleBuffer = (buffer: ReplayBuffer): void => settleStorage(buffer.storage)

/** Calls `body` with the raw buffer. */
export function withRawBuffer<R>(buffer: ReplayBuffer, body: (raw: RawReplayBuffer) => R): R {
  return unwrap(buffer).call(body)
}
