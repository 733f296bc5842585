/** Several buffers that are sampled as one, and a fixed buffer combined with a growing one. */

import { call, checkGiven, checkKnownKeys, FulmarError, Handle } from '../core/index.js'
import { type RawReplayBufferEnsemble, raw } from '../native/index.js'
import { type BatchIndex, indexJson } from '../tensor/batch-index.js'
import { dictAround, pathOf, TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'
import { checkpointerJson, replayDisk, type StorageEnsembleCheckpointer } from './checkpointer.js'
import { buffersOf, type EnsembleParts } from './ensemble-parts.js'
import { type ReplayBuffer, settleBuffer, withRawBuffer } from './replay-buffer.js'
import type { ReplayBatch } from './replay-buffer-options.js'

/** Options of {@link ReplayBufferEnsemble}. */
export interface ReplayBufferEnsembleOptions {
  /** Rows of a batch where none are asked for, over all buffers. @default none */
  readonly batchSize?: number
  /** Fixes which buffers are drawn. @default 0 */
  readonly seed?: number
  /** Relative probability of each buffer. @default uniform */
  readonly p?: readonly number[]
  /** If true, a batch takes from every buffer, in order. @default false */
  readonly sampleFromAll?: boolean
  /** Number of buffers of a batch, drawn with replacement. @default all */
  readonly numBufferSampled?: number
  /** Key of the buffer's number in an item, an integer. @default items cannot be written */
  readonly routingKey?: TensorKey
  /** The batch dimension whose elements go to one buffer each. @default items cannot be written */
  readonly routingDim?: number
}

/** Position of an item of an ensemble; a row of -1 was not kept. */
export interface EnsembleRow {
  readonly buffer: number
  readonly row: number
}

/** A batch of an ensemble, with the part of each buffer. */
export interface EnsembleBatch {
  /** `[buffers drawn, rows of each]`. */
  readonly items: TensorDict
  /** Index of the buffer of each part. */
  readonly bufferIds: readonly number[]
  /** Rows and info of each part, before their transforms. */
  readonly parts: readonly Pick<ReplayBatch, 'index' | 'info'>[]
}

const DRAWN = ['p', 'sampleFromAll', 'numBufferSampled'] as const

const OPTIONS = [
  'batchSize',
  'seed',
  'p',
  'sampleFromAll',
  'numBufferSampled',
  'routingKey',
  'routingDim',
] as const

/**
 * Draws from several buffers, each with its own sampler. Transforms of the buffers apply to their own writes
 * and reads, not to batches of the ensemble.
 * @throws {FulmarError} `EMPTY` without buffers; `SHAPE_MISMATCH` or `OUT_OF_RANGE` for invalid
 * probabilities; `INCOMPATIBLE` for probabilities with `sampleFromAll`, or if both options and samplers are
 * given for the choice of buffers; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, ReplayBufferEnsemble } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffers = [0, 1].map((id) => {
 *   const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10) })
 *   buffer.extend(TensorDict.from({ id: Tensor.from([id]) }, { batchSize: [1] }))
 *   return buffer
 * })
 * const ensemble = new ReplayBufferEnsemble(buffers, { sampleFromAll: true })
 * const batch = ensemble.sample(4)
 * assert.deepEqual(batch.batchSize, [2, 2])
 * assert.deepEqual(batch.tensor('id').data, Float32Array.of(0, 0, 1, 1))
 * ```
 */
export class ReplayBufferEnsemble {
  readonly #native: Handle<RawReplayBufferEnsemble>
  /** The buffers. */
  readonly buffers: readonly ReplayBuffer[]

  /** An ensemble of buffers, or of buffers with the given parts, whose `samplers` choose the buffers of a batch. */
  constructor(
    buffersOrParts: readonly ReplayBuffer[] | EnsembleParts,
    options: ReplayBufferEnsembleOptions = {},
  ) {
    checkKnownKeys('options', options, OPTIONS)
    const { routingKey, routingDim, ...given } = options
    const { buffers, drawn } = isParts(buffersOrParts)
      ? buffersOf(buffersOrParts, options.seed ?? 0)
      : { buffers: buffersOrParts, drawn: {} }
    const twice = isParts(buffersOrParts) && DRAWN.find((name) => given[name] !== undefined)
    if (twice) {
      throw new FulmarError(
        'INCOMPATIBLE',
        `${twice} must be given to the samplers of an ensemble: got it in its options`,
      )
    }
    const rest = { ...given, ...drawn }
    if (routingKey !== undefined && routingDim !== undefined) {
      throw new FulmarError('INCOMPATIBLE', 'routing must be by a key or a dimension: got both')
    }
    const routing =
      routingKey !== undefined
        ? { key: pathOf(routingKey) }
        : routingDim !== undefined
          ? { dim: routingDim }
          : undefined
    const core = JSON.stringify({ ...rest, routing })
    this.#native = new Handle('ReplayBufferEnsemble', () => {
      const list = raw.ReplayBufferList.empty()
      try {
        for (const buffer of buffers) withRawBuffer(buffer, (one) => list.push(one))
        return list.ensemble(core)
      } finally {
        list.free()
      }
    })
    this.buffers = [...buffers]
    this.#native.precede(() => {
      for (const buffer of this.buffers) settleBuffer(buffer)
    })
  }

  /** Number of buffers. */
  get length(): number {
    return this.buffers.length
  }

  /**
   * Draws a batch of `count` rows in equal parts, `[buffers drawn, rows of each]`.
   * @throws {FulmarError} `OUT_OF_RANGE` if no size is given or the buffers drawn do not divide it; those of
   *   {@link ReplayBuffer.sample}; what keeps the parts from being one batch.
   */
  sample(count?: number): TensorDict {
    return this.sampleWithInfo(count).items
  }

  /** As {@link ReplayBufferEnsemble.sample}, with where each part comes from. */
  sampleWithInfo(count?: number): EnsembleBatch {
    const batch = this.#native.call((ensemble) => ensemble.sample(count))
    try {
      const bufferIds = [...call(() => batch.bufferIds())]
      const parts = bufferIds.map((_, at) => {
        const part = call(() => batch.part(at))
        const info = dictAround(() => part.info())
        const index = [...part.rows()]
        part.free()
        return { index, info }
      })
      return { items: dictAround(() => batch.items()), bufferIds, parts }
    } finally {
      batch.free()
    }
  }

  /** Returns the rows of every buffer at an index, stacked. */
  at(...index: BatchIndex[]): TensorDict {
    return dictAround(() => this.#native.call((ensemble) => ensemble.at(indexJson(index))))
  }

  /**
   * Writes each item to the buffer that it names.
   * @throws {FulmarError} `INCOMPATIBLE` if the ensemble has no routing; `OUT_OF_RANGE` if an item names no buffer; those of
   *   {@link ReplayBuffer.extend}. Buffers before the one that fails keep their items.
   */
  extend(items: TensorDict): EnsembleRow[] {
    const taken = this.#native.call((ensemble) => withRawDict(items, (dict) => ensemble.extend(dict)))
    return Array.from({ length: taken.length / 2 }, (_, at) => ({
      buffer: taken[2 * at] as number,
      row: taken[2 * at + 1] as number,
    }))
  }

  /**
   * Writes a folder at `path`, there whole or not at all: storages in the form of `checkpointer`, samplers and writers, in TorchRL's
   * layout, and what draws depend on besides. Native only.
   * @throws {FulmarError} The errors of `ReplayBuffer.dumps`, with the number of the storage.
   */
  dumps(path: string, checkpointer: StorageEnsembleCheckpointer): void {
    const member = checkpointerJson(checkpointer.member)
    const disk = replayDisk()
    this.#native.call((ensemble) => disk.dumpReplayBufferEnsemble(ensemble, path, member))
  }

  /**
   * Restores the ensemble from a folder, written by one of the same parts. Native only.
   * @throws {FulmarError} The errors of `ReplayBuffer.loads`, with the number of the storage; after an error every
   * buffer is unchanged.
   */
  loads(path: string, checkpointer: StorageEnsembleCheckpointer): void {
    const member = checkpointerJson(checkpointer.member)
    const disk = replayDisk()
    this.#native.call((ensemble) => disk.loadReplayBufferEnsemble(ensemble, path, member))
  }

  /** Gives the native memory back; the buffers live on. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

const isParts = (given: readonly ReplayBuffer[] | EnsembleParts): given is EnsembleParts =>
  !Array.isArray(given)

/** Options of {@link OfflineToOnlineReplayBuffer}. */
export interface OfflineToOnlineOptions {
  /** The part of a batch that is offline data, between 0 and 1. @default 0.5 */
  readonly offlineFraction?: number
}

/**
 * Batches of offline and online data in exact parts: the nearest whole number to the fraction is offline, first in the batch;
 * all of it while there are no online items.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if the fraction is not between 0 and 1; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, OfflineToOnlineReplayBuffer, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const [offline, online] = [0, 1].map(() => new ReplayBuffer({ storage: new LazyTensorStorage(10) }))
 * const both = new OfflineToOnlineReplayBuffer(offline, online, { offlineFraction: 0.25 })
 * offline.extend(TensorDict.from({ id: Tensor.from([7]) }, { batchSize: [1] }))
 * both.extend(TensorDict.from({ id: Tensor.from([8]) }, { batchSize: [1] }))
 * assert.deepEqual(both.sample(4).tensor('id').data, Float32Array.of(7, 8, 8, 8))
 * both.anneal(10, 10)
 * assert.deepEqual(both.sample(2).tensor('id').data, Float32Array.of(8, 8))
 * ```
 */
export class OfflineToOnlineReplayBuffer {
  readonly #initial: number
  #fraction: number
  readonly offline: ReplayBuffer
  readonly online: ReplayBuffer

  constructor(offline: ReplayBuffer, online: ReplayBuffer, options: OfflineToOnlineOptions = {}) {
    checkKnownKeys('options', options, ['offlineFraction'])
    const { offlineFraction = 0.5 } = options
    if (!(offlineFraction > 0 && offlineFraction < 1)) {
      throw new FulmarError('OUT_OF_RANGE', `offlineFraction must be between 0 and 1: got ${offlineFraction}`)
    }
    this.#initial = offlineFraction
    this.#fraction = offlineFraction
    this.offline = offline
    this.online = online
  }

  /** The part of a batch that is offline data now. */
  get offlineFraction(): number {
    return this.#fraction
  }

  /** Writes online items; their rows. @throws {FulmarError} The errors of {@link ReplayBuffer.extend}. */
  extend(items: TensorDict): number[] {
    return this.online.extend(items)
  }

  /** Draws a batch. @throws {FulmarError} The errors of {@link ReplayBuffer.sample}; what keeps the parts from being one batch. */
  sample(count: number): TensorDict {
    const numOffline =
      this.online.length === 0 ? count : Math.min(Math.floor(this.#fraction * count + 0.5), count)
    if (numOffline === count) return this.offline.sample(count)
    if (numOffline === 0) return this.online.sample(count)
    return TensorDict.cat([this.offline.sample(numOffline), this.online.sample(count - numOffline)])
  }

  /** Shrinks the offline part in proportion, to none at `step === total`. @throws {FulmarError} `OUT_OF_RANGE` if `total` is not above 0. */
  anneal(step: number, total: number): void {
    if (!(total > 0)) throw new FulmarError('OUT_OF_RANGE', `total must be above 0: got ${total}`)
    this.#fraction = this.#initial * Math.max(0, 1 - step / total)
  }
}

/**
 * Writes the first `count` items of `source`, all without it, to `buffer`, each once and in order, some at a time.
 * @throws {FulmarError} `OUT_OF_RANGE` if there are fewer or a chunk holds none; those of {@link ReplayBuffer.extend}.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, prefillReplayBuffer, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const [source, buffer] = [0, 1].map(() => new ReplayBuffer({ storage: new LazyTensorStorage(10) }))
 * source.extend(TensorDict.from({ id: Tensor.from([7, 8, 9]) }, { batchSize: [3] }))
 * prefillReplayBuffer(buffer, source, { count: 2 })
 * assert.equal(buffer.length, 2)
 * ```
 */
export function prefillReplayBuffer(
  buffer: ReplayBuffer,
  source: ReplayBuffer,
  options: { readonly count?: number; readonly chunkSize?: number } = {},
): void {
  checkKnownKeys('options', options, ['count', 'chunkSize'])
  checkGiven('buffer', buffer)
  const { count = source.storage.length, chunkSize = 1000 } = options
  if (!(count <= source.storage.length)) {
    throw new FulmarError('OUT_OF_RANGE', `count must be at most ${source.storage.length}: got ${count}`)
  }
  if (!(chunkSize >= 1)) throw new FulmarError('OUT_OF_RANGE', `chunkSize must be >= 1: got ${chunkSize}`)
  for (let start = 0; start < count; start += chunkSize) {
    buffer.extend(source.at({ start, stop: Math.min(start + chunkSize, count) }))
  }
}
