/** Rows that a crash does not lose. */

import { call, checkKnownKeys, Handle } from '../core/index.js'
import type { RawDurableStorage } from '../native/index.js'
import { indices } from '../tensor/tensor.js'
import { replayDisk } from './checkpointer.js'
import { Storage } from './storage.js'

/** Options of {@link DurableStorage}. */
export interface DurableStorageOptions {
  /**
   * When rows reach the disk for good. `'sync'`: before a write to a buffer returns, so they survive a loss of power. A number: when
   * {@link DurableStorage.tick} finds them waiting for so many milliseconds. `'none'`: when files are full or the storage is
   * closed; rows survive a crash of the process alone. @default 'sync'
   */
  readonly durability?: 'sync' | 'none' | number
  /** The length of each file of rows, in bytes; a store that is there keeps its own. @default 64 MiB */
  readonly segmentBytes?: number
}

/** Figures of a {@link DurableStorage}. */
export interface DurableStorageStats {
  /** Rows in the ring, damaged ones among them. */
  readonly numRows: number
  /**
   * Rows that were found lost to damaged files when the folder was opened; reading them is an error. Of rows older than the newest
   * 64 MiB, {@link DurableStorage.damagedRows} alone finds damaged records.
   */
  readonly numDamagedRows: number
  /** Damaged stretches of the files, found when the folder was opened; 0 after a crash alone. */
  readonly numGaps: number
  /** Bytes of the rows. */
  readonly rowBytes: number
  /** Bytes of all files. */
  readonly logBytes: number
  /** Changes that wait in memory. */
  readonly numPending: number
  /** Times that the disk was asked to make something durable. */
  readonly numSyncs: number
}

/**
 * Rows in a folder that survive a crash: every acknowledged write of a buffer is there after reopening, and
 * the buffer's ring continues at its position. Only one process may open it. Native only.
 *
 * @throws {FulmarError} `INCOMPATIBLE` if it is open already or was made for another capacity; `CORRUPT` if it is no store, or
 *   one whose superblocks are both damaged; `IO`, with figures, if the disk is full; `UNAVAILABLE` in WebAssembly; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts no-run
 * import { Tensor, TensorDict } from 'fulmar'
 * import { DurableStorage, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new DurableStorage('experience', 10_000) })
 * buffer.extend(TensorDict.from({ reward: Tensor.from([1, 2]) }, { batchSize: [2] })) // on disk now
 * assert.ok(buffer.length >= 2)
 * ```
 */
export class DurableStorage extends Storage {
  readonly #durable: Handle<RawDurableStorage>

  constructor(path: string, maxSize: number, options: DurableStorageOptions = {}) {
    checkKnownKeys('options', options, ['durability', 'segmentBytes'])
    const { durability = 'sync', segmentBytes } = options
    const interval = durability === 'sync' ? 0 : durability === 'none' ? undefined : durability
    const durable = call(() =>
      replayDisk().DurableStorage.open(path, indices([maxSize]), interval, segmentBytes),
    )
    super(() => durable.storage())
    this.#durable = new Handle('DurableStorage', () => durable)
  }

  /** Figures, for a log. */
  get stats(): DurableStorageStats {
    return JSON.parse(this.#durable.call((durable) => durable.stats())) as DurableStorageStats
  }

  /** Makes pending writes durable, according to `durability`. @throws {FulmarError} `IO` if the disk refuses; then nothing is written until it is opened again. */
  commit(): void {
    this.#durable.call((durable) => durable.commit())
  }

  /** Reports the current time, in milliseconds of a monotonic clock, and makes writes durable that are due. @throws {FulmarError} As {@link DurableStorage.commit}. */
  tick(nowMs: number): void {
    this.#durable.call((durable) => durable.tick(nowMs))
  }

  /**
   * Makes everything durable, whatever the value of `durability`, and records where the rows end, so that damage to any of them is noticed
   * even after a failure of power. Done too when the storage is disposed of and no buffer uses it.
   *
   * @throws {FulmarError} As {@link DurableStorage.commit}.
   */
  sync(): void {
    this.#durable.call((durable) => durable.sync())
  }

  /**
   * The rows that are lost to damaged files, in order: reading one of them is an error, writing it makes it whole. Reads all rows. A
   * new array, empty if the files are whole.
   *
   * @throws {FulmarError} `IO` if the disk refuses.
   */
  damagedRows(): number[] {
    return Array.from(this.#durable.call((durable) => durable.damagedRows()))
  }

  /** Gives the native memory back, and the folder once no buffer uses it. */
  override [Symbol.dispose](): void {
    this.#durable.free()
    super[Symbol.dispose]()
  }
}
