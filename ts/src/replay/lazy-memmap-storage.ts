/** Rows in memory-mapped files that processes share. */

import { call, checkKnownKeys, Handle, type OnDevice, placeOnCpu } from '../core/index.js'
import type { RawLazyMemmapStorage } from '../native/index.js'
import { indices } from '../tensor/tensor.js'
import { replayDisk } from './checkpointer.js'
import { Storage, shapeOf } from './storage.js'

/** Options of {@link LazyMemmapStorage}. */
export interface LazyMemmapStorageOptions extends OnDevice {
  /** The folder of the files. @default one of its own among the system's temporary ones */
  readonly scratchDir?: string
  /** If true, an existing storage in the folder is replaced by an empty one. @default false */
  readonly existsOk?: boolean
  /**
   * If true, joins a storage in the folder, or one that another process creates first, and shares its rows.
   * @default false
   */
  readonly sharedInit?: boolean
  /**
   * If true, removes the folder with the storage, or at the end of the process.
   * @default true only for a temporary folder
   */
  readonly autoCleanup?: boolean
  /** Lanes that are written together, as those of a `LazyTensorStorage`. @default none */
  readonly lanes?: readonly number[]
  /** The most bytes that rows may take. @default 256 GiB */
  readonly bytesMax?: number
}

const OPTIONS = [
  'scratchDir',
  'existsOk',
  'sharedInit',
  'autoCleanup',
  'lanes',
  'bytesMax',
  'device',
] as const

/**
 * One memory-mapped file for each leaf, as tensordict has them: `TensorDict.load_memmap` reads the folder. The files are made at the
 * first write, after whose leaves, dtypes and shapes all later items are, and their space is taken then; leaves must be dense.
 *
 * Several processes may each have a storage over one folder, with `sharedInit`. They go round one ring, and their buffers, whose
 * samplers are their own, learn what the others wrote before they draw or write. A row is never read half written. A process that dies
 * in the middle of a write loses only what it had not written. Rows outlive processes; those of a `DurableStorage` outlive the machine.
 * Natively only.
 *
 * @throws {FulmarError} `INCOMPATIBLE`, naming `existsOk`, if there is a storage in the folder that is neither to be joined nor
 *   replaced, if a joined one has another shape, or, with the leaf, if one is not dense; `CORRUPT`, with the file, if one is damaged;
 *   `IO`, with figures, if the disk is full; `LIMIT_EXCEEDED` above `bytesMax`, or for more than 32 writing processes; `CLOSED` if the
 *   folder was cleaned up or given to another storage; `UNAVAILABLE` in WebAssembly; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts no-run
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyMemmapStorage, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * // The same lines in each process.
 * const storage = new LazyMemmapStorage(10_000, { scratchDir: 'experience', sharedInit: true })
 * const buffer = new ReplayBuffer({ storage, batchSize: 4 })
 * buffer.extend(TensorDict.from({ reward: Tensor.from([1, 2]) }, { batchSize: [2] }))
 * assert.deepEqual(buffer.sample().tensor('reward').shape, [4])
 * ```
 */
export class LazyMemmapStorage extends Storage {
  readonly #mapped: Handle<RawLazyMemmapStorage>
  /** The folder of the files. */
  readonly path: string

  constructor(maxSize: number, options: LazyMemmapStorageOptions = {}) {
    checkKnownKeys('options', options, OPTIONS)
    const { lanes = [], ...rest } = options
    const shape = indices(shapeOf(maxSize, lanes))
    const device = placeOnCpu(rest.device)
    const mapped = call(() => replayDisk().LazyMemmapStorage.open(shape, JSON.stringify({ ...rest, device })))
    super(() => mapped.storage())
    this.#mapped = new Handle('LazyMemmapStorage', () => mapped)
    this.path = this.#mapped.call((raw) => raw.path())
  }

  /**
   * Removes the folder with all that is in it; whether it was there. The storage is of no use afterwards.
   * @throws {FulmarError} `IO` if the system refuses.
   */
  cleanup(): boolean {
    return this.#mapped.call((mapped) => mapped.cleanup())
  }

  /** Gives the native memory back, once no buffer uses it; a temporary folder goes then. */
  override [Symbol.dispose](): void {
    this.#mapped.free()
    super[Symbol.dispose]()
  }
}
