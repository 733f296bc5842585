/** Buffers that keep items and draw batches of them. */

import {
  call,
  callAsync,
  calledBack,
  checkKnownKeys,
  describeValue,
  FulmarError,
  Handle,
} from '../core/index.js'
import {
  type RawPendingBatch,
  type RawReplayBatch,
  type RawReplayBuffer,
  type RawReplayState,
  type RawReplayThreads,
  raw,
} from '../native/index.js'
import { type BatchIndex, indexJson } from '../tensor/batch-index.js'
import { indices, type Tensor, withRawTensor } from '../tensor/tensor.js'
import {
  checkDict,
  dictAround,
  dictsOf,
  pathOf,
  TensorDict,
  type TensorKey,
  withRawDict,
  withRawDicts,
} from '../tensor/tensor-dict.js'
import type { BatchMemory } from './batch-memory.js'
import { checkpointerJson, replayDisk, type StorageCheckpointerBase } from './checkpointer.js'
import type { TrajectoryPredicate } from './query.js'
import { type SampleUnit, unitOptions } from './sample-unit.js'
import {
  attachSampler,
  isSourceSampler,
  RandomSampler,
  type Sampler,
  samplerAnswers,
  samplerFlags,
  samplerOptions,
} from './sampler.js'
import { samplerAround } from './sampler-around.js'
import { type TrajectoryOptions, trajectoriesOf } from './slice-sampler.js'
import { isSourceStorage, ListStorage, type Storage, storageAround, withRawStorage } from './storage.js'
import { type Writer, writerAnswers, writerOptions } from './writer.js'

/** Transform of items on write, or of batches on read. */
export interface BufferTransform {
  /** Transforms a drawn batch; returning nothing keeps it. Another value than a dictionary is `USER_CODE`. */
  forward?(batch: TensorDict): TensorDict
  /** Transforms items before they are written; `undefined` writes none. */
  inverse?(items: TensorDict): TensorDict | undefined
  /** Returns items that were held back, at the end of writing; `undefined` for none. */
  flush?(): TensorDict | undefined
  /** Forgets what was held back, as the buffer is emptied. */
  clear?(): void
}

/** Options of {@link ReplayBuffer}. */
export interface ReplayBufferOptions {
  /** Storage of the items. @default `new ListStorage(1000)` */
  readonly storage?: Storage
  /** Which rows a batch takes; of this buffer alone. @default `new RandomSampler()` */
  readonly sampler?: Sampler
  /** Which rows new items take. @default a ring */
  readonly writer?: Writer
  /** Unit that a drawn row expands to. @default the row itself */
  readonly sampleUnit?: SampleUnit
  /** Rows of a batch where none are asked for, from 1. @default none */
  readonly batchSize?: number
  /**
   * Number of batches that {@link ReplayBuffer.batches} draws in advance, up to 1024; needs `batchSize`.
   * @default 0
   */
  readonly prefetch?: number
  /** Fixes all draws. @default 0 */
  readonly seed?: number
  /**
   * Transforms of items and batches; `inverse` in reverse order on write, `forward` in order on read.
   * @default none
   */
  readonly transforms?: readonly BufferTransform[]
  /** If true, one write may hold more items than the buffer, of which the last stay. @default true */
  readonly allowOverwrite?: boolean
}

/** A batch and where it comes from. */
export interface ReplayBatch {
  /** The items. */
  readonly items: TensorDict
  /** Their rows, counted through time, then lanes. */
  readonly index: readonly number[]
  /** Information of sampler and unit about the rows: weights, masks, staleness, `index_generation`. */
  readonly info: TensorDict
}

/** Figures of a buffer. */
export interface ReplayBufferStats {
  /** Rows that hold an item. */
  readonly size: number
  /** Rows there is room for. */
  readonly capacity: number
  /** Items, or time steps where there are lanes, ever written. */
  readonly writeCount: number
  /** `size / capacity`. */
  readonly utilization: number
  /** Batches that are drawn and were not asked for yet. */
  readonly prefetchQueueSize: number
}

/** Arguments of {@link ReplayBuffer.updateIfPresent}. */
export interface ConditionalUpdate {
  /** The rows. */
  readonly index: Iterable<number>
  /** Generation of each row when it was read. */
  readonly generation: Iterable<number>
  /** Values to write over the leaves of that name, one element per row. */
  readonly patch: TensorDict
  /** Key of the version of an item. @default versions are not compared */
  readonly versionKey?: TensorKey
  /** The version of each row of the patch; rows that hold a later one are left. */
  readonly version?: Iterable<number>
  /** If true, rows with the same version are skipped too. @default false */
  readonly requireNewer?: boolean
}

/** Outcome for each row of a {@link ConditionalUpdate}: written, refused for its version, or stale. */
export interface ConditionalUpdateResult {
  readonly updated: readonly boolean[]
  readonly versionRejected: readonly boolean[] | null
}

/** All that a buffer keeps to go on as if never stopped. */
export interface ReplayBufferState {
  /** The states of sampler, writer and unit: JSON text. */
  readonly parts: string
  /** Every item. */
  readonly items: readonly TensorDict[]
  /** Batches that were drawn in advance, which come first after a restore. @default none */
  readonly prefetched?: readonly TensorDict[]
}

/** Options of {@link ReplayBuffer.batches}. */
export interface BatchesOptions {
  /** Ends the iteration with `ABORTED`, between batches; those drawn ahead are left for the next. */
  readonly signal?: AbortSignal
}

const OPTIONS = [
  'storage',
  'sampler',
  'writer',
  'sampleUnit',
  'batchSize',
  'prefetch',
  'seed',
  'transforms',
  'allowOverwrite',
] as const

/** Functions of the core that only some classes of buffers use. */
export interface BufferKind {
  readonly writeInfo: boolean
  readonly priorityKey?: readonly string[]
  readonly reduction?: string
}

/** Names a buffer to the threads of its process: post it to a worker. Plain data, and no address. */
export interface ReplayBufferToken {
  /** The class to attach with. */
  readonly kind: string
  /** Unguessable id of the buffer in the core. */
  readonly id: string
  /** Kind of its sampler. */
  readonly sampler: { readonly kind: string }
  /** Rows of a batch where none are asked for. @default none */
  readonly batchSize?: number
}

/** Options of {@link ReplayBuffer.attach}. */
export interface AttachOptions {
  /** Transforms of items and batches of this handle. @default none */
  readonly transforms?: readonly BufferTransform[]
}

// What the constructor takes instead of making a buffer.
const attached = new WeakMap<ReplayBufferOptions, RawReplayBuffer>()

// The door to the private part, for what stands beside buffers.
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
  readonly #transforms: BufferTransform[]
  readonly #sampler: Sampler
  readonly #batchSize: number | undefined
  readonly #hasOwnWriter: boolean
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
    checkKnownKeys('options', options, OPTIONS)
    const { storage = new ListStorage(), sampler = new RandomSampler(), writer, sampleUnit } = options
    const { batchSize, prefetch, seed, transforms = [], allowOverwrite } = options
    const core = {
      ...kind,
      ...samplerFlags(sampler),
      batchSize,
      prefetch,
      seed,
      allowOverwrite,
      sampler: samplerOptions(sampler),
      writer: writer && writerOptions(writer),
      unit: sampleUnit && unitOptions(sampleUnit),
    }
    const mailbox = raw.Mailbox.empty()
    const [ownSampler, ownWriter] = [samplerAnswers(sampler, mailbox), writerAnswers(writer, mailbox)]
    const own = { ...ownSampler, ...ownWriter }
    const answer = calledBack((name: string, numbers: Float64Array) => own[name]?.([...numbers]))
    const create = () =>
      attached.get(options) ??
      withRawStorage(storage, (one) =>
        ownSampler || ownWriter
          ? raw.bufferOfParts(one, JSON.stringify(core), mailbox, !!ownSampler, !!ownWriter, answer)
          : raw.ReplayBuffer.create(one, JSON.stringify(core)),
      )
    this.#native = new Handle('ReplayBuffer', create)
    attachSampler(sampler, {
      parameter: (name) => this.#native.call((buffer) => buffer.parameter(name)),
      setParameter: (name, value) => this.#native.call((buffer) => buffer.setParameter(name, value)),
      ranOut: () => this.#native.call((buffer) => buffer.ranOut()),
    })
    this.#transforms = [...transforms]
    this.#sampler = sampler
    this.#batchSize = batchSize
    this.#hasOwnWriter = ownWriter !== undefined
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
   * @throws {FulmarError} Those of {@link ReplayBuffer.extend}; `INCOMPATIBLE` if the storage has lanes.
   */
  add(item: TensorDict): number {
    checkDict(item)
    const written = this.#inverted(item)
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
   * Writes what transforms held back, now that nothing more comes: the last steps of a `MultiStepTransform`. Their rows.
   * @throws {FulmarError} Those of {@link ReplayBuffer.extend}; what the transforms let go is lost then.
   */
  flush(): number[] {
    const rows: number[] = []
    for (let place = this.#transforms.length - 1; place >= 0; place--) {
      const held = this.#transforms[place]?.flush?.()
      const written = held && this.#inverted(held, place)
      if (written) rows.push(...this.write(written, true))
    }
    return rows
  }

  /**
   * Draws a batch of `count` rows, or of the buffer's batch size, without use of prefetched batches.
   * @throws {FulmarError} `EMPTY` without rows to draw; `OUT_OF_RANGE` if neither is given, or the sampler
   * cannot draw as
   *   many.
   */
  sample(count?: number): TensorDict {
    return this.sampleWithInfo(count).items
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
  async *batches<T>(
    options: BatchesOptions & { readonly collate?: (batch: TensorDict) => T } = {},
  ): AsyncGenerator<T | TensorDict, void, undefined> {
    checkKnownKeys('options', options, ['signal', 'collate'])
    const { signal, collate } = options
    let isLast = false
    while (!isLast) {
      if (signal?.aborted) {
        throw new FulmarError('ABORTED', 'signal must not fire during the iteration: got an abort', {
          cause: signal.reason,
        })
      }
      const pending = this.#native.call((buffer) => buffer.nextBatch())
      try {
        await this.#copied(pending)
        isLast = pending.isLast()
        const { items } = this.#transformed(call(() => pending.batch()))
        yield collate ? collate(items) : items
      } finally {
        pending.free()
      }
    }
  }

  /** The items at an index of rows, after the transforms; in a storage of lanes `[lanes.., time]`. */
  at(...index: BatchIndex[]): TensorDict {
    return this.#forward(dictAround(() => this.#native.call((buffer) => buffer.at(indexJson(index)))))
  }

  /** Writes over the items at an index, in place; new leaves are zero elsewhere. @throws {FulmarError} As {@link TensorDict.setAt}. */
  setAt(index: readonly BatchIndex[], items: TensorDict): void {
    checkDict(items)
    const written = this.#inverted(items)
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
    const known = ['index', 'generation', 'patch', 'versionKey', 'version', 'requireNewer']
    checkKnownKeys('update', update, known)
    const { index, generation, patch, versionKey = [], version = [], requireNewer = false } = update
    if ((update.versionKey === undefined) !== (update.version === undefined)) {
      const missing = update.version === undefined ? 'version' : 'versionKey'
      throw new FulmarError(
        'INCOMPATIBLE',
        `versionKey and version must be given together: ${missing} is missing`,
      )
    }
    const path = pathOf(versionKey)
    const [rows, generations, versions] = [indices(index), indices(generation), indices(version)]
    const answer = this.#native.call((buffer) =>
      withRawDict(patch, (dict) =>
        buffer.updateIfPresent(rows, generations, dict, path, versions, requireNewer),
      ),
    )
    return JSON.parse(answer) as ConditionalUpdateResult
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
    checkKnownKeys('options', options, ['invert'])
    if (!Number.isInteger(place) || place < 0 || place > this.#transforms.length) {
      throw new FulmarError(
        'OUT_OF_RANGE',
        `place must be an integer in 0..${this.#transforms.length}: got ${place}`,
      )
    }
    if (
      (typeof transform !== 'object' && typeof transform !== 'function') ||
      transform === null ||
      Array.isArray(transform)
    ) {
      const detail = `transform must be a function or an object with forward: got ${describeValue(transform)}`
      throw new FulmarError('MALFORMED', detail)
    }
    const given: BufferTransform = typeof transform === 'function' ? { forward: transform } : transform
    const inverse = given.forward?.bind(given)
    this.#transforms.splice(place, 0, options.invert && inverse ? { inverse } : given)
    return this
  }

  /** Empties every row, and what transforms hold back; `keepWriteCount`: figures still count what was written. */
  clear(options: { keepWriteCount?: boolean } = {}): void {
    checkKnownKeys('options', options, ['keepWriteCount'])
    this.#native.call((buffer) => buffer.clear(options.keepWriteCount ?? false))
    for (const transform of this.#transforms) transform.clear?.()
  }

  /** All that must be kept to go on as if never stopped; transforms and what they hold are the caller's. */
  stateDict(): ReplayBufferState {
    const state = this.#native.call((buffer) => buffer.state())
    try {
      const prefetched = dictsOf(call(() => state.ahead()))
      const whole = { parts: call(() => state.parts()), items: dictsOf(call(() => state.items())) }
      return prefetched.length > 0 ? { ...whole, prefetched } : whole
    } finally {
      state.free()
    }
  }

  /**
   * Restores a state. Copies.
   * @throws {FulmarError} `MALFORMED` or `CORRUPT` if it does not fit these parts, `INCOMPATIBLE` for another
   * capacity. After an error nothing has changed.
   */
  loadStateDict(state: ReplayBufferState): void {
    checkKnownKeys('state', state, ['parts', 'items', 'prefetched'])
    const { parts, items, prefetched = [] } = state
    const whole: RawReplayState = withRawDicts(items, (all) =>
      withRawDicts(prefetched, (ahead) => raw.ReplayState.of(parts, all, ahead)),
    )
    try {
      this.#native.call((buffer) => buffer.restore(whole))
    } finally {
      whole.free()
    }
  }

  /**
   * Writes the buffer as a folder in a form of TorchRL's: rows, sampler, writer, and what it takes to draw the same rows again. It is
   * there whole or not at all. Natively only; transforms are the caller's.
   * @throws {FulmarError} `IO` if something stands at `path` or the system refuses; with the leaf, what the form cannot hold;
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
    const { shareReplayBuffer } = threads()
    const { kind } = this.constructor as typeof ReplayBuffer
    const own = isSourceStorage(this.storage)
      ? 'its storage'
      : isSourceSampler(this.#sampler)
        ? 'its sampler'
        : this.#hasOwnWriter && 'its writer'
    if (own || !kind) {
      const got = own || `${this.constructor.name}, which keeps something`
      throw new FulmarError('INCOMPATIBLE', `a shared buffer must keep nothing in JavaScript: got ${got}`)
    }
    const id = this.#native.call((buffer) => shareReplayBuffer(buffer, crypto.randomUUID()))
    const batchSize = this.#batchSize !== undefined && { batchSize: this.#batchSize }
    return { kind, id, sampler: samplerOptions(this.#sampler) as { kind: string }, ...batchSize }
  }

  /**
   * Another handle to the buffer that {@link ReplayBuffer.share} gave the token of, in any thread of its process. Each class has its own.
   * @throws {FulmarError} `INCOMPATIBLE` if it is of another class; `CLOSED` if no handle to it is open any more, or it is of another
   *   process; `UNAVAILABLE` in WebAssembly.
   */
  static attach(token: ReplayBufferToken, options: AttachOptions = {}): ReplayBuffer {
    return attachBuffer(ReplayBuffer, token, options)
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }

  /** Writes what transforms make of items. @internal */
  protected writeThrough(items: TensorDict, prioritized: boolean): number[] {
    checkDict(items)
    const written = this.#inverted(items)
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

  #transformed(batch: RawReplayBatch): ReplayBatch {
    try {
      this.drawn(batch)
      const items = dictAround(() => call(() => batch.items()))
      const info = dictAround(() => call(() => batch.info()))
      return { items: this.#forward(items), index: [...call(() => batch.rows())], info }
    } finally {
      batch.free()
    }
  }

  #forward(batch: TensorDict): TensorDict {
    return this.#transforms.reduce((items, transform, place) => {
      return checkedItems(transform.forward?.(items) ?? items, 'forward', place)
    }, batch)
  }

  /** Has the batch copied, and those drawn ahead, by threads that have nothing else to do where there are some. */
  async #copied(pending: RawPendingBatch): Promise<void> {
    const { copyAhead, copyBatch } = raw
    if (!copyAhead || !copyBatch || isSourceStorage(this.storage)) return
    // The caller of a batch gets the error.
    void this.#native.callAsync((buffer) => copyAhead(buffer)).catch(() => {})
    if (!call(() => pending.isReady())) await callAsync(() => copyBatch(pending))
  }

  /** Applies the first `count` transforms to written items; all of them by default. */
  #inverted(items: TensorDict, count = this.#transforms.length): TensorDict | undefined {
    let written: TensorDict | undefined = items
    for (let place = count - 1; place >= 0; place--) {
      const transform = this.#transforms[place]
      if (!written || !transform?.inverse) continue
      written = transform.inverse(written)
      if (written !== undefined) checkedItems(written, 'inverse', place)
    }
    return written
  }
}

/** Checks the result of a transform. @throws {FulmarError} `USER_CODE` if it is not a dictionary. */
function checkedItems(given: TensorDict, method: string, place: number): TensorDict {
  if (given instanceof TensorDict) return given
  const detail = `what ${method} of transform ${place} gives must be a TensorDict: got ${describeValue(given)}`
  throw new FulmarError('USER_CODE', detail)
}

/** A handle of the class to the buffer of a token. */
export function attachBuffer<B extends ReplayBuffer>(
  buffers: { readonly prototype: B; readonly kind: string | undefined },
  token: ReplayBufferToken,
  options: AttachOptions,
): B {
  checkKnownKeys('options', options, ['transforms'])
  checkKnownKeys('token', token, ['kind', 'id', 'sampler', 'batchSize'])
  const { attachReplayBuffer } = threads()
  const { kind, id, sampler, ...rest } = token
  if (kind !== buffers.kind) {
    throw new FulmarError('INCOMPATIBLE', `token must be of a ${buffers.kind}: got that of a ${kind}`)
  }
  const native = call(() => attachReplayBuffer(String(id)))
  const storage = storageAround(() => native.storage())
  const given = { ...rest, ...options, storage, sampler: samplerAround(sampler) }
  attached.set(given, native)
  // Its own constructor would make a buffer; it adds nothing else.
  return Reflect.construct(ReplayBuffer, [given], Object(buffers)) as B
}

/** Returns the functions that only the addon has. @throws {FulmarError} `UNAVAILABLE` in WebAssembly. */
function threads(): Pick<RawReplayThreads, 'shareReplayBuffer' | 'attachReplayBuffer'> {
  const { shareReplayBuffer, attachReplayBuffer } = raw
  if (shareReplayBuffer && attachReplayBuffer) return { shareReplayBuffer, attachReplayBuffer }
  throw new FulmarError('UNAVAILABLE', 'buffers must be shared between threads natively: got WebAssembly')
}

/** Calls `body` with the raw buffer. */
export function withRawBuffer<R>(buffer: ReplayBuffer, body: (raw: RawReplayBuffer) => R): R {
  return unwrap(buffer).call(body)
}
